//! Moves of every kind, compared with those of the host's mover in a copy of the memory.

use std::ops::Range;

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Check, Move, QUANTUM, Scalar, Shape, Side, Step, Tag, Wait,
};
use tidegate_hal::memory::Ptr;
use tidegate_host::HostMover;
use tidegate_words::{Bell, Engine, Poll};

use super::super::layout::{LANE_COUNTED, LANE_LISTED};
use super::super::{LANE_STEPS, ShortLane, Sizes, TEAM_BLOCKS, TEAM_WARPS};
use super::launched::{Home, Launched};
use super::machine::{Do, Machine};
use super::memory::{Arena, change};
use crate::lower::random::Rng;

mod arithmetic;
pub(super) mod extremes;
mod gather;
pub(super) mod reductions;
mod several;
pub(super) mod turns;

const ARENA: usize = 4 << 20;

/// The bits of an `f16`, of a NaN or of a number that has so few digits.
fn f16_of(number: f64) -> u16 {
    let bits = number.to_bits();
    let (sign, exponent) = ((bits >> 48) as u16 & 0x8000, (bits >> 52) as u16 & 0x7ff);
    // A NaN has the largest exponent.
    let exponent = exponent.wrapping_sub(1023 - 15).min(31);
    sign | (exponent << 10) | ((bits >> 42) as u16 & 0x3ff)
}

/// Makes moves whose sides lie in an arena.
struct Maker<'a> {
    rng: &'a mut Rng,
    arena: &'a mut Arena,
    bell: Ptr,
    /// The most elements of a move.
    most: usize,
}

impl Maker<'_> {
    /// Loops over `count` elements.
    fn loops(&mut self, count: usize) -> Vec<usize> {
        let mut loops = vec![1; self.rng.within(1..=Shape::MAX_DIMS)];
        let (mut left, mut factor) = (count, 2);
        while left > 1 {
            if factor * factor > left {
                factor = left;
            }
            while left % factor == 0 {
                left /= factor;
                let which = self.rng.below(loops.len());
                loops[which] *= factor;
            }
            factor += 1;
        }
        loops
    }

    /// Strides for loops. If they should be `distinct`, no element is touched twice.
    fn strides(&mut self, loops: &[usize], distinct: bool) -> Vec<i32> {
        if !distinct && self.rng.once_in(4) {
            return loops
                .iter()
                .map(|_| self.rng.within(0..=10) as i32 - 5)
                .collect();
        }
        let mut order: Vec<_> = (0..loops.len()).collect();
        if self.rng.once_in(2) {
            self.rng.shuffle(&mut order);
        }
        let mut stride = if self.rng.once_in(3) {
            self.rng.within(1..=3)
        } else {
            1
        };
        let mut strides = vec![0; loops.len()];
        for index in order {
            let sign = if self.rng.once_in(5) { -1 } else { 1 };
            strides[index] = sign * stride as i32;
            stride *= loops[index];
            if self.rng.once_in(2) {
                stride += self.rng.of(&[1, 2, 4, 8]);
            }
        }
        strides
    }

    /// A side of elements of `size` bytes, at a multiple of `align`.
    fn side(
        &mut self,
        size: usize,
        count: usize,
        align: usize,
        written: bool,
        flips: bool,
    ) -> Side {
        // The elements reach from `low` to `high`.
        let (shape, low, high) = match self.rng.below(4) {
            0 | 1 => (Shape::Linear, 0, count as i64 - 1),
            2 => {
                let loops = self.loops(count);
                let strides = self.strides(&loops, written);
                let mut dims = [(1, 0); Shape::MAX_DIMS];
                let (mut low, mut high) = (0, 0);
                for (dim, (&turns, &stride)) in dims.iter_mut().zip(loops.iter().zip(&strides)) {
                    *dim = (turns as u32, stride);
                    let end = (turns as i64 - 1) * i64::from(stride);
                    low += end.min(0);
                    high += end.max(0);
                }
                let rank = loops.len() as u32;
                (Shape::Strided { dims, rank }, low, high)
            }
            _ => {
                let among = count + self.rng.below(count + 1);
                let mut indices: Vec<u32> = if written {
                    (0..among as u32).collect()
                } else {
                    (0..count).map(|_| self.rng.below(among) as u32).collect()
                };
                self.rng.shuffle(&mut indices);
                indices.truncate(count);
                let high = indices.iter().copied().max().unwrap_or(0);
                let table = self.arena.take(4 * count, 4 * self.rng.below(8), false);
                for (at, index) in indices.iter().enumerate() {
                    // SAFETY: the table was taken with room for all.
                    unsafe { table.cast::<u32>().add(at).write(*index) };
                }
                let table = Ptr(table);
                (Shape::Indexed { table }, 0, i64::from(high))
            }
        };
        let reach = (high - low + 1) as usize * size;
        let flip = if flips && self.rng.once_in(2) {
            (reach + self.rng.below(40)).next_multiple_of(align)
        } else {
            0
        };
        let beyond = align * self.rng.below(48 / align);
        let piece = self.arena.take(reach + flip, beyond, written);
        Side {
            base: Ptr(piece.wrapping_offset(-low as isize * size as isize)),
            flip,
            shape,
        }
    }

    /// Fills the elements of a side, in both buffers, with values whose arithmetic is exact.
    fn numbers(&mut self, at: *mut u8, reach: usize, scalar: Scalar, nan: bool) {
        for index in 0..reach / scalar.bytes() {
            let number =
                (self.rng.within(1..=9) as f64) * if self.rng.once_in(2) { -0.5 } else { 1.0 };
            let number = if nan && self.rng.once_in(9) {
                f64::NAN
            } else {
                number
            };
            // SAFETY: the caller gives a piece of the arena.
            unsafe {
                match scalar {
                    Scalar::F32 => at.cast::<f32>().add(index).write_unaligned(number as f32),
                    Scalar::F64 => at.cast::<f64>().add(index).write_unaligned(number),
                    Scalar::Bf16 => {
                        let upper = ((number as f32).to_bits() >> 16) as u16;
                        at.cast::<u16>().add(index).write_unaligned(upper);
                    }
                    Scalar::F16 => at.cast::<u16>().add(index).write_unaligned(f16_of(number)),
                    _ => {}
                }
            }
        }
    }

    fn count(&mut self) -> usize {
        match self.rng.below(6) {
            0 => 1,
            1 => self.rng.within(1..=40),
            2 => 16 * self.rng.within(1..=self.most / 16),
            3 => self.rng.within(1..=self.most),
            _ => {
                let factors = (0..4).map(|_| self.rng.within(1..=6));
                factors.product::<usize>().min(self.most)
            }
        }
    }

    fn copy(&mut self, parity: Ptr) -> Move {
        let size = match self.rng.below(3) {
            0 => self.rng.within(1..=48),
            1 => self.rng.of(&[1, 2, 4, 8, 16]),
            _ => self.rng.of(&[12, 24, 40, 48, 3, 6, 32]),
        };
        let natural: usize = 1 << size.trailing_zeros().min(4);
        // Elements of 4 and 8 bytes are numbers, and are aligned as such.
        let mut align = || match size {
            4 | 8 => natural,
            _ => 1 << self.rng.below(natural.trailing_zeros() as usize + 1),
        };
        let aligns = [align(), align()];
        // Many moves are of bytes, at any distance from a boundary.
        let count = self.count() * if size < 4 { 4 } else { 1 };
        let flips = !parity.is_null();
        let (src, dst) = (
            self.side(size, count, aligns[0], false, flips),
            self.side(size, count, aligns[1], true, flips),
        );
        let linear = (src.shape, dst.shape) == (Shape::Linear, Shape::Linear);
        let action = match linear && self.rng.once_in(3) {
            true => self.counted(count, parity),
            false => Action::Copy,
        };
        Move {
            action,
            size: size as u32,
            count,
            src,
            dst,
            parity,
            early: self.rng.once_in(2),
            landing: None,
            buffers: 2,
        }
    }

    /// A copy of at most `most` elements: of none, some, all, or of more than there are.
    /// With a parity, there may be another number for odd epochs.
    fn counted(&mut self, most: usize, parity: Ptr) -> Action {
        let flips = !parity.is_null() && self.rng.once_in(2);
        let count = Ptr(self.arena.take(if flips { 16 } else { 8 }, 0, false));
        let flip = if flips { 8 } else { 0 };
        for at in [0, flip] {
            let number = match self.rng.below(5) {
                0 => 0,
                1 => most as u64,
                2 => self.rng.of(&[most as u64 + 1, u64::MAX, 1 << 61]),
                _ => self.rng.below(most) as u64,
            };
            change(count.byte_add(at), |_| number);
        }
        Action::CopyUpTo { count, flip }
    }

    /// A check that passes.
    fn check(&mut self) -> Step {
        let most = self.rng.of(&[0, 7, u64::MAX]);
        let count = self.rng.of(&[0, most / 2, most]);
        Step::Check(Check {
            count: self.arena.word(count),
            most,
            tag: Tag {
                window: None,
                peer: 3,
                awaited: Awaited::Completion,
            },
        })
    }

    fn wait(&mut self, epoch: u64, quantum: u64) -> (Step, Ptr) {
        let word = self.arena.word((epoch + 1) * QUANTUM);
        let operand = self.arena.word((epoch + 1) * QUANTUM - quantum);
        let tag = Tag {
            window: None,
            peer: 2,
            awaited: Awaited::Exposure,
        };
        let wait = Wait {
            word,
            operand,
            quantum,
            tag,
            landed: None,
            ring: None,
        };
        (Step::Wait(wait), operand)
    }

    fn add(&mut self) -> Step {
        let value = self.rng.of(&[QUANTUM, QUANTUM, QUANTUM, 1, 300]);
        Step::Add(Add {
            tag: None,
            word: self.arena.word(0),
            value,
            // No stream waits for such a small add.
            bell: if value == 1 { Ptr::NULL } else { self.bell },
            turn: None,
        })
    }

    /// A copy from one place to another.
    fn linear(&mut self, parity: Ptr) -> Move {
        let bytes = match self.rng.below(4) {
            0 => self.rng.within(1..=15),
            1 => 16 * self.rng.within(1..=self.most),
            _ => self.rng.within(16..=16 * self.most),
        };
        let flip = (bytes + self.rng.below(40)).next_multiple_of(16);
        let flip = if parity.is_null() || self.rng.once_in(3) {
            0
        } else {
            flip
        };
        let beyond = if self.rng.once_in(5) {
            self.rng.below(16)
        } else {
            0
        };
        let mut side = |flip, written| Side {
            base: Ptr(self.arena.take(bytes + flip, beyond, written)),
            flip,
            shape: Shape::Linear,
        };
        let (src, dst) = (side(0, false), side(flip, true));
        // Elements of these sizes may lie anywhere.
        let size = match self.rng.of(&[1, 1, 1, 12]) {
            size if size <= bytes => size,
            _ => 1,
        };
        let (action, size) = match self.rng.once_in(3) {
            true => (self.counted(bytes / size, Ptr::NULL), size),
            false => (Action::Copy, 1),
        };
        Move {
            action,
            size: size as u32,
            count: bytes / size,
            src,
            dst,
            parity,
            early: !self.rng.once_in(8),
            landing: None,
            buffers: 2,
        }
    }

    /// A wait, a linear or gathering copy or several, and an add, or less. Most have a short form.
    fn plain(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut parity = Ptr::NULL;
        if !self.rng.once_in(5) {
            let epoch = self.rng.below(4) as u64;
            let quantum = if self.rng.once_in(6) { 0 } else { QUANTUM };
            let (wait, operand) = self.wait(epoch, quantum);
            steps.push(wait);
            parity = operand;
        }
        if self.rng.once_in(3) {
            steps.push(self.check());
        }
        if !self.rng.once_in(6) {
            let copies = match self.rng.below(6) {
                0 => vec![self.gather(parity)],
                1 | 2 => self.several(parity),
                _ => vec![self.linear(parity)],
            };
            steps.extend(copies.into_iter().map(Step::Move));
        }
        if !self.rng.once_in(5) {
            steps.push(self.add());
        }
        steps
    }

    fn lane(&mut self) -> Vec<Step> {
        if self.rng.once_in(3) {
            return self.plain();
        }
        let mut steps = Vec::new();
        let mut parity = Ptr::NULL;
        if !self.rng.once_in(4) {
            let epoch = self.rng.below(4) as u64;
            let (wait, operand) = self.wait(epoch, QUANTUM);
            steps.push(wait);
            parity = operand;
        }
        if self.rng.once_in(3) {
            steps.push(self.check());
        }
        // Usually a few moves, sometimes very many.
        let moves = if self.rng.once_in(8) {
            24
        } else {
            self.rng.below(4)
        };
        let mut arithmetic = true;
        if moves > 8 {
            self.most = 200;
            arithmetic = self.rng.once_in(2);
        }
        for _ in 0..moves {
            let parity = if self.rng.once_in(2) {
                parity
            } else {
                Ptr::NULL
            };
            let mv = if !arithmetic && !self.rng.once_in(12) {
                // Many copies in a row.
                self.linear(parity)
            } else if self.rng.once_in(3) {
                self.arithmetic(parity)
            } else {
                self.copy(parity)
            };
            steps.push(Step::Move(mv));
            steps.extend(self.again(mv).map(Step::Move));
        }
        steps.push(Step::Flush);
        for _ in 0..self.rng.below(3) {
            steps.push(self.add());
        }
        steps
    }

    /// Waits and moves in turn. Each move has the parity of one of the waits before it.
    fn parities(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut operands = Vec::new();
        for _ in 0..self.rng.within(2..=5) {
            let epoch = self.rng.below(4) as u64;
            let quantum = if self.rng.once_in(4) { 0 } else { QUANTUM };
            let (wait, operand) = self.wait(epoch, quantum);
            steps.push(wait);
            operands.push(operand);
            if self.rng.once_in(3) {
                steps.push(self.check());
            }
            for _ in 0..self.rng.below(3) {
                let last = *operands.last().expect("one was pushed");
                let which = if self.rng.once_in(3) {
                    self.rng.of(&operands)
                } else {
                    last
                };
                let mv = self.copy(which);
                steps.push(Step::Move(mv));
            }
        }
        steps.push(self.add());
        steps
    }
}

/// Runs the lanes of `make` on the machine and on the host, and compares.
fn compare(
    machine: &mut Machine,
    seed: u64,
    most: usize,
    make: impl Fn(&mut Maker<'_>) -> Vec<Vec<Step>>,
) -> Result<[usize; 14], String> {
    let bell = Box::new(Bell::new());
    // Both sides get the same lanes, in separate memory.
    let side = || {
        let mut rng = Rng::new(seed);
        let mut arena = Arena::new(ARENA, &mut rng);
        let mut maker = Maker {
            rng: &mut rng,
            arena: &mut arena,
            bell: Ptr(std::ptr::from_ref(&*bell).cast_mut().cast()),
            most,
        };
        let lanes = make(&mut maker);
        // SAFETY: words and sides lie in the arena, which outlives the batch. Each move writes elements of its own, or
        // writes atomically.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        (arena, batch, rng)
    };
    let (expected, on_host, _) = side();
    let (found, on_machine, mut rng) = side();
    let mut engine = Engine::default();
    engine.begin(&on_host);
    // SAFETY: as above.
    let poll = unsafe { engine.poll(&on_host, &mut HostMover) };
    assert_eq!(poll, Poll::Done, "all words have come far enough");
    let home = Home::new();
    let quota = match rng.below(3) {
        0 => rng.within(1..=8),
        1 => rng.within(8..=40),
        _ => rng.within(1..=128),
    };
    let next = rng.once_in(2);
    // A stream that follows another looks at the states twice, even if all words have come.
    let other = Home::new();
    let follow = [if rng.once_in(3) { other.address() } else { 0 }, 0];
    // Copies without lists are carried out step by step.
    let lists = if rng.once_in(4) {
        0
    } else {
        machine.sizes.lists
    };
    let sizes = Sizes {
        lists,
        ..machine.sizes
    };
    let launched = Launched::new(&on_machine, quota, sizes, next, &home, follow);
    let launched = launched.expect("a block holds all lanes");
    let mut ranges = found.pieces().to_vec();
    ranges.push(launched.range());
    machine.run(
        seed,
        &[(vec![Do::Launch(&launched)], 1)],
        &ranges,
        &mut |_| {},
    )?;
    if home.failed() {
        return Err(format!("seed {seed}: the stream has failed"));
    }
    let differ = expected.all().iter().zip(found.all());
    if expected.all() != found.all()
        && let Some(at) = differ.into_iter().position(|(a, b)| a != b)
    {
        let address = found.all().as_ptr().addr() as u64 + at as u64;
        let piece = found
            .pieces()
            .iter()
            .rfind(|piece| piece.begin <= address)
            .filter(|piece| piece.end > address);
        let (a, b) = (expected.all()[at], found.all()[at]);
        return Err(format!(
            "seed {seed}: byte {address:#x} of {piece:x?} is {b:#x} and not {a:#x} ({quota} blocks) {on_machine:#x?}"
        ));
    }
    let late = usize::from(follow[0] != 0);
    let kinds: [fn(&ShortLane) -> bool; 7] = [
        |lane| lane.kind & LANE_STEPS != 0,
        |lane| lane.count != 0 && lane.tail == 0,
        |lane| lane.count != 0 && lane.tail != 0,
        |lane| lane.count != 0 && lane.flip != 0,
        |lane| lane.count == 0 && lane.tail != 0,
        |lane| lane.kind & LANE_COUNTED != 0,
        |lane| lane.kind & LANE_LISTED != 0 && lane.to != 0,
    ];
    let teams = |team| kinds.map(|is| launched.teams(team, is));
    let [warps, blocks] = [TEAM_WARPS, TEAM_BLOCKS].map(teams);
    let short = blocks[1] + blocks[2];
    // Lanes whose only copies are of a few bytes are left to warps.
    let all = [&warps[..], &blocks[..4], &blocks[5..], &[late * short]].concat();
    Ok(all.try_into().expect("fourteen kinds"))
}

/// Every kind of move, for both kinds of teams, in short forms and in steps. Some kinds are rare, so there are as many
/// seeds more as it takes until each kind has come.
pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let mut teams = [0; 14];
    let most = machine.sizes.threads * 12;
    let least = (seeds.end - seeds.start) as usize / 100;
    let last = seeds.end + 9 * (seeds.end - seeds.start);
    for seed in seeds.start.. {
        if seed >= seeds.end && teams.iter().all(|used| *used > least) {
            break;
        }
        assert!(seed < last, "{teams:?}");
        let make = |maker: &mut Maker<'_>| {
            let lanes = maker.rng.within(1..=8);
            (0..lanes).map(|_| maker.lane()).collect()
        };
        let used = compare(machine, seed, most, make)?;
        for (team, used) in teams.iter_mut().zip(used) {
            *team += used;
        }
    }
    Ok(())
}

/// A few lanes of a kind, with moves of at most `most` elements for each thread.
fn check_lanes(
    machine: &mut Machine,
    seeds: Range<u64>,
    (lanes, elements): (usize, usize),
    lane: impl Fn(&mut Maker<'_>) -> Vec<Step>,
) -> Result<(), String> {
    let most = machine.sizes.threads * elements;
    for seed in seeds {
        let make = |maker: &mut Maker<'_>| {
            let lanes = maker.rng.within(1..=lanes);
            (0..lanes).map(|_| lane(maker)).collect()
        };
        compare(machine, seed, most, make)?;
    }
    Ok(())
}

/// Lanes of several waits. Each move uses the buffers of its own wait.
pub(super) fn check_parities(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    check_lanes(machine, seeds, (4, 12), |maker| maker.parities())
}
