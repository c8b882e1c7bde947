//! Epochs of windows by range that kernels fill: they put to ranges of their targets, and get from them.

use tidegate::error::EpochError;
use tidegate::host::prelude::*;
use tidegate::verify::Verdict;
use tidegate::{Rejected, Route, WorldOptions};
use tidegate_loopback::Loopback;

/// The length of a range. A rank has two, for its left and its right neighbour, and elements that belong to nobody else.
const LEN: usize = 19;

/// What a rank puts to an element, in an epoch.
fn value(rank: usize, epoch: u64, index: usize) -> u64 {
    (rank as u64 + 1) * 1_000_000 + epoch * 1000 + index as u64
}

/// Each rank puts to a range of both neighbours, which may be one rank, or itself. Before, it gets what it has put in the
/// epoch before, to which the target has added 1 meanwhile.
#[derive(Carry)]
struct Ring<'s> {
    inbox: Inbox<'s, u64, ByRange>,
    outbox: Outbox<'s, u64, ByRange>,
    /// The number of the epoch.
    epoch: Region<u64, On<'s>>,
    src: Region<u64, On<'s>>,
    got: Region<u64, On<'s>>,
    /// How many elements were wrong.
    wrong: Region<u64, On<'s>>,
    to: [Out<u64>; 2],
}

/// How an epoch is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// The host gets in one epoch, and puts in the next one.
    Host,
    /// A kernel gets and puts.
    Kernel,
    /// Two kernels, one after the other, which complete a target each, or both if they are the same.
    Last,
    /// One kernel completes all targets.
    All,
}

const ALL: [How; 4] = [How::Host, How::Kernel, How::Last, How::All];

fn open<'s>(s: &Stream<'s>) -> Result<Ring<'s>> {
    let world = s.world();
    let (left, right) = world.ring();
    let mut window = RangeWindow::new("ring", 3 * LEN);
    // What comes from the left is first, and behind it what comes from the right.
    let to = [
        window.range_to(right, 0..LEN),
        window.range_to(left, LEN..2 * LEN),
    ];
    let (inbox, outbox) = window.open(s)?;
    Ok(Ring {
        inbox,
        outbox,
        epoch: Region::zeroed(world, 1)?.on(s)?,
        src: Region::zeroed(world, LEN)?.on(s)?,
        got: Region::zeroed(world, 2 * LEN)?.on(s)?,
        wrong: Region::zeroed(world, 1)?.on(s)?,
        to,
    })
}

/// Counts the elements that are not what the epoch before has put, plus 1.
fn count(rank: usize, epoch: u64, first: usize, got: &[u64]) -> u64 {
    let right = |at: usize| match epoch {
        0 => 0,
        _ => value(rank, epoch - 1, first + at) + 1,
    };
    (got.iter().enumerate())
        .filter(|(at, x)| **x != right(*at))
        .count() as u64
}

fn message(rank: usize, epoch: u64) -> [u64; LEN] {
    std::array::from_fn(|at| value(rank, epoch, at))
}

fn step<'s>(s: &Stream<'s>, how: How, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let rank = s.world().rank();
    let (left, right) = s.world().ring();
    let to = r.to;
    let exposed = r.inbox.post(s)?;
    r.outbox = match how {
        How::Host => {
            let mut epoch = r.outbox.start();
            epoch.get(r.got.slice_mut(0..LEN)?, to[0])?;
            let outbox = epoch.complete(s)?;
            let checked = move |epoch: &[u64], src: &mut [u64], got: &[u64], wrong: &mut [u64]| {
                wrong[0] += count(rank, epoch[0], 0, &got[..LEN]);
                src.copy_from_slice(&message(rank, epoch[0]));
            };
            s.launch(checked, (&r.epoch, &mut r.src, &r.got, &mut r.wrong))?;
            r.inbox = exposed.wait(s)?;
            let exposed = r.inbox.post(s)?;
            let mut epoch = outbox.start();
            to.iter().try_for_each(|to| epoch.put(&r.src, *to))?;
            let outbox = epoch.complete(s)?;
            r.inbox = exposed.wait(s)?;
            r.outbox = outbox;
            return check(s, r);
        }
        How::Kernel => {
            let mut opened = r.outbox.open(s)?;
            let kernel = move |epoch: &[u64], mut out: OutRanges<'_, u64>, wrong: &mut [u64]| {
                let (mut got, message) = ([0; LEN], message(rank, epoch[0]));
                for to in to {
                    assert_eq!(out.len_of(to), LEN);
                    out.get(to, 0, &mut got);
                    wrong[0] += count(rank, epoch[0], 0, &got);
                    out.put(to, 0, &message[..LEN - 1]);
                    out.put_one(to, LEN - 1, message[LEN - 1]);
                    // What this kernel has put is there.
                    wrong[0] += u64::from(out.get_one(to, 5) != message[5]);
                }
            };
            s.launch(kernel, (&r.epoch, opened.ranges(), &mut r.wrong))?;
            opened.complete(s)?
        }
        How::Last => {
            let opened = r.outbox.open(s)?;
            let turns: &[(usize, &[usize])] = match left == right {
                true => &[(0, &[0, 1])],
                false => &[(0, &[0]), (1, &[1])],
            };
            for (which, slots) in turns {
                let kernel =
                    move |epoch: &[u64], mut out: LastRanges<'_, u64>, wrong: &mut [u64]| {
                        for slot in *slots {
                            let mut got = [0; LEN - 3];
                            out.get(to[*slot], 3, &mut got);
                            wrong[0] += count(rank, epoch[0], 3, &got);
                            wrong[0] += count(rank, epoch[0], 2, &[out.get_one(to[*slot], 2)]);
                            out.put(to[*slot], 0, &message(rank, epoch[0]));
                        }
                        out.complete();
                    };
                let last = opened.last([right, left][*which])?;
                s.launch(kernel, (&r.epoch, last, &mut r.wrong))?;
            }
            opened.complete(s)?
        }
        How::All => {
            let opened = r.outbox.open(s)?;
            let kernel = move |epoch: &[u64], mut out: AllRanges<'_, u64>, wrong: &mut [u64]| {
                for to in to {
                    let mut got = [0; LEN];
                    out.get(to, 0, &mut got);
                    got[7] = out.get_one(to, 7);
                    wrong[0] += count(rank, epoch[0], 0, &got);
                    out.put(to, 0, &message(rank, epoch[0]));
                }
                out.complete();
            };
            s.launch(kernel, (&r.epoch, opened.last_of_all()?, &mut r.wrong))?;
            opened.complete(s)?
        }
    };
    r.inbox = exposed.wait(s)?;
    check(s, r)
}

/// Counts what is wrong of what has come, and adds 1 to each element.
fn check<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let (left, right) = s.world().ring();
    let check = move |memory: &mut [u64], epoch: &mut [u64], wrong: &mut [u64]| {
        for (first, rank) in [(0, left), (LEN, right)] {
            let came = &memory[first..first + LEN];
            wrong[0] += u64::from(*came != message(rank, epoch[0]));
        }
        wrong[0] += u64::from(memory[2 * LEN..] != [epoch[0]; LEN]);
        memory.iter_mut().for_each(|x| *x += 1);
        epoch[0] += 1;
    };
    s.launch(check, (r.inbox.memory_mut(), &mut r.epoch, &mut r.wrong))?;
    Ok(r)
}

fn end<'s>(s: &Stream<'s>, r: Ring<'s>, epochs: u64) -> Result<()> {
    assert_eq!(r.epoch.into_host(s)?[0], epochs);
    assert_eq!(r.wrong.into_host(s)?[0], 0);
    Ok(())
}

#[test]
fn kernels_and_hosts_use_ranges_by_turns() {
    for n in [1, 2, 3, 5] {
        let epochs = if cfg!(miri) { 8 } else { 60 };
        let results = World::local(n, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let mut r = open(&s)?;
            for epoch in 0..epochs {
                r = step(&s, ALL[(epoch * epoch + epoch / 3) % ALL.len()], r)?;
            }
            end(&s, r, epochs as u64)
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn recorded_and_proved() {
    for n in [1, 2, 3] {
        let results = World::local(n, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let r = step(&s, How::All, open(&s)?)?;
            let (graph, mut r) = s.capture(r, |s, r| {
                (ALL.iter().rev()).try_fold(r, |r, how| step(s, *how, r))
            })?;
            let verdict = graph.verify(&s)?;
            assert!(matches!(verdict, Verdict::Proved(_)), "{verdict}");
            for times in [1, 5] {
                r = graph.replay(&s, r, times)?;
                r = step(&s, How::Last, r)?;
            }
            end(&s, r, 1 + 6 * 4 + 2)
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// What a kernel of rank 0 does wrong, and what the ranks are told.
fn wrong(
    kernel: impl Fn(OutRanges<'_, u64>, Out<u64>) + Clone + Send + Sync + 'static,
) -> [String; 2] {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s)?;
        let exposed = r.inbox.post(&s)?;
        if world.rank() == 0 {
            let mut opened = r.outbox.open(&s)?;
            let (kernel, to) = (kernel.clone(), r.to[1]);
            s.launch(
                move |out: OutRanges<'_, u64>| kernel(out, to),
                opened.ranges(),
            )?;
            let _outbox = opened.complete(&s)?;
            return s.synchronize();
        }
        let _outbox = r.outbox.start().complete(&s)?;
        let _inbox = exposed.wait(&s)?;
        s.synchronize()
    });
    let mut said = (results.into_iter()).map(|each| each.err().map(|each| each.to_string()));
    [(); 2].map(|()| said.next().flatten().unwrap_or_default())
}

#[test]
fn what_exceeds_a_range_fails_the_stream_by_name() {
    let mut said = wrong(|out, to| out.get(to, LEN - 1, &mut [0; 2])).to_vec();
    said.extend(wrong(|out, to| assert_eq!(out.get_one(to, LEN + 1), 0)));
    said.extend(wrong(|mut out, to| out.put(to, 1, &[0; LEN])));
    let expected = [
        "a get from outbound slot 1 beyond its end: 2 elements from element 18 on, of 19",
        "a get from outbound slot 1 beyond its end: 1 elements from element 20 on, of 19",
        "a put to outbound slot 1 beyond its end: 19 elements from element 1 on, of 19",
    ];
    for (said, expected) in said.chunks(2).zip(expected) {
        for said in said {
            assert!(said.contains(expected), "{said}");
        }
    }
}

/// Nothing is got from a target that a kernel has completed: it may use its memory.
#[test]
fn a_get_behind_the_completion_fails_the_stream() {
    let results = World::local(1, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s)?;
        let _exposed = r.inbox.post(&s)?;
        let mut opened = r.outbox.open(&s)?;
        s.launch(|_: LastRanges<'_, u64>| (), opened.last(0)?)?;
        let to = r.to[0];
        let get = move |out: OutRanges<'_, u64>| assert_eq!(out.get_one(to, 0), 0);
        s.launch(get, opened.ranges())?;
        let _outbox = opened.complete(&s)?;
        s.synchronize()
    });
    let said = results[0].as_ref().unwrap_err().to_string();
    let expected = "a get from outbound slot 0, whose target a kernel has completed";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn what_kernels_cannot_reach_is_refused() {
    for staged in [false, true] {
        let nic = |_| {
            let options = WorldOptions::new()
                .nic(Loopback::default())
                .route(Route::Nic);
            if staged { options.staged() } else { options }
        };
        let results = World::local_with(2, nic, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let r = open(&s)?;
            let Err(Rejected { error, value }) = r.outbox.try_open(&s) else {
                panic!("a NIC reaches the target");
            };
            assert!(
                matches!(error, Error::Epoch(EpochError::NotByKernels { rank, .. }) if rank == 1 - world.rank()),
                "{error}"
            );
            // It is as it was.
            let mut epoch = value.start();
            r.to.iter().try_for_each(|to| epoch.put(&r.src, *to))?;
            let _halves = exchange(&s, r.inbox, epoch)?;
            s.synchronize()
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
    let results = World::local(1, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut window = RangeWindow::<u64>::new("columns", 6);
        let column = Layout::subarray(&[3, 2], &[0..3, 1..2])?;
        window.layout_to(0, &column);
        let (inbox, outbox) = window.open(&s)?;
        let _exposed = inbox.post(&s)?;
        let Err(Rejected { error, value }) = outbox.try_open(&s) else {
            panic!("it was declared as a layout");
        };
        assert!(
            error.to_string().contains("declared as a layout"),
            "{error}"
        );
        let _outbox = value.start().complete(&s)?;
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}
