//! The armed programs of a queue: how engines keep what [`NicQueue::arm`](crate::nic::NicQueue::arm) gave them.
//!
//! # Model
//!
//! Programs are armed in *runs*. A run is a list of programs that repeats a given number of times, and takes the same
//! room however often it repeats. Programs fire in order: the engine takes the first, and goes on to the next when that
//! one is [through](Armed::through). This module does not decide when a program may fire; [`crate::slots`] does.
//!
//! # Failure
//!
//! A queue that [gives up](Armed::give_up) hands back its programs once, and accepts no more.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::nic::{NicError, Prepared};

/// The programs that are armed and not yet through, in order.
#[derive(Default)]
pub struct Armed {
    runs: VecDeque<Run>,
    given_up: bool,
}

/// A list of programs that repeats.
struct Run {
    programs: Arc<[Prepared]>,
    /// The index of the program that fires next.
    next: usize,
    /// How many repetitions are left, with the current one.
    times: u64,
}

impl Run {
    /// How many programs are left in this run.
    fn left(&self) -> usize {
        count(&self.programs, self.times) - self.next
    }
}

/// The number of programs, or `usize::MAX` if there are more: so many never get through.
fn count(programs: &[Prepared], times: u64) -> usize {
    usize::try_from(times)
        .unwrap_or(usize::MAX)
        .saturating_mul(programs.len())
}

impl Armed {
    /// Appends a run: `programs` in order, repeated `times` times. Returns how many programs that adds.
    ///
    /// # Errors
    ///
    /// [`NicError::GivenUp`]. Then nothing has been armed.
    pub fn arm(&mut self, programs: &Arc<[Prepared]>, times: u64) -> Result<usize, NicError> {
        let added = count(programs, times);
        if added == 0 {
            return Ok(0);
        }
        if self.given_up {
            return Err(NicError::GivenUp);
        }
        self.runs.push_back(Run {
            programs: programs.clone(),
            next: 0,
            times,
        });
        Ok(added)
    }

    /// Whether nothing is armed.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The program that fires next.
    pub fn first(&self) -> Option<&Prepared> {
        let run = self.runs.front()?;
        Some(&run.programs[run.next])
    }

    /// The program that fires after `after` others.
    pub fn get(&self, after: usize) -> Option<&Prepared> {
        let mut left = after;
        for run in &self.runs {
            let here = run.left();
            if left < here {
                return Some(&run.programs[(run.next + left) % run.programs.len()]);
            }
            left -= here;
        }
        None
    }

    /// Removes the first program, which is through; does nothing if there is none. Returns the programs of a run that
    /// has thereby ended. The caller may drop them, with what they keep alive, outside its locks.
    pub fn through(&mut self) -> Option<Arc<[Prepared]>> {
        let run = self.runs.front_mut()?;
        run.next += 1;
        if run.next < run.programs.len() {
            return None;
        }
        run.next = 0;
        run.times -= 1;
        if run.times > 0 {
            return None;
        }
        self.runs.pop_front().map(|run| run.programs)
    }

    /// Whether the queue has [given up](Self::give_up).
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Disarms everything. Returns all programs of each run that was armed, also those that are through; `None` if the
    /// queue had given up before.
    pub fn give_up(&mut self) -> Option<Vec<Arc<[Prepared]>>> {
        if std::mem::replace(&mut self.given_up, true) {
            return None;
        }
        Some(self.runs.drain(..).map(|run| run.programs).collect())
    }
}
