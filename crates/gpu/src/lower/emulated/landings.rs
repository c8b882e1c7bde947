//! Bytes that land with tags: each side alone, with the test as the other side.
//!
//! # Model
//!
//! *The wait*: a stream waits for one word repeatedly, whose slot has a landing. In each epoch the data lands, four
//! bytes and their tag at a time and in any order, or it comes by the slot and the word. Some lanes copy the slot behind
//! their wait. Sometimes the word is poisoned in between. Then the epochs that had come before pass, and the next wait
//! fails, even if a part of its epoch has landed.
//!
//! *The put*: a stream fills a slot that has a landing repeatedly. Each time it waits for an exposure, which comes from
//! the test, or is poisoned. All data lands, with the epoch's tag. The slot and its word do not change, except for the
//! poison of a failed stream.

use std::ops::Range;

use tidegate_hal::batch::{
    Action, Awaited, Batch, Landed, Landing, Move, POISON, QUANTUM, Step, Tag, Wait,
};
use tidegate_hal::memory::Ptr;

use super::super::{FAULT_WAIT, LANE_LANDS, PART, Sizes, TEAM_BLOCKS, TEAM_WARPS};
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::{WINDOW, add, linear, wait};
use crate::lower::random::{Rng, mix};

const EPOCHS: u64 = 8;
const LOOK: u64 = 0;
const TICK: u64 = 1;

/// A slot and its landing, each with one buffer or two.
struct Place {
    bytes: usize,
    slot: (Ptr, usize),
    landing: Landing,
    done: (Ptr, Ptr),
    /// The first epoch. Sometimes it is one after which tags soon begin again.
    begin: u64,
    salt: u64,
}

impl Place {
    fn new(arena: &mut Arena, rng: &mut Rng) -> Self {
        let words = rng.of(&[40, 40, 300]);
        let bytes = 4 * rng.within(1..=words);
        let double = rng.once_in(2);
        let begin = if rng.once_in(3) { (1 << 32) - 4 } else { 0 };
        let room = Landing::room(bytes);
        let flip = |step: usize| if double { step.next_multiple_of(64) } else { 0 };
        let base = Ptr(arena.take(flip(room) + room, 0, true));
        for at in (0..flip(room) + room).step_by(8) {
            change(base.byte_add(at), |_| 0);
        }
        Place {
            bytes,
            slot: (Ptr(arena.take(flip(bytes) + bytes, 0, true)), flip(bytes)),
            landing: Landing {
                base,
                flip: flip(room),
            },
            done: (arena.word(begin * QUANTUM), arena.word(begin * QUANTUM)),
            begin,
            salt: rng.next(),
        }
    }

    /// Whether one team of the right kind carries it out.
    fn has_a_team(&self, launched: &Launched, sizes: Sizes) -> bool {
        let team = match self.bytes > 8 * sizes.threads / sizes.warps {
            true => TEAM_BLOCKS,
            false => TEAM_WARPS,
        };
        launched.teams(team, |lane| lane.kind & LANE_LANDS != 0) == 1
    }

    fn buffers(&self) -> u64 {
        if self.landing.flip == 0 { 1 } else { 2 }
    }

    fn data(&self, epoch: u64, index: usize) -> u32 {
        mix(self.salt ^ epoch << 32 ^ index as u64) as u32
    }

    fn words(&self) -> usize {
        self.bytes / 4
    }

    fn slot(&self, epoch: u64, index: usize) -> *mut u32 {
        let flip = if epoch % 2 == 1 { self.slot.1 } else { 0 };
        self.slot.0.byte_add(flip + 4 * index).0.cast()
    }

    fn unit(&self, epoch: u64, index: usize) -> Ptr {
        let flip = if epoch % 2 == 1 { self.landing.flip } else { 0 };
        self.landing.base.byte_add(flip + 8 * index)
    }

    /// How many units a landing has. Each has two words.
    fn units(&self) -> usize {
        Landing::room(self.bytes) / 8
    }

    /// The contents of a landing after an epoch has landed.
    fn landed(&self, epoch: u64, index: usize) -> u64 {
        let data = if index < self.words() {
            self.data(epoch, index)
        } else {
            0
        };
        u64::from(data) | (epoch + 1) << 32
    }

    fn fill_slot(&self, epoch: u64) {
        for index in 0..self.words() {
            // SAFETY: within the slot; between primitives nothing else happens.
            unsafe { self.slot(epoch, index).write(self.data(epoch, index)) };
        }
    }

    fn check_slot(&self, epoch: u64) -> Result<(), String> {
        self.check(epoch, Ptr(self.slot(epoch, 0).cast()))
    }

    /// Checks that the data of an epoch is at a place.
    fn check(&self, epoch: u64, at: Ptr) -> Result<(), String> {
        for index in 0..self.words() {
            // SAFETY: the place is as long as the slot; between primitives nothing else happens.
            let found = unsafe { at.0.cast::<u32>().add(index).read() };
            if found != self.data(epoch, index) {
                return Err(format!(
                    "epoch {epoch}: {index} of {} is {found:#x}",
                    self.words()
                ));
            }
        }
        Ok(())
    }
}

/// A piece of an epoch's data or of its signal.
#[derive(Clone, Copy)]
enum Piece {
    Unit(usize),
    /// A part of the quantum that promises nothing; and then a part that promises the rest.
    Part,
    Promise,
    /// The data in the slot, and then the rest of the quantum.
    Slot,
}

pub(super) fn check_waits(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (many, mut failures, mut partly, mut settled) = (seeds.end - seeds.start, 0, 0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x1a4d);
        let mut arena = Arena::new(1 << 16, rng);
        let place = Place::new(&mut arena, rng);
        let home = Home::new();
        let step = Step::Wait(Wait {
            word: place.done.0,
            operand: place.done.1,
            quantum: QUANTUM,
            tag: Tag {
                window: WINDOW,
                peer: 3,
                awaited: Awaited::Completion,
            },
            landed: Some(Landed {
                from: place.landing,
                slot: place.slot.0,
                flip: place.slot.1,
                bytes: place.bytes,
            }),
            ring: None,
        });
        // A generator of its own, so that other choices do not depend on it.
        let copies = Rng::new(seed ^ 0xc0b1).once_in(2);
        let copy = copies.then(|| Ptr(arena.take(place.bytes, 4 * rng.clone().below(4), true)));
        let behind = copy.map(|to| {
            let mut slot = linear(place.slot.0);
            slot.flip = place.slot.1;
            Step::Move(Move {
                action: Action::Copy,
                size: 4,
                count: place.words(),
                src: slot,
                dst: linear(to),
                parity: if slot.flip == 0 {
                    Ptr::NULL
                } else {
                    place.done.1
                },
                early: false,
                landing: None,
                buffers: 2,
            })
        });
        let lane: Vec<_> = std::iter::once(step).chain(behind).collect();
        // Beside it is a lane that waits for something else. It is in the same block if both are warps'.
        let other = rng.once_in(2).then(|| (arena.word(0), arena.word(0)));
        let pace = rng.of(&[2, 12]);
        let beside = other.map(|(word, operand)| vec![wait(word, operand, QUANTUM, 7)]);
        let lanes = std::iter::once(lane).chain(beside);
        // SAFETY: everything lies in the arena, which outlives the run.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        let launched = Launched::new(&batch, 4, machine.sizes, !rng.once_in(3), &home, [0; 2]);
        let launched = launched.map_err(|error| error.to_string())?;
        if !place.has_a_team(&launched, machine.sizes) {
            return Err("the wait does not look where its data lands".into());
        }
        // If the data comes late, the kernel waits in another function.
        let (delay, ticks) = rng.of(&[(60, 2000), (1000, 2000), (8000, 300)]);
        let streams = [
            (vec![Do::Launch(&launched), Do::Call(LOOK)], EPOCHS),
            (vec![Do::Delay(delay), Do::Call(TICK)], ticks),
        ];
        let poison = rng.once_in(2).then(|| rng.below(60));
        // The poison comes right after an epoch, or in its middle.
        let behind = rng.once_in(2);
        let (begin, end) = (place.begin, place.begin + EPOCHS);
        let (mut epoch, mut pieces, mut sent, mut ended) = (begin, Vec::<Piece>::new(), 0, None);
        let mut looked = begin;
        let mut wrong = Vec::new();
        let outcome = machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called {
                value: TICK, time, ..
            } => {
                if let Some((word, _)) = other {
                    let all = EPOCHS * QUANTUM;
                    if time + 1 == ticks {
                        change(word, |_| all);
                    } else if value(word) < all && rng.once_in(pace) {
                        change(word, |value| value + QUANTUM);
                    }
                }
                if ended.is_some() {
                    return;
                }
                // An epoch may end and the next one come between two steps of the wait.
                for _ in 0..rng.within(1..=2 * place.units()) {
                    if pieces.is_empty() {
                        // Exposures ensure this: a buffer is free after its data has been read.
                        if epoch == end || epoch >= looked + place.buffers() {
                            return;
                        }
                        pieces = match rng.below(2) {
                            // The pieces are in reverse order.
                            0 => vec![Piece::Slot, Piece::Promise, Piece::Part],
                            _ => {
                                let mut units: Vec<_> =
                                    (0..place.units()).map(Piece::Unit).collect();
                                rng.shuffle(&mut units);
                                units
                            }
                        };
                    }
                    match pieces.pop() {
                        Some(Piece::Unit(index)) => {
                            change(place.unit(epoch, index), |_| place.landed(epoch, index));
                        }
                        Some(Piece::Part) => {
                            change(place.done.0, |value| value + PART - 1);
                        }
                        Some(Piece::Promise) => {
                            change(place.done.0, |value| value + QUANTUM - PART - 1);
                        }
                        Some(Piece::Slot) => {
                            place.fill_slot(epoch);
                            change(place.done.0, |value| value + 2);
                        }
                        None => unreachable!("there are pieces"),
                    }
                    epoch += u64::from(pieces.is_empty());
                    sent += 1;
                    if poison.is_some_and(|after| sent > after) && (pieces.is_empty() || !behind) {
                        change(place.done.0, |value| value | POISON);
                        partly += u64::from(!pieces.is_empty());
                        ended = Some(epoch);
                        return;
                    }
                }
            }
            Event::Called {
                value: LOOK, time, ..
            } if !home.failed() => {
                let time = begin + time;
                let now = (time + 1) * QUANTUM;
                // The word may be ahead by epochs that came by the word.
                let (word, operand) = (value(place.done.0) & !POISON, value(place.done.1));
                if operand != now || word < now || word > now + QUANTUM {
                    wrong.push(format!(
                        "epoch {time}: {operand:#x}, and the word {word:#x}"
                    ));
                }
                wrong.extend(place.check_slot(time).err());
                wrong.extend(copy.and_then(|copy| place.check(time, copy).err()));
                looked = time + 1;
            }
            _ => {}
        });
        if !wrong.is_empty() {
            wrong.truncate(3);
            return Err(format!("seed {seed}: {wrong:?}"));
        }
        outcome?;
        settled += machine.settled();
        let passed = value(place.done.1) / QUANTUM;
        let expected = ended.unwrap_or(end);
        if passed != expected || home.failed() != (expected < end) {
            return Err(format!("seed {seed}: {passed} have passed, not {expected}"));
        }
        if (value(place.done.0) & !POISON) / QUANTUM != expected {
            return Err(format!(
                "seed {seed}: the word is {:#x}",
                value(place.done.0)
            ));
        }
        if !home.failed() && machine.passes() != EPOCHS * launched.passes() {
            return Err(format!(
                "seed {seed}: it has let the next come {} times",
                machine.passes()
            ));
        }
        if home.failed() {
            failures += 1;
            let fault = home.fault()?;
            let tag = Tag::from(fault.tag);
            let found = (fault.kind, tag.window, tag.peer, fault.epoch);
            if found != (FAULT_WAIT, WINDOW, 3, expected) {
                return Err(format!("seed {seed}: {fault:?}"));
            }
        }
    }
    if failures < many / 8 || partly < many / 16 || settled < many / 8 {
        return Err(format!(
            "{failures} failures, {partly} with a part that had landed; {settled} looks behind a promise"
        ));
    }
    Ok(())
}

pub(super) fn check_puts(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (many, mut failures) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x9075);
        let mut arena = Arena::new(1 << 16, rng);
        let place = Place::new(&mut arena, rng);
        let begin = place.begin;
        let mut word = || arena.word(begin * QUANTUM);
        let (exposed, bell) = ((word(), word()), word());
        let src = Ptr(arena.take(place.bytes, 4 * rng.below(4), false));
        let fill = |epoch| {
            for index in 0..place.words() {
                // SAFETY: the piece is as long, and no launch is running.
                unsafe {
                    src.0
                        .cast::<u32>()
                        .add(index)
                        .write(place.data(epoch, index))
                };
            }
        };
        let mut side = linear(place.slot.0);
        side.flip = place.slot.1;
        let put = Step::Move(Move {
            action: Action::Copy,
            size: 4,
            count: place.words(),
            src: linear(src),
            dst: side,
            parity: if side.flip == 0 { Ptr::NULL } else { exposed.1 },
            early: true,
            landing: Some(place.landing),
            buffers: 2,
        });
        let home = Home::new();
        let lane = vec![
            wait(exposed.0, exposed.1, QUANTUM, 5),
            put,
            Step::Flush,
            add(place.done.0, bell),
        ];
        // SAFETY: as above.
        let batch = unsafe { Batch::new([lane], Vec::new()) };
        let launched = Launched::new(&batch, 4, machine.sizes, !rng.once_in(3), &home, [0; 2]);
        let launched = launched.map_err(|error| error.to_string())?;
        if !place.has_a_team(&launched, machine.sizes) {
            return Err("the put does not land".into());
        }
        fill(begin);
        let streams = [
            (vec![Do::Launch(&launched), Do::Call(LOOK)], EPOCHS),
            (
                vec![Do::Delay(rng.of(&[0, 400, 20_000])), Do::Call(TICK)],
                12,
            ),
        ];
        let fails = rng
            .once_in(2)
            .then(|| (rng.below(10) as u64, rng.once_in(2)));
        let slots = |arena: &Arena| {
            let all = place.slot.1 + place.bytes;
            // SAFETY: as above.
            let byte = |at| unsafe { arena.at(place.slot.0.0.addr() as u64).add(at).read() };
            (0..all).map(byte).collect::<Vec<u8>>()
        };
        let before = slots(&arena);
        let (mut exposures, mut put) = (0, u64::MAX);
        let mut wrong = Vec::new();
        let outcome = machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called {
                value: TICK, time, ..
            } => match fails {
                Some((at, poison)) if time == at => {
                    if poison {
                        change(exposed.0, |value| value | POISON);
                    } else {
                        home.stop();
                        put = value(exposed.1) / QUANTUM - begin;
                    }
                }
                Some((at, _)) if time > at => {}
                _ => {
                    exposures += 1;
                    change(exposed.0, |value| value + QUANTUM);
                    // No further exposure comes before the other side has seen the data, but here no one reads it.
                    if time == 11 {
                        change(exposed.0, |value| value + EPOCHS * QUANTUM);
                    }
                }
            },
            Event::Called {
                value: LOOK, time, ..
            } if !home.failed() => {
                let time = begin + time;
                for index in 0..place.units() {
                    let found = value(place.unit(time, index));
                    if found != place.landed(time, index) {
                        wrong.push(format!("epoch {time}: unit {index} is {found:#x}"));
                    }
                }
                if value(exposed.1) != (time + 1) * QUANTUM {
                    wrong.push(format!("epoch {time}: {:#x}", value(exposed.1)));
                }
                fill(time + 1);
            }
            _ => {}
        });
        wrong.truncate(3);
        if !wrong.is_empty() {
            return Err(format!("seed {seed}: {wrong:?}"));
        }
        outcome?;
        if slots(&arena) != before {
            return Err(format!("seed {seed}: the slot was written"));
        }
        let (done, failed) = (value(place.done.0), home.failed());
        let first = begin * QUANTUM;
        if done != if failed { first | POISON } else { first } {
            return Err(format!("seed {seed}: the word is {done:#x}"));
        }
        if !failed && machine.passes() != EPOCHS * launched.passes() {
            return Err(format!(
                "seed {seed}: it has let the next come {} times",
                machine.passes()
            ));
        }
        failures += u64::from(failed);
        let passed = value(exposed.1) / QUANTUM - begin;
        if failed && passed > exposures {
            return Err(format!("seed {seed}: put without an exposure"));
        }
        // One epoch may be in progress.
        if passed > put.saturating_add(1) {
            return Err(format!(
                "seed {seed}: put {passed} times, and ended after {put}"
            ));
        }
    }
    if failures < many / 8 {
        return Err(format!("only {failures} streams have failed"));
    }
    Ok(())
}
