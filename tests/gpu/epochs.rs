//! Epochs: every way to move data, verified.

use crate::common::signals;

use super::common::{I, Kernels, O, R, S, W, ranks, ranks_with};
use crate::vendor::prelude::*;
use tidegate::WorldOptions;

/// A ring whose epochs are numbered in device memory, so that replays are verified, too.
#[derive(Carry)]
pub(crate) struct Ring<'s> {
    src: R<'s, u64>,
    state: R<'s, u64>,
    errors: R<'s, u64>,
    inbox: I<'s, u64>,
    outbox: O<'s, u64>,
    from: [In<u64>; 2],
    to: [Out<u64>; 2],
}

/// The actions of a ring's rank in each step.
pub(crate) struct Plan<'k> {
    k: &'k Kernels,
    left: u64,
    right: u64,
    rank: u64,
    /// The first element of the source.
    first: usize,
    used: usize,
    /// Whether post, complete and wait are one call.
    fused: bool,
    /// Whether post and wait are one call, behind the puts: with two buffers.
    whole: bool,
    /// How many nanoseconds the rank is late each time.
    late: u64,
}

/// Element `i` of rank `r` in epoch `e` is `e * scale(r) + i`.
fn scale(rank: u64) -> u64 {
    1_000_003 * (rank + 1)
}

impl<'k> Plan<'k> {
    pub(crate) fn new(k: &'k Kernels, world: &W, used: usize) -> Self {
        let (rank, size) = (world.rank() as u64, world.size() as u64);
        Plan {
            k,
            left: (rank + size - 1) % size,
            right: (rank + 1) % size,
            rank,
            first: 0,
            used,
            fused: false,
            whole: false,
            late: 0,
        }
    }

    pub(crate) fn part(&self, first: usize, used: usize, fused: bool) -> Self {
        Plan {
            k: self.k,
            first,
            used,
            fused,
            ..*self
        }
    }

    pub(crate) fn step<'s>(&self, s: &S<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
        self.produce(s, &mut r.src, &mut r.state)?;
        let exposed = if self.fused || self.whole {
            Err(r.inbox)
        } else {
            Ok(r.inbox.post(s)?)
        };
        let mut epoch = r.outbox.start();
        self.put(&mut epoch, r.to, &r.src)?;
        (r.inbox, r.outbox) = match exposed {
            Ok(exposed) => {
                let outbox = epoch.complete(s)?;
                (exposed.wait(s)?, outbox)
            }
            Err(inbox) if self.whole => {
                let outbox = epoch.complete(s)?;
                (inbox.expose(s)?, outbox)
            }
            Err(inbox) => exchange(s, inbox, epoch)?,
        };
        self.consume(s, &mut r)?;
        Ok(r)
    }

    fn produce<'s>(&self, s: &S<'s>, src: &mut R<'s, u64>, state: &mut R<'s, u64>) -> Result<()> {
        let k = self.k;
        if self.late > 0 {
            s.launch(k.busy.threads(1, 32), (&mut *src, self.late))?;
        }
        let over = k.produce.threads(src.len().clamp(1, 1 << 15), 256);
        s.launch(over, (src, state, scale(self.rank)))
    }

    fn put<'s, 'b>(
        &self,
        epoch: &mut Access<'s, 'b, u64>,
        [to_left, to_right]: [Out<u64>; 2],
        src: &'b R<'s, u64>,
    ) -> Result<()> {
        let part = || src.slice(self.first..self.first + self.used);
        epoch.put(part()?, to_left.at(self.first))?;
        epoch.put(part()?, to_right.at(self.first))
    }

    /// Checks the elements of this epoch. The rest is of earlier epochs.
    fn consume<'s>(&self, s: &S<'s>, r: &mut Ring<'s>) -> Result<()> {
        let k = self.k;
        let threads = r.src.len().clamp(1, 1 << 15);
        for (slot, from) in r.from.into_iter().zip([self.right, self.left]) {
            let over = k.consume.threads(threads, 256);
            let (first, end) = (self.first as u64, (self.first + self.used) as u64);
            s.launch(
                over,
                (
                    r.inbox.view(),
                    u64::from(slot.index()),
                    first,
                    end,
                    &r.state,
                    scale(from),
                    &mut r.errors,
                ),
            )?;
        }
        s.launch(k.tick.threads(1, 32), (&mut r.state,))
    }
}

impl<'s> Ring<'s> {
    pub(crate) fn open(world: &W, s: &S<'s>, buffers: Buffers, len: usize) -> Result<Self> {
        let (rank, size) = (world.rank(), world.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        let mut window = SlotWindow::new("ring").buffers(buffers);
        let from = [
            window.slot_from(right, 0, len),
            window.slot_from(left, 1, len),
        ];
        let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
        let (inbox, outbox) = window.open(s)?;
        Ok(Ring {
            src: Region::zeroed(world, len)?.on(s)?,
            state: Region::zeroed(world, 1)?.on(s)?,
            errors: Region::zeroed(world, 1)?.on(s)?,
            inbox,
            outbox,
            from,
            to,
        })
    }

    /// The number of epochs, and the number of wrong elements in them.
    pub(crate) fn verdict(self, s: &S<'s>) -> Result<(u64, u64)> {
        let (mut epochs, mut errors) = ([0], [0]);
        self.state.into_host(s)?.read(0, &mut epochs)?;
        self.errors.into_host(s)?.read(0, &mut errors)?;
        Ok((epochs[0], errors[0]))
    }
}

fn ring(n: usize, buffers: Buffers, len: usize, rounds: u64) {
    ring_with(n, |_| WorldOptions::new(), buffers, len, rounds);
}

/// A ring of ranks with options, in turn eager, replayed and fused. Returns how many epochs each rank had.
pub(crate) fn ring_with(
    n: usize,
    options: impl Fn(usize) -> WorldOptions + Sync,
    buffers: Buffers,
    len: usize,
    rounds: u64,
) -> u64 {
    let verdicts = ranks_with(n, options, |world, k| -> Result<(u64, u64)> {
        let plan = Plan::new(&k, &world, len);
        stream!(let s = world.stream()?);
        let mut ring = Ring::open(&world, &s, buffers, len)?;
        let fused = plan.part(0, len, true);
        let (graph, back) = s.capture(ring, |s, r| plan.step(s, r))?;
        let (graph_fused, back) = s.capture(back, |s, r| fused.step(s, r))?;
        let whole = Plan {
            whole: buffers == Buffers::Double,
            ..plan.part(0, len, false)
        };
        let (graph_whole, back) = s.capture(back, |s, r| whole.step(s, r))?;
        ring = back;
        let mut steps = 0;
        for round in 0..rounds {
            ring = graph.replay(&s, ring, (round % 4) as usize)?;
            ring = plan.step(&s, ring)?;
            ring = graph_fused.replay(&s, ring, (round % 3) as usize)?;
            ring = fused.step(&s, ring)?;
            ring = whole.step(&s, ring)?;
            ring = graph_whole.replay(&s, ring, (round % 2) as usize)?;
            steps += round % 4 + round % 3 + round % 2 + 3;
        }
        let (epochs, errors) = ring.verdict(&s)?;
        assert_eq!(epochs, steps);
        Ok((epochs, errors))
    });
    let mut steps = 0;
    for (rank, verdict) in verdicts.into_iter().enumerate() {
        let (epochs, errors) = verdict.unwrap();
        assert_eq!(errors, 0, "rank {rank} of {n}, {buffers:?}, {len} elements");
        steps = epochs;
    }
    steps
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rings_of_all_sizes_eager_replayed_and_fused() {
    for n in [1, 2, 3, 4] {
        for buffers in [Buffers::Single, Buffers::Double] {
            for len in [1, 2, 31, 600, 5_000, 200_000] {
                ring(n, buffers, len, 12);
            }
        }
    }
}

/// In a graph of several replays, a kernel behind a batch begins when the batch is over, and has the data that a peer
/// puts late.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn recordings_in_rows_keep_their_order() {
    // For recordings of up to eight nodes, this launches the longer row, the shorter row, and the recording itself.
    const TIMES: u64 = 93;
    for len in [31, 5_000] {
        let verdicts = ranks(2, |world, k| -> Result<(u64, u64)> {
            let mut plan = Plan::new(&k, &world, len);
            plan.late = 100_000 * plan.rank;
            stream!(let s = world.stream()?);
            let mut ring = Ring::open(&world, &s, Buffers::Double, len)?;
            for fused in [false, true] {
                let plan = plan.part(0, len, fused);
                let (graph, back) = s.capture(ring, |s, r| plan.step(s, r))?;
                ring = graph.replay(&s, back, TIMES as usize)?;
            }
            ring.verdict(&s)
        });
        for verdict in verdicts {
            assert_eq!(verdict.unwrap(), (2 * TIMES, 0), "{len} elements");
        }
    }
}

/// The inbox goes to another stream before anything is recorded on its own. In each replay it must do so after the
/// replay before is over there, though no node says so.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn recordings_in_rows_begin_on_one_stream_where_they_ended_on_the_other() {
    const TIMES: u64 = 93;
    const LEN: usize = 3_000;
    let verdicts = ranks(2, |world, k| -> Result<(u64, u64)> {
        let plan = Plan::new(&k, &world, LEN);
        stream!(let s = world.named_stream("s")?);
        stream!(let t = world.named_stream("t")?);
        let ring = Ring::open(&world, &s, Buffers::Single, LEN)?;
        let (graph, back) = s.capture_with(&mut t, (ring, ()), |s, t, (mut r, ())| {
            let exposed = s.hand_off(r.inbox, t)?.post(t)?;
            plan.produce(s, &mut r.src, &mut r.state)?;
            let mut epoch = r.outbox.start();
            plan.put(&mut epoch, r.to, &r.src)?;
            r.outbox = epoch.complete(s)?;
            r.inbox = t.hand_off(exposed, s)?.wait(s)?;
            // A rank that is exposed too early would be overwritten meanwhile.
            let late = 50_000 * plan.rank;
            s.launch(k.busy.threads(1, 32), (&mut r.src, late))?;
            plan.consume(s, &mut r)?;
            Ok((r, ()))
        })?;
        let (ring, ()) = graph.replay(&s, &t, back, TIMES as usize)?;
        ring.verdict(&s)
    });
    for verdict in verdicts {
        assert_eq!(verdict.unwrap(), (TIMES, 0));
    }
}

/// Eager puts go by copy engines if the slot has one buffer and is large enough. Replayed puts, and puts to two
/// buffers, go by blocks.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn large_rings() {
    // 8 MiB are large between GPUs, and 32 MiB within one.
    for (n, buffers, len) in [
        (1, Buffers::Single, 1 << 20),
        (2, Buffers::Single, 1 << 20),
        (1, Buffers::Single, 4 << 20),
        (2, Buffers::Single, 4 << 20),
        (3, Buffers::Single, 4 << 20),
        (2, Buffers::Double, 4 << 20),
    ] {
        ring(n, buffers, len + 3, 6);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn random_parts_and_alignments() {
    const LEN: usize = 40_000;
    let verdicts = ranks(3, |world, k| -> Result<(u64, u64)> {
        let plan = Plan::new(&k, &world, LEN);
        stream!(let s = world.stream()?);
        let mut ring = Ring::open(&world, &s, Buffers::Double, LEN)?;
        let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ world.rank() as u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        // Each rank chooses the part that it sends, so the receiver must check the whole slot. All ranks send the whole
        // first, and then the parts in the same epochs.
        let mut shared = 1u64;
        for _ in 0..400 {
            shared = shared
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let first = (shared >> 33) as usize % LEN;
            let most = if shared & 7 == 0 { LEN } else { 300 };
            let used = 1 + (shared >> 20) as usize % most.min(LEN - first);
            let part = plan.part(first, used, random(2) == 0);
            ring = part.step(&s, ring)?;
        }
        ring.verdict(&s)
    });
    for verdict in verdicts {
        assert_eq!(verdict.unwrap(), (400, 0));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn shapes_gather_and_scatter() {
    ranks(2, |world, k| {
        const LEN: usize = 4096;
        let other = 1 - world.rank();
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::new("shapes");
        window.slot_from(other, 0, LEN);
        let way = window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let mut src = Region::<u64, _>::zeroed(&world, LEN)
            .unwrap()
            .on(&s)
            .unwrap();
        s.launch(k.count.threads(LEN, 256), (&mut src, 0u64))
            .unwrap();
        let mut seen = Region::<u64, _>::zeroed(&world, LEN)
            .unwrap()
            .on(&s)
            .unwrap();
        let elements = |first: usize, loops: &[(u32, i32)]| {
            let mut all = vec![first as i64];
            for &(count, stride) in loops.iter().rev() {
                all = all
                    .iter()
                    .flat_map(|at| (0..i64::from(count)).map(move |i| at + i * i64::from(stride)))
                    .collect();
            }
            all
        };
        type Loops<'a> = &'a [(u32, i32)];
        let cases: [(usize, Loops<'_>, usize, Loops<'_>); 5] = [
            (0, &[(12, 1), (12, 12), (3, 200)], 0, &[(432, 1)]),
            (5, &[(7, 3), (9, 40)], 1, &[(63, 2)]),
            (4000, &[(20, -7)], 100, &[(4, 1), (5, 100)]),
            (0, &[(16, 2), (16, 64), (4, 1024)], 0, &[(64, 1), (16, 128)]),
            (3, &[(1, 1)], 4095, &[(1, 1)]),
        ];
        for (first, from, to_first, to) in cases {
            let (source, dest) = (
                Layout::strided(first, from).unwrap(),
                Layout::strided(to_first, to).unwrap(),
            );
            let mut epoch = outbox.start();
            epoch
                .put(src.with(&source).unwrap(), way.with(&dest))
                .unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            s.launch(
                k.copy_slot.threads(LEN, 256),
                (inbox.view(), 0u64, &mut seen),
            )
            .unwrap();
            let host = seen.into_host(&s).unwrap();
            let mut back = vec![0; LEN];
            host.read(0, &mut back).unwrap();
            for (a, b) in elements(first, from)
                .into_iter()
                .zip(elements(to_first, to))
            {
                assert_eq!(back[b as usize], a as u64, "{from:?} -> {to:?} at {b}");
            }
            seen = host.on(&s).unwrap();
        }
        // By a table.
        let indices: Vec<u32> = (0..1000u32).map(|i| (i * 2_477) % LEN as u32).collect();
        let table = Layout::indexed(&world, &indices).unwrap();
        for _ in 0..2 {
            // Both buffers.
            let mut epoch = outbox.start();
            epoch.put(src.with(&table).unwrap(), way.at(7)).unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
        }
        s.launch(
            k.copy_slot.threads(LEN, 256),
            (inbox.view(), 0u64, &mut seen),
        )
        .unwrap();
        let mut back = vec![0; LEN];
        seen.into_host(&s).unwrap().read(0, &mut back).unwrap();
        for (i, index) in indices.iter().enumerate() {
            assert_eq!(back[7 + i], u64::from(*index));
        }
    });
}

/// The elements of an atomic window, after every rank has updated those of all others.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn atomics_of_all_ranks_add_up() {
    const LEN: usize = 300;
    const TIMES: usize = 20;
    ranks(3, |world, k| {
        let size = world.size();
        stream!(let s = world.stream().unwrap());
        let mut window = AtomicWindow::<f64>::new("sums", LEN);
        let targets: Vec<_> = (0..size).map(|rank| window.target(rank)).collect();
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let ones = Region::from_slice(&world, &[1.0; LEN])
            .unwrap()
            .on(&s)
            .unwrap();
        let mut old = Region::<f64, _>::zeroed(&world, LEN)
            .unwrap()
            .on(&s)
            .unwrap();
        for turn in 0..TIMES {
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            for target in &targets {
                let op = if turn % 2 == 0 { Op::Sum } else { Op::Max };
                epoch.accumulate(&ones, *target, op).unwrap();
            }
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        }
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        let (_, right) = world.ring();
        epoch.get(&mut old, targets[right]).unwrap();
        // Every origin completes towards every target, even without an operation.
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        let mut back = vec![0.0; LEN];
        old.into_host(&s).unwrap().read(0, &mut back).unwrap();
        let expected = (TIMES / 2 * size) as f64;
        assert!(
            back.iter().all(|x| *x == expected),
            "{expected}: {:?}",
            &back[..4]
        );
        drop((inbox, outbox, k));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn fetches_draw_every_number_once() {
    const TURNS: u64 = 50;
    let drawn = ranks(4, |world, _| {
        let size = world.size();
        stream!(let s = world.stream().unwrap());
        let mut window = AtomicWindow::<u64>::new("tickets", 1);
        let at = window.target(0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let one = Region::from_slice(&world, &[1u64]).unwrap().on(&s).unwrap();
        let mut drawn = Vec::new();
        let mut result = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        for _ in 0..TURNS {
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.fetch_and_op(&one, &mut result, at, Op::Sum).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let host = result.into_host(&s).unwrap();
            let mut value = [0];
            host.read(0, &mut value).unwrap();
            drawn.push(value[0]);
            result = host.on(&s).unwrap();
        }
        drop((inbox, outbox));
        assert_eq!(size, 4);
        drawn
    });
    let mut all: Vec<_> = drawn.into_iter().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..4 * TURNS).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn ranges_are_got_and_put() {
    ranks(2, |world, _| {
        const LEN: usize = 10_000;
        let (rank, other) = (world.rank(), 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = RangeWindow::<u64>::new("ranges", 2 * LEN);
        let range = window.range_to(other, rank * LEN..(rank + 1) * LEN);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let values: Vec<u64> = (0..LEN as u64).map(|i| i * 3 + rank as u64).collect();
        let src = Region::from_slice(&world, &values).unwrap().on(&s).unwrap();
        let mut back = Region::<u64, _>::zeroed(&world, LEN)
            .unwrap()
            .on(&s)
            .unwrap();
        for first in [0, 1, 777] {
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch
                .put(src.slice(0..LEN - first).unwrap(), range.at(first))
                .unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.get(&mut back, range).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let host = back.into_host(&s).unwrap();
            let mut got = vec![0; LEN];
            host.read(0, &mut got).unwrap();
            assert_eq!(got[first..], values[..LEN - first]);
            back = host.on(&s).unwrap();
        }
        drop((inbox, outbox));
    });
}

/// The contents of a region.
fn read<'s>(region: R<'s, u64>, s: &S<'s>) -> Vec<u64> {
    let host = region.into_host(s).unwrap();
    let mut values = vec![0; host.len()];
    host.read(0, &mut values).unwrap();
    values
}

/// A layout chooses elements of the other rank's memory. A get shows where they are, and a put followed by a get
/// returns the data. The whole layout is used, and parts of it, which are several moves.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn layouts_are_got_and_put_in_place() {
    layouts_with(|_| WorldOptions::new());
}

pub(super) fn layouts_with(options: impl Fn(usize) -> WorldOptions + Sync) {
    ranks_with(2, options, |world, k| {
        let (rank, other) = (world.rank(), 1 - world.rank());
        let dims = [7, 30, 41];
        let len = dims.iter().product::<usize>();
        let boxes = [
            [0..1, 1..29, 1..40],
            [1..6, 0..1, 1..40],
            [1..6, 1..29, 0..1],
            [1..6, 1..29, 40..41],
            [2..4, 3..17, 5..38],
        ];
        let elements = |ranges: &[std::ops::Range<usize>; 3]| -> Vec<usize> {
            let [xs, ys, zs] = ranges.clone();
            xs.flat_map(|x| ys.clone().map(move |y| (x * dims[1] + y) * dims[2]))
                .flat_map(|row| zs.clone().map(move |z| row + z))
                .collect()
        };
        let table: Vec<u32> = (0..500).map(|k| 6 * 30 * 41 + (k * 77) % 500 * 2).collect();
        stream!(let s = world.stream().unwrap());
        let mut window = RangeWindow::<u64>::new("layouts", len);
        let mut ways = Vec::new();
        for ranges in &boxes {
            let layout = Layout::subarray(&dims, ranges).unwrap();
            ways.push((window.layout_to(other, &layout), elements(ranges)));
        }
        let layout = Layout::indexed(&world, &table).unwrap();
        let there = table.iter().map(|element| *element as usize).collect();
        ways.push((window.layout_to(other, &layout), there));
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let count = k.count.threads(len, 128);
        s.launch(count, (inbox.memory_mut(), 1_000_000 * other as u64))
            .unwrap();
        for (to, elements) in &ways {
            let many = elements.len();
            // Parts of a layout of rows and columns begin and end anywhere.
            for some in [0..many, 0..many - 1, many / 3..many / 2, 1..many] {
                let zeroed = || Region::<u64, _>::zeroed(&world, some.len()).unwrap();
                let mut got = zeroed().on(&s).unwrap();
                let mut epoch = outbox.start();
                epoch.get(&mut got, to.at(some.start)).unwrap();
                (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                let there = |element: &usize| 1_000_000 * rank as u64 + *element as u64;
                let expected: Vec<_> = elements[some.clone()].iter().map(there).collect();
                assert_eq!(read(got, &s), expected);

                // The old elements are put back in the end.
                for value in [5u64, 7, 0] {
                    let packed: Vec<_> = match value {
                        0 => expected.clone(),
                        _ => (0..some.len() as u64).map(|k| value << 40 | k).collect(),
                    };
                    let src = Region::from_slice(&world, &packed).unwrap().on(&s).unwrap();
                    let mut epoch = outbox.start();
                    epoch.put(&src, to.at(some.start)).unwrap();
                    (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                    let mut got = zeroed().on(&s).unwrap();
                    let mut epoch = outbox.start();
                    epoch.get(&mut got, to.at(some.start)).unwrap();
                    (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                    assert_eq!(read(got, &s), packed);
                }
            }
        }
        drop((inbox, outbox));
    });
}

/// A slot without elements has no landing. In a landing, all of its elements would seem to have come at once.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn signals_without_data_and_barriers() {
    for n in [1, 2, 3] {
        for result in ranks(n, |world, _| signals::run(&world)) {
            result.unwrap();
        }
    }
}

/// Slots of no elements beside others, and kernels over them, eager and by a landing of the one slot that has some.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn empty_slots_stand_beside_others() {
    for lens in [&[0, 40, 0][..], &[0], &[2_000, 0], &[0, 1]] {
        ranks(2, |world, k| {
            let peer = 1 - world.rank();
            stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w");
            for (key, len) in (0..).zip(lens) {
                window.slot_from(peer, key, *len);
                window.slot_to(peer, key);
            }
            let (mut inbox, mut outbox) = window.open(&s).unwrap();
            let to: Vec<_> = outbox.slots().collect();
            let none = Region::<u64, _>::zeroed(&world, 0).unwrap().on(&s).unwrap();
            let mut sources = Vec::new();
            for len in lens {
                let zeroed = Region::<u64, _>::zeroed(&world, *len).unwrap();
                sources.push(zeroed.on(&s).unwrap());
            }
            for epoch_number in 1..7 {
                for source in sources.iter_mut().filter(|source| !source.is_empty()) {
                    let over = k.count.threads(source.len(), 64);
                    s.launch(over, (source, epoch_number)).unwrap();
                }
                let mut epoch = outbox.start();
                for (to, source) in to.iter().zip(&sources) {
                    epoch.put(source, *to).unwrap();
                    epoch.put(&none, *to).unwrap();
                }
                (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                for (which, len) in (0u64..).zip(lens) {
                    let copy = Region::<u64, _>::zeroed(&world, *len).unwrap();
                    let mut copy = copy.on(&s).unwrap();
                    let over = k.copy_slot.threads(64, 64);
                    s.launch(over, (inbox.view(), which, &mut copy)).unwrap();
                    let mut came = vec![0; *len];
                    copy.into_host(&s).unwrap().read(0, &mut came).unwrap();
                    let expected = (0..*len as u64).map(|at| epoch_number + at);
                    assert_eq!(came, expected.collect::<Vec<_>>(), "{lens:?}");
                }
            }
            drop((inbox, outbox));
        });
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn barriers_order_ranks() {
    ranks(4, |world, k| {
        stream!(let s = world.stream().unwrap());
        let mut barrier = Barrier::open(&s, "b").unwrap();
        let mut x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        for _ in 0..200 {
            s.launch(k.tick.threads(1, 32), (&mut x,)).unwrap();
            barrier.enqueue(&s).unwrap();
        }
        let mut back = [0];
        x.into_host(&s).unwrap().read(0, &mut back).unwrap();
        assert_eq!(back, [200]);
    });
}
