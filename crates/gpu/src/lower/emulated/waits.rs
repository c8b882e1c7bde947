//! Lanes that only wait.
//!
//! # Model
//!
//! Two batches of one stream wait for the same words in turn, so each launch must find the operands as the launch
//! before left them. The test adds to the words at random times: one epoch, several, or a part of one. A ticket waits
//! for the value of its operand, which the test advances meanwhile; the kernel never does.
//!
//! A word that lacks at most one unit per block is a promise. Then the next launch may begin, and the emulated machine
//! does not allow it earlier.
//!
//! An operand is never ahead of its word. A stream fails by a poisoned word, by the host, or because a stream that it
//! follows has failed. The launch that sees the failure may have advanced some of its operands. Later launches advance
//! none, whatever has come.

use std::ops::Range;

use tidegate_hal::batch::{Awaited, Batch, POISON, QUANTUM, Tag};
use tidegate_hal::memory::Ptr;

use super::super::RawTag;
use super::super::{FAULT_WAIT, LANE_WAITS, MOST_BLOCKS, PART, TEAM_WARPS};
use super::failure::FAULT_ABORTED;
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::{WINDOW, add, wait};
use crate::lower::random::Rng;

/// How often the stream does its two launches.
const TIMES: u64 = 3;
const LAUNCHES: u64 = 2 * TIMES;

const LOOK: u64 = 0;
const TICK: u64 = 1;

/// What happens to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Well,
    Poisoned,
    ByHost,
    Followed,
}

/// Words for which a lane waits, with their operands.
struct Waits {
    words: Vec<(Ptr, Ptr)>,
    /// The first value of the words and operands.
    base: u64,
    tickets: Vec<(Ptr, Ptr)>,
    /// The values of the tickets' operands.
    advanced: Vec<u64>,
}

impl Waits {
    fn new(arena: &mut Arena, rng: &mut Rng) -> Self {
        let base = rng.below(4) as u64 * QUANTUM;
        let mut pairs = |most| -> Vec<_> {
            let pairs = 0..rng.within(1..=most);
            pairs
                .map(|_| (arena.word(base), arena.word(base)))
                .collect()
        };
        let (words, tickets) = (pairs(9), pairs(3));
        Waits {
            words,
            base,
            advanced: vec![base; tickets.len()],
            tickets,
        }
    }

    /// How many launches the operand of a word has seen to their end.
    fn passed(&self, which: usize) -> u64 {
        (value(self.words[which].1) - self.base) / QUANTUM
    }

    /// Lets some words come, some by more than one epoch. The last time, all come that should.
    fn come(&mut self, last: bool, rng: &mut Rng) {
        let end = self.base + LAUNCHES * QUANTUM;
        for (word, _) in &self.words {
            let now = value(*word);
            // A poisoned word does not change.
            if now & POISON != 0 || now == end {
                continue;
            }
            // A wait whose word lacks a part has not come.
            let part = now % QUANTUM;
            let next = match rng.below(6) {
                _ if last => end,
                0 | 1 => now,
                _ if part != 0 => now - part + QUANTUM,
                2 => now + QUANTUM - rng.of(&[1, MOST_BLOCKS, MOST_BLOCKS + 1, PART, QUANTUM - 1]),
                3 => (now + 2 * QUANTUM).min(end),
                _ => now + QUANTUM,
            };
            change(*word, |_| next);
        }
        for ((word, operand), advanced) in self.tickets.iter().zip(&mut self.advanced) {
            if !last && rng.once_in(2) {
                *advanced += QUANTUM;
                change(*operand, |_| *advanced);
            }
            if last || rng.once_in(2) {
                change(*word, |_| *advanced);
            }
        }
    }

    /// Checks what must hold at all times.
    fn check(&self) -> Result<(), String> {
        for (word, operand) in &self.words {
            let (word, operand) = (value(*word) & !POISON, value(*operand));
            if operand > word || !operand.is_multiple_of(QUANTUM) {
                return Err(format!("an operand is {operand:#x}, its word {word:#x}"));
            }
        }
        for ((_, operand), advanced) in self.tickets.iter().zip(&self.advanced) {
            if value(*operand) != *advanced {
                let operand = value(*operand);
                return Err(format!(
                    "a ticket's operand is {operand:#x}, not {advanced:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// Every launch waits for every word once. A failed launch, and those behind it, end all the same.
pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (many, mut alone, mut failures) = (seeds.end - seeds.start, 0, [0; 4]);
    let mut settled = 0;
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x0a17);
        let mut arena = Arena::new(1 << 16, rng);
        let bell = arena.word(0);
        let mut waits = Waits::new(&mut arena, rng);
        let how = rng.of(&[End::Well, End::Poisoned, End::ByHost, End::Followed]);
        // A stream that follows another takes longer, even if nothing happens.
        let (home, other, idle) = (Home::new(), Home::new(), Home::new());
        let follow = match (how, rng.below(3)) {
            (End::Followed, 0) => [idle.address(), other.address()],
            (End::Followed, _) => [other.address(), 0],
            (_, 0) => [idle.address(), 0],
            _ => [0; 2],
        };
        let mut launches = Vec::new();
        for _ in 0..2 {
            let pairs = waits.words.iter().map(|pair| (pair, QUANTUM));
            let pairs = pairs.chain(waits.tickets.iter().map(|pair| (pair, 0)));
            let mut lanes: Vec<_> = pairs
                .enumerate()
                .map(|(peer, ((word, operand), quantum))| {
                    vec![wait(*word, *operand, quantum, peer as u32)]
                })
                .collect();
            lanes.extend((0..rng.below(3)).map(|_| vec![add(arena.word(0), bell)]));
            rng.shuffle(&mut lanes);
            // SAFETY: the words lie in the arena, which outlives the run.
            let batch = unsafe { Batch::new(lanes, Vec::new()) };
            let (quota, next) = (rng.of(&[2, 8, 40]), !rng.once_in(4));
            let launched = Launched::new(&batch, quota, machine.sizes, next, &home, follow);
            let launched = launched.map_err(|error| error.to_string())?;
            alone += launched.teams(TEAM_WARPS, |lane| lane.kind == LANE_WAITS);
            launches.push(launched);
        }
        let mut list: Vec<_> = launches.iter().map(Do::Launch).collect();
        list.push(Do::Call(LOOK));
        let ticks = rng.within(1..=12) as u64;
        let time = rng.of(&[0, 100, 1000, 4000]);
        let streams = [
            (list, TIMES),
            (vec![Do::Delay(time), Do::Call(TICK)], ticks),
        ];
        // The time at which something happens, and what the operands had seen by then.
        let moment = rng.below(ticks as usize) as u64;
        let mut seen = 0;
        let (poisoned, mut passes) = (rng.below(waits.words.len()), 0);
        // A stream that is ended need not get any further word.
        let silent = matches!(how, End::ByHost | End::Followed) && rng.once_in(2);
        let mut wrong = Vec::new();
        let outcome = machine.run(seed, &streams, &[], &mut |event| {
            match event {
                Event::Called {
                    value: TICK, time, ..
                } => {
                    if time == moment && how != End::Well {
                        if rng.once_in(2) {
                            waits.come(false, rng);
                        }
                        match how {
                            End::Poisoned => {
                                change(waits.words[poisoned].0, |value| value | POISON);
                            }
                            End::Followed => other.stop(),
                            _ => home.stop(),
                        }
                        let all = 0..waits.words.len();
                        seen = all.map(|which| waits.passed(which)).min().unwrap_or(0);
                    }
                    if how == End::Well || time < moment || !silent {
                        waits.come(time + 1 == ticks, rng);
                    }
                }
                Event::Called { .. } if !home.failed() => {
                    passes += 2;
                    let late = (0..waits.words.len()).find(|which| waits.passed(*which) != passes);
                    if let Some(which) = late {
                        let passed = waits.passed(which);
                        wrong.push(format!("{which} has passed {passed} times, not {passes}"));
                    }
                }
                _ => {}
            }
            wrong.extend(waits.check().err());
        });
        if !wrong.is_empty() {
            wrong.truncate(3);
            return Err(format!("seed {seed} ({how:?}): {wrong:?}"));
        }
        outcome?;
        settled += machine.settled();
        let passed: Vec<_> = (0..waits.words.len())
            .map(|which| waits.passed(which))
            .collect();
        if !home.failed() {
            if passed.iter().any(|passed| *passed != LAUNCHES) {
                return Err(format!(
                    "seed {seed} ({how:?}): passed {passed:?}, and is well"
                ));
            }
            let blocks = launches.iter().map(Launched::passes).sum::<u64>();
            if machine.passes() != TIMES * blocks {
                return Err(format!(
                    "seed {seed}: of {blocks} blocks {} have let the next come, in {TIMES} times",
                    machine.passes()
                ));
            }
            continue;
        }
        failures[how as usize] += 1;
        let fault = home.fault()?;
        let found = (fault.kind, fault.tag, fault.epoch);
        let (word, first) = (value(waits.words[poisoned].0), passed[poisoned]);
        let (fields, least, most) = match how {
            End::Well => return Err(format!("seed {seed}: failed by {fault:?}")),
            // The epochs that came before the poison are waited for as usual, and no more.
            End::Poisoned => {
                let epoch = (word & !POISON) / QUANTUM;
                let tag = Tag {
                    window: WINDOW,
                    peer: poisoned as u32,
                    awaited: Awaited::Event,
                };
                let fields = (FAULT_WAIT, tag.into(), epoch);
                let come = epoch - waits.base / QUANTUM;
                if first != come {
                    return Err(format!(
                        "seed {seed}: {come} have come, {first} have passed"
                    ));
                }
                (fields, come, come + 1)
            }
            // This launch or the next one.
            _ => ((FAULT_ABORTED, RawTag::default(), 0), seen, seen + 1),
        };
        if found != fields {
            return Err(format!("seed {seed}: {found:?} and not {fields:?}"));
        }
        if passed.iter().any(|passed| !(least..=most).contains(passed)) {
            return Err(format!(
                "seed {seed} ({how:?}): passed {passed:?}, not {least} or {most}"
            ));
        }
    }
    let few = |count: &u64| *count < many / 16;
    if alone == 0 || failures[1..].iter().any(few) {
        return Err(format!("{alone} lanes only wait, {failures:?} failures"));
    }
    if settled < many / 16 {
        return Err(format!("{settled} waits have ended by a promise"));
    }
    Ok(())
}
