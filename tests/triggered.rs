//! The ring over the triggered engine: deferred works of libfabric, on the one provider without hardware that has them.

use tidegate::prelude::*;
use tidegate::{Buffers, Route, WorldOptions};
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};

#[path = "common/ring.rs"]
mod ring;

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

fn choice(signals: Signals) -> Choice {
    Choice::at("127.0.0.1")
        .provider("sockets")
        .engine(EngineChoice::Triggered)
        .signals(signals)
}

fn nic(choice: &Choice, options: Options) -> WorldOptions {
    WorldOptions::new()
        .nic(Fabric::over(FabricWire::open(choice).unwrap(), options))
        .route(Route::Nic)
}

#[test]
fn rings() {
    for signals in [Signals::Notice, Signals::Add] {
        let choice = choice(signals);
        for (n, budget) in [(1, 4096), (2, 4096), (3, 4096), (3, 1), (2, 5)] {
            for buffers in BUFFERS {
                let nic = |_| nic(&choice, Options::default().budget(budget));
                let start = std::time::Instant::now();
                for result in World::local_with(n, nic, |world| ring::run(world, buffers, 20)) {
                    result.unwrap();
                }
                eprintln!("{signals:?} {n} {budget} {buffers:?} {:?}", start.elapsed());
            }
        }
    }
}
