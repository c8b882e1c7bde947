//! Kernels that own halves of windows, and make epochs by themselves (`kernels/tidegate_own.cuh`).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::common::{I, Kernels, O, R, S, W, each_has_a_gpu, number, ranks};
use crate::vendor::prelude::*;
use tidegate::error::{Awaited, Cause, DeviceError, EpochError, PutFault, StreamError};
use tidegate::kernel::Module;

tidegate::kernel! {
    /// Kernels that own halves.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`. Some of what `wrongly` does breaks the contract, and is found before it does harm.
    unsafe struct Owners {
        /// `epochs` epochs, each of which puts `number * scale + i` and counts what is not `number * theirs + i`. The
        /// number is in `state`, which may have a second one: the longest time between two epochs. `how` is 1 if the grid
        /// owns the halves, and 0 if its first block does, and 2 more if the kernel goes on when its stream has failed.
        fn epochs = "own_epochs"(inbox: KernelInbox<u64>, outbox: KernelOutbox<u64>, from: In<u64>, to: Out<u64>, x: &mut [u64], state: &mut [u64], epochs: u64, scale: u64, theirs: u64, errors: &mut [u64], how: u32);
        /// The grid owns both halves, which may have no slots or peers. It puts to all slots, and counts what is not as
        /// it should be, in `epochs` epochs whose numbers begin with `first`. The blocks wait for each other if `x` has a
        /// number for each of them; in each third epoch only, if `late` is not 0. In the other epochs one of them takes
        /// `late` nanoseconds, twice.
        fn all = "own_all"(inbox: KernelInbox<u64>, outbox: KernelOutbox<u64>, x: &mut [u64], first: u64, epochs: u64, scale: u64, theirs: u64, late: u64, errors: &mut [u64]);
        /// Each block takes so many nanoseconds, and adds 1.
        fn hold = "hold"(x: &mut [u64], nanoseconds: u64);
        /// Does something wrong.
        fn wrongly = "own_wrongly"(inbox: KernelInbox<u64>, outbox: KernelOutbox<u64>, to: Out<u64>, number: u64, what: u32);
    }
}

fn load(world: &W) -> Owners<Gpu> {
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    // SAFETY: the module is `samples.cu`.
    let owners = unsafe { Owners::bind(&module) }.unwrap();
    world.all_gather("owners are loaded", Vec::new()).unwrap();
    owners
}

fn scale(rank: usize) -> u64 {
    1_000_003 * (rank as u64 + 1)
}

/// A rank in a ring, whose epochs are numbered in device memory.
#[derive(Carry)]
struct Ring<'s> {
    x: R<'s, u64>,
    state: R<'s, u64>,
    errors: R<'s, u64>,
    inbox: I<'s, u64>,
    outbox: O<'s, u64>,
    from: In<u64>,
    to: Out<u64>,
}

struct Plan<'k> {
    k: &'k Kernels,
    owners: &'k Owners<Gpu>,
    rank: usize,
    left: usize,
}

/// Who makes epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Host,
    Block,
    /// A grid of so many blocks.
    Grid(usize),
}

fn open<'s>(s: &S<'s>, window: SlotWindow<u64>, len: usize) -> Result<Ring<'s>> {
    let world = s.world();
    let (left, right) = world.ring();
    let mut window = window;
    let from = window.slot_from(left, 0, len);
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(s)?;
    Ok(Ring {
        x: Region::zeroed(world, len)?.on(s)?,
        state: Region::zeroed(world, 1)?.on(s)?,
        errors: Region::zeroed(world, 1)?.on(s)?,
        inbox,
        outbox,
        from,
        to,
    })
}

impl<'k> Plan<'k> {
    /// That of a rank whose left neighbour is its origin.
    fn of(world: &W, k: &'k Kernels, owners: &'k Owners<Gpu>) -> Self {
        Plan {
            k,
            owners,
            rank: world.rank(),
            left: world.ring().0,
        }
    }

    fn epochs<'s>(&self, s: &S<'s>, r: &mut Ring<'s>, epochs: u64, by: By) -> Result<()> {
        let (blocks, by_grid): (usize, u32) = match by {
            // The other blocks have nothing to do with it.
            By::Block | By::Host => (2, 0),
            By::Grid(blocks) => (blocks, 1),
        };
        let kernel = self.owners.epochs.threads(blocks * 96, 96);
        let arguments = (
            r.inbox.lend(),
            r.outbox.lend(),
            r.from,
            r.to,
            &mut r.x,
            &mut r.state,
            epochs,
            scale(self.rank),
            scale(self.left),
            &mut r.errors,
            by_grid,
        );
        s.launch(kernel, arguments)
    }

    fn step<'s>(&self, s: &S<'s>, mut r: Ring<'s>, epochs: u64, by: By) -> Result<Ring<'s>> {
        if by != By::Host {
            self.epochs(s, &mut r, epochs, by)?;
            return Ok(r);
        }
        let len = r.x.len();
        for _ in 0..epochs {
            let over = self.k.produce.threads(len, 128);
            s.launch(over, (&mut r.x, &mut r.state, scale(self.rank)))?;
            let mut epoch = r.outbox.start();
            epoch.put(&r.x, r.to)?;
            (r.inbox, r.outbox) = exchange(s, r.inbox, epoch)?;
            let (all, theirs) = (len as u64, scale(self.left));
            let view = r.inbox.view();
            let arguments = (view, 0u64, 0u64, all, &r.state, theirs, &mut r.errors);
            s.launch(self.k.consume.threads(len, 128), arguments)?;
            s.launch(self.k.tick.threads(1, 32), (&mut r.state,))?;
        }
        Ok(r)
    }
}

/// So many ranks in a ring alternate between epochs of the host and of kernels, and replay both. `rounds` times, each
/// maker makes `epochs` epochs. Returns how many there were.
fn mixed(n: usize, buffers: Buffers, len: usize, rounds: usize, epochs: u64) -> u64 {
    let counts = ranks(n, |world, k| {
        let owners = load(&world);
        let plan = Plan::of(&world, &k, &owners);
        stream!(let mut s = world.stream().unwrap());
        let window = SlotWindow::new("owned").buffers(buffers).for_kernels();
        let mut r = open(&s, window, len).unwrap();
        let makers = [By::Block, By::Host, By::Grid(1), By::Grid(3)];
        let each = |by: By| if by == By::Host { 3 } else { epochs };
        // The first launch is not inside a capture.
        r = plan.step(&s, r, 2, By::Grid(2)).unwrap();
        let (graph, mut r) = s
            .capture(r, |s, r| {
                let step = |r, by| plan.step(s, r, each(by), by);
                makers.into_iter().try_fold(r, step)
            })
            .unwrap();
        for _ in 0..rounds {
            for by in makers {
                r = plan.step(&s, r, each(by), by).unwrap();
            }
            r = graph.replay(&s, r, 2).unwrap();
        }
        let count = r.state.to_vec(&s).unwrap()[0];
        assert_eq!(r.errors.to_vec(&s).unwrap(), [0], "rank {}", world.rank());
        assert_eq!(count, 2 + rounds as u64 * 3 * (3 * epochs + 3));
        count
    });
    counts[0]
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn epochs_of_kernels_and_of_the_host_alternate() {
    for n in [2, 3] {
        for buffers in [Buffers::Single, Buffers::Double] {
            mixed(n, buffers, 1000, 2, 5);
        }
    }
    // Slots of one element, and of none that a thread would put.
    mixed(2, Buffers::Double, 1, 2, 5);
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn many_epochs_of_kernels_are_right() {
    let most = number("TIDEGATE_GPU_EPOCHS", 3_000);
    let epochs = mixed(2, Buffers::Double, 64, 3, most / 27);
    assert!(epochs >= most / 27 * 27);
}

/// In which epochs the blocks of a grid wait for each other. In the others, one of them comes late.
#[derive(Clone, Copy, PartialEq)]
enum Together {
    Never,
    Sometimes,
    Always,
}

impl Together {
    const ALL: [Together; 3] = [Together::Never, Together::Sometimes, Together::Always];
}

/// Grids own the halves of all ranks. `targets` are those of a rank, and `blocks` are the blocks of its grids.
fn grids(
    n: usize,
    targets: impl Fn(usize) -> Vec<usize> + Sync,
    buffers: Buffers,
    together: Together,
    blocks: impl Fn(usize) -> Vec<usize> + Sync,
) {
    ranks(n, |world, _| {
        let (owners, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::new("grids").buffers(buffers).for_kernels();
        // (The second slot has fewer elements than the grids have threads.)
        for slot in 0..2 {
            for target in targets(rank) {
                window.slot_to(target, slot);
            }
            for origin in (0..n).filter(|origin| targets(*origin).contains(&rank)) {
                window.slot_from(origin, slot, [1000, 3][slot as usize]);
            }
        }
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let len = if together == Together::Never { 1 } else { 64 };
        let mut x = Region::zeroed(&world, len).unwrap().on(&s).unwrap();
        let mut errors = Region::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let (mut first, epochs, scale) = (0u64, 12u64, 1_000_003u64);
        let late = if together == Together::Always {
            0
        } else {
            50_000u64
        };
        for blocks in blocks(rank) {
            let kernel = owners.all.threads(blocks * 32, 32);
            let (lent, outlet) = (inbox.lend(), outbox.lend());
            let arguments = (
                lent,
                outlet,
                &mut x,
                first,
                epochs,
                scale,
                scale,
                late,
                &mut errors,
            );
            s.launch(kernel, arguments).unwrap();
            first += epochs;
        }
        assert_eq!(errors.to_vec(&s).unwrap(), [0], "rank {rank}");
    });
}

/// Blocks that wait for each other in each epoch, in some of them, and in none. The quantum of a word is divided by
/// some of the numbers of blocks only. The grids of the ranks differ.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn grids_of_many_blocks() {
    let next = |n: usize| move |rank| vec![(rank + 1) % n];
    for buffers in [Buffers::Single, Buffers::Double] {
        for together in Together::ALL {
            let blocks = |rank: usize| match rank % 2 {
                0 => vec![2, 2, 64, 3, 53],
                _ => vec![2, 1, 5, 3, 64],
            };
            for n in [2, 3] {
                grids(n, next(n), buffers, together, blocks);
            }
        }
    }
}

/// A block for each multiprocessor, which needs no shared memory, waits for a kernel that its peer launches only after
/// an epoch of another stream. So the batches of that epoch must find room beside the blocks: if the blocks came to
/// empty multiprocessors, and if they came to those where a kernel without shared memory had its blocks.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn batches_run_beside_a_grid_on_all_multiprocessors() {
    if !each_has_a_gpu(2, "two such grids do not fit on one") {
        return;
    }
    ranks(2, |world, k| {
        let owners = load(&world);
        let plan = Plan::of(&world, &k, &owners);
        stream!(let owning = world.stream().unwrap());
        stream!(let other = world.stream().unwrap());
        stream!(let third = world.stream().unwrap());
        let mut r = open(&owning, SlotWindow::new("owned").for_kernels(), 64).unwrap();
        let mut beside = open(&other, SlotWindow::new("beside"), 64).unwrap();
        let mut held = Region::zeroed(&world, 1).unwrap().on(&third).unwrap();
        let all = world.device().multiprocessors();
        let grid = By::Grid(all);
        // The first launch is not inside a capture.
        plan.epochs(&owning, &mut r, 2, By::Grid(1)).unwrap();
        let (graph, mut r) = owning.capture(r, |s, r| plan.step(s, r, 2, grid)).unwrap();
        let mut epochs = 2;
        for (recorded, hold) in [(false, false), (true, false), (false, true), (true, true)] {
            owning.synchronize().unwrap();
            world
                .all_gather("nothing stands there", Vec::new())
                .unwrap();
            if hold {
                // Two blocks come to each multiprocessor, and leave half of its threads.
                let kernel = owners.hold.threads(2 * all * 512, 512);
                third.launch(kernel, (&mut held, 20_000_000u64)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            let launch = |r| match recorded {
                false => plan.step(&owning, r, 2, grid),
                true => graph.replay(&owning, r, 1),
            };
            if world.rank() == 0 {
                r = launch(r).unwrap();
            }
            third.synchronize().unwrap();
            beside = plan.step(&other, beside, 2, By::Host).unwrap();
            epochs += 2;
            assert_eq!(beside.state.to_vec(&other).unwrap(), [epochs - 2]);
            if world.rank() == 1 {
                r = launch(r).unwrap();
            }
            assert_eq!(r.state.to_vec(&owning).unwrap(), [epochs]);
        }
        assert_eq!(held.to_vec(&third).unwrap(), [4 * all as u64]);
        assert_eq!(r.errors.to_vec(&owning).unwrap(), [0]);
        assert_eq!(beside.errors.to_vec(&other).unwrap(), [0]);
    });
}

/// Numbers go one way, so a half of each rank has no peers. A third rank has none at all.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn halves_without_peers() {
    let one_way = |rank| if rank == 0 { vec![1] } else { Vec::new() };
    for buffers in [Buffers::Single, Buffers::Double] {
        for together in Together::ALL {
            grids(3, one_way, buffers, together, |_| vec![1, 2, 64, 3]);
        }
    }
}

/// The errors of two ranks of which the first does something wrong.
fn wrong(what: u32, number: u64) -> [Result<()>; 2] {
    let results = ranks(2, |world, k| -> Result<()> {
        let owners = load(&world);
        stream!(let s = world.stream().unwrap());
        let mut r = open(&s, SlotWindow::new("wrong").for_kernels(), 37).unwrap();
        let plan = Plan::of(&world, &k, &owners);
        if world.rank() == 0 {
            let kernel = owners.wrongly.threads(64, 32);
            let halves = (r.inbox.lend(), r.outbox.lend(), r.to, number, what);
            s.launch(kernel, halves).unwrap();
        } else {
            plan.epochs(&s, &mut r, 2, By::Grid(2)).unwrap();
        }
        world.all_gather("enqueued", Vec::new()).unwrap();
        s.synchronize()
    });
    results.try_into().expect("there are two ranks")
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_that_break_their_contract_fail_by_name() {
    let cases = [
        (0, 0, PutFault::LeftExposed),
        (1, 0, PutFault::LeftOpen),
        (2, 37, PutFault::Beyond { slot: 0, end: 38 }),
        (3, 1, PutFault::NoSlot { slot: 1 }),
        (4, 0, PutFault::OutOfTurn),
        (5, 0, PutFault::NotClosed),
        (6, 1, PutFault::NoInboundSlot { slot: 1 }),
        (7, 0, PutFault::FoundElsewhere { slot: 0 }),
        (8, 0, PutFault::FoundElsewhere { slot: 0 }),
        (9, 0, PutFault::NoEpochLeft),
        (10, 0, PutFault::OutOfTurn),
        (11, 0, PutFault::OutOfTurn),
        (12, 0, PutFault::OutOfTurn),
        (13, 0, PutFault::OutOfTurn),
        (14, 0, PutFault::OutOfTurn),
        (15, 0, PutFault::NotClosed),
        (16, 37, PutFault::Beyond { slot: 0, end: 38 }),
        (17, 0, PutFault::OutOfTurn),
    ];
    for (what, number, expected) in cases {
        let [mine, others] = wrong(what, number).map(|result| result.expect_err("it is wrong"));
        let Error::Stream(StreamError::KernelFault { rank: 0, fault, .. }) = &mine else {
            panic!("{what}: {mine}");
        };
        assert_eq!(**fault, expected, "{what}");
        let Error::Wait(failed) = &others else {
            panic!("{what}: {others}");
        };
        // No target takes an epoch for complete in which a put was wrong.
        let epoch = if [2, 3, 8].contains(&what) {
            "epoch 0, "
        } else {
            ""
        };
        assert!(others.to_string().contains(epoch), "{what}: {others}");
        let cause = &failed.cause;
        assert!(
            matches!(cause, Cause::StreamFailed { rank: 0, .. }),
            "{what}: {others}"
        );
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn what_kernels_cannot_own_is_refused() {
    ranks(2, |world, k| {
        let owners = load(&world);
        let plan = Plan::of(&world, &k, &owners);
        stream!(let s = world.stream().unwrap());
        // Short data land in this window.
        let mut lands = open(&s, SlotWindow::new("lands"), 8).unwrap();
        let error = plan.epochs(&s, &mut lands, 1, By::Block).unwrap_err();
        let Error::Epoch(EpochError::NotByKernels { reason, .. }) = &error else {
            panic!("{error}");
        };
        assert!(reason.contains("`for_kernels`"), "{error}");
        // More blocks than can run at the same time. Nothing is lost.
        let mut r = open(&s, SlotWindow::new("owned").for_kernels(), 8).unwrap();
        let error = plan.epochs(&s, &mut r, 1, By::Grid(1 << 20)).unwrap_err();
        let Error::Device(DeviceError::Exhausted { .. }) = &error else {
            panic!("{error}");
        };
        let lands = plan.step(&s, lands, 2, By::Host).unwrap();
        let r = plan.step(&s, r, 2, By::Block).unwrap();
        for r in [lands, r] {
            assert_eq!(r.state.to_vec(&s).unwrap(), [2]);
            assert_eq!(r.errors.to_vec(&s).unwrap(), [0]);
        }
    });
    ranks(1, |world, k| {
        let owners = load(&world);
        let plan = Plan::of(&world, &k, &owners);
        stream!(let s = world.stream().unwrap());
        let mut r = open(&s, SlotWindow::new("own").for_kernels(), 8).unwrap();
        let error = plan.epochs(&s, &mut r, 1, By::Block).unwrap_err();
        let is_refused = matches!(
            error,
            Error::Epoch(EpochError::NotByKernels { rank: 0, .. })
        );
        assert!(is_refused, "{error}");
    });
}

/// Rank 1 does not take part. What it does instead ends the waits of rank 0's kernel. If a limit ends them, rank 1 has
/// to stay until then.
fn alone(limit: Option<Duration>, instead: impl Fn(&S<'_>, Ring<'_>) + Sync) -> Error {
    let results = ranks(2, |world, k| -> Result<()> {
        let owners = load(&world);
        let plan = Plan::of(&world, &k, &owners);
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::new("w").for_kernels();
        if let Some(limit) = limit.filter(|_| world.rank() == 0) {
            window = window.fail_after(limit);
        }
        let mut r = open(&s, window, 8).unwrap();
        if world.rank() == 1 {
            world.all_gather("launched", Vec::new()).unwrap();
            instead(&s, r);
            return Ok(());
        }
        plan.epochs(&s, &mut r, 3, By::Grid(2)).unwrap();
        world.all_gather("launched", Vec::new()).unwrap();
        let ended = s.synchronize();
        if limit.is_some() {
            world.all_gather("ended", Vec::new()).unwrap();
        }
        ended
    });
    let [mine, _]: [Result<()>; 2] = results.try_into().expect("there are two ranks");
    mine.unwrap_err()
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn every_wait_of_a_kernel_ends() {
    let cause = |error: &Error| {
        let Error::Wait(failed) = error else {
            panic!("{error}");
        };
        let awaited = [Awaited::Completion, Awaited::Exposure];
        assert!(awaited.contains(&failed.awaited), "{error}");
        failed.cause.clone()
    };
    // The peer ends.
    let error = alone(None, |_, _| {});
    assert!(
        matches!(cause(&error), Cause::PeerLeft { rank: 1 }),
        "{error}"
    );
    // It revokes the window.
    let error = alone(None, |_, r| drop(r.outbox.start()));
    assert!(
        matches!(cause(&error), Cause::Dropped { rank: 1, .. }),
        "{error}"
    );
    // The limit comes.
    let error = alone(Some(Duration::from_millis(100)), |s, _r| {
        s.world().all_gather("ended", Vec::new()).unwrap();
    });
    assert!(matches!(cause(&error), Cause::Limit { .. }), "{error}");
}

/// Rank 0 gets by one window, and puts by another. What it puts behind a wait that has failed may be wrong, so its target
/// must not take it for complete.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_behind_a_failed_wait_completes_no_target() {
    let results = ranks(3, |world, k| -> Result<()> {
        let owners = load(&world);
        let rank = world.rank();
        stream!(let s = world.stream().unwrap());
        let mut gets = SlotWindow::<u64>::new("gets").for_kernels();
        let from = (rank == 0).then(|| gets.slot_from(1, 0, 8));
        if rank == 1 {
            gets.slot_to(0, 0);
        }
        let mut puts = SlotWindow::<u64>::new("puts").for_kernels();
        let to = (rank == 0).then(|| puts.slot_to(2, 0));
        if rank == 2 {
            puts.slot_from(0, 0, 8);
        }
        let (mut inbox, outbox) = gets.open(&s).unwrap();
        let (arrived, mut origin) = puts.open(&s).unwrap();
        if let (Some(from), Some(to)) = (from, to) {
            let plan = Plan {
                k: &k,
                owners: &owners,
                rank,
                left: 1,
            };
            let [mut x, mut state, mut errors] =
                [8, 1, 1].map(|len| Region::zeroed(&world, len).unwrap().on(&s).unwrap());
            let kernel = plan.owners.epochs.threads(2 * 96, 96);
            let arguments = (
                inbox.lend(),
                origin.lend(),
                from,
                to,
                &mut x,
                &mut state,
                3u64,
                1u64,
                1u64,
                &mut errors,
                // On a stream that has failed, it completes two more epochs.
                3u32,
            );
            s.launch(kernel, arguments).unwrap();
            world.all_gather("launched", Vec::new()).unwrap();
            return s.synchronize();
        }
        let waited = match rank {
            2 => {
                let arrived = arrived.post(&s).unwrap().wait(&s).unwrap();
                Some(arrived.post(&s).unwrap().wait(&s).unwrap())
            }
            _ => None,
        };
        world.all_gather("launched", Vec::new()).unwrap();
        if rank == 1 {
            drop(outbox.start());
        }
        let synchronized = s.synchronize();
        drop(waited);
        synchronized
    });
    let [mine, _, others]: [Result<()>; 3] = results.try_into().expect("there are three ranks");
    let Error::Wait(failed) = mine.unwrap_err() else {
        panic!("its wait has failed");
    };
    assert!(matches!(failed.cause, Cause::Dropped { rank: 1, .. }));
    let error = others.unwrap_err();
    let Error::Wait(failed) = &error else {
        panic!("{error}");
    };
    // Rank 0 has failed and left. (Its first epoch was complete before the wait.)
    let causes = matches!(
        failed.cause,
        Cause::StreamFailed { rank: 0, .. } | Cause::PeerLeft { rank: 0 }
    );
    assert!(causes && error.to_string().contains("epoch 1:"), "{error}");
}

/// The program of a rank panics while its kernel waits.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_stream_that_is_told_to_stop_ends_the_waits_of_its_kernel() {
    let outcome = std::panic::catch_unwind(|| {
        ranks(2, |world, k| {
            let owners = load(&world);
            let plan = Plan::of(&world, &k, &owners);
            stream!(let s = world.stream().unwrap());
            let mut r = open(&s, SlotWindow::new("w").for_kernels(), 8).unwrap();
            if world.rank() == 0 {
                plan.epochs(&s, &mut r, 3, By::Grid(2)).unwrap();
                panic!("on purpose");
            }
            // It stays until the other one has ended.
            let _ = world.all_gather("never", Vec::new());
        });
    });
    let panic = outcome.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

/// The program of a rank whose kernel makes epochs until a peer dies.
pub(super) fn until_killed(world: &W, k: &Kernels, ready: impl FnOnce()) -> Error {
    let owners = load(world);
    let plan = Plan::of(world, k, &owners);
    stream!(let s = world.stream().unwrap());
    let mut r = open(&s, SlotWindow::new("owned").for_kernels(), 1000).unwrap();
    plan.epochs(&s, &mut r, 1 << 40, By::Grid(4)).unwrap();
    ready();
    s.synchronize().unwrap_err()
}

/// The program of a rank whose kernel makes epochs for some seconds, while its host is stopped.
pub(super) fn while_stopped(world: &W, k: &Kernels, ready: impl FnOnce()) {
    let owners = load(world);
    let plan = Plan::of(world, k, &owners);
    stream!(let s = world.stream().unwrap());
    let mut r = open(&s, SlotWindow::new("owned").for_kernels(), 64).unwrap();
    // As many epochs as take about six seconds on all ranks.
    let trial = 20_000;
    plan.epochs(&s, &mut r, 100, By::Block).unwrap();
    s.synchronize().unwrap();
    let begin = Instant::now();
    plan.epochs(&s, &mut r, trial, By::Block).unwrap();
    s.synchronize().unwrap();
    let fits = (6.0 / begin.elapsed().as_secs_f64() * trial as f64) as u64;
    let all = world.all_gather_elements("fits", &[fits]).unwrap();
    let count = all.into_iter().flatten().min().unwrap();
    let number = r.state.to_vec(&s).unwrap()[0];
    r.state = Region::from_slice(world, &[number, 0])
        .unwrap()
        .on(&s)
        .unwrap();
    let ended = AtomicBool::new(false);
    let gap = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut last, mut most) = (Instant::now(), Duration::ZERO);
            while !ended.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                most = most.max(last.elapsed());
                last = Instant::now();
            }
            most
        });
        plan.epochs(&s, &mut r, count, By::Block).unwrap();
        ready();
        s.synchronize().unwrap();
        ended.store(true, Relaxed);
        watch.join().unwrap()
    });
    let slowest = Duration::from_nanos(r.state.to_vec(&s).unwrap()[1]);
    println!("stopped for {gap:?}; {count} epochs, at most {slowest:?} from one to the next");
    assert!(
        gap > Duration::from_millis(1800),
        "the host was stopped for {gap:?} only"
    );
    assert!(
        slowest < Duration::from_millis(500),
        "no epoch ended for {slowest:?}"
    );
    assert_eq!(r.errors.to_vec(&s).unwrap(), [0]);
}
