//! The triggered engine over sockets, the only provider without hardware that has deferred works.

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};

use crate::common::{ring, skip};

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

fn sockets() -> Choice {
    Choice::at("127.0.0.1")
        .provider("sockets")
        .engine(EngineChoice::Triggered)
}

fn world(wire: FabricWire, options: Options) -> WorldOptions {
    WorldOptions::new()
        .nic(Fabric::over(wire, options))
        .route(Route::Nic)
}

#[test]
fn rings_over_sockets() {
    let test = "rings_over_sockets";
    for signals in [Signals::Notice, Signals::Add] {
        let choice = sockets().signals(signals);
        if !skip::provided(test, "sockets") {
            return;
        }
        let wire = FabricWire::open(&choice).unwrap();
        assert_eq!(
            (wire.provider(), wire.triggered()),
            ("sockets", Some(signals))
        );
        drop(wire);
        for (n, budget, buffers) in [
            (1, 4096, BUFFERS[0]),
            (2, 4096, BUFFERS[1]),
            (3, 1, BUFFERS[0]),
            (3, 5, BUFFERS[1]),
        ] {
            let nic = |_| {
                let wire = FabricWire::open(&choice).unwrap();
                world(wire, Options::default().budget(budget))
            };
            for result in World::local_with(n, nic, |world| ring::run(world, buffers, 10)) {
                result.unwrap();
            }
        }
    }
}
