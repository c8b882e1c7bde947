//! What a stream grants to its kernels: to put to one target, until its epoch is complete.
//!
//! # Model
//!
//! A kernel runs even behind a wait that has failed, on some devices, so it must not conclude from its turn that its
//! target is exposed. A [`Grant`] tells it. The words of a grant lie in memory of the origin's own device:
//!
//! - *given*: the stream adds a quantum when the target's exposure has come, and another when it completes the epoch.
//!   So an odd count says that kernels may put. A stream that has failed poisons the word instead of adding, so the
//!   grant ends for good.
//! - *check*: a kernel that completes the target itself adds a quantum. The word is poisoned from the start, so a wait
//!   for it never blocks: it finds the quantum, or it fails, and the stream with it.
//! - *passed*: the operand of that wait.
//!
//! A kernel that completes a target ends the grant first, and then adds to the target's word, after all of its puts.
//! From then on, the target may use its memory. A kernel of a stream that has failed completes no target. It may still
//! store to a target that has posted, which then waits for the epoch until the stream poisons its word.

use tidegate_hal::batch::{POISON, QUANTUM};

use crate::bell::Bell;
use crate::word::Word;

/// The words of a grant. A device writes zeros and [`Grant::CHECK`] to make one.
#[derive(Debug)]
#[repr(C)]
pub struct Grant {
    /// An odd count of quanta while kernels may put.
    pub given: Word,
    /// Counts the epochs that kernels have completed.
    pub check: Word,
    /// How far the stream has checked that.
    pub passed: Word,
}

/// What a kernel may do to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// It may put.
    Yes,
    /// The epoch is complete, or is not open yet.
    No,
    /// The stream has failed.
    Failed,
}

impl Grant {
    /// The first value of *check*.
    pub const CHECK: u64 = POISON;

    /// A grant that is not given.
    pub fn new() -> Self {
        Grant {
            given: Word::new(0),
            check: Word::new(Self::CHECK),
            passed: Word::new(0),
        }
    }

    /// What a kernel of the stream may do now.
    pub fn look(&self) -> Granted {
        let given = self.given.load();
        if given & POISON != 0 {
            Granted::Failed
        } else if given / QUANTUM % 2 == 1 {
            Granted::Yes
        } else {
            Granted::No
        }
    }

    /// Completes the target from inside a kernel, after everything that this thread has put. `done` is the target's
    /// word, and `bell` its bell. Returns false, and does nothing, if the grant is not given any more. Of several threads
    /// that call this at the same time, one completes the target.
    ///
    /// Where kernels run on a stream that has failed, the kernel looks whether it has, and does not call this then: its
    /// data may be wrong, although the grant is still given.
    pub fn complete(&self, done: &Word, bell: &Bell) -> bool {
        let given = self.given.load();
        let is_given = given & POISON == 0 && given / QUANTUM % 2 == 1;
        if !is_given || !self.given.replace(given, given + QUANTUM) {
            return false;
        }
        done.add(QUANTUM);
        bell.ring();
        self.check.add(QUANTUM);
        true
    }
}

impl Default for Grant {
    fn default() -> Self {
        Self::new()
    }
}
