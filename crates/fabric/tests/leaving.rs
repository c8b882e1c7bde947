//! A consumer that is an epoch behind a producer, which has left in good order: over real providers.

#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::time::{Duration, Instant};

use tidegate_core::window::{Slot, Window};
use tidegate_core::{Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_host::Host;

const EPOCHS: u64 = 4;

/// Rank 1 produces and leaves; rank 0 consumes the last epoch some time after that, and leaves, too. How long that takes
/// it. (There are two buffers: its last post is for an epoch that nobody starts.)
fn run(world: World<Host>) -> Result<Duration> {
    let last;
    {
        stream!(let s = world.stream()?);
        let window = Window::<u64, _>::by_slot("products").fail_after(Duration::from_secs(60));
        let window = match world.rank() {
            0 => window.slot_from(1, 0, 8),
            _ => window.slot_to(0, 0),
        };
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut begun = Instant::now();
        for epoch in 0..EPOCHS {
            if world.rank() == 1 {
                let product = Region::from_slice(&world, &[epoch; 8])?.on(&s)?;
                let mut access = outbox.start();
                access.put(&product, Slot(0))?;
                outbox = access.complete(&s)?;
                continue;
            }
            if epoch + 1 == EPOCHS {
                // What it waits for has long come, and the producer is gone.
                s.synchronize()?;
                std::thread::sleep(Duration::from_millis(500));
                begun = Instant::now();
            }
            inbox = inbox.post(&s)?.wait(&s)?;
            assert_eq!(inbox.read(&s)?.slot(0), [epoch; 8]);
        }
        s.synchronize()?;
        last = begun;
    }
    drop(world);
    Ok(last.elapsed())
}

#[test]
fn a_consumer_does_not_wait_for_a_producer_that_has_left() {
    let software = skip::providers().into_iter();
    let all = software
        .map(|provider| (provider, EngineChoice::Software))
        .chain([("sockets", EngineChoice::Triggered)]);
    for (provider, engine) in all {
        let choice = Choice::at("127.0.0.1").provider(provider).engine(engine);
        if let Err(error) = FabricWire::open(&choice) {
            skip::skipped("leaving over libfabric", &error.to_string());
            continue;
        }
        let options = |_: usize| {
            let wire = FabricWire::open(&choice).unwrap();
            let nic = Fabric::over(wire, Options::default());
            WorldOptions::new().nic(nic).route(Route::Nic)
        };
        let times = World::<Host>::local_with(2, options, run);
        let took = *times[0].as_ref().unwrap();
        // As long as a wire may be silent, if it is waited for.
        assert!(
            took < Duration::from_secs(5),
            "{provider}, {engine:?}: {took:?}"
        );
    }
}
