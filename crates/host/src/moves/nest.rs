//! One nest of loops that walks both sides of a move, for shapes that are loops with strides.
//!
//! A linear side is one loop. If the loops of one side are longer than those of the other, they are cut, so that both
//! have the same number of turns. Loops that continue each other on both sides are joined. So the face of an array that
//! goes into a slot is two loops, however it was described.

use tidegate_hal::batch::Shape;

/// A loop around both sides of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) turns: usize,
    /// Bytes from one turn to the next, in the source and in the destination.
    pub(super) by: [isize; 2],
}

impl Loop {
    /// One turn.
    const ONCE: Loop = Loop {
        turns: 1,
        by: [0, 0],
    };

    /// A loop over elements of `size` bytes that are contiguous on both sides.
    pub(super) fn contiguous(turns: usize, size: usize) -> Loop {
        Loop {
            turns,
            by: [size as isize; 2],
        }
    }
}

/// The most loops of a nest: cutting the loops of two sides leaves fewer than both have together.
const MOST: usize = 2 * Shape::MAX_DIMS;

/// The loops of a move, the innermost first. After the `rank` loops come loops of one turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nest {
    pub(super) loops: [Loop; MOST],
    pub(super) rank: usize,
}

/// The loops of one side that are not yet in the nest.
struct LoopsLeft<'a> {
    loops: &'a [(u32, i32)],
    turns: usize,
    stride: isize,
}

impl LoopsLeft<'_> {
    /// If the current loop is used up, or has one turn, goes on to the next one. Adds the loops that continue it.
    fn fill(&mut self) {
        while let [(turns, stride), rest @ ..] = self.loops {
            let (turns, stride) = (*turns as usize, *stride as isize);
            if turns == 1 {
                // The stride of a loop of one turn does not matter.
            } else if self.turns == 1 {
                (self.turns, self.stride) = (turns, stride);
            } else if stride == self.stride * self.turns as isize {
                self.turns *= turns;
            } else {
                return;
            }
            self.loops = rest;
        }
    }

    /// Takes the innermost `turns`, which divide the rest of the loop. Returns their stride.
    fn take(&mut self, turns: usize) -> isize {
        let stride = self.stride;
        self.turns /= turns;
        self.stride *= turns as isize;
        stride
    }
}

/// The product of the turns of all loops.
fn turns(shape: &Shape) -> Option<usize> {
    match shape {
        Shape::Strided { dims, rank } => {
            let dims = dims[..*rank as usize].iter();
            Some(dims.map(|(turns, _)| *turns as usize).product())
        }
        _ => None,
    }
}

impl Nest {
    /// Makes the nest for `count` elements of `size` bytes, which is also the number of turns of each side. `None` if
    /// the two sides cannot be cut into the same loops.
    pub(super) fn new(from: &Shape, to: &Shape, count: usize, size: usize) -> Option<Nest> {
        let side = |shape| match shape {
            &Shape::Linear => Some(LoopsLeft {
                loops: &[],
                turns: count,
                stride: 1,
            }),
            Shape::Strided { dims, rank } => Some(LoopsLeft {
                loops: &dims[..*rank as usize],
                turns: 1,
                stride: 0,
            }),
            Shape::Indexed { .. } => None,
        };
        if count == 0 {
            return None;
        }
        debug_assert!(
            [from, to]
                .iter()
                .all(|shape| turns(shape).is_none_or(|turns| turns == count))
        );
        let (mut from, mut to) = (side(from)?, side(to)?);
        let mut nest = Nest {
            loops: [Loop::ONCE; MOST],
            rank: 0,
        };
        loop {
            from.fill();
            to.fill();
            let turns = from.turns.min(to.turns);
            if !from.turns.is_multiple_of(turns) || !to.turns.is_multiple_of(turns) {
                return None;
            }
            if turns == 1 {
                // Both sides end at the same time, because they have the same number of elements.
                return (from.turns == to.turns).then_some(nest);
            }
            let size = size as isize;
            nest.push(Loop {
                turns,
                by: [from.take(turns) * size, to.take(turns) * size],
            });
        }
    }

    /// Adds a loop around the others.
    fn push(&mut self, next: Loop) {
        if let Some(last) = self.loops[..self.rank].last_mut()
            && last.by.map(|by| by * last.turns as isize) == next.by
        {
            last.turns *= next.turns;
            return;
        }
        self.loops[self.rank] = next;
        self.rank += 1;
    }

    /// Calls `row` for each turn of all loops but the innermost, in order, with the addresses at which it begins on
    /// both sides.
    pub(super) fn for_each_row(
        &self,
        src: *mut u8,
        dst: *mut u8,
        mut row: impl FnMut(*mut u8, *mut u8, Loop),
    ) {
        // Most nests have two loops, so this code has two loops for them.
        let [inner, middle, outer @ ..] = &self.loops;
        let outer = &outer[..self.rank.saturating_sub(2)];
        let mut at = [0; MOST];
        let mut far = [src, dst];
        let step = |at: &mut [*mut u8; 2], by: &Loop, turns: isize| {
            for (at, by) in at.iter_mut().zip(by.by) {
                *at = at.wrapping_offset(by * turns);
            }
        };
        loop {
            let mut near = far;
            for _ in 0..middle.turns {
                row(near[0], near[1], *inner);
                step(&mut near, middle, 1);
            }
            let mut loops = outer.iter().zip(&mut at);
            loop {
                let Some((by, at)) = loops.next() else { return };
                *at += 1;
                step(&mut far, by, 1);
                if *at < by.turns {
                    break;
                }
                *at = 0;
                step(&mut far, by, -(by.turns as isize));
            }
        }
    }
}
