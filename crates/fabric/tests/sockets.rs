//! The contract of NICs, of the triggered engine over sockets. (In a process of its own: libraries that libfabric loads take signals that the fake card's registers need.)

mod rig;
#[path = "rig/skip.rs"]
mod skip;

use rig::Rig;
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};

fn each(options: &Options, test: impl Fn(&Rig)) {
    for signals in [Signals::Notice, Signals::Add] {
        let choice = Choice::at("127.0.0.1")
            .provider("sockets")
            .engine(EngineChoice::Triggered)
            .signals(signals);
        match FabricWire::open(&choice) {
            Ok(wire) => test(&Rig::new(wire, options.clone(), true)),
            Err(error) => return skip::skipped("the contract over sockets", &error.to_string()),
        }
    }
}

rig::contract!(each);
