//! The contract of NICs, tested with the triggered engine over sockets. This is a process of its own, because libraries
//! that libfabric loads handle signals which the fake card's registers need.

mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use rig::{Rig, SETTLES};
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};

fn each(options: &Options, test: impl Fn(&Rig)) {
    with(|choice| choice, options, test);
}

fn with(choose: impl Fn(Choice) -> Choice, options: &Options, test: impl Fn(&Rig)) {
    for signals in [Signals::Notice, Signals::Add] {
        let choice = Choice::at("127.0.0.1")
            .provider("sockets")
            .engine(EngineChoice::Triggered)
            .signals(signals);
        match FabricWire::open(&choose(choice)) {
            Ok(wire) => {
                let rig = Rig::new(wire, options.clone(), true);
                test(&rig);
                assert!(rig.nic.quiesce(SETTLES));
            }
            Err(error) => return skip::skipped("the contract over sockets", &error.to_string()),
        }
    }
}

rig::contract!(each);

/// Counters begin anew after 2^30 firings; here they do so after 20. They are set to 0 while this provider may be
/// reading them.
#[test]
fn counters_begin_anew_before_their_limit() {
    let options = Options::default();
    with(
        |choice| choice.counts(20),
        &options,
        rig::many_are_armed_at_a_time,
    );
}
