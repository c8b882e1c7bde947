//! Messages between buses, among the messages of the control plane's users.

use serde::{Deserialize, Serialize};

/// A notification.
#[derive(Serialize, Deserialize)]
pub(super) enum Notice {
    /// For the subscriber.
    Other(Vec<u8>),
    /// The sender's bus cannot be used any more.
    Failed(String),
}

impl Notice {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data can be encoded")
    }
}
