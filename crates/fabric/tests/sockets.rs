//! The contract of NICs, of the triggered engine over sockets. (In a process of its own: libraries that libfabric loads
//! take signals that the fake card's registers need.)

mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use rig::Rig;
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
            Ok(wire) => test(&Rig::new(wire, options.clone(), true)),
            Err(error) => return skip::skipped("the contract over sockets", &error.to_string()),
        }
    }
}

rig::contract!(each);

/// What happens after 2^30 firings happens here after 20: this provider's counters are set to 0 while it looks at them.
#[test]
fn counters_that_come_far_begin_anew() {
    let options = Options::default();
    with(
        |choice| choice.counts(20),
        &options,
        rig::many_are_armed_at_a_time,
    );
}
