//! The two halves of a window, by name.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Awaited;

/// A half of a window. Its number is its index in lists with an entry for each half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Inbox,
    Outbox,
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Inbox, Side::Outbox];

    /// The half of the peer that does what is awaited.
    pub(crate) fn of(awaited: Awaited) -> Option<Side> {
        match awaited {
            Awaited::Exposure => Some(Side::Inbox),
            Awaited::Completion => Some(Side::Outbox),
            _ => None,
        }
    }

    /// The name that users know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Inbox => "inbox",
            Side::Outbox => "outbox",
        }
    }

    pub(crate) fn other(self) -> Side {
        match self {
            Side::Inbox => Side::Outbox,
            Side::Outbox => Side::Inbox,
        }
    }
}
