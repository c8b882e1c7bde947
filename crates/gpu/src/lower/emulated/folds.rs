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

use super::super::{FAULT_WAIT, LANE_LANDS, LANE_REDUCES, ShortLane, TEAM_BLOCKS, TEAM_WARPS};
use super::launched::{Home, Launched};
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
}

pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (many, mut failures, mut partly, mut blocks) = (seeds.end - seeds.start, 0, 0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0xf01d);
        let mut arena = Arena::new(1 << 18, rng);
        let mut job = Job::new(&mut arena, rng);
        let bell = arena.word(0);
        let home = Home::new();
        let post = Step::Add(Add {
            tag: None,
            word: job.post,
            value: QUANTUM,
            bell,
            turn: None,
        });
        // SAFETY: everything lies in the arena, which outlives the run.
        let batch = unsafe { Batch::new([vec![post], job.steps(bell)], Vec::new()) };
        // Sometimes there is no block for the lane, and a warp carries it out.
        let quota = rng.of(&[1, 4, 4]);
        let launched = Launched::new(&batch, quota, machine.sizes, !rng.once_in(3), &home, [0; 2]);
        let launched = launched.map_err(|error| format!("seed {seed}: {error}"))?;
        let is_fold = |lane: &ShortLane| lane.kind == LANE_LANDS | LANE_REDUCES;
        let teams = [TEAM_WARPS, TEAM_BLOCKS].map(|team| launched.teams(team, is_fold));
        if !launched.reduces || teams.iter().sum::<usize>() != 1 {
            return Err(format!("seed {seed}: {teams:?} teams reduce what lands"));
        }
        blocks += teams[1];

        // If data comes late, the kernel waits in another function.
        let (delay, ticks) = rng.of(&[(60, 3000), (1000, 2000), (8000, 300)]);
        let streams = [
            (
                vec![Do::Call(FILL), Do::Launch(&launched), Do::Call(LOOK)],
                EPOCHS,
            ),
            (vec![Do::Delay(delay), Do::Call(TICK)], ticks),
        ];
        let goes_wrong = rng.once_in(2).then(|| match rng.below(6) {
            0 => Wrong::Stop,
            1 | 2 if !job.targets.is_empty() => Wrong::Target(rng.below(job.targets.len())),
            _ => Wrong::Origin(rng.below(job.origins.len())),
        });
        let after = rng.below(20) as u64;
        // The poison comes right after an epoch, or in its middle.
        let behind = rng.once_in(2);
        let (mut looked, mut turns, mut wrong, mut ends) = (0, 0, Vec::new(), None);
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
                    Some(Wrong::Stop) if ends.is_none() => {
                        home.stop();
                        ends = Some(looked);
                    }
                    _ => {}
                }
            }
            Event::Called {
                value: FILL, time, ..
            } if !home.failed() => job.fill(time),
            Event::Called {
                value: LOOK, time, ..
            } if !home.failed() => {
                wrong.extend(
                    job.check(time)
                        .map_err(|why| format!("epoch {time}: {why}"))
                        .err(),
                );
                let stamps = home.take();
                if !stamps.is_empty() && !job.are_legs(&stamps, &launched, time) {
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
            Some(Wrong::Stop) if home.failed() => ends.is_some_and(|ends| looked <= ends + 1),
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
        if home.failed() && !matches!(goes_wrong, Some(Wrong::Stop)) {
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
            let has = |index| value(target.unit(epoch, index)) >> 32 == epoch + 1;
            if (0..units).any(has) {
                return Err(format!(
                    "seed {seed}: early data for target {}",
                    target.number
                ));
            }
        }
        if home.failed() {
            // Launches behind the failed one tell targets that nothing more comes.
            for target in &job.targets {
                let told = value(target.told) & POISON != 0;
                if !told && target.passed() != EPOCHS {
                    return Err(format!("seed {seed}: target {} waits", target.number));
                }
            }
        }
    }
    if failures < many / 8 || partly < many / 16 || blocks < many as usize / 6 {
        return Err(format!(
            "{failures} failures, {partly} with a part that had landed; {blocks} lanes of blocks"
        ));
    }
    Ok(())
}
