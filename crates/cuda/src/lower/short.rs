//! Lanes in short: what the kernel carries out without reading their steps.

use super::layout::{
    ACTION_COUNTED, ACTION_REDUCE, AddStep, Head, LANE_ADDS, LANE_COPIES, LANE_COUNTED,
    LANE_GATHERS, LANE_LISTED, LANE_REDUCES, LANE_STEPS, LANE_WAITS, MOVE_EARLY, MOVE_LAST_PARITY,
    MoveStep, SHAPE_LINEAR, STEP_ADD, STEP_END, STEP_MOVE, STEP_WAIT, ShortLane, WaitStep,
};
use super::lists::Lists;
use super::{Lane, read};

impl Lane {
    /// The lane in short, or what says that it has no short form: that is a wait, a copy and an add at most, in this order.
    /// With the lists that the copy needs, if a side of it is not linear, and they have no more than `most` entries.
    pub(super) fn in_short(&self, most: u64) -> (ShortLane, Option<Lists>) {
        let steps = ShortLane {
            kind: LANE_STEPS,
            count: self.steps.len() as u64,
            ..ShortLane::default()
        };
        let (steps, mut lists) = ((steps, None), None);
        let mut short = ShortLane::default();
        let mut rest = &self.steps[..];
        loop {
            let head: Head = read(rest);
            match head.kind {
                STEP_WAIT if short.kind == 0 => {
                    let wait: WaitStep = read(rest);
                    short.kind |= LANE_WAITS;
                    (short.word, short.operand, short.quantum) =
                        (wait.word, wait.operand, wait.quantum);
                }
                // Nothing else stands in such a lane.
                STEP_MOVE if read::<MoveStep>(rest).action == ACTION_REDUCE => {
                    let reduction: MoveStep = read(rest);
                    short.kind = LANE_REDUCES;
                    (short.dst, short.count) = (reduction.dst, reduction.count);
                    (short.unit, short.scalar) = (reduction.unit, reduction.scalar);
                    short.to = u64::from(reduction.sub);
                }
                // A body of whole units, then a few bytes; or one of the two.
                STEP_MOVE
                    if short.kind & (LANE_ADDS | LANE_LISTED | LANE_COUNTED) == 0
                        && short.tail == 0 =>
                {
                    let copy: MoveStep = read(rest);
                    // Only what the wait has no say in can be fetched before it is over.
                    let early = head.flags & MOVE_EARLY != 0 && copy.parity == 0;
                    let flip = if head.flags & MOVE_LAST_PARITY != 0 {
                        copy.dst_flip
                    } else {
                        0
                    };
                    let first = short.kind & LANE_COPIES == 0;
                    if copy.action == ACTION_COUNTED && early && first {
                        // Whole units from the first on, or bytes would have to go one by one.
                        let aligned = (copy.src | copy.dst | flip).is_multiple_of(1 << copy.unit);
                        if copy.unit < 3 || !aligned {
                            return steps;
                        }
                        short.kind |= LANE_COPIES | LANE_COUNTED;
                        (short.src, short.dst, short.flip) = (copy.src, copy.dst, flip);
                        (short.count, short.unit) = (copy.count, copy.unit);
                        (short.from, short.to) = (copy.compare, u64::from(copy.size));
                        rest = &rest[usize::from(head.length) * 16..];
                        continue;
                    }
                    if copy.action != 0 || !early {
                        return steps;
                    }
                    if (copy.src_shape, copy.dst_shape) != (SHAPE_LINEAR, SHAPE_LINEAR) {
                        let Some((found, src, dst)) =
                            Lists::of(&copy, rest, most).filter(|_| first)
                        else {
                            return steps;
                        };
                        short.kind |= LANE_COPIES | LANE_LISTED;
                        (short.src, short.dst, short.flip) = (src, dst, flip);
                        (short.count, short.unit) = (copy.count, copy.unit);
                        // (The kernel counts pieces of 16 bytes in 32 bits, and some further than there are.)
                        if found.gathers(short.unit)
                            && (dst | flip).is_multiple_of(16)
                            && copy.count < 1 << 31
                        {
                            short.kind |= LANE_GATHERS;
                        }
                        lists = Some(found);
                        rest = &rest[usize::from(head.length) * 16..];
                        continue;
                    }
                    let follows = (copy.src, copy.dst, flip)
                        == (
                            short.src + 16 * short.count,
                            short.dst + 16 * short.count,
                            short.flip,
                        );
                    match copy.unit {
                        4 if first => short.count = copy.count,
                        0 if (first || follows) && copy.count < 16 => short.tail = copy.count,
                        _ => return steps,
                    }
                    if first {
                        (short.src, short.dst, short.flip) = (copy.src, copy.dst, flip);
                    }
                    short.kind |= LANE_COPIES;
                }
                STEP_ADD if short.kind & LANE_ADDS == 0 => {
                    let add: AddStep = read(rest);
                    // What rings goes over a network: a little more time for it is better than any for all others.
                    if add.count != 0 {
                        return steps;
                    }
                    short.kind |= LANE_ADDS;
                    (short.out, short.value) = (add.word, add.value);
                }
                STEP_END => return (short, lists),
                _ => return steps,
            }
            rest = &rest[usize::from(head.length) * 16..];
        }
    }
}
