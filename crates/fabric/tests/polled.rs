//! The contract of NICs where nobody rings a bell: an agent polls the doorbells, and peers write to an endpoint of
//! their own, where there can be two.

mod rig;

use rig::Rig;
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::wire::memory::{Faults, Net};

#[path = "../../../tests/common/skip.rs"]
mod skip;

fn each(options: &Options, test: impl Fn(&Rig)) {
    let net = Net::new(1, Faults::default());
    test(&Rig::polled(net.wire(0), options.clone()));
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let choice = Choice::at("127.0.0.1")
            .provider(provider)
            .engine(EngineChoice::Software);
        match FabricWire::open(&choice) {
            Ok(wire) => test(&Rig::polled(wire, options.clone())),
            Err(error) => skip::skipped("the contract of polled endpoints", &error.to_string()),
        }
    }
}

rig::contract!(each);
