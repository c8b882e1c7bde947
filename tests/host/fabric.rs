//! The ring over the software engine, on a wire in memory: without faults, and with them.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::{Chunks, Route, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, Net};

use crate::common::{ring, signals, skip};

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

fn nic(net: &Net, rank: usize, options: &Options) -> WorldOptions {
    WorldOptions::new()
        .nic(Fabric::over(net.wire(rank), options.clone()))
        .route(Route::Nic)
}

/// Not staged, staged, and staged in chunks of a few elements.
fn staged_so(world: WorldOptions, how: u32) -> WorldOptions {
    match how {
        0 => world,
        1 => world.staged(),
        _ => world.staged().chunks(Chunks::of(24)),
    }
}

fn run(n: usize, rounds: u64, options: &Options, faults: &Faults) {
    for (buffers, staged) in BUFFERS
        .into_iter()
        .flat_map(|each| [(each, 0), (each, 1), (each, 2)])
    {
        let net = Net::new(n, faults.clone());
        let options = |rank| staged_so(nic(&net, rank, options), staged);
        for result in World::local_with(n, options, |world| ring::run(world, buffers, rounds)) {
            result.unwrap();
        }
    }
}

#[test]
fn a_ring_over_the_wire() {
    for n in [1, 2, 3, 8] {
        run(n, 20, &Options::default(), &Faults::default());
    }
}

#[test]
fn any_order_and_any_delay_will_do() {
    for seed in 0..10 {
        let faults = Faults {
            seed,
            full: 300,
            delay: 20,
            ..Faults::default()
        };
        run(3, 10, &Options::default(), &faults);
        run(2, 10, &Options::default().budget(1), &faults);
    }
}

/// The same with one trigger slot for each rank. A waiting operation must not hold it.
#[test]
fn signals_without_data_and_barriers() {
    for seed in 0..3 {
        let faults = Faults {
            seed,
            full: 300,
            delay: 20,
            ..Faults::default()
        };
        for (n, budget) in [(2, 1), (3, 1), (4, 64)] {
            for staged in [0, 1] {
                let net = Net::new(n, faults.clone());
                let options = Options::default().budget(budget);
                let options = |rank| staged_so(nic(&net, rank, &options), staged);
                for result in World::local_with(n, options, |world: World| signals::run(&world)) {
                    result.unwrap();
                }
            }
        }
    }
}

/// A put of every second element is many pieces, and the signal comes after all of them.
#[test]
fn scattered_puts_arrive_before_their_signal() {
    fn fill(x: &mut [u64]) {
        x.iter_mut().for_each(|x| *x += 1);
    }
    fn check(inbox: Slots<'_, u64>, from: In<u64>, x: &[u64]) {
        let seen = inbox.slot(from);
        for (at, value) in seen.iter().enumerate() {
            let expected = if at % 2 == 0 { x[0] } else { 0 };
            assert_eq!(*value, expected, "element {at}");
        }
    }
    for seed in 0..20 {
        let faults = Faults {
            seed,
            delay: 10,
            ..Faults::default()
        };
        let net = Net::new(2, faults);
        let options = Options::default();
        World::local_with(
            2,
            |rank| nic(&net, rank, &options),
            |world: World| {
                let peer = 1 - world.rank();
                stream!(let s = world.stream().unwrap());
                let mut window = SlotWindow::<u64>::new("w");
                let from = window.slot_from(peer, 0, 33);
                let to = window.slot_to(peer, 0);
                let (mut inbox, mut outbox) = window.open(&s).unwrap();
                let mut x = Region::<u64, _>::zeroed(&world, 17)
                    .unwrap()
                    .on(&s)
                    .unwrap();
                let layout = Layout::strided(0, &[(17, 2)]).unwrap();
                for _ in 0..10 {
                    s.launch(fill, &mut x).unwrap();
                    let mut epoch = outbox.start();
                    epoch.put(&x, to.with(&layout)).unwrap();
                    (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                    s.launch(check, (inbox.view(), from, &x)).unwrap();
                }
                s.synchronize().unwrap();
                drop((inbox, outbox));
            },
        );
    }
}

/// A rank whose own wire breaks cannot tell its peers over it. The control plane tells them soon. A window that is
/// opened after that cannot be used.
#[test]
fn a_broken_wire_ends_the_waits_of_its_peers() {
    let net = Net::new(3, Faults::default());
    let options = Options::default();
    let errors = World::local_with(
        3,
        |rank| nic(&net, rank, &options),
        |world: World| {
            let others: Vec<_> = (0..3).filter(|rank| *rank != world.rank()).collect();
            let rounds = |name, breaks: bool| -> Result<()> {
                stream!(let s = world.stream()?);
                // There is no limit.
                let mut window = SlotWindow::<u64>::new(name);
                for rank in &others {
                    window.slot_from(*rank, 0, 9);
                    window.slot_to(*rank, 0);
                }
                let (mut inbox, mut outbox) = window.open(&s)?;
                let src = Region::<u64, _>::zeroed(&world, 9)?.on(&s)?;
                for round in 0.. {
                    if breaks && round == 10 {
                        net.break_wire(1);
                    }
                    let slots = outbox.slots();
                    let mut epoch = outbox.start();
                    for to in slots {
                        epoch.put(&src, to)?;
                    }
                    (inbox, outbox) = exchange(&s, inbox, epoch)?;
                    s.synchronize()?;
                }
                unreachable!("the wire breaks");
            };
            ["first", "second"].map(|name| {
                let breaks = name == "first" && world.rank() == 1;
                rounds(name, breaks).unwrap_err().to_string()
            })
        },
    );
    for (rank, errors) in errors.iter().enumerate() {
        for error in errors {
            assert!(
                error.contains("the NIC of rank 1 has failed"),
                "rank {rank}: {error}"
            );
        }
    }
}

/// The end of a rank's part.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Right,
    /// It ended with an expected error, with this text.
    Failed(String),
}

/// A job of two ranks, with faults that the seed chooses. The ranks check the data, and panic if it is wrong.
fn faulty(seed: u64) -> (Vec<End>, bool) {
    let often = |shift: u32| ((seed >> shift) % 4) as u32;
    let faults = Faults {
        seed,
        full: 100 * often(0),
        fail: [0, 0, 5, 40][often(2) as usize],
        lose: [0, 0, 5, 40][often(4) as usize],
        die: [0, 0, 2, 20][often(6) as usize],
        delay: 5 * often(8),
    };
    let harmless = faults.fail + faults.lose + faults.die == 0;
    // If data is lost, the limit ends the waits. Otherwise a loaded machine may take its time.
    let limit = Duration::from_millis(if harmless { 20_000 } else { 40 });
    let net = Net::new(2, faults);
    let silence = Duration::from_millis(if harmless { 10_000 } else { 200 });
    let options = Options::default()
        .budget(1 + (seed % 7) as usize)
        .silence(silence);
    let ends = World::local_with(
        2,
        |rank| staged_so(nic(&net, rank, &options), often(10)),
        |world: World| {
            rounds(&world, seed, limit).map_or_else(
                |error| match error {
                    Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_) => {
                        End::Failed(error.to_string())
                    }
                    other => panic!("seed {seed}: not an error to be expected: {other}"),
                },
                |()| End::Right,
            )
        },
    );
    (ends, harmless)
}

/// Exchanges in which every element is checked: a value never comes before or after its epoch.
fn rounds(world: &World, seed: u64, limit: Duration) -> Result<()> {
    let peer = 1 - world.rank();
    stream!(let s = world.stream()?);
    let buffers = BUFFERS[(seed % 2) as usize];
    let mut window = SlotWindow::<u64>::new("faulty")
        .buffers(buffers)
        .fail_after(limit);
    let from = window.slot_from(peer, 0, 9);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut src = Region::<u64, _>::zeroed(world, 9)?.on(&s)?;
    let mut wrong = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    for _ in 0..8 {
        s.launch(|x: &mut [u64]| x.iter_mut().for_each(|x| *x += 1), &mut src)?;
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        s.launch(
            move |inbox: Slots<'_, u64>, src: &[u64], wrong: &mut [u64]| {
                wrong[0] += inbox.slot(from).iter().filter(|x| **x != src[0]).count() as u64;
            },
            (inbox.view(), &src, &mut wrong),
        )?;
    }
    let wrong = wrong.into_host(&s)?;
    assert_eq!(wrong[0], 0, "seed {seed}: wrong data");
    drop((inbox, outbox));
    Ok(())
}

/// Random faults: every job ends soon, with the right data or with a typed error.
#[test]
fn whatever_goes_wrong_ends() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    let (first, count) = (
        number("TIDEGATE_FAULTS_FROM", 0),
        number("TIDEGATE_FAULTS", 400),
    );
    let (right, failed, harmless) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicU64::new(first);
    let cases = || {
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= first + count {
                return;
            }
            // This makes neighbouring cases differ in everything.
            let seed = (case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| faulty(seed)));
            let (ends, none) = outcome.unwrap_or_else(|_| panic!("case {case}, seed {seed}"));
            let well = ends.iter().all(|end| *end == End::Right);
            assert!(well || !none, "case {case} had no fault: {ends:?}");
            let ended = if well { &right } else { &failed };
            ended.fetch_add(1, Ordering::Relaxed);
            harmless.fetch_add(u64::from(none), Ordering::Relaxed);
        }
    };
    // A case mostly waits for a limit.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(cases);
        }
    });
    let [right, failed, harmless] = [right, failed, harmless].map(AtomicU64::into_inner);
    println!("{count} cases: {right} right ({harmless} without faults), {failed} with errors");
    // The test shows nothing unless both happen.
    assert!(
        right > count / 10 && failed > count / 10,
        "{right} and {failed}"
    );
}

#[test]
fn a_ring_over_libfabric() {
    for provider in skip::providers() {
        let choice = Choice::at("127.0.0.1").provider(provider);
        if !skip::provided("a_ring_over_libfabric", provider) {
            return;
        }
        for (n, buffers, staged) in [
            (1, BUFFERS[0], 0),
            (2, BUFFERS[1], 0),
            (2, BUFFERS[0], 2),
            (3, BUFFERS[0], 0),
            (3, BUFFERS[1], 0),
            (3, BUFFERS[1], 2),
        ] {
            let nic = |_| {
                let wire = FabricWire::open(&choice).unwrap();
                let world = WorldOptions::new().nic(Fabric::over(wire, Options::default()));
                staged_so(world.route(Route::Nic), staged)
            };
            for result in World::local_with(n, nic, |world| ring::run(world, buffers, 20)) {
                result.unwrap();
            }
        }
    }
}

/// An exposure that was given in advance is still valid when its window is gone. A put under it goes to memory that
/// nobody else uses, and does not break the connection.
#[test]
fn a_put_to_a_window_that_was_dropped_touches_nothing_else() {
    let net = Net::new(2, Faults::default());
    let options = Options::default();
    World::local_with(
        2,
        |rank| nic(&net, rank, &options),
        |world: World| {
            stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w");
            if world.rank() == 1 {
                window.slot_from(0, 0, 16);
                drop(window.open(&s).unwrap());
                s.synchronize().unwrap();
                world.all_gather("dropped", Vec::new()).unwrap();
                world.all_gather("put", Vec::new()).unwrap();
                return;
            }
            let to = window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let mut x = Region::from_slice(&world, &[7; 16])
                .unwrap()
                .on(&s)
                .unwrap();
            world.all_gather("dropped", Vec::new()).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&x, to).unwrap();
            drop(epoch.complete(&s).unwrap());
            // Behind the NIC's access.
            s.launch(|x: &mut [u64]| x.fill(0), &mut x).unwrap();
            s.synchronize().unwrap();
            world.all_gather("put", Vec::new()).unwrap();
        },
    );
}

/// Windows are opened and dropped repeatedly. Memory that the peers have finished with is freed, though the last
/// exposure of each window is still valid.
#[test]
fn memory_of_windows_that_are_gone_goes() {
    const WINDOWS: usize = 40;
    for route in [Route::Nic, Route::NicTo([1].into())] {
        let net = Net::new(3, Faults::default());
        let options = Options::default();
        World::local_with(
            3,
            |rank| nic(&net, rank, &options).route(route.clone()),
            |world: World| {
                let before = net.registered();
                world.all_gather("before", Vec::new()).unwrap();
                stream!(let s = world.stream().unwrap());
                // It is never written, so nobody asks whether the NIC has read it.
                let src = Region::<u64, _>::zeroed(&world, 9).unwrap();
                let src = src.on(&s).unwrap();
                // Two regions use one queue. Neither keeps memory for which the other waits.
                let other = Region::<u64, _>::zeroed(&world, 9).unwrap();
                let other = other.on(&s).unwrap();
                for buffers in BUFFERS.into_iter().cycle().take(WINDOWS) {
                    let mut window = SlotWindow::<u64>::new("w").buffers(buffers);
                    let to = [0, 1, 2].map(|rank| {
                        [0, 1].map(|key| {
                            window.slot_from(rank, key, 9);
                            window.slot_to(rank, key)
                        })
                    });
                    let (inbox, outbox) = window.open(&s).unwrap();
                    let mut epoch = outbox.start();
                    for [one, another] in to {
                        epoch.put(&src, one).unwrap();
                        epoch.put(&other, another).unwrap();
                    }
                    drop(exchange(&s, inbox, epoch).unwrap());
                    s.synchronize().unwrap();
                }
                let comes_to = |most: usize| {
                    let begin = Instant::now();
                    while net.registered() > before + most {
                        let left = net.registered() - before;
                        assert!(
                            begin.elapsed() < Duration::from_secs(600),
                            "{left} are left"
                        );
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    world.all_gather("it has", Vec::new()).unwrap();
                };
                // The source knows what may still read it: at most the last windows.
                comes_to(3 * WINDOWS / 4);
                drop((src, other));
                comes_to(0);
            },
        );
    }
}

/// A failed stream waits for nothing any more, and its window is dropped. But an exposure that it has given is still
/// valid, so a put under it must find the memory.
#[test]
fn memory_that_a_failed_stream_has_exposed_stays() {
    let net = Net::new(2, Faults::default());
    let options = Options::default();
    World::local_with(
        2,
        |rank| nic(&net, rank, &options),
        |world: World| {
            let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
            if world.rank() == 1 {
                let run = || -> Result<()> {
                    stream!(let s = world.stream()?);
                    window.slot_from(0, 0, 16);
                    let (inbox, _outbox) = window.open(&s)?;
                    let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
                    let exposed = inbox.post(&s)?;
                    s.launch(|_: &mut [u64]| panic!("on purpose"), &mut x)?;
                    // The wait ends at once.
                    drop(exposed.wait(&s));
                    s.synchronize()
                };
                let error = run().unwrap_err().to_string();
                assert!(error.contains("on purpose"), "{error}");
                world.all_gather("dropped", Vec::new()).unwrap();
                world.all_gather("put", Vec::new()).unwrap();
                return;
            }
            stream!(let s = world.stream().unwrap());
            let to = window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let x = Region::from_slice(&world, &[7u64; 16]).unwrap();
            let x = x.on(&s).unwrap();
            world.all_gather("dropped", Vec::new()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let mut epoch = outbox.start();
            epoch.put(&x, to).unwrap();
            drop(epoch.complete(&s).unwrap());
            // Not before the NIC has sent it.
            x.into_host(&s).unwrap();
            world.all_gather("put", Vec::new()).unwrap();
        },
    );
}
