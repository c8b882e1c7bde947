//! What the launcher itself says, and what its commands print.

use std::io::{self, ErrorKind, Write as _};

/// Writes a message to stderr. If nobody reads stderr, the message is dropped, where `eprintln!` would panic.
pub(super) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "tidegate: {what}");
}

/// Writes the output of a command to stdout. Says why it cannot, unless its reader has gone: one such as `head` wants no
/// more. Returns whether all of it was written.
pub(super) fn print(text: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    if let Err(error) = &written
        && error.kind() != ErrorKind::BrokenPipe
    {
        say(format_args!("writing to standard output: {error}"));
    }
    written.is_ok()
}
