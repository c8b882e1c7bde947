//! The short form of a lane, which the kernel carries out without reading the lane's steps.
//!
//! # Model
//!
//! It is a wait, a copy and an add, or less, in this order. Several consecutive moves can be one such copy:
//!
//! - contiguous copies on both sides: whole units, and a few bytes behind them. They may read what the wait is for;
//! - copies with [lists](super::lists), which give the place of each unit: a copy with a shape, or several copies;
//! - one copy of elements that are counted.
//!
//! Another lane in short is the one of a target that a kernel has completed: it checks that the kernel has done so. The
//! adds of that lane add nothing, and only poison their words if something is wrong.
//!
//! Other lanes are carried out step by step.

use super::lane::Lane;
use super::layout::read;
use super::layout::{
    ACTION_COUNTED, AddStep, CheckStep, Head, LANE_ADDS, LANE_BEHIND, LANE_CHECKS, LANE_COPIES,
    LANE_COUNTED, LANE_GATHERS, LANE_LISTED, LANE_STEPS, LANE_WAITS, MOVE_BEHIND, MOVE_EARLY,
    MOVE_LAST_PARITY, MoveStep, STEP_ADD, STEP_CHECK, STEP_END, STEP_MOVE, STEP_WAIT, ShortLane,
    WaitStep,
};
use super::lists::{Copy, Lists, Placed};

impl Lane {
    /// The lane's short form, with its lists, if these have at most `most` entries. If the lane has none, the result
    /// says that its steps have to be read.
    pub(super) fn in_short(&self, most: u64) -> (ShortLane, Lists) {
        self.shortly(most).unwrap_or_else(|| {
            let steps = ShortLane {
                kind: LANE_STEPS,
                count: self.steps.len() as u64,
                ..ShortLane::default()
            };
            (steps, Lists::default())
        })
    }

    fn shortly(&self, most: u64) -> Option<(ShortLane, Lists)> {
        if let Some(checks) = self.checks() {
            return Some((checks, Lists::default()));
        }
        let mut short = ShortLane::default();
        let mut moves = Vec::new();
        let mut rest = &self.steps[..];
        loop {
            let head: Head = read(rest);
            match head.kind {
                STEP_WAIT if short.kind == 0 && moves.is_empty() => {
                    let wait: WaitStep = read(rest);
                    short.kind = LANE_WAITS;
                    (short.word, short.operand, short.quantum) =
                        (wait.word, wait.operand, wait.quantum);
                }
                STEP_MOVE if short.kind & LANE_ADDS == 0 => moves.push(Copy::read(rest)),
                STEP_ADD if short.kind & LANE_ADDS == 0 => {
                    let add: AddStep = read(rest);
                    // This lane rings, and so its data goes over a network. Its steps take a little longer, but this
                    // keeps the short form simple and fast for all other lanes.
                    if add.count != 0 {
                        return None;
                    }
                    short.kind |= LANE_ADDS;
                    (short.out, short.value) = (add.word, add.value);
                }
                STEP_END => break,
                _ => return None,
            }
            rest = &rest[usize::from(head.length) * 16..];
        }
        let lists = moves_in_short(&mut short, &mut moves, most)?;
        Some((short, lists))
    }
}

impl Lane {
    /// The short form of a lane that checks a kernel.
    fn checks(&self) -> Option<ShortLane> {
        let mut short = ShortLane {
            kind: LANE_CHECKS,
            count: self.steps.len() as u64,
            ..ShortLane::default()
        };
        let (mut rest, mut more) = (&self.steps[..], 0);
        let kinds = [
            STEP_CHECK, STEP_WAIT, STEP_CHECK, STEP_ADD, STEP_ADD, STEP_END,
        ];
        for (place, kind) in kinds.into_iter().enumerate() {
            let head: Head = read(rest);
            if head.kind != kind {
                return None;
            }
            match kind {
                STEP_CHECK => {
                    let check: CheckStep = read(rest);
                    let number = if place == 0 {
                        &mut short.src
                    } else {
                        &mut short.dst
                    };
                    *number = check.count;
                    more |= check.most;
                }
                STEP_WAIT => {
                    let wait: WaitStep = read(rest);
                    (short.word, short.operand, short.quantum) =
                        (wait.word, wait.operand, wait.quantum);
                }
                STEP_ADD => {
                    let add: AddStep = read(rest);
                    more |= add.value | add.count;
                }
                _ => {}
            }
            rest = &rest[usize::from(head.length) * 16..];
        }
        // Every number is to be 0, and no add adds anything, or goes to memory of the host.
        (more == 0).then_some(short)
    }
}

/// Adds moves to a short form, if it can express them.
fn moves_in_short(short: &mut ShortLane, moves: &mut [Copy], most: u64) -> Option<Lists> {
    let [first, ..] = moves else {
        return Some(Lists::default());
    };
    let step = first.step;
    if let Some(behind) = behind_its_wait(short, moves) {
        *short = behind;
        return Some(Lists::default());
    }
    // Only moves that do not depend on the wait can begin before it is over.
    let early = |step: &MoveStep| {
        step.head.flags & (MOVE_EARLY | MOVE_BEHIND) == MOVE_EARLY && step.parity == 0
    };
    let flip = flip_of(&step);
    if !(moves.iter()).all(|copy| early(&copy.step) && flip_of(&copy.step) == flip) {
        return None;
    }
    short.flip = flip;
    short.kind |= LANE_COPIES;
    if step.action == ACTION_COUNTED && moves.len() == 1 {
        // The first unit must be aligned; otherwise bytes would have to be moved one by one.
        let aligned = (step.src | step.dst | flip).is_multiple_of(1 << step.unit);
        if step.unit < 3 || !aligned {
            return None;
        }
        short.kind |= LANE_COUNTED;
        (short.src, short.dst) = (step.src, step.dst);
        (short.count, short.unit) = (step.count, step.unit);
        (short.from, short.to) = (step.compare, u64::from(step.size));
        return Some(Lists::default());
    }
    if moves.iter().any(|copy| copy.step.action != 0) {
        return None;
    }
    // The copies are made together, so they may be sorted by their targets, which may be contiguous.
    moves.sort_by_key(|copy| copy.step.dst);
    if let Some((src, dst, bytes)) = linear(moves) {
        // One store of a few bytes takes as long as several.
        if bytes < 16 || (src | dst | flip).is_multiple_of(16) {
            (short.src, short.dst) = (src, dst);
            (short.count, short.tail) = (bytes / 16, bytes % 16);
            return Some(Lists::default());
        }
    }
    let Placed {
        lists,
        src,
        dst,
        count,
        unit,
    } = Lists::of(moves, flip, most)?;
    short.kind |= LANE_LISTED;
    (short.src, short.dst, short.count, short.unit) = (src, dst, count, unit);
    // (The kernel counts pieces of 16 bytes in 32 bits, and counts a little beyond the last.)
    if lists.gathers(unit) && (dst | flip).is_multiple_of(16) && count < 1 << 31 {
        short.kind |= LANE_GATHERS;
    }
    Some(lists)
}

/// The short form with contiguous copies that read what the wait is for, if the moves are such.
fn behind_its_wait(short: &ShortLane, moves: &mut [Copy]) -> Option<ShortLane> {
    let buffers = |step: &MoveStep| match step.head.flags & MOVE_LAST_PARITY {
        0 => (0, 0),
        _ => (step.src_flip, step.dst_flip),
    };
    let (flip, _) = buffers(&moves[0].step);
    let is_behind = |Copy { step, .. }: &Copy| {
        let plain = step.action == 0 && step.parity == 0;
        plain && step.head.flags & (MOVE_EARLY | MOVE_BEHIND) == 0 && buffers(step) == (flip, 0)
    };
    if short.kind & LANE_WAITS == 0 || !moves.iter().all(is_behind) {
        return None;
    }
    moves.sort_by_key(|copy| copy.step.dst);
    let (src, dst, bytes) = linear(moves)?;
    let aligned = (src | dst | flip).is_multiple_of(16);
    (bytes < 16 || aligned).then_some(ShortLane {
        kind: short.kind | LANE_COPIES | LANE_BEHIND,
        src,
        dst,
        flip,
        count: bytes / 16,
        tail: bytes % 16,
        ..*short
    })
}

/// The distance to the second buffer of the target.
fn flip_of(step: &MoveStep) -> u64 {
    match step.head.flags & MOVE_LAST_PARITY {
        0 => 0,
        _ => step.dst_flip,
    }
}

/// The first addresses and the size of copies that are contiguous on both sides.
fn linear(copies: &[Copy]) -> Option<(u64, u64, u64)> {
    let (src, dst) = (copies[0].step.src, copies[0].step.dst);
    let bytes = copies.iter().try_fold(0, |bytes, copy| {
        let follows = (copy.step.src, copy.step.dst) == (src + bytes, dst + bytes);
        (copy.is_linear() && follows).then(|| bytes + copy.bytes())
    })?;
    Some((src, dst, bytes))
}
