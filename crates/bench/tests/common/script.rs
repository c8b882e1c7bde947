//! Programs for tests that are shell scripts.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a program of a shell script. Another process writes the file: if this one did, a process that any of its threads
/// starts meanwhile would inherit the open file, and the kernel refuses to execute a file that is open for writing.
pub(crate) fn program(path: &Path, script: &str) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat >\"$0\" && chmod +x \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut pipe = writer.stdin.take().expect("it is piped");
    write!(pipe, "#!/bin/sh\n{script}\n").expect("it is read");
    drop(pipe);
    assert!(writer.wait().expect("it ends").success(), "{path:?}");
}
