//! The cost of an epoch in things that can be counted. There are no allocations, on any thread of the process, after the
//! first few epochs. The thread that enqueues does not sleep while the queue has room. And tokens and results are small.

use std::sync::Barrier as Meeting;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::host::prelude::*;
use tidegate::{IndexSet, Rejected};

use crate::counting::{Counting, alone};

/// Ranks of each program here.
const RANKS: usize = 3;
const LEN: usize = 64;
/// Epochs that may allocate, because batches are made, and lists grow to their size.
const FIRST: usize = 20;
/// Epochs that are counted, and how many rounds of them.
const COUNTED: usize = 50;
const ROUNDS: usize = 5;

/// Runs `step` repeatedly on all ranks. Asserts that there is a round in which nothing was allocated.
///
/// There are several rounds, because a slow machine causes other allocations: a long wait is reported, or a list of
/// blocked lanes grows. If each epoch allocated, every round would.
fn assert_steady(
    what: &str,
    meeting: &Meeting,
    s: &Stream<'_>,
    mut step: impl FnMut() -> Result<()>,
) {
    for _ in 0..FIRST {
        step().unwrap();
    }
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        s.synchronize().unwrap();
        meeting.wait();
        Counting::begin();
        meeting.wait();
        for _ in 0..COUNTED {
            step().unwrap();
        }
        s.synchronize().unwrap();
        meeting.wait();
        Counting::end();
        least = least.min(Counting::allocations());
        meeting.wait();
        Counting::reset();
    }
    assert_eq!(
        least, 0,
        "{what}: allocations in {COUNTED} epochs of {RANKS} ranks"
    );
}

/// Passes a value to a step that takes it and returns it.
fn through<T>(value: &mut Option<T>, step: impl FnOnce(T) -> Result<T>) -> Result<()> {
    *value = Some(step(value.take().expect("the last step succeeded"))?);
    Ok(())
}

fn scribble(memory: &mut [u64]) {
    memory.iter_mut().for_each(|x| *x += 1);
}

fn look(slots: Slots<'_, u64>, from: In<u64>, src: &[u64]) {
    assert_eq!(slots.slot(from)[0], src[0]);
}

struct Place<'a> {
    world: &'a World,
    left: usize,
    right: usize,
    meeting: &'a Meeting,
}

impl Place<'_> {
    /// A window of two slots: from both neighbours, the right one first, and to both, the left one first.
    fn window(&self, buffers: Buffers) -> (SlotWindow<u64>, In<u64>, [Out<u64>; 2]) {
        let mut window = SlotWindow::new("counted").buffers(buffers);
        let from = window.slot_from(self.right, 0, LEN);
        window.slot_from(self.left, 1, LEN);
        let to = [window.slot_to(self.left, 0), window.slot_to(self.right, 1)];
        (window, from, to)
    }
}

#[derive(Carry)]
struct Ring<'s> {
    src: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: In<u64>,
    to: [Out<u64>; 2],
}

fn ring<'s>(place: &Place<'_>, s: &Stream<'s>, buffers: Buffers) -> Result<Ring<'s>> {
    let (window, from, to) = place.window(buffers);
    let (inbox, outbox) = window.open(s)?;
    Ok(Ring {
        src: Region::zeroed(place.world, LEN)?.on(s)?,
        inbox,
        outbox,
        from,
        to,
    })
}

fn step<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let exposed = r.inbox.post(s)?;
    s.launch(scribble, &mut r.src)?;
    let mut epoch = r.outbox.start();
    epoch.put(&r.src, r.to[0])?;
    epoch.put(&r.src, r.to[1])?;
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    s.launch(look, (inbox.view(), r.from, &r.src))?;
    Ok(Ring { inbox, outbox, ..r })
}

fn eager(place: &Place<'_>, inline: bool, buffers: Buffers) -> Result<()> {
    let world = place.world;
    stream!(let s = if inline { world.inline_stream() } else { world.stream() }?);
    let mut state = Some(ring(place, &s, buffers)?);
    let what = format!("eager, inline: {inline}, {buffers:?}");
    assert_steady(&what, place.meeting, &s, || {
        through(&mut state, |r| step(&s, r))
    });
    Ok(())
}

fn replayed(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let r = ring(place, &s, Buffers::Double)?;
    let (graph, r) = s.capture(r, step)?;
    let mut state = Some(r);
    assert_steady("replay", place.meeting, &s, || {
        through(&mut state, |r| graph.replay(&s, r, 2))
    });
    Ok(())
}

fn fused(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let mut state = Some(ring(place, &s, Buffers::Double)?);
    assert_steady("exchange", place.meeting, &s, || {
        through(&mut state, |r| {
            let mut epoch = r.outbox.start();
            epoch.put(&r.src, r.to[0])?;
            epoch.put(&r.src, r.to[1])?;
            let (inbox, outbox) = exchange(&s, r.inbox, epoch)?;
            Ok(Ring { inbox, outbox, ..r })
        })
    });
    Ok(())
}

fn exposed_whole(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let mut state = Some(ring(place, &s, Buffers::Double)?);
    assert_steady("post and wait in one", place.meeting, &s, || {
        through(&mut state, |r| {
            let mut epoch = r.outbox.start();
            epoch.put(&r.src, r.to[0])?;
            epoch.put(&r.src, r.to[1])?;
            let outbox = epoch.complete(&s)?;
            let inbox = r.inbox.expose(&s)?;
            Ok(Ring { inbox, outbox, ..r })
        })
    });
    Ok(())
}

fn strided(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let (window, _, to) = place.window(Buffers::Double);
    let (inbox, outbox) = window.open(&s)?;
    let whole = Region::<u64>::zeroed(place.world, LEN)?;
    let [part] = whole.partition([IndexSet::from_indices(0..LEN)?])?;
    let part = part.on(&s)?;
    let src = Region::<u64>::zeroed(place.world, LEN)?.on(&s)?;
    let columns = Layout::strided(0, &[(4, 8), (2, 1)])?;
    let scattered = Layout::indexed(place.world, &[0, 9, 3, 4, 1, 60, 7, 8])?;
    let mut state = Some((inbox, outbox));
    // Two kinds of epochs in turn: a plan is found again, and not made again.
    let mut turn = 0u32;
    assert_steady("strided and indexed puts", place.meeting, &s, || {
        turn += 1;
        through(&mut state, |(inbox, outbox)| {
            let exposed = inbox.post(&s)?;
            let mut epoch = outbox.start();
            let [left, right] = epoch.take(to)?;
            epoch.put(src.with(&columns)?, left.with(&scattered))?;
            if turn.is_multiple_of(2) {
                epoch.put(part.with(&scattered)?, right.at(8))?;
            }
            let outbox = epoch.complete(&s)?;
            Ok((exposed.wait(&s)?, outbox))
        })
    });
    Ok(())
}

fn groups(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let mut state = Some(ring(place, &s, Buffers::Double)?);
    // All to the left, then all to the right.
    let turns = [
        (Group::new([place.right]), Group::new([place.left]), 0),
        (Group::new([place.left]), Group::new([place.right]), 1),
    ];
    assert_steady("groups", place.meeting, &s, || {
        turns.iter().try_for_each(|(from, to, slot)| {
            through(&mut state, |r| {
                let exposed = r.inbox.post_to(&s, from)?;
                let mut epoch = r.outbox.start_to(to)?;
                epoch.put(&r.src, r.to[*slot])?;
                let outbox = epoch.complete(&s)?;
                let inbox = exposed.wait(&s)?;
                Ok(Ring { inbox, outbox, ..r })
            })
        })
    });
    Ok(())
}

fn gets_and_sums(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let mut ranges = RangeWindow::<u64>::new("ranges", LEN);
    let range = ranges.range_to(place.right, 0..LEN);
    let mut sums = AtomicWindow::<u64>::new("sums", LEN);
    let target = sums.target(place.left);
    let mut state = Some((ranges.open(&s)?, sums.open(&s)?));
    let fresh = || Region::<u64>::zeroed(place.world, LEN)?.on(&s);
    let (src, mut dst, mut old) = (fresh()?, fresh()?, fresh()?);
    assert_steady("gets, accumulates and fetches", place.meeting, &s, || {
        through(&mut state, |((a, b), (c, d))| {
            let (exposed, there) = (a.post(&s)?, c.post(&s)?);
            let mut epoch = b.start();
            epoch.accumulate(src.slice(0..8)?, range, Op::Sum)?;
            epoch.get(dst.slice_mut(0..8)?, range.at(8))?;
            let b = epoch.complete(&s)?;
            let mut epoch = d.start();
            epoch.accumulate(src.slice(0..8)?, target.at(3), Op::Max)?;
            epoch.get(&mut old, target)?;
            let d = epoch.complete(&s)?;
            Ok(((exposed.wait(&s)?, b), (there.wait(&s)?, d)))
        })
    });
    Ok(())
}

fn handed_over(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    stream!(let t = place.world.stream()?);
    let mut state = Some(ring(place, &s, Buffers::Double)?);
    assert_steady("hand-offs", place.meeting, &s, || {
        through(&mut state, |r| {
            let r = step(&t, s.hand_off(step(&s, r)?, &t)?)?;
            t.hand_off(r, &s)
        })
    });
    Ok(())
}

/// Collectives whose buffers have been used before.
fn collectives(place: &Place<'_>) -> Result<()> {
    stream!(let s = place.world.stream()?);
    let fresh = |len| Region::<u64>::zeroed(place.world, len)?.on(&s);
    let counts = [1, 2, 3];
    let (x, wide, mine) = (
        fresh(LEN)?,
        fresh(RANKS * LEN)?,
        fresh(counts[place.world.rank()])?,
    );
    let (mut y, mut all, mut each) = (fresh(LEN)?, fresh(RANKS * LEN)?, fresh(6)?);
    let (ones, mut received) = (fresh(RANKS)?, fresh(RANKS)?);
    let mut broadcast = Broadcast::open(&s, "broadcast", 1, LEN)?;
    let mut reduce = Reduce::open(&s, "reduce", 1, LEN, Op::Sum)?;
    let mut sums = AllReduce::open(&s, "all-reduce", LEN, Op::Sum)?;
    let mut gather = AllGather::open(&s, "all-gather", LEN)?;
    let mut several = AllGather::open_counts(&s, "all-gather-v", &counts)?;
    let mut part = ReduceScatter::open(&s, "reduce-scatter", LEN, Op::Sum)?;
    let mut exchange = AllToAll::open(&s, "all-to-all", LEN)?;
    let mut rows = CountedAllToAll::open(&s, "counted", LEN, 1)?;
    let mut scan = Scan::open(&s, "scan", LEN, Op::Sum)?;
    assert_steady("collectives", place.meeting, &s, || {
        broadcast.enqueue(&s, &mut y)?;
        reduce.enqueue(&s, &mut y)?;
        sums.enqueue_into(&s, &x, &mut y)?;
        gather.enqueue(&s, &x, &mut all)?;
        several.enqueue(&s, &mine, &mut each)?;
        part.enqueue(&s, &wide, &mut y)?;
        exchange.enqueue(&s, &wide, &mut all)?;
        rows.enqueue(&s, &wide, &ones, &mut all, &mut received)?;
        scan.enqueue(&s, &mut y)
    });
    Ok(())
}

#[test]
fn epochs_allocate_nothing() {
    let _alone = alone();
    let meeting = Meeting::new(RANKS);
    let results = World::local(RANKS, |world: World| -> Result<()> {
        let (left, right) = world.ring();
        let place = Place {
            world: &world,
            left,
            right,
            meeting: &meeting,
        };
        for buffers in [Buffers::Single, Buffers::Double] {
            eager(&place, false, buffers)?;
            eager(&place, true, buffers)?;
        }
        replayed(&place)?;
        fused(&place)?;
        exposed_whole(&place)?;
        strided(&place)?;
        groups(&place)?;
        gets_and_sums(&place)?;
        handed_over(&place)?;
        collectives(&place)
    });
    results.into_iter().collect::<Result<Vec<_>>>().unwrap();
}

/// How often this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("the kernel counts")
}

/// Enqueueing waits for nobody. While its own stream is blocked, and the peers do nothing, a thread enqueues epochs
/// without sleeping once. A lock that another thread holds, or any wait, would be a sleep.
#[test]
fn enqueueing_never_sleeps() {
    let _alone = alone();
    static OPEN: AtomicBool = AtomicBool::new(false);
    let meeting = Meeting::new(RANKS);
    let results = World::local(RANKS, |world: World| -> Result<()> {
        let (rank, (left, right)) = (world.rank(), world.ring());
        let place = Place {
            world: &world,
            left,
            right,
            meeting: &meeting,
        };
        stream!(let s = world.stream()?);
        let mut state = Some(ring(&place, &s, Buffers::Single)?);
        let mut valve = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
        // The first access to a page, or an interrupt of a busy machine, is no sleep of ours. One clean round is
        // enough.
        let mut least = u64::MAX;
        for _ in 0..ROUNDS {
            OPEN.store(false, Ordering::SeqCst);
            place.meeting.wait();
            let wait = |_: &mut [u64]| {
                while !OPEN.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            };
            s.launch(wait, &mut valve)?;
            while rank != 0 && !OPEN.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let before = sleeps();
            // Each has five items, and all of them fit in the queue.
            for _ in 0..100 {
                through(&mut state, |r| step(&s, r))?;
            }
            if rank == 0 {
                least = least.min(sleeps() - before);
                OPEN.store(true, Ordering::Release);
            }
            s.synchronize()?;
            place.meeting.wait();
        }
        assert!(rank != 0 || least == 0, "{least} sleeps");
        Ok(())
    });
    results.into_iter().collect::<Result<Vec<_>>>().unwrap();
}

#[test]
fn tokens_are_pointers_and_results_are_small() {
    let _alone = alone();
    let word = size_of::<usize>();
    assert_eq!(size_of::<Inbox<'_, u64>>(), word);
    assert_eq!(size_of::<Exposed<'_, u64>>(), word);
    assert_eq!(size_of::<Outbox<'_, u64>>(), word);
    assert_eq!(size_of::<Access<'_, '_, u64>>(), word);
    // `?` copies errors of this size; errors with much content are boxed.
    assert!(size_of::<tidegate::Error>() <= 10 * word);
    assert!(size_of::<Rejected<Inbox<'_, u64>>>() <= 11 * word);
    type Waited<'s> = Result<Inbox<'s, u64>, Rejected<Exposed<'s, u64>>>;
    assert!(size_of::<Waited<'_>>() <= 11 * word);
}

/// A vector's memory becomes a region's, and the region's a vector's. Nothing nearly as large is allocated besides.
#[test]
fn vectors_become_regions_without_a_copy() {
    const LEN: usize = 1 << 17;
    let _alone = alone();
    let results = World::local(1, |world: World| -> Result<[u64; 2]> {
        stream!(let s = world.stream()?);
        let mut values: Vec<u64> = (0..LEN as u64).collect();
        let counted = |work: &mut dyn FnMut() -> Result<()>| {
            Counting::reset();
            Counting::begin();
            let done = work();
            Counting::end();
            done.map(|()| Counting::bytes())
        };
        // There are several rounds, because the thread that runs the tests may allocate at the same time.
        let mut taken = u64::MAX;
        for _ in 0..ROUNDS {
            taken = taken.min(counted(&mut || {
                let region = Region::from_vec(&world, std::mem::take(&mut values))?.on(&s)?;
                values = region.into_host(&s)?.into_vec()?;
                Ok(())
            })?);
        }
        assert!(values.iter().enumerate().all(|(at, x)| *x == at as u64));
        let copied = counted(&mut || Region::from_slice(&world, &values).map(drop))?;
        Counting::reset();
        Ok([taken, copied])
    });
    for result in results {
        let [taken, copied] = result.unwrap();
        assert!(taken < 4096, "{taken} bytes");
        assert!(
            copied >= 8 * LEN as u64,
            "what is copied is counted: {copied}"
        );
    }
}
