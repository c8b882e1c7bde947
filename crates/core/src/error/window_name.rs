//! A window in words.

use std::fmt;
use std::sync::Arc;

use tidegate_hal::ids::WindowId;

/// A window (or a barrier, or an all-reduce), by its name and by its id. The name is the program's, and may be taken again
/// when the window is gone; the id is no other window's, and the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowName {
    /// The name.
    pub name: Arc<str>,
    /// The id.
    pub id: WindowId,
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.id)
    }
}
