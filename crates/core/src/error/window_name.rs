//! A window in words.

use std::fmt;
use std::sync::Arc;

use tidegate_hal::ids::WindowId;

/// A window (or a barrier, or an all-reduce), by its name and by its id. The name is the program's, and may be taken again
/// when the window is gone; the id is no other window's, and the same on all ranks.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::WindowName;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// drop(outbox.start()); // revokes the window
/// let Err(Error::Revoked { window, .. }) = inbox.post(s) else { panic!("it is revoked") };
/// let WindowName { name, id } = window;
/// assert_eq!(&*name, "slots");
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowName {
    /// What the program calls the window.
    pub name: Arc<str>,
    /// Its team, and the number that all ranks of the team give it.
    pub id: WindowId,
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.id)
    }
}
