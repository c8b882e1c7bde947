//! Epochs that kernels fill by themselves (`kernels/tidegate.cuh`).

use super::common::{Kernels, R, S, W, ranks, ranks_with};
use super::processes::number;
use crate::vendor::prelude::*;
use tidegate::error::{Cause, EpochError, KernelError, PutFault, StreamError};
use tidegate::fabric::{Fabric, Options};
use tidegate::kernel::{Function, Module};
use tidegate::{Route, WorldOptions};
use tidegate_fake::wire::{Faults, Net};

tidegate::kernel! {
    /// Kernels that put.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    unsafe struct Puts {
        /// `number * scale + i` to all elements of a slot, where the number is in `state`.
        fn put_values = "put_values"(out: OutSlots<u64>, to: Out<u64>, state: &[u64], scale: u64);
        /// All elements, from `first` on, by a thread, a warp, a block or the grid.
        fn put_by_team = "put_by_team"(out: OutSlots<u64>, to: Out<u64>, x: &[u64], first: u64, team: u32);
        /// Bytes.
        fn put_bytes = "put_bytes"(out: OutSlots<u8>, to: Out<u8>, x: &[u8], from: u64, count: u64, first: u64);
        /// All elements, and then the target is complete.
        fn put_last = "put_last"(out: LastSlots<u64>, to: Out<u64>, x: &[u64]);
        /// Completes in some blocks, for as many as is said.
        fn complete_by = "complete_by"(out: LastSlots<u64>, blocks: u32, said: u32);
    }
}

type CopySlot<T> = Function<Gpu, (Slots<'static, T>, u64, &'static mut [T])>;

/// What has come in the only slot of an inbox.
fn came<'s, T: Element>(
    s: &S<'s>,
    copy: &CopySlot<T>,
    inbox: &Inbox<'s, T>,
    len: usize,
) -> Result<Vec<T>> {
    let mut seen = Region::zeroed(s.world(), len)?.on(s)?;
    s.launch(copy.threads(len, 128), (inbox.view(), 0u64, &mut seen))?;
    seen.to_vec(s)
}

fn load(world: &W) -> Puts<Gpu> {
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    // SAFETY: the module is `samples.cu`, whose kernels keep the contract of `tidegate.cuh`.
    let puts = unsafe { Puts::bind(&module) }.unwrap();
    world.all_gather("puts are loaded", Vec::new()).unwrap();
    puts
}

/// A pair of ranks, or one rank alone, whose epochs are numbered in device memory.
#[derive(Carry)]
struct Pair<'s> {
    x: R<'s, u64>,
    state: R<'s, u64>,
    errors: R<'s, u64>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    to: Out<u64>,
}

/// How an epoch is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// By the host: `Outbox::start`.
    Host,
    /// By a kernel, and the host completes.
    Kernel,
    /// By a kernel that completes the target.
    Last,
}

struct Plan<'k> {
    k: &'k Kernels,
    puts: &'k Puts<Gpu>,
    peer: usize,
    /// Blocks of the kernels that put.
    blocks: usize,
}

fn scale(rank: usize) -> u64 {
    1_000_003 * (rank as u64 + 1)
}

impl<'k> Plan<'k> {
    fn open<'s>(&self, s: &S<'s>, buffers: Buffers, len: usize) -> Result<Pair<'s>> {
        let mut window = SlotWindow::new("filled").buffers(buffers);
        window.slot_from(self.peer, 0, len);
        let to = window.slot_to(self.peer, 0);
        let (inbox, outbox) = window.open(s)?;
        let world = s.world();
        let mut pair = Pair {
            x: Region::zeroed(world, len)?.on(s)?,
            state: Region::zeroed(world, 1)?.on(s)?,
            errors: Region::zeroed(world, 1)?.on(s)?,
            inbox,
            outbox,
            to,
        };
        // The first `open` cannot be in a capture.
        pair = self.step(s, pair, By::Kernel)?;
        Ok(pair)
    }

    fn step<'s>(&self, s: &S<'s>, mut p: Pair<'s>, by: By) -> Result<Pair<'s>> {
        let (k, rank) = (self.k, s.world().rank());
        let over = k.produce.threads(p.x.len().min(1 << 15), 128);
        s.launch(over, (&mut p.x, &mut p.state, scale(rank)))?;
        let exposed = p.inbox.post(s)?;
        let over = self.blocks * 96;
        p.outbox = match by {
            By::Host => {
                let mut epoch = p.outbox.start();
                epoch.put(&p.x, p.to)?;
                epoch.complete(s)?
            }
            By::Kernel => {
                let mut opened = p.outbox.open(s)?;
                let kernel = self.puts.put_values.threads(over, 96);
                s.launch(kernel, (opened.slots(), p.to, &p.state, scale(rank)))?;
                opened.complete(s)?
            }
            By::Last => {
                let opened = p.outbox.open(s)?;
                let kernel = self.puts.put_last.threads(over, 96);
                s.launch(kernel, (opened.last(self.peer)?, p.to, &p.x))?;
                opened.complete(s)?
            }
        };
        p.inbox = exposed.wait(s)?;
        let (threads, len) = (p.x.len().min(1 << 15), p.x.len() as u64);
        s.launch(
            k.consume.threads(threads, 128),
            (
                p.inbox.view(),
                0u64,
                0u64,
                len,
                &p.state,
                scale(self.peer),
                &mut p.errors,
            ),
        )?;
        s.launch(k.tick.threads(1, 32), (&mut p.state,))?;
        Ok(p)
    }
}

/// Runs epochs of all kinds, one after the other and replayed. Returns how many each rank has had.
fn mixed(
    n: usize,
    near: bool,
    options: impl Fn(usize) -> WorldOptions + Sync,
    buffers: Buffers,
    (len, blocks): (usize, usize),
    (rounds, times): (usize, usize),
) -> u64 {
    let verdicts = ranks_with(n, options, |world, k| -> Result<(u64, u64)> {
        let puts = load(&world);
        let plan = Plan {
            k: &k,
            puts: &puts,
            peer: (world.rank() + 1) % n,
            blocks,
        };
        stream!(let s = world.stream()?);
        let mut pair = plan.open(&s, buffers, len)?;
        let kinds = match near {
            true => vec![
                By::Kernel,
                By::Host,
                By::Last,
                By::Last,
                By::Host,
                By::Kernel,
            ],
            false => vec![By::Kernel, By::Host, By::Kernel],
        };
        let (graph, back) = s.capture(pair, |s, pair| {
            kinds
                .iter()
                .try_fold(pair, |pair, by| plan.step(s, pair, *by))
        })?;
        pair = back;
        for round in 0..rounds {
            pair = graph.replay(&s, pair, times)?;
            pair = plan.step(&s, pair, kinds[round % kinds.len()])?;
        }
        let (epochs, errors) = (pair.state.to_vec(&s)?[0], pair.errors.to_vec(&s)?[0]);
        Ok((epochs, errors))
    });
    let mut all = 0;
    for verdict in verdicts {
        let (epochs, errors) = verdict.unwrap();
        assert_eq!(errors, 0, "of {epochs} epochs");
        all = epochs;
    }
    all
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_and_the_host_fill_epochs_in_turn() {
    for buffers in [Buffers::Double, Buffers::Single] {
        for (len, blocks) in [(1, 1), (33, 1), (1000, 3), (40_000, 20)] {
            let options = |_| WorldOptions::new();
            mixed(2, true, options, buffers, (len, blocks), (12, 3));
            mixed(1, true, options, buffers, (len, blocks), (6, 2));
        }
    }
}

/// As many epochs as `TIDEGATE_GPU_EPOCHS` says, but no more than needed, most of them replayed.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn many_epochs_are_right() {
    let most = number("TIDEGATE_GPU_EPOCHS", 100_000).min(110_000);
    let (rounds, times) = (12, (most / (12 * 6)).max(1));
    let options = |_| WorldOptions::new();
    let shape = (100, 2);
    let repeats = (rounds, times as usize);
    let epochs = mixed(2, true, options, Buffers::Double, shape, repeats);
    assert_eq!(epochs, 1 + rounds as u64 * (6 * times + 1));
}

/// Each team puts every length, at places that are aligned and others.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn all_teams_put_any_run() {
    ranks(1, |world, k| {
        let puts = load(&world);
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("runs");
        window.slot_from(0, 0, 5000);
        let to = window.slot_to(0, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let mut expected = [vec![0; 5000], vec![0; 5000]];
        let runs = [0, 1, 2, 7, 31, 64, 1000, 4999];
        for (epoch, (count, team)) in runs
            .iter()
            .flat_map(|n| (0..4u32).map(move |t| (*n, t)))
            .enumerate()
        {
            let first = [0, 1][epoch / 3 % 2].min(5000 - count);
            let x: Vec<u64> = (0..count)
                .map(|i| ((epoch * 10_000 + i) as u64) << 3)
                .collect();
            let x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            let mut opened = outbox.open(&s).unwrap();
            let kernel = puts.put_by_team.threads(5 * 128, 128);
            s.launch(kernel, (opened.slots(), to, &x, first as u64, team))
                .unwrap();
            outbox = opened.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let buffer = &mut expected[epoch % 2];
            buffer[first..first + count].copy_from_slice(&x.to_vec(&s).unwrap());
            let came = came(&s, &k.copy_slot, &inbox, 5000).unwrap();
            assert_eq!(came, *buffer, "{count} by {team}");
        }
        bytes(&world, &s, &puts);
    });
}

/// Runs of bytes, at every distance from a line of 16 bytes.
fn bytes<'s>(world: &W, s: &S<'s>, puts: &Puts<Gpu>) {
    let mut window = SlotWindow::<u8>::new("bytes");
    window.slot_from(0, 0, 300);
    let to = window.slot_to(0, 0);
    let schedules = Module::load(world, tidegate_kernels::SCHEDULES).unwrap();
    // SAFETY: the function of `schedules.cu` takes a slot's number, and keeps to both lengths.
    let copy: CopySlot<u8> = unsafe { schedules.function("copy_slot_u8") }.unwrap();
    let (mut inbox, mut outbox) = window.open(s).unwrap();
    let mut expected = [[0; 300], [0; 300]];
    for epoch in 0..60 {
        let (from, first, count) = (epoch % 17, epoch * 5 % 23, epoch * 37 % 270);
        let x: Vec<u8> = (0..300).map(|i| (epoch * 7 + i) as u8).collect();
        let bytes = Region::from_slice(world, &x).unwrap().on(s).unwrap();
        let exposed = inbox.post(s).unwrap();
        let mut opened = outbox.open(s).unwrap();
        let kernel = puts.put_bytes.threads(96, 32);
        let [from_, count_, first_] = [from, count, first].map(|each| each as u64);
        s.launch(kernel, (opened.slots(), to, &bytes, from_, count_, first_))
            .unwrap();
        outbox = opened.complete(s).unwrap();
        inbox = exposed.wait(s).unwrap();
        let buffer = &mut expected[epoch % 2];
        buffer[first..first + count].copy_from_slice(&x[from..from + count]);
        let came = came(s, &copy, &inbox, 300).unwrap();
        assert_eq!(came, *buffer, "epoch {epoch}");
    }
}

/// What rank 0 does wrong, in an epoch of two ranks. Returns the errors of both.
fn wrong(
    program: impl for<'s> Fn(
        &S<'s>,
        &Puts<Gpu>,
        Outbox<'s, u64>,
        [Out<u64>; 2],
        &R<'s, u64>,
    ) -> Result<()>
    + Sync,
) -> [Result<()>; 2] {
    let results = ranks(2, |world, _| -> Result<()> {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("wrong");
        window.slot_from(1 - rank, 0, 37);
        // The second slot is of rank 0 itself.
        let mut to = [window.slot_to(1 - rank, 0); 2];
        if rank == 0 {
            window.slot_from(0, 1, 37);
            to[1] = window.slot_to(0, 1);
        }
        let (inbox, outbox) = window.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7; 37])
            .unwrap()
            .on(&s)
            .unwrap();
        let exposed = inbox.post(&s).unwrap();
        match rank {
            0 => program(&s, &puts, outbox, to, &x),
            _ => (|| {
                let _outbox = outbox.start().complete(&s)?;
                let _inbox = exposed.wait(&s)?;
                s.synchronize()
            })(),
        }
    });
    results.try_into().expect("there are two ranks")
}

/// Completes the epoch, and returns the stream's error.
fn end<'s>(s: &S<'s>, opened: Opened<'s, u64>) -> Result<()> {
    let _outbox = opened.complete(s)?;
    s.synchronize()
}

/// The fault that the first error names. The second one is of a rank that waited, and names the first one's stream.
fn fault(results: [Result<()>; 2]) -> PutFault {
    let [mine, others] = results.map(|result| result.expect_err("the kernel was wrong"));
    let Error::Wait(failed) = &others else {
        panic!("{others}");
    };
    assert!(
        matches!(&failed.cause, Cause::StreamFailed { rank: 0, .. }),
        "{others}"
    );
    assert!(
        others.to_string().contains("a kernel broke its contract: "),
        "{others}"
    );
    let Error::Stream(StreamError::KernelFault { rank: 0, fault, .. }) = mine else {
        panic!("{mine}");
    };
    fault
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_that_exceeds_its_slot_fails_by_name() {
    let errors = wrong(|s, puts, outbox, to, x| {
        let mut opened = outbox.open(s)?;
        let kernel = puts.put_by_team.threads(64, 64);
        s.launch(kernel, (opened.slots(), to[0], x, 1u64, 2u32))?;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::Beyond { slot: 0, end: 38 });
    // In a kernel that completes its target, too. The target is not complete then.
    let errors = wrong(|s, puts, outbox, to, x| {
        let opened = outbox.open(s)?;
        let long = Region::from_slice(s.world(), &[1; 40])?.on(s)?;
        s.launch(
            puts.put_last.threads(64, 64),
            (opened.last(1)?, to[0], &long),
        )?;
        let _ = x;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::Beyond { slot: 0, end: 40 });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_put_to_a_target_that_is_complete_fails_by_name() {
    let results = ranks(2, |world, k| -> Result<()> {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("behind");
        window.slot_from(1 - rank, 0, 8);
        let to = window.slot_to(1 - rank, 0);
        let (inbox, outbox) = window.open(&s)?;
        let x = Region::from_slice(&world, &[rank as u64 + 1; 8])?.on(&s)?;
        let exposed = inbox.post(&s)?;
        let mut opened = outbox.open(&s)?;
        s.launch(
            puts.put_last.threads(64, 32),
            (opened.last(1 - rank)?, to, &x),
        )?;
        if rank == 0 {
            let over = Region::from_slice(&world, &[9; 8])?.on(&s)?;
            let kernel = puts.put_by_team.threads(32, 32);
            s.launch(kernel, (opened.slots(), to, &over, 0u64, 2u32))?;
        }
        let _outbox = opened.complete(&s)?;
        let inbox = exposed.wait(&s)?;
        let came = came(&s, &k.copy_slot, &inbox, 8)?;
        assert_eq!(came, [2 - rank as u64; 8]);
        s.synchronize()
    });
    let [first, second] = &results[..] else {
        unreachable!()
    };
    let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = first else {
        panic!("{first:?}");
    };
    assert_eq!(*fault, PutFault::Completed { slot: 0 });
    // Its epoch was complete before.
    assert!(second.is_ok(), "{second:?}");
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn slots_of_other_targets_and_windows_are_refused() {
    let errors = wrong(|s, puts, outbox, to, x| {
        let opened = outbox.open(s)?;
        s.launch(puts.put_last.threads(64, 64), (opened.last(1)?, to[1], x))?;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::OtherTarget { slot: 1 });
    ranks(1, |world, _| {
        let puts = load(&world);
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("one");
        window.slot_from(0, 0, 8);
        let _to = window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let mut other = SlotWindow::<u64>::new("other");
        other.slot_from(0, 0, 8);
        let foreign = other.slot_to(0, 0);
        let _halves = other.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7; 8]).unwrap().on(&s).unwrap();
        let _exposed = inbox.post(&s).unwrap();
        let mut opened = outbox.open(&s).unwrap();
        let kernel = puts.put_by_team.threads(32, 32);
        let error = s
            .launch(kernel, (opened.slots(), foreign, &x, 0u64, 2u32))
            .unwrap_err();
        let Error::Kernel(KernelError::ForeignSlot { slot: 0 }) = error else {
            panic!("{error}");
        };
        let _outbox = opened.complete(&s).unwrap();
    });
}

/// A kernel completes in fewer blocks than it says, and in more.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_completes_its_target_exactly_once() {
    let never = |blocks: u32, said: u32| {
        wrong(move |s, puts, outbox, _, _| {
            let opened = outbox.open(s)?;
            let kernel = puts.complete_by.threads(4 * 32, 32);
            s.launch(kernel, (opened.last(1)?, blocks, said))?;
            end(s, opened)
        })
    };
    for blocks in [0, 2] {
        for result in never(blocks, 3) {
            let error = result.expect_err("it is not complete");
            let Error::Wait(failed) = &error else {
                panic!("{error}");
            };
            assert_eq!(failed.cause, Cause::NotCompleted { rank: 0, target: 1 });
        }
    }
    // The target may have gone on before.
    for (blocks, said) in [(4, 2), (3, 2), (4, 1), (4, 3)] {
        let [mine, _] = never(blocks, said);
        let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = mine else {
            panic!("{mine:?}");
        };
        assert_eq!(fault, PutFault::CompletedTwice, "{blocks} of {said}");
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn the_right_to_complete_exists_once() {
    ranks(2, |world, k| {
        let (puts, peer) = (load(&world), 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("once");
        window.slot_from(peer, 0, 8);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7; 8]).unwrap().on(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let opened = outbox.open(&s).unwrap();
        let last = opened.last(peer).unwrap();
        let again = opened.last(peer).map(drop).unwrap_err();
        let Error::Epoch(EpochError::LastTaken { rank, .. }) = again else {
            panic!("{again}");
        };
        assert_eq!(rank, peer);
        s.launch(puts.put_last.threads(64, 32), (last, to, &x))
            .unwrap();
        let again = opened.last(peer).map(drop).unwrap_err();
        assert!(
            matches!(again, Error::Epoch(EpochError::LastTaken { .. })),
            "{again}"
        );
        let _outbox = opened.complete(&s).unwrap();
        let inbox = exposed.wait(&s).unwrap();
        assert_eq!(came(&s, &k.copy_slot, &inbox, 8).unwrap(), [7; 8]);
    });
}

fn fill<'s>(
    s: &S<'s>,
    puts: &Puts<Gpu>,
    opened: &mut Opened<'s, u64>,
    to: Out<u64>,
    x: &R<'s, u64>,
    team: u32,
) {
    let kernel = puts.put_by_team.threads(512, 128);
    s.launch(kernel, (opened.slots(), to, x, 0u64, team))
        .unwrap();
}

/// The target never posts for the second epoch, since the window is revoked. Its memory stays as it was, although the
/// kernels run.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_behind_a_failed_open_change_no_byte() {
    ranks(2, |world, k| {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("never").buffers(Buffers::Single);
        window.slot_from(1 - rank, 0, 1000);
        let to = window.slot_to(1 - rank, 0);
        let (mut inbox, outbox) = window.open(&s).unwrap();
        let [x, again] = [7, 9].map(|value| {
            let x = Region::from_slice(&world, &[value; 1000]).unwrap();
            x.on(&s).unwrap()
        });
        let exposed = inbox.post(&s).unwrap();
        let mut opened = outbox.open(&s).unwrap();
        fill(&s, &puts, &mut opened, to, &x, 3);
        let outbox = opened.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        s.synchronize().unwrap();
        if rank == 0 {
            let mut opened = outbox.open(&s).unwrap();
            (0..4).for_each(|team| fill(&s, &puts, &mut opened, to, &again, team));
            let last = opened.last(1).unwrap();
            s.launch(puts.put_last.threads(64, 32), (last, to, &again))
                .unwrap();
            world.all_gather("opened", Vec::new()).unwrap();
            let error = end(&s, opened).unwrap_err();
            let Error::Wait(failed) = &error else {
                panic!("{error}");
            };
            assert!(
                matches!(failed.cause, Cause::Dropped { rank: 1, .. }),
                "{error}"
            );
            world.all_gather("over", Vec::new()).unwrap();
        } else {
            world.all_gather("opened", Vec::new()).unwrap();
            drop(outbox.start());
            world.all_gather("over", Vec::new()).unwrap();
            assert_eq!(came(&s, &k.copy_slot, &inbox, 1000).unwrap(), [7; 1000]);
        }
    });
}

/// The stream fails between `open` and the kernel. What the kernel has computed may be wrong, so its target must not take
/// it for complete.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_behind_a_failure_completes_no_target() {
    ranks(2, |world, _| {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("data");
        window.slot_from(1 - rank, 0, 100);
        let to = window.slot_to(1 - rank, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let mut other = SlotWindow::<u64>::new("other");
        other.slot_from(1 - rank, 0, 1);
        other.slot_to(1 - rank, 0);
        let (other_in, other_out) = other.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7; 100])
            .unwrap()
            .on(&s)
            .unwrap();
        let exposed = inbox.post(&s).unwrap();
        if rank == 0 {
            let opened = outbox.open(&s).unwrap();
            let _other = other_in.post(&s).unwrap().wait(&s).unwrap();
            let last = opened.last(1).unwrap();
            s.launch(puts.put_last.threads(64, 32), (last, to, &x))
                .unwrap();
            let _outbox = opened.complete(&s).unwrap();
            world.all_gather("enqueued", Vec::new()).unwrap();
            assert!(s.synchronize().is_err());
        } else {
            world.all_gather("enqueued", Vec::new()).unwrap();
            drop(other_out.start());
            let _inbox = exposed.wait(&s).unwrap();
            let error = s.synchronize().unwrap_err();
            assert!(matches!(error, Error::Wait(_)), "{error}");
        }
    });
}

/// A NIC reaches the other rank. Kernels put to staged memory, and only the host completes.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn far_targets_get_what_kernels_put() {
    let net = Net::new(2, Faults::default());
    let options = |rank: usize| {
        let nic = Fabric::over(net.wire(rank), Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    for (len, blocks) in [(33, 1), (40_000, 20)] {
        mixed(2, false, options, Buffers::Double, (len, blocks), (6, 3));
    }
}
