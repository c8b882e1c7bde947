//! One measurement, and the check of its data.

use super::kind::Kind;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Numbers that are made once, for all ways.
type Made<T> = RefCell<HashMap<u32, Rc<T>>>;

/// A collective of one size.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) kind: Kind,
    /// The number of the team. Each team has other data.
    team: u32,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// The elements of a block or vector.
    pub(super) count: usize,
    /// The calls that are timed.
    pub(super) calls: u64,
    /// The calls of a recording.
    pub(super) unroll: u64,
    /// What this rank brings in each turn, and what it has after one call.
    brought: Made<[Vec<f32>; 2]>,
    left: Made<Vec<f32>>,
}

/// From so many elements on there is one turn only, since making the data takes longer than all calls.
const MANY: usize = 1 << 20;

impl Case {
    pub(super) fn new(
        kind: Kind,
        team: u32,
        [rank, ranks]: [usize; 2],
        count: usize,
        calls: [u64; 2],
    ) -> Self {
        let [calls, unroll] = calls;
        Case {
            kind,
            team,
            rank,
            ranks,
            count,
            calls,
            unroll,
            brought: Made::default(),
            left: Made::default(),
        }
    }

    /// Calls before the clock starts.
    pub(super) fn ahead(&self) -> u64 {
        self.calls.min(10 * self.unroll)
    }

    /// How often data is sent and compared before the clock starts. It is other data in each turn.
    pub(super) fn turns(&self) -> u32 {
        if self.count * self.ranks < MANY { 3 } else { 1 }
    }

    /// What tells the data of a turn from all others.
    fn data(&self, turn: u32) -> u32 {
        turn + (self.team << 16)
    }

    pub(super) fn brings(&self, turn: u32) -> Rc<[Vec<f32>; 2]> {
        let mut made = self.brought.borrow_mut();
        let data = self.data(turn);
        let make = || Rc::new(self.kind.brings(self.rank, self.ranks, self.count, data));
        made.entry(turn).or_insert_with(make).clone()
    }

    fn leaves(&self, turn: u32, calls: u64) -> Rc<Vec<f32>> {
        let make = |calls| {
            let (rank, ranks) = (self.rank, self.ranks);
            let data = self.data(turn);
            Rc::new(self.kind.leaves(rank, ranks, self.count, data, calls))
        };
        if self.kind == Kind::Reduce && calls != 1 {
            return make(calls);
        }
        let mut made = self.left.borrow_mut();
        made.entry(turn).or_insert_with(|| make(1)).clone()
    }

    pub(super) fn lengths(&self) -> (usize, usize) {
        self.kind.lengths(self.rank, self.ranks, self.count)
    }

    /// Compares the output after so many calls with the expected one.
    pub(super) fn check(&self, turn: u32, calls: u64, found: &[f32]) -> Result<(), String> {
        if calls > self.kind.most_calls(self.ranks) {
            return Ok(());
        }
        let expected = self.leaves(turn, calls);
        if found == expected.as_slice() {
            return Ok(());
        }
        let wrong = found.iter().zip(&*expected).position(|(a, b)| a != b);
        let at = wrong.unwrap_or(found.len().min(expected.len()));
        let (found, expected) = (found.get(at), expected.get(at));
        Err(format!(
            "rank {}: element {at} is {found:?}, not {expected:?}, after {calls} calls of {} of {} elements",
            self.rank,
            self.kind.name(),
            self.count
        ))
    }
}
