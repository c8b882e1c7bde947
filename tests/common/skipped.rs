//! What a test does if the machine lacks something. All packages share this file.
#![allow(dead_code, reason = "each program uses a part")]

/// Whether this is a run of continuous integration, where nothing may be skipped: `CI` is set, not empty, and not `false`.
pub(crate) fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false")
}

/// Skips a test: prints that, and notes it in the file that `TIDEGATE_SKIPS` names. Fails if nothing may be skipped.
pub(crate) fn skipped(test: &str, why: &str) {
    assert!(!is_ci(), "{test}: {why}, and CI is set");
    eprintln!("{test}: skipped, because {why}");
    if let Some(path) = std::env::var_os("TIDEGATE_SKIPS") {
        use std::io::Write as _;
        let mut skips = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("the list of skipped tests");
        writeln!(skips, "{test}: {why}").expect("the list of skipped tests");
    }
}
