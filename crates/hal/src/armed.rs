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

/// What is armed and not through, in order.
#[derive(Default)]
pub struct Armed {
    runs: VecDeque<Run>,
    given_up: bool,
}

/// `programs`, some times over.
struct Run {
    programs: Arc<[Prepared]>,
    /// The next of them.
    next: usize,
    /// How many times, the current one included.
    times: u64,
}

impl Run {
    /// How many programs it still has.
    fn left(&self) -> usize {
        count(&self.programs, self.times) - self.next
    }
}

/// As many as can be counted: more are never through.
fn count(programs: &[Prepared], times: u64) -> usize {
    usize::try_from(times)
        .unwrap_or(usize::MAX)
        .saturating_mul(programs.len())
}

impl Armed {
    /// Appends `programs`, one after the other, `times` times over; returns how many that are.
    ///
    /// # Errors
    ///
    /// [`NicError::GivenUp`]; nothing is armed then.
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

    /// The program that is to be fired next.
    pub fn first(&self) -> Option<&Prepared> {
        let run = self.runs.front()?;
        Some(&run.programs[run.next])
    }

    /// The program that `after` others are to be fired before.
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

    /// The first program is through, if there is one. Returns the programs of a run that has come to its end with it:
    /// they may be dropped, and what they keep with them, outside of locks.
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

    /// Whether it has [given up](Self::give_up).
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Nothing is armed any more. Returns the programs of each run that was, all of them, whichever are through; `None`
    /// if it had given up before.
    pub fn give_up(&mut self) -> Option<Vec<Arc<[Prepared]>>> {
        if std::mem::replace(&mut self.given_up, true) {
            return None;
        }
        Some(self.runs.drain(..).map(|run| run.programs).collect())
    }
}
