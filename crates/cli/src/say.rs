//! What the launcher itself says.

use std::io::Write as _;

/// Says something to whoever started the job. Where nobody reads it `eprintln!` would panic: then nothing is said.
pub(super) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "tidegate: {what}");
}
