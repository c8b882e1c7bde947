//! Messages of the launcher itself.

use std::io::Write as _;

/// Writes a message to stderr. If nobody reads stderr, the message is dropped, where `eprintln!` would panic.
pub(super) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "tidegate: {what}");
}
