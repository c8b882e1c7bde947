//! A lane that is being lowered, and the sizes of the teams that carry lanes out.

use super::layout::{Head, STEP_END, ShortLane, TEAM_BLOCKS, TEAM_WARPS, THREADS, Vector, push};
use super::lists::Lists;

/// The most entries of all lists of a program.
pub(super) const MOST_LISTED: u64 = 1 << 20;

/// The sizes of teams, and from which size of a lane they are worth it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Threads of a block, and so the units that a block moves at a time.
    pub(super) threads: usize,
    /// Warps of a block.
    pub(super) warps: usize,
    /// How many lanes a block carries out with a warp each, if there are enough blocks. Each lane ends in a fence, and
    /// a multiprocessor does one fence after the other.
    pub(super) spread: usize,
    /// Up to how many units a warp moves as fast as a block.
    pub(super) small: u64,
    /// The same for a copy with lists: the units that a warp has on their way at a time. (If it gathers units of four
    /// bytes, twice as many.)
    pub(super) small_listed: u64,
    /// The most entries of all lists of a program.
    pub(super) lists: u64,
    /// The most entries of a lane whose copies have no shapes. For more of them its steps are as fast.
    pub(super) lists_of_linear: u64,
}

impl Sizes {
    /// The sizes on a device of this wave width.
    pub(crate) const fn of_wave(wave: usize) -> Self {
        Sizes {
            threads: THREADS,
            warps: THREADS / wave,
            spread: 1,
            small: 8 * wave as u64,
            small_listed: 4 * wave as u64,
            lists: MOST_LISTED,
            lists_of_linear: 1 << 18,
        }
    }
}

/// A lane that is being lowered.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) steps: Vec<u8>,
    pub(super) units: u64,
    /// How many reductions it has.
    pub(super) reductions: usize,
    /// Whether it has something else to do than one reduction.
    pub(super) mixed: bool,
    /// How many moves are copies.
    pub(super) copies: usize,
    /// Whether a side of a move has a shape.
    pub(super) shaped: bool,
    /// Offsets in `steps` of the addresses of counters of arrivals.
    pub(super) waits: Vec<usize>,
    /// The lane's short form.
    pub(super) short: ShortLane,
    /// The lane's short form with a landing, if its bytes land. One team carries it out, unless it also reduces them.
    pub(super) landing: Option<ShortLane>,
    /// If what lands is reduced: the vectors.
    pub(super) vectors: Vec<Vector>,
    /// The lists of its copies.
    pub(super) lists: Lists,
    /// The number of the first of its counters.
    pub(super) counter: usize,
    /// Whether one team must carry it out, which is a block if it moves much. One reason is an add that is too small to
    /// be divided. The other is a step that needs an operand as an earlier step of the lane left it, since several
    /// blocks come to that step at different times.
    pub(super) whole: bool,
    /// Whether it adds to a word of the host.
    pub(super) rings: bool,
    pub(super) blocks: u64,
}

impl Lane {
    /// Whether it is one reduction, and nothing else.
    pub(super) fn only_reduces(&self) -> bool {
        self.reductions == 1 && !self.mixed
    }

    /// Whether it reduces what lands.
    pub(super) fn folds(&self) -> bool {
        !self.vectors.is_empty()
    }

    /// Ends the steps.
    pub(super) fn end(&mut self) {
        push(&Head::of::<Head>(STEP_END), &mut self.steps);
    }

    pub(super) fn team(&self) -> u8 {
        if self.blocks == 0 {
            TEAM_WARPS
        } else {
            TEAM_BLOCKS
        }
    }
}
