//! What a test does that lacks something of the machine.

/// Skips a test; fails on CI.
pub(crate) fn skipped(test: &str, why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!ci, "{test}: {why}, and CI is set");
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
