//! What buses tell each other, between what users of the control plane tell.

use serde::{Deserialize, Serialize};

/// What is notified.
#[derive(Serialize, Deserialize)]
pub(super) enum Notice {
    /// For whoever has subscribed.
    Other(Vec<u8>),
    /// The sender's bus carries nothing any more.
    Failed(String),
}

impl Notice {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data can be encoded")
    }
}
