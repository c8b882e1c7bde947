//! The name of a window in messages.

use std::fmt;
use std::sync::Arc;

use tidegate_hal::ids::WindowId;

/// The name and the id of a window or a collective. The program chooses the name, and may use it again when the window
/// is gone. If a team has opened the window, the name begins with that of the team: `rows/halo`. While the team exists,
/// no other window has the same id. The id is the same on all ranks.
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
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WindowName {
    /// What the program calls the window.
    pub name: Arc<str>,
    /// The window's team, and the number that all ranks of the team give the window.
    pub id: WindowId,
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.id)
    }
}
