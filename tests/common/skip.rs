//! What to do without libfabric.
#![allow(dead_code, reason = "not every test program uses both")]

use tidegate_fabric::wire::libfabric::{Choice, FabricWire};

/// Skips a test where there is no libfabric; fails on CI.
pub(crate) fn skipped(test: &str, why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!ci, "{test}: {why}, and CI is set");
    eprintln!("{test}: SKIPPED: {why}");
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

/// Whether there is such a provider; if not, the test is skipped.
pub(crate) fn provided(test: &str, provider: &str) -> bool {
    match FabricWire::open(&Choice::at("127.0.0.1").provider(provider)) {
        Ok(wire) => {
            assert_eq!(wire.provider(), provider);
            true
        }
        Err(error) => {
            skipped(test, &error.to_string());
            false
        }
    }
}
