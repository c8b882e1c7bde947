//! The two halves of a window, by name.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Awaited;

/// A half of a window. Its number is its index in lists with an entry for each half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HalfKind {
    Inbox,
    Outbox,
}

impl HalfKind {
    pub(crate) const BOTH: [HalfKind; 2] = [HalfKind::Inbox, HalfKind::Outbox];

    /// The half of the peer that does what is awaited.
    pub(crate) fn of(awaited: Awaited) -> Option<HalfKind> {
        match awaited {
            Awaited::Exposure | Awaited::Read => Some(HalfKind::Inbox),
            Awaited::Completion => Some(HalfKind::Outbox),
            _ => None,
        }
    }

    /// The name that users know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HalfKind::Inbox => "inbox",
            HalfKind::Outbox => "outbox",
        }
    }

    pub(crate) fn other(self) -> HalfKind {
        match self {
            HalfKind::Inbox => HalfKind::Outbox,
            HalfKind::Outbox => HalfKind::Inbox,
        }
    }
}
