//! The contract of NICs, of the triggered engine over sockets. (In a process of its own: libraries that libfabric loads take signals that the fake card's registers need.)

mod rig;

use rig::Rig;
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};

/// Skips a test where there is no libfabric; fails on CI.
fn skipped(why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!ci, "the contract over sockets: {why}, and CI is set");
    eprintln!("the contract over sockets: SKIPPED: {why}");
    if let Some(path) = std::env::var_os("TIDEGATE_SKIPS") {
        use std::io::Write as _;
        let mut skips = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("the list of skipped tests");
        writeln!(skips, "the contract over sockets: {why}").expect("the list of skipped tests");
    }
}

fn each(options: &Options, test: impl Fn(&Rig)) {
    for signals in [Signals::Notice, Signals::Add] {
        let choice = Choice::at("127.0.0.1")
            .provider("sockets")
            .engine(EngineChoice::Triggered)
            .signals(signals);
        match FabricWire::open(&choice) {
            Ok(wire) => test(&Rig::new(wire, options.clone(), true)),
            Err(error) => return skipped(&error.to_string()),
        }
    }
}

rig::contract!(each);
