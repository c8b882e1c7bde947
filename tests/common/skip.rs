//! What to do without libfabric.
#![allow(dead_code, unused_imports, reason = "not every test program uses both")]

#[path = "skipped.rs"]
mod skipped;

pub(crate) use skipped::skipped;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};

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
