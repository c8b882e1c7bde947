//! Epochs that kernels fill by themselves (`kernels/tidegate.cuh`).

use super::common::{I, Kernels, O, R, S, W, number, ranks, ranks_with};
use crate::vendor::prelude::*;
use tidegate::error::{EpochError, KernelError};
use tidegate::fabric::{Fabric, Options};
use tidegate::kernel::{Function, Module};
use tidegate::verify::Verdict;
use tidegate::{Route, WorldOptions};
use tidegate_fake::wire::{Faults, Net};

tidegate::kernel! {
    /// Kernels that put.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(super) unsafe struct Puts {
        /// `number * scale + i` to all elements of a slot, where the number is in `state`.
        fn put_values = "put_values"(out: OutSlots<u64>, to: Out<u64>, state: &[u64], scale: u64);
        /// All elements, from `first` on, by a thread, a warp, a block or the grid.
        fn put_by_team = "put_by_team"(out: OutSlots<u64>, to: Out<u64>, x: &[u64], first: u64, team: u32);
        /// One element to the slot of a number.
        fn put_to_number = "put_to_number"(out: OutSlots<u64>, number: u64);
        /// All elements, and then the target is complete.
        fn put_last = "put_last"(out: LastSlots<u64>, to: Out<u64>, x: &[u64]);
        /// Completes in some blocks, for as many as is said.
        fn complete_by = "complete_by"(out: LastSlots<u64>, blocks: u32, said: u32);
    }
}

/// Opens a window with a slot of so many elements from the peer, and one to it.
pub(super) fn open<'s, T: Element>(
    s: &S<'s>,
    mut window: SlotWindow<T>,
    peer: usize,
    len: usize,
) -> Result<(I<'s, T>, O<'s, T>, Out<T>)> {
    window.slot_from(peer, 0, len);
    let to = window.slot_to(peer, 0);
    let (inbox, outbox) = window.open(s)?;
    Ok((inbox, outbox, to))
}

/// What has come in the only slot of an inbox.
pub(super) fn came<'s>(s: &S<'s>, k: &Kernels, inbox: &I<'s, u64>, len: usize) -> Result<Vec<u64>> {
    let mut seen = Region::zeroed(s.world(), len)?.on(s)?;
    let kernel = k.copy_slot.threads(len, 128);
    s.launch(kernel, (inbox.view(), 0u64, &mut seen))?;
    seen.to_vec(s)
}

pub(super) fn load(world: &W) -> Puts<Gpu> {
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
    inbox: I<'s, u64>,
    outbox: O<'s, u64>,
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
        let window = SlotWindow::new("filled").buffers(buffers);
        let (inbox, outbox, to) = open(s, window, self.peer, len)?;
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

/// As many epochs as `TIDEGATE_GPU_EPOCHS` says, most of them replayed. Kernels fill two thirds of them.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn many_epochs_are_right() {
    let most = number("TIDEGATE_GPU_EPOCHS", 100_000);
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
        let (mut inbox, mut outbox, to) = open(&s, SlotWindow::new("runs"), 0, 5000).unwrap();
        let mut expected = [vec![0; 5000], vec![0; 5000]];
        let runs = [0, 1, 2, 7, 31, 64, 1000, 4999];
        let all = (0..runs.len() * 8).map(|at| (runs[at / 8], at as u32 / 2 % 4, at % 2));
        for (epoch, (count, team, first)) in all.enumerate() {
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
            let came = came(&s, &k, &inbox, 5000).unwrap();
            assert_eq!(came, *buffer, "{count} by {team} from {first} on");
        }
    });
}

/// Elements of all widths and alignments, at every distance from a line of 16 bytes.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn elements_of_every_width_are_put() {
    ranks(1, |world, _| {
        stream!(let s = world.stream().unwrap());
        runs_of(&world, &s, "put_bytes", |i| i as u8, |x| vec![x]);
        runs_of(
            &world,
            &s,
            "put_u16",
            |i| i as u16,
            |x| x.to_ne_bytes().into(),
        );
        runs_of(
            &world,
            &s,
            "put_f32",
            |i| i as f32,
            |x| x.to_ne_bytes().into(),
        );
        let triple = |i| [i as f32, i as f32 + 0.5, -(i as f32)];
        let bytes = |x: [f32; 3]| x.iter().flat_map(|x| x.to_ne_bytes()).collect();
        runs_of(&world, &s, "put_triples", triple, bytes);
        let wide = |i| (i as u128) << 64 | (i as u128 + 1);
        runs_of(&world, &s, "put_wides", wide, |x| x.to_ne_bytes().into());
    });
}

type PutRun<T> = Function<Gpu, (OutSlots<'static, T>, Out<T>, &'static [T], u64, u64, u64)>;
type CopyBytes<T> = Function<Gpu, (Slots<'static, T>, u64, u64, &'static mut [u8])>;

/// Runs of elements, a part of them by the grid and the others by one thread each.
fn runs_of<'s, T: Element>(
    world: &W,
    s: &S<'s>,
    name: &str,
    make: impl Fn(usize) -> T,
    bytes: impl Fn(T) -> Vec<u8>,
) {
    const LEN: usize = 3000;
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    // SAFETY: the function of that name puts elements of this width and alignment, within both lengths.
    let put: PutRun<T> = unsafe { module.function(name) }.unwrap();
    // SAFETY: the function takes a slot's number and the width of its elements, and keeps to both lengths.
    let copy: CopyBytes<T> = unsafe { module.function("copy_slot_as_bytes") }.unwrap();
    let (mut inbox, mut outbox, to) = open(s, SlotWindow::new("runs"), 0, LEN + 30).unwrap();
    let size = size_of::<T>();
    let mut expected = [vec![0; (LEN + 30) * size], vec![0; (LEN + 30) * size]];
    for epoch in 0..40 {
        let (from, first, count) = (epoch % 17, epoch * 5 % 23, epoch * 379 % 2900);
        let x: Vec<T> = (0..LEN).map(|i| make(epoch * 7 + i)).collect();
        let data = Region::from_slice(world, &x).unwrap().on(s).unwrap();
        let mut seen = Region::zeroed(world, (LEN + 30) * size)
            .unwrap()
            .on(s)
            .unwrap();
        let exposed = inbox.post(s).unwrap();
        let mut opened = outbox.open(s).unwrap();
        let [from_, count_, first_] = [from, count, first].map(|each| each as u64);
        s.launch(
            put.threads(96, 32),
            (opened.slots(), to, &data, from_, count_, first_),
        )
        .unwrap();
        outbox = opened.complete(s).unwrap();
        inbox = exposed.wait(s).unwrap();
        s.launch(
            copy.threads(256, 128),
            (inbox.view(), 0u64, size as u64, &mut seen),
        )
        .unwrap();
        let buffer = &mut expected[epoch % 2];
        let put: Vec<u8> = x[from..].iter().flat_map(|x| bytes(*x)).collect();
        buffer[first * size..][..put.len()].copy_from_slice(&put);
        assert!(seen.to_vec(s).unwrap() == *buffer, "{name}, epoch {epoch}");
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn the_right_to_complete_exists_once() {
    ranks(2, |world, k| {
        let (puts, peer) = (load(&world), 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, to) = open(&s, SlotWindow::new("once"), peer, 8).unwrap();
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
        assert_eq!(came(&s, &k, &inbox, 8).unwrap(), [7; 8]);
    });
}

/// Launches that are refused, because of a handle of another window, and because a block has no threads.
fn refused<'s>(
    s: &S<'s>,
    puts: &Puts<Gpu>,
    opened: &Opened<'s, u64>,
    [to, foreign]: [Out<u64>; 2],
    x: &R<'s, u64>,
) {
    let kernel = puts.put_last.threads(64, 32);
    let error = s.launch(kernel, (opened.last(0).unwrap(), foreign, x));
    let Err(Error::Kernel(KernelError::ForeignSlot { slot: 0 })) = error else {
        panic!("{error:?}");
    };
    let none = puts.put_last.threads(64, 0);
    let error = s.launch(none, (opened.last(0).unwrap(), to, x));
    assert!(matches!(error, Err(Error::Device(_))), "{error:?}");
}

/// The right to complete a target is not used up by a launch that is refused.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_refused_launch_leaves_the_right_to_complete() {
    ranks(1, |world, k| {
        let puts = load(&world);
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, to) = open(&s, SlotWindow::new("once"), 0, 8).unwrap();
        let (_in, _out, foreign) = open(&s, SlotWindow::new("other"), 0, 8).unwrap();
        let x = Region::from_slice(&world, &[7; 8]).unwrap().on(&s).unwrap();
        // The kernel is launched well at last.
        let exposed = inbox.post(&s).unwrap();
        let opened = outbox.open(&s).unwrap();
        refused(&s, &puts, &opened, [to, foreign], &x);
        let kernel = puts.put_last.threads(64, 32);
        s.launch(kernel, (opened.last(0).unwrap(), to, &x)).unwrap();
        let outbox = opened.complete(&s).unwrap();
        let inbox = exposed.wait(&s).unwrap();
        assert_eq!(came(&s, &k, &inbox, 8).unwrap(), [7; 8]);
        // The host completes the target instead, in a recording, too.
        let all = (x, inbox, outbox);
        let (graph, back) = s
            .capture(all, |s, (x, inbox, outbox)| {
                let exposed = inbox.post(s)?;
                let opened = outbox.open(s)?;
                refused(s, &puts, &opened, [to, foreign], &x);
                let outbox = opened.complete(s)?;
                Ok((x, exposed.wait(s)?, outbox))
            })
            .unwrap();
        let verdict = graph.verify(&s).unwrap();
        assert!(matches!(verdict, Verdict::Proved(_)), "{verdict}");
        let _all = graph.replay(&s, back, 3).unwrap();
        s.synchronize().unwrap();
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
