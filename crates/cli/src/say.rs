//! What the launcher itself says, and what its commands print.

use std::io::{self, ErrorKind, Write as _};

/// Writes a message to stderr, as one write, so that lines of ranks do not cut it. If nobody reads stderr, the message is
/// dropped, where `eprintln!` would panic.
pub(super) fn say(what: std::fmt::Arguments<'_>) {
    let line = format!("tidegate: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
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
