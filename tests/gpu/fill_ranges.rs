//! Epochs of windows by range that kernels fill: they put to ranges of their targets, and get from them.

use super::common::{I, Kernels, O, R, S, W, ranks, ranks_with};
use crate::vendor::prelude::*;
use tidegate::error::{Cause, EpochError, PutFault, StreamError};
use tidegate::fabric::{Fabric, Options};
use tidegate::kernel::{Function, Module};
use tidegate::{Route, WorldOptions};
use tidegate_fake::wire::{Faults, Net};

tidegate::kernel! {
    /// Kernels that put and get.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    unsafe struct Ranges {
        /// Gets and checks what the epoch before has put, plus 1, and puts what this epoch puts. It takes one block.
        fn get_and_put = "get_and_put"(out: OutRanges<u64>, to: Out<u64>, x: &mut [u64], count: u64, state: &[u64], scale: u64, errors: &mut [u64]);
        /// The same, and then the target is complete.
        fn get_last = "get_last"(out: LastRanges<u64>, to: Out<u64>, x: &mut [u64], state: &[u64], scale: u64, errors: &mut [u64]);
        /// All elements of `x`, from `first` on, by a thread, a warp, a block or the grid. Then all targets are complete.
        fn get_by_team = "get_by_team"(out: AllRanges<u64>, from: Out<u64>, x: &mut [u64], first: u64, team: u32);
        /// One to each element.
        fn add_one = "add_one"(x: &mut [u64]);
    }
}

fn load(world: &W) -> Ranges<Gpu> {
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    // SAFETY: the module is `samples.cu`, whose kernels keep the contract of `tidegate.cuh`.
    let ranges = unsafe { Ranges::bind(&module) }.unwrap();
    world.all_gather("ranges are loaded", Vec::new()).unwrap();
    ranges
}

/// A rank and its neighbour, which accesses a range in the middle of its memory. Epochs are numbered in device memory.
#[derive(Carry)]
struct Pair<'s> {
    x: R<'s, u64>,
    state: R<'s, u64>,
    errors: R<'s, u64>,
    inbox: I<'s, u64, ByRange>,
    outbox: O<'s, u64, ByRange>,
    to: Out<u64>,
}

/// How an epoch is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Host,
    Kernel,
    Last,
}

const ALL: [By; 6] = [
    By::Kernel,
    By::Host,
    By::Last,
    By::Last,
    By::Host,
    By::Kernel,
];

struct Plan<'k> {
    k: &'k Kernels,
    ranges: &'k Ranges<Gpu>,
    peer: usize,
    len: usize,
}

/// The elements of the memory before and behind the range.
const BESIDE: usize = 3;

fn scale(rank: usize) -> u64 {
    1_000_003 * (rank as u64 + 1)
}

type Halves<'s> = (I<'s, u64, ByRange>, O<'s, u64, ByRange>, Out<u64>);

fn open<'s>(s: &S<'s>, peer: usize, len: usize) -> Result<Halves<'s>> {
    let mut window = RangeWindow::new("ranges", len + 2 * BESIDE);
    let to = window.range_to(peer, BESIDE..BESIDE + len);
    let (inbox, outbox) = window.open(s)?;
    Ok((inbox, outbox, to))
}

impl Plan<'_> {
    fn open<'s>(&self, s: &S<'s>) -> Result<Pair<'s>> {
        let (inbox, outbox, to) = open(s, self.peer, self.len)?;
        let zeros = |len| Region::zeroed(s.world(), len)?.on(s);
        let pair = Pair {
            x: zeros(self.len)?,
            state: zeros(1)?,
            errors: zeros(1)?,
            inbox,
            outbox,
            to,
        };
        // The first `open` cannot be in a capture.
        self.step(s, pair, By::Kernel)
    }

    fn step<'s>(&self, s: &S<'s>, mut p: Pair<'s>, by: By) -> Result<Pair<'s>> {
        let (k, scale) = (self.k, scale(s.world().rank()));
        let exposed = p.inbox.post(s)?;
        p.outbox = match by {
            By::Host => {
                let over = k.produce.threads(self.len, 128);
                s.launch(over, (&mut p.x, &mut p.state, scale))?;
                let mut epoch = p.outbox.start();
                epoch.put(&p.x, p.to)?;
                epoch.complete(s)?
            }
            By::Kernel => {
                let mut opened = p.outbox.open(s)?;
                let kernel = self.ranges.get_and_put.threads(96, 96);
                let count = self.len as u64 / 3;
                let (to, ranges) = (p.to, opened.ranges());
                let own = (&mut p.x, count, &p.state, scale, &mut p.errors);
                s.launch(kernel, (ranges, to, own.0, own.1, own.2, own.3, own.4))?;
                opened.complete(s)?
            }
            By::Last => {
                let opened = p.outbox.open(s)?;
                let kernel = self.ranges.get_last.threads(3 * 64, 64);
                let last = opened.last(self.peer)?;
                s.launch(
                    kernel,
                    (last, p.to, &mut p.x, &p.state, scale, &mut p.errors),
                )?;
                opened.complete(s)?
            }
        };
        p.inbox = exposed.wait(s)?;
        // The origin checks that it gets these sums in the next epoch.
        let over = self.ranges.add_one.threads(self.len, 128);
        s.launch(over, (p.inbox.memory_mut(),))?;
        s.launch(k.tick.threads(1, 32), (&mut p.state,))?;
        Ok(p)
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_and_the_host_use_ranges_in_turn() {
    for n in [1, 2] {
        for len in [1, 33, 1000, 5000] {
            let (rounds, times) = (6, 3);
            let verdicts = ranks(n, |world, k| -> Result<(u64, u64)> {
                let ranges = load(&world);
                let plan = Plan {
                    k: &k,
                    ranges: &ranges,
                    peer: (world.rank() + 1) % n,
                    len,
                };
                stream!(let s = world.stream()?);
                let pair = plan.open(&s)?;
                let (graph, mut pair) = s.capture(pair, |s, pair| {
                    (ALL.iter()).try_fold(pair, |pair, by| plan.step(s, pair, *by))
                })?;
                for round in 0..rounds {
                    pair = graph.replay(&s, pair, times)?;
                    pair = plan.step(&s, pair, ALL[round % ALL.len()])?;
                }
                Ok((pair.state.to_vec(&s)?[0], pair.errors.to_vec(&s)?[0]))
            });
            for verdict in verdicts {
                let (epochs, errors) = verdict.unwrap();
                assert_eq!(epochs, 1 + rounds as u64 * (6 * times as u64 + 1));
                assert_eq!(errors, 0, "{n} ranks, {len} elements");
            }
        }
    }
}

/// Each team gets every length, at places that are aligned and others.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn all_teams_get_any_run() {
    ranks(1, |world, _| {
        const LEN: usize = 5000;
        let ranges = load(&world);
        stream!(let s = world.stream().unwrap());
        let (mut inbox, mut outbox, to) = open(&s, 0, LEN).unwrap();
        let there: Vec<u64> = (0..LEN as u64).map(|i| i << 3 | 1).collect();
        let data = Region::from_slice(&world, &there).unwrap().on(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&data, to).unwrap();
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        let runs = [0, 1, 2, 7, 31, 64, 1000, LEN - 1];
        let all = (0..runs.len() * 8).map(|at| (runs[at / 8], at as u32 / 2 % 4, at % 2));
        for (count, team, first) in all {
            let x = Region::from_slice(&world, &vec![9; count]).unwrap();
            let mut x = x.on(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            let opened = outbox.open(&s).unwrap();
            let kernel = ranges.get_by_team.threads(5 * 128, 128);
            let last = opened.last_of_all().unwrap();
            s.launch(kernel, (last, to, &mut x, first as u64, team))
                .unwrap();
            outbox = opened.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let got = x.to_vec(&s).unwrap();
            assert_eq!(got, there[first..first + count], "{count} by {team}");
        }
    });
}

type GetRun<T> = Function<Gpu, (OutRanges<'static, T>, Out<T>, &'static mut [T], u64)>;

/// Elements of all widths and alignments, each by a thread.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn elements_of_every_width_are_got() {
    ranks(1, |world, _| {
        stream!(let s = world.stream().unwrap());
        runs_of(&world, &s, "get_bytes", |i| i as u8);
        let triple = |i| [i as f32, i as f32 + 0.5, -(i as f32)];
        runs_of(&world, &s, "get_triples", triple);
        let wide = |i| (i as u128) << 64 | (i as u128 + 1);
        runs_of(&world, &s, "get_wides", wide);
    });
}

fn runs_of<'s, T: Element + PartialEq>(
    world: &W,
    s: &S<'s>,
    name: &str,
    make: impl Fn(usize) -> T,
) {
    const LEN: usize = 300;
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    // SAFETY: the function of that name gets elements of this width and alignment, within both lengths.
    let get: GetRun<T> = unsafe { module.function(name) }.unwrap();
    let mut window = RangeWindow::<T>::new("widths", LEN + 20);
    let to = window.range_to(0, 7..LEN + 7);
    let (inbox, outbox) = window.open(s).unwrap();
    let there: Vec<T> = (0..LEN).map(make).collect();
    let data = Region::from_slice(world, &there).unwrap().on(s).unwrap();
    let exposed = inbox.post(s).unwrap();
    let mut epoch = outbox.start();
    epoch.put(&data, to).unwrap();
    let (mut outbox, mut inbox) = (epoch.complete(s).unwrap(), exposed.wait(s).unwrap());
    for (first, count) in [(0, LEN), (1, 17), (LEN - 1, 1), (5, 0), (10, 250)] {
        let mut x = Region::zeroed(world, count).unwrap().on(s).unwrap();
        let exposed = inbox.post(s).unwrap();
        let mut opened = outbox.open(s).unwrap();
        let arguments = (opened.ranges(), to, &mut x, first as u64);
        s.launch(get.threads(96, 32), arguments).unwrap();
        (outbox, inbox) = (opened.complete(s).unwrap(), exposed.wait(s).unwrap());
        assert!(
            x.to_vec(s).unwrap() == there[first..first + count],
            "{name}"
        );
    }
}

/// Runs a program on rank 0 of two. Its kernels are wrong, or come behind a failure.
fn wrong(
    program: impl for<'s> Fn(&S<'s>, &Ranges<Gpu>, Outbox<'s, u64, ByRange>, Out<u64>) -> Result<()>
    + Sync,
) -> [Result<()>; 2] {
    let results = ranks(2, |world, _| -> Result<()> {
        let (ranges, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, to) = open(&s, 1 - rank, 37).unwrap();
        let exposed = inbox.post(&s).unwrap();
        if rank == 0 {
            world.all_gather("enqueued", Vec::new()).unwrap();
            return program(&s, &ranges, outbox, to);
        }
        let _outbox = outbox.start().complete(&s).unwrap();
        let _inbox = exposed.wait(&s).unwrap();
        world.all_gather("enqueued", Vec::new()).unwrap();
        s.synchronize()
    });
    results.try_into().expect("there are two ranks")
}

/// Kernels that get what they may not leave their own memory as it was, and fail the stream by name.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn gets_that_are_wrong_fail_by_name() {
    let [mine, others] = wrong(|s, ranges, outbox, to| {
        let mut x = Region::from_slice(s.world(), &[5; 30])?.on(s)?;
        let opened = outbox.open(s)?;
        let kernel = ranges.get_by_team.threads(64, 64);
        s.launch(kernel, (opened.last_of_all()?, to, &mut x, 8u64, 2u32))?;
        let _outbox = opened.complete(s)?;
        s.synchronize()
    });
    let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = mine else {
        panic!("{mine:?}");
    };
    assert_eq!(*fault, PutFault::Beyond { slot: 0, end: 38 });
    let others = others.expect_err("it waits for this rank");
    assert!(
        others.to_string().contains("a kernel broke its contract: "),
        "{others}"
    );
    // The target is complete, so it may use its memory.
    let [mine, _] = wrong(|s, ranges, outbox, to| {
        let zeros = Region::zeroed(s.world(), 1)?.on(s)?;
        let mut errors = Region::zeroed(s.world(), 1)?.on(s)?;
        let mut first = Region::from_slice(s.world(), &[5; 37])?.on(s)?;
        let mut opened = outbox.open(s)?;
        let kernel = ranges.get_last.threads(64, 32);
        let own = (&mut first, &zeros, 1u64, &mut errors);
        s.launch(kernel, (opened.last(1)?, to, own.0, own.1, own.2, own.3))?;
        let kernel = ranges.get_and_put.threads(32, 32);
        let own = (&mut first, 3u64, &zeros, 1u64, &mut errors);
        let arguments = (opened.ranges(), to, own.0, own.1, own.2, own.3, own.4);
        s.launch(kernel, arguments)?;
        let _outbox = opened.complete(s)?;
        s.synchronize()
    });
    let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = mine else {
        panic!("{mine:?}");
    };
    assert_eq!(*fault, PutFault::Completed { slot: 0 });
}

/// The target never posts, since the window is revoked. The kernels run, and neither get nor put a byte.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_behind_a_failed_open_get_nothing() {
    ranks(2, |world, _| {
        let (ranges, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, to) = open(&s, 1 - rank, 37).unwrap();
        if rank == 1 {
            world.all_gather("enqueued", Vec::new()).unwrap();
            drop((inbox, outbox.start()));
            world.all_gather("over", Vec::new()).unwrap();
            return;
        }
        let mut x = Region::from_slice(&world, &[9; 37])
            .unwrap()
            .on(&s)
            .unwrap();
        let opened = outbox.open(&s).unwrap();
        let kernel = ranges.get_by_team.threads(64, 64);
        let all = opened.last_of_all().unwrap();
        s.launch(kernel, (all, to, &mut x, 0u64, 3u32)).unwrap();
        let _outbox = opened.complete(&s).unwrap();
        world.all_gather("enqueued", Vec::new()).unwrap();
        let error = s.synchronize().unwrap_err();
        let Error::Wait(failed) = &error else {
            panic!("{error}");
        };
        let is_dropped = matches!(failed.cause, Cause::Dropped { rank: 1, .. });
        assert!(is_dropped, "{error}");
        world.all_gather("over", Vec::new()).unwrap();
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn far_ranges_are_refused() {
    let net = Net::new(2, Faults::default());
    let options = |rank: usize| {
        let nic = Fabric::over(net.wire(rank), Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    ranks_with(2, options, |world, _| {
        stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let (inbox, outbox, to) = open(&s, peer, 37).unwrap();
        let refused = outbox.try_open(&s).expect_err("a NIC reaches the target");
        let Error::Epoch(EpochError::NotByKernels { rank, .. }) = refused.error else {
            panic!("{}", refused.error);
        };
        assert_eq!(rank, peer);
        // The host's epochs go on.
        let x = Region::from_slice(&world, &[7; 37])
            .unwrap()
            .on(&s)
            .unwrap();
        let mut epoch = refused.value.start();
        epoch.put(&x, to).unwrap();
        let _halves = exchange(&s, inbox, epoch).unwrap();
        s.synchronize().unwrap();
    });
}
