//! Lanes that share a block.
//!
//! # Model
//!
//! One block carries out several copying lanes in their short forms, with a warp each. Each lane is at an epoch of its
//! own. So one lane puts to the first buffer while its neighbour puts to the second. Each word comes at a time of its
//! own, so some lanes go straight on, and others wait long.

use std::ops::Range;

use tidegate_hal::batch::{Action, Batch, Move, QUANTUM, Shape, Side, Step};
use tidegate_hal::memory::Ptr;

use super::super::layout::LANE_GATHERS;
use super::super::{LANE_ADDS, LANE_COPIES, LANE_LISTED, LANE_WAITS, TEAM_WARPS};
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::{add, linear, wait};
use crate::lower::random::{Rng, mix};

const TIMES: u64 = 4;

/// Bytes of an element in lanes with lists, and the distance in elements between two that are copied.
const ELEMENT: usize = 4;
const GAP: usize = 3;

const FILL: u64 = 0;
const LOOK: u64 = 1;
const TICK: u64 = 2;

struct Lane {
    /// The epoch of the first launch.
    first: u64,
    word: Ptr,
    operand: Ptr,
    src: Ptr,
    /// Whether it copies every third element of four bytes.
    listed: bool,
    dst: Ptr,
    flip: usize,
    bytes: usize,
    out: Ptr,
}

impl Lane {
    fn new(arena: &mut Arena, rng: &mut Rng) -> Self {
        let first = rng.below(4) as u64;
        let listed = rng.once_in(2);
        let bytes = match listed {
            false => rng.within(1..=15 * 16 + 15),
            true => ELEMENT * rng.within(2..=20),
        };
        let flip = bytes.next_multiple_of(16);
        // Elements of lists at multiples of 16 bytes are gathered.
        let beyond = if listed && rng.once_in(2) { ELEMENT } else { 0 };
        Lane {
            first,
            word: arena.word(first * QUANTUM),
            operand: arena.word(first * QUANTUM),
            src: Ptr(arena.take(if listed { GAP * bytes } else { bytes }, 0, true)),
            listed,
            dst: Ptr(arena.take(flip + bytes, beyond, true)),
            flip,
            bytes,
            out: arena.word(0),
        }
    }

    fn steps(&self, number: u32, bell: Ptr) -> Vec<Step> {
        let (size, mut src) = (if self.listed { ELEMENT } else { 1 }, linear(self.src));
        let count = self.bytes / size;
        if self.listed {
            let mut dims = [(1, 0); Shape::MAX_DIMS];
            dims[0] = (count as u32, GAP as i32);
            src.shape = Shape::Strided { dims, rank: 1 };
        }
        let copy = Move {
            action: Action::Copy,
            size: size as u32,
            count,
            src,
            dst: Side {
                base: self.dst,
                flip: self.flip,
                shape: Shape::Linear,
            },
            parity: self.operand,
            early: true,
            landing: None,
            buffers: 2,
        };
        let wait = wait(self.word, self.operand, QUANTUM, number);
        vec![wait, Step::Move(copy), add(self.out, bell)]
    }

    fn pattern(&self, epoch: u64, index: usize) -> u8 {
        mix(self.word.0.addr() as u64 ^ epoch << 48 ^ index as u64) as u8
    }

    /// Fills the source for a launch.
    fn fill(&self, time: u64) {
        for index in 0..self.bytes {
            // SAFETY: the piece is as long, and no running launch reads it.
            unsafe {
                let at = match self.listed {
                    false => index,
                    true => index / ELEMENT * ELEMENT * GAP + index % ELEMENT,
                };
                self.src
                    .0
                    .add(at)
                    .write(self.pattern(self.first + time, index))
            };
        }
    }

    /// Checks that the data of the last launches is in the right buffers.
    fn check(&self, time: u64) -> Result<(), String> {
        for time in time.saturating_sub(1)..=time {
            let epoch = self.first + time;
            let buffer = self
                .dst
                .byte_add(if epoch % 2 == 1 { self.flip } else { 0 });
            for index in 0..self.bytes {
                // SAFETY: the piece is as long; between primitives nothing writes.
                let found = unsafe { buffer.0.add(index).read() };
                if found != self.pattern(epoch, index) {
                    let bytes = self.bytes;
                    return Err(format!("epoch {epoch}: {index} of {bytes} is {found:#x}"));
                }
            }
        }
        Ok(())
    }
}

/// Each lane waits for its own word, and copies to its own buffer.
pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x0e19);
        let mut arena = Arena::new(1 << 16, rng);
        let bell = arena.word(0);
        let count = rng.within(2..=machine.sizes.warps);
        let lanes: Vec<_> = (0..count).map(|_| Lane::new(&mut arena, rng)).collect();
        let steps = lanes
            .iter()
            .zip(0..)
            .map(|(lane, number)| lane.steps(number, bell));
        // SAFETY: everything lies in the arena, which outlives the run, and each lane writes memory of its own.
        let batch = unsafe { Batch::new(steps, Vec::new()) };
        let home = Home::new();
        let next = rng.once_in(2);
        let launched = Launched::new(&batch, 1, machine.sizes, next, &home, [0; 2]);
        let launched = launched.map_err(|error| error.to_string())?;
        let all = LANE_WAITS | LANE_COPIES | LANE_ADDS;
        let short = launched.teams(TEAM_WARPS, |lane| {
            lane.kind & !(LANE_LISTED | LANE_GATHERS) == all
        });
        if (launched.blocks, short) != (1, count) {
            return Err(format!(
                "seed {seed}: {short} of {count} lanes are in short"
            ));
        }
        let list = vec![Do::Call(FILL), Do::Launch(&launched), Do::Call(LOOK)];
        let ticks = rng.within(1..=16) as u64;
        let delay = rng.of(&[0, 300, 3000]);
        let streams = [
            (list, TIMES),
            (vec![Do::Delay(delay), Do::Call(TICK)], ticks),
        ];
        let mut wrong = Vec::new();
        let outcome = machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called {
                value: FILL, time, ..
            } => {
                lanes.iter().for_each(|lane| lane.fill(time));
            }
            Event::Called {
                value: LOOK, time, ..
            } => {
                for lane in &lanes {
                    wrong.extend(lane.check(time).err());
                    let (out, operand) = (value(lane.out), value(lane.operand));
                    let epochs = time + 1;
                    if (out, operand) != (epochs * QUANTUM, (lane.first + epochs) * QUANTUM) {
                        wrong.push(format!("{epochs} times: {out:#x}, {operand:#x}"));
                    }
                }
            }
            Event::Called { time, .. } => {
                for lane in &lanes {
                    let end = (lane.first + TIMES) * QUANTUM;
                    if time + 1 == ticks {
                        change(lane.word, |_| end);
                    } else if value(lane.word) < end && rng.once_in(2) {
                        change(lane.word, |value| value + QUANTUM);
                    }
                }
            }
            Event::Added(word) => {
                let lane = lanes.iter().find(|lane| lane.out.0.addr() as u64 == word);
                let Some(lane) = lane else { return };
                // A promise does not announce data.
                if !value(lane.out).is_multiple_of(QUANTUM) {
                    return;
                }
                let epochs = value(lane.out) / QUANTUM;
                wrong.extend(lane.check(epochs - 1).err());
                if value(lane.word) / QUANTUM < lane.first + epochs {
                    wrong.push(format!("{epochs} times: the word has not come"));
                }
            }
        });
        if !wrong.is_empty() {
            wrong.truncate(3);
            return Err(format!("seed {seed}: {wrong:?}"));
        }
        outcome?;
        if home.failed() {
            return Err(format!("seed {seed}: the stream has failed"));
        }
    }
    Ok(())
}
