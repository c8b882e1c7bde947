//! What tests do if libfabric is missing.
#![allow(dead_code, unused_imports, reason = "not every test program uses both")]

use std::sync::LazyLock;

#[path = "skipped.rs"]
mod skipped;

pub(crate) use skipped::skipped;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};

/// libfabric's provider for TCP: `tcp;ofi_rxm`, which all versions have, or the one in the environment (`tcp` from 1.18
/// on).
pub(crate) fn tcp() -> &'static str {
    static NAME: LazyLock<String> =
        LazyLock::new(|| std::env::var("TEST_TCP").unwrap_or("tcp;ofi_rxm".into()));
    &NAME
}

/// The providers that every machine has.
pub(crate) fn providers() -> [&'static str; 2] {
    [tcp(), "sockets"]
}

/// Whether this provider exists; if not, the test is skipped.
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
