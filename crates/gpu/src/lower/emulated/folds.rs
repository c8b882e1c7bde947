//! Lanes that put, wait for what lands, and reduce, with the test as all other ranks.
//!
//! # Model
//!
//! A stream has the same short reduction repeatedly. The test fills its vector before each epoch. From every origin data
//! lands, four bytes and their tag at a time and in any order, or it comes by the slot and the word. Every target posts
//! at a time of its own. Sometimes a word is poisoned in between, or the host ends the stream. The result, what has
//! landed at the targets, and all words are compared after each epoch; the host's mover says what the result must be.

use std::ops::Range;

use tidegate_hal::batch::{Add, Batch, Landing, POISON, QUANTUM, Step, Tag};
use tidegate_hal::memory::Ptr;

use super::super::{FAULT_WAIT, LANE_LANDS, LANE_REDUCES, ShortLane, TEAM_BLOCKS, TEAM_WARPS};
use super::launched::{Home, Launched, RING};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::WINDOW;
use crate::lower::random::Rng;
use job::{Job, Peer};

mod job;

const EPOCHS: u64 = 5;
const FILL: u64 = 0;
const LOOK: u64 = 1;
const TICK: u64 = 2;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Origin(usize),
    Target(usize),
    Stop,
    /// The host ends the stream that this one follows.
    Follow,
}

/// The lane, and perhaps a post beside it.
fn batch(job: &Job, bell: Ptr) -> Batch {
    let post = job.post.map(|word| {
        let add = Add {
            tag: None,
            word,
            value: QUANTUM,
            bell,
            turn: None,
        };
        vec![Step::Add(add)]
    });
    // SAFETY: all words, vectors, slots and landings are pieces of the arena, which outlives the runs. `Job::new` has
    // taken them apart from each other, with the lengths of a short reduction.
    unsafe { Batch::new(post.into_iter().chain([job.steps(bell)]), Vec::new()) }
}

pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (many, mut failures, mut partly) = (seeds.end - seeds.start, 0, 0);
    let (mut blocks, mut several) = (0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0xf01d);
        let mut arena = Arena::new(1 << 20, rng);
        let mut job = Job::new(&mut arena, rng);
        let bell = arena.word(0);
        let home = Home::new();
        let (followed, batch) = (Home::new(), batch(&job, bell));
        // Sometimes there is no block for the lane, and a warp carries it out.
        let quota = rng.of(&[1, 4, 8]);
        let follows = [
            if rng.once_in(2) {
                followed.address()
            } else {
                0
            },
            0,
        ];
        let next = !rng.once_in(3);
        let launched = Launched::new(&batch, quota, machine.sizes, next, &home, follows);
        let launched = launched.map_err(|error| format!("seed {seed}: {error}"))?;
        let is_fold = |lane: &ShortLane| lane.kind == LANE_LANDS | LANE_REDUCES;
        let teams = [TEAM_WARPS, TEAM_BLOCKS].map(|team| launched.teams(team, is_fold));
        if !launched.reduces || teams[0] + teams[1].min(1) != 1 {
            return Err(format!("seed {seed}: {teams:?} teams reduce what lands"));
        }
        blocks += teams[1].min(1);
        several += usize::from(teams[1] > 1);

        // If data comes late, the kernel waits in another function.
        let (delay, ticks) = rng.of(&[(60, 3000), (1000, 2000), (8000, 300), (20_000, 200)]);
        let streams = [
            (
                vec![Do::Call(FILL), Do::Launch(&launched), Do::Call(LOOK)],
                EPOCHS,
            ),
            (vec![Do::Delay(delay), Do::Call(TICK)], ticks),
        ];
        let goes_wrong = rng.once_in(2).then(|| match rng.below(6) {
            0 | 1 if follows[0] != 0 => Wrong::Follow,
            0 => Wrong::Stop,
            1 | 2 if !job.targets.is_empty() => Wrong::Target(rng.below(job.targets.len())),
            _ => Wrong::Origin(rng.below(job.origins.len())),
        });
        // The host ends a stream between two launches, or at any time.
        let between = rng.once_in(2);
        let stop = || match goes_wrong {
            Some(Wrong::Follow) => followed.stop(),
            _ => home.stop(),
        };
        let after = rng.below(20) as u64;
        // The poison comes right after an epoch, or in its middle.
        let behind = rng.once_in(2);
        let (mut looked, mut turns, mut wrong, mut ends) = (0, 0, Vec::new(), None);
        let mut marked = false;
        let outcome = machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called { value: TICK, .. } => {
                turns += 1;
                for number in 0..job.targets.len() {
                    let target = &mut job.targets[number];
                    let next = target.epoch < target.begin + (looked + 2).min(EPOCHS);
                    if !target.ended && next && rng.once_in(3) {
                        change(target.awaited.0, |value| value + QUANTUM);
                        target.epoch += 1;
                    }
                }
                let kind = job.kind;
                for origin in &mut job.origins {
                    let most = 2 * Landing::room(kind.bytes()) / 8;
                    for _ in 0..rng.within(0..=most) {
                        let ends = goes_wrong == Some(Wrong::Origin(origin.number as usize - 10));
                        if origin.ended && ends {
                            break;
                        }
                        origin.send(rng, kind, looked);
                        if ends && turns > after && origin.pieces.is_empty() == behind {
                            change(origin.awaited.0, |value| value | POISON);
                            partly += u64::from(!origin.pieces.is_empty());
                            origin.ended = true;
                        }
                    }
                }
                if turns <= after {
                    return;
                }
                match goes_wrong {
                    Some(Wrong::Target(number)) if !job.targets[number].ended => {
                        let target = &mut job.targets[number];
                        change(target.awaited.0, |value| value | POISON);
                        target.ended = true;
                    }
                    Some(Wrong::Stop | Wrong::Follow) if ends.is_none() && !between => {
                        ends = Some(looked);
                        stop();
                    }
                    _ => {}
                }
            }
            Event::Called {
                value: FILL, time, ..
            } => {
                let stops = matches!(goes_wrong, Some(Wrong::Stop | Wrong::Follow));
                if stops && between && time == 1 {
                    ends = Some(looked);
                    stop();
                }
                // Then this launch fails, too.
                if !home.failed() && ends.is_none() {
                    job.fill(time);
                } else if !marked {
                    marked = true;
                    job.mark();
                }
            }
            Event::Called {
                value: LOOK, time, ..
            } if !home.failed() => {
                wrong.extend(
                    job.check(time)
                        .map_err(|why| format!("epoch {time}: {why}"))
                        .err(),
                );
                let stamps = home.take();
                let has_room = launched.legs.concat().len() <= RING;
                if has_room && !stamps.is_empty() && !job.are_legs(&stamps, &launched, time) {
                    wrong.push(format!("epoch {time}: {stamps:?}"));
                }
                looked = time + 1;
            }
            _ => {}
        });
        if !wrong.is_empty() {
            wrong.truncate(3);
            return Err(format!("seed {seed}: {wrong:?}"));
        }
        outcome?;
        // The epochs that had to pass, and no others, have passed.
        let least = |peer: &Peer| {
            if peer.ended {
                peer.epoch - peer.begin
            } else {
                EPOCHS
            }
        };
        let peers = || job.origins.iter().chain(&job.targets);
        let expected = peers().map(least).min().unwrap_or(EPOCHS);
        let fits = match goes_wrong {
            // One launch may have been under way.
            Some(Wrong::Stop | Wrong::Follow) if home.failed() => {
                ends.is_some_and(|ends| looked <= ends + 1)
            }
            _ => looked == expected && home.failed() == (expected < EPOCHS),
        };
        if !fits {
            return Err(format!("seed {seed}: {looked} have passed, not {expected}"));
        }
        if !home.failed() && machine.passes() != EPOCHS * launched.passes() {
            let passes = machine.passes();
            return Err(format!(
                "seed {seed}: it has let the next come {passes} times"
            ));
        }
        if home.failed() && !matches!(goes_wrong, Some(Wrong::Stop | Wrong::Follow)) {
            failures += 1;
            let fault = home.fault()?;
            let found = Tag::from(fault.tag);
            let peer = peers().find(|peer| peer.number == found.peer);
            let fits = peer.is_some_and(|peer| peer.ended && fault.epoch == peer.begin + expected);
            if !fits || (fault.kind, found.window) != (FAULT_WAIT, WINDOW) {
                return Err(format!("seed {seed}: {fault:?}"));
            }
        }
        for target in &job.targets {
            // It had not posted for this one.
            let (epoch, units) = (target.epoch, Landing::room(job.kind.bytes()) / 8);
            // (Memory that nobody has written has the tag 0.)
            let has =
                |index| target.has_landed(epoch, index) && value(target.unit(epoch, index)) != 0;
            if (0..units).any(has) {
                return Err(format!(
                    "seed {seed}: early data for target {}",
                    target.number
                ));
            }
        }
        if marked && !job.is_marked() {
            return Err(format!("seed {seed}: a failed stream moves"));
        }
        if home.failed() {
            // Launches behind the failed one tell targets that nothing more comes.
            for target in &job.targets {
                let told = value(target.told) & POISON != 0;
                let (last, units) = (
                    target.begin + EPOCHS - 1,
                    Landing::room(job.kind.bytes()) / 8,
                );
                let has = |index| target.has_landed(last, index);
                if !told && !(0..units).all(has) {
                    return Err(format!("seed {seed}: target {} waits", target.number));
                }
            }
        }
    }
    let least = many as usize;
    if failures < many / 8 || partly < many / 16 || blocks < least / 6 || several < least / 20 {
        return Err(format!(
            "{failures} failures, {partly} with a part that had landed; {blocks} lanes of blocks, {several} of several"
        ));
    }
    Ok(())
}

/// Of a fold that takes long, the origins whose data is missing are reported, and no others, until it has come.
pub(super) fn check_reports(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0xf01d);
        let mut arena = Arena::new(1 << 20, rng);
        let mut job = Job::new(&mut arena, rng);
        let (bell, home) = (arena.word(0), Home::new());
        for target in &mut job.targets {
            change(target.awaited.0, |value| value + QUANTUM);
        }
        let batch = batch(&job, bell);
        let launched = Launched::new(&batch, 4, machine.sizes, false, &home, [0; 2]);
        let launched = launched.map_err(|error| format!("seed {seed}: {error}"))?;
        job.fill(0);
        // Each of these comes when it has been reported, and not before.
        let late: Vec<_> = job.origins.iter().map(|_| rng.once_in(2)).collect();
        // Of some of them, what the first block waits for has come, and what others wait for has not.
        let units = 2 * machine.sizes.threads;
        if job.kind.bytes() > 4 * units {
            let begun = job.origins.iter_mut().zip(&late);
            let begun = begun.filter(|(_, late)| **late && rng.once_in(2));
            begun.for_each(|(origin, _)| origin.begin(job.kind, units));
        }
        let reports = || {
            let blocked = home.mirror().blocked;
            let active = blocked.into_iter().filter(|report| report.active != 0);
            active.map(|it| it.tag.peer).collect::<Vec<_>>()
        };
        let (mut told, mut wrong) = (Vec::new(), Vec::new());
        let streams = [
            (vec![Do::Launch(&launched)], 1),
            (vec![Do::Delay(8000), Do::Call(TICK)], 400),
        ];
        let kind = job.kind;
        let all = |origin: &mut Peer, rng: &mut Rng| {
            while origin.epoch == origin.begin {
                origin.send(rng, kind, 0);
            }
        };
        let others = job.origins.iter_mut().zip(&late);
        (others.filter(|(_, late)| !**late)).for_each(|(origin, _)| all(origin, rng));
        machine.run(seed, &streams, &[], &mut |event| {
            let Event::Called { time, .. } = event else {
                return;
            };
            let now = reports();
            for (origin, late) in job.origins.iter_mut().zip(&late) {
                if *late && (told.contains(&origin.number) || time > 390) {
                    all(origin, rng);
                }
            }
            let is_late = |peer: &u32| late[*peer as usize - 10];
            wrong.extend(now.iter().copied().filter(|peer| !is_late(peer)));
            told.extend(now.into_iter().filter(|peer| is_late(peer)));
        })?;
        told.sort_unstable();
        told.dedup();
        let expected = late.iter().zip(10..).filter(|(late, _)| **late);
        let expected: Vec<u32> = expected.map(|(_, number)| number).collect();
        if told != expected || !wrong.is_empty() || !reports().is_empty() {
            let now = reports();
            return Err(format!(
                "seed {seed}: {told:?}, not {expected:?}; {wrong:?}; {now:?}"
            ));
        }
        job.check(0).map_err(|why| format!("seed {seed}: {why}"))?;
    }
    Ok(())
}
