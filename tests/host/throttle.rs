//! Few trigger slots, with every policy: nothing hangs, and nothing is wrong.

use std::sync::mpsc::channel;
use std::time::Duration;

use tidegate::host::prelude::*;
use tidegate::{Route, Throttle, WorldOptions};
use tidegate_bench::faces::driver;
use tidegate_bench::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use tidegate_bench::faces::variants::Setup;
use tidegate_bench::faces::verify::Verifier;
use tidegate_bench::progress::Progress;
use tidegate_bench::results::table::table;
use tidegate_fabric::Fabric;
use tidegate_fake::wire::{Faults, Net};
use tidegate_loopback::{Loopback, Options};

const POLICIES: [Throttle; 3] = [Throttle::Application, Throttle::Static, Throttle::Adaptive];
/// Slots of each rank.
const BUDGETS: [usize; 5] = [1, 2, 3, 5, 8];
/// Operations that the NIC has been rung for take less time than this.
const SOON: Duration = Duration::from_secs(600);

/// Ranks as threads, with `slots` slots each, over a slow wire.
fn by_wire<R: Send>(n: usize, slots: usize, program: impl Fn(World) -> R + Sync) -> Vec<R> {
    let faults = Faults {
        seed: slots as u64,
        full: 100,
        delay: 5,
        ..Faults::default()
    };
    let net = Net::new(n, faults);
    let nic = |rank| {
        // The ranks are on one node, and divide the budget.
        let options = tidegate_fabric::Options::default().budget(slots * n);
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), options))
            .route(Route::Nic)
    };
    World::local_with(n, nic, program)
}

fn by_loopback<R: Send>(
    n: usize,
    options: &Options,
    program: impl Fn(World) -> R + Sync,
) -> Vec<R> {
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::new(options.clone()))
            .route(Route::Nic)
    };
    World::local_with(n, nic, program)
}

#[derive(Carry)]
struct Ring<'s> {
    src: Region<u64, On<'s>>,
    sum: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    to: [Out<u64>; 2],
}

fn grow(src: &mut [u64]) {
    src.iter_mut().for_each(|x| *x += 1);
}

fn add(inbox: Slots<'_, u64>, sum: &mut [u64]) {
    for (slot, sum) in inbox.iter().zip(sum) {
        assert!(slot.iter().all(|x| *x == slot[0]), "a put in two parts");
        *sum = sum.wrapping_mul(31).wrapping_add(slot[0]);
    }
}

/// A rank's sum after `steps` steps, if it began with 1000 times its number.
fn sum_of(rank: usize, steps: u64) -> u64 {
    (1..=steps).fold(0u64, |sum, step| {
        sum.wrapping_mul(31).wrapping_add(rank as u64 * 1000 + step)
    })
}

/// One step. `room` is called before every call that arms operations.
fn step<'s>(
    s: &Stream<'s>,
    mut r: Ring<'s>,
    fused: bool,
    room: &dyn Fn(&Stream<'s>) -> Result<()>,
) -> Result<Ring<'s>> {
    if fused {
        s.launch(grow, &mut r.src)?;
        room(s)?;
        let mut epoch = r.outbox.start();
        for to in r.to {
            epoch.put(&r.src, to)?;
        }
        (r.inbox, r.outbox) = exchange(s, r.inbox, epoch)?;
    } else {
        room(s)?;
        let exposed = r.inbox.post(s)?;
        s.launch(grow, &mut r.src)?;
        room(s)?;
        let mut epoch = r.outbox.start();
        for to in r.to {
            epoch.put(&r.src, to)?;
        }
        r.outbox = epoch.complete(s)?;
        r.inbox = exposed.wait(s)?;
    }
    s.launch(add, (r.inbox.view(), &mut r.sum))?;
    Ok(r)
}

/// A ring of the world's ranks on a stream: eager, fused and replayed steps.
fn ring(world: &World, throttle: Throttle, rounds: u64) -> Result<()> {
    const LEN: usize = 33;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("ring").throttle(throttle);
    window.slot_from(right, 0, LEN);
    window.slot_from(left, 1, LEN);
    let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(world, &[rank as u64 * 1000; LEN])?.on(&s)?;
    let sum = Region::zeroed(world, 2)?.on(&s)?;
    let mut r = Ring {
        src,
        sum,
        inbox,
        outbox,
        to,
    };
    // An application synchronises if it has no room; the other policies need not.
    let synchronize = |s: &Stream<'_>| -> Result<()> {
        if throttle == Throttle::Application {
            s.synchronize()?;
            assert!(s.world().nic_room(usize::MAX, SOON));
        }
        Ok(())
    };
    let (graph, back) = s.capture(r, |s, r| step(s, r, false, &|_| Ok(())))?;
    r = back;
    let mut steps = 0;
    for round in 0..rounds {
        synchronize(&s)?;
        r = graph.replay(&s, r, (round % 4) as usize)?;
        r = step(&s, r, false, &|s| synchronize(s))?;
        r = step(&s, r, true, &|s| synchronize(s))?;
        steps += round % 4 + 2;
    }
    let sum = r.sum.into_host(&s)?;
    assert_eq!(sum[..], [sum_of(right, steps), sum_of(left, steps)]);
    Ok(())
}

#[test]
fn a_ring_with_few_slots() {
    for throttle in POLICIES {
        for slots in BUDGETS {
            for n in [1, 2, 3, 5] {
                let program = |world: World| ring(&world, throttle, 6);
                let what = format!("{n} ranks with {slots} slots, {throttle:?}");
                let results = by_wire(n, slots, program);
                results.into_iter().for_each(|result| result.expect(&what));
                let options = Options::default().budget(slots * n);
                let results = by_loopback(n, &options, program);
                results.into_iter().for_each(|result| result.expect(&what));
            }
        }
    }
}

/// Each rank has two threads, each with a ring of its own, and they share the slots.
fn two_rings(world: &World, throttle: Throttle, limit: Option<Duration>) -> Result<()> {
    std::thread::scope(|scope| {
        // All ranks open windows in one order, so one thread opens its own first.
        let (made, both) = channel();
        let other = scope.spawn(move || {
            both.recv().expect("the first window is made");
            opened_ring(world, "second", throttle, limit, || ())
        });
        let first = opened_ring(world, "first", throttle, limit, || {
            made.send(()).expect("the thread waits");
        });
        drop(made);
        let second = other.join().expect("a ring does not panic");
        first.and(second)
    })
}

/// A ring of eager steps, whose slots have one buffer. `opened` is called when its window is open.
fn opened_ring(
    world: &World,
    name: &str,
    throttle: Throttle,
    limit: Option<Duration>,
    opened: impl FnOnce(),
) -> Result<()> {
    const LEN: usize = 5;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new(name)
        .throttle(throttle)
        .buffers(Buffers::Single);
    window.slot_from(right, 0, LEN);
    window.slot_from(left, 1, LEN);
    let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
    if let Some(limit) = limit {
        window = window.fail_after(limit);
    }
    let (inbox, outbox) = window.open(&s)?;
    opened();
    let src = Region::from_slice(world, &[rank as u64 * 1000; LEN])?.on(&s)?;
    let sum = Region::zeroed(world, 2)?.on(&s)?;
    let mut r = Ring {
        src,
        sum,
        inbox,
        outbox,
        to,
    };
    for round in 0..20 {
        r = step(&s, r, round % 2 == 0, &|_| Ok(()))?;
    }
    let sum = r.sum.into_host(&s)?;
    assert_eq!(sum[..], [sum_of(right, 20), sum_of(left, 20)]);
    Ok(())
}

#[test]
fn two_streams_with_few_slots() {
    for throttle in [Throttle::Static, Throttle::Adaptive] {
        for slots in BUDGETS {
            for n in [2, 3] {
                let program = |world: World| two_rings(&world, throttle, None);
                let what = format!("{n} ranks with {slots} slots for two streams, {throttle:?}");
                let results = by_wire(n, slots, program);
                results.into_iter().for_each(|result| result.expect(&what));
            }
        }
    }
    // If a NIC keeps no slot for operations that were rung for, it hangs sooner or later: two streams wait for peers
    // whose streams wait for theirs.
    let greedy = Options::default().budget(2).greedy();
    let hangs = (0..200).any(|_| {
        let program =
            |world: World| two_rings(&world, Throttle::Adaptive, Some(Duration::from_millis(500)));
        let results = by_loopback(2, &greedy, program);
        results.iter().any(Result::is_err)
    });
    assert!(hangs, "the mutant was not caught");
}

/// 27 ranks with 26 neighbours each.
#[test]
fn faces_with_few_slots() {
    for throttle in POLICIES {
        for slots in BUDGETS {
            let params = Params {
                grid: Grid([3; 3]),
                size: Size { m: [2; 3], n: 3 },
                counts: Counts {
                    nk: 1,
                    nj: 1,
                    ni: 3,
                },
                init: Init::Global,
                compute: false,
                variants: vec![
                    Variant::St,
                    Variant::StGraph,
                    Variant::StSeparate,
                    Variant::Rma,
                ],
            };
            let verifiers = Verifier::all(&params).unwrap();
            let what = format!("Faces with {slots} slots a rank, {throttle:?}");
            let ranks = by_wire(27, slots, |world| {
                let setup = Setup {
                    world: &world,
                    params: &params,
                    verifier: &verifiers[world.rank()],
                    throttle,
                    omit: None,
                };
                driver::rank(&setup, 1, &Progress::hidden(0)).map_err(|error| error.to_string())
            });
            for rows in ranks {
                let rows = rows.expect(&what);
                assert!(
                    rows.iter().all(|row| !row.failed),
                    "{what}:\n{}",
                    table(&rows)
                );
            }
        }
    }
}
