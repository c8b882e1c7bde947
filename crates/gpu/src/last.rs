//! What stands last on a stream, and so what may begin early behind it.
//!
//! # Model
//!
//! From compute capability 9.0 on, a launch may begin early, and then waits by itself for the end of the work in front
//! of it. What that work is decides when the launch may begin:
//!
//! - Behind a *kernel* that waits for nobody: when that kernel lets it.
//! - A *batch* behind a batch: while the first batch still waits for peers. There is room for both ([`crate::gpu`]).
//! - A *kernel* behind a batch: only when everything that the batch still waits for has its place on a GPU. Otherwise
//!   the kernel could take the room that a peer needs, for which the batch waits. So the batch must not let the kernel
//!   begin earlier, and it must know that before it is launched.
//!
//! In the last case a block lets the next launch begin when none of its lanes waits any more, except for data whose
//! origins have *promised* it (`kernels/batch.cu`). Such origins wait for nobody, and need no more room. (A block with
//! a lane that goes by its steps does so when it ends.) So the kernel takes its place while data is on its way and
//! operands are advanced.
//!
//! A batch cannot know what will be launched behind it, but programs repeat themselves. After such a kernel has
//! followed a batch twice in a row ([`Expected`]), the batch lets nothing begin before all of its waits are over, and
//! the kernel is launched early. This saves most of the time of a launch. If something else follows instead, only time
//! is lost: a batch begins later than it could. A kernel behind a batch that does let the next launch begin is not
//! launched early: it begins when the batch is over.
//!
//! In a *recording* the next launch is known. When the kernel is recorded, the node of the batch in front of it is
//! changed, so that the batch lets nothing begin while it waits.
//!
//! Events and host functions that only say how far the stream has come are not noted here. The rule is the same behind
//! them: a kernel is launched early only behind a kernel, or behind a batch that lets nothing begin while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How early a batch may be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    No,
    /// When nothing in front of the batch waits any more.
    Launch,
    /// While the batch in front is still running, and waits.
    Resident,
}

/// What is expected to be launched behind a program: how many times in a row it was a kernel that can begin early.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected(Arc<AtomicU8>);

/// After this many times in a row, a kernel is expected.
const ENOUGH: u8 = 2;

impl Expected {
    /// Whether the program, launched now, should let the next launch begin while it waits.
    pub(crate) fn lets_next_come(&self, early: Early, capturing: bool) -> bool {
        let kernel = self.0.load(Ordering::Relaxed) >= ENOUGH;
        early == Early::Resident && (capturing || !kernel)
    }

    fn came(&self, kernel: bool) {
        let times = self.0.load(Ordering::Relaxed);
        let times = if kernel { (times + 1).min(ENOUGH) } else { 0 };
        self.0.store(times, Ordering::Relaxed);
    }
}

/// What stands last on a stream.
#[derive(Debug, Default)]
pub(crate) enum Last {
    /// Something behind which only a batch may begin early.
    #[default]
    Other,
    /// A kernel of the user, which waits for nobody.
    Kernel,
    /// A batch.
    Batch {
        expected: Expected,
        /// Whether it lets the next launch begin while it waits.
        lets_next_come: bool,
    },
}

impl Last {
    /// Notes that a kernel is next, which `can` begin early or not. Returns whether it may begin early here. In a
    /// recording, `let_nobody_come` changes the batch that stands last, and says whether that was possible.
    pub(crate) fn kernel_follows(
        &self,
        can: bool,
        capturing: bool,
        let_nobody_come: impl FnOnce() -> bool,
    ) -> bool {
        self.came(can, capturing);
        can && match self {
            Last::Other => false,
            Last::Kernel => true,
            Last::Batch { lets_next_come, .. } => {
                !lets_next_come || (capturing && let_nobody_come())
            }
        }
    }

    /// Notes that something else is next.
    pub(crate) fn other_follows(&self, capturing: bool) {
        self.came(false, capturing);
    }

    /// Whether it is a kernel of the user.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Last::Kernel)
    }

    /// What follows in a recording does not predict what follows on the stream.
    fn came(&self, kernel: bool, capturing: bool) {
        if let Last::Batch { expected, .. } = self
            && !capturing
        {
            expected.came(kernel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch of a program.
    fn batch(expected: &Expected, early: Early, capturing: bool) -> Last {
        Last::Batch {
            expected: expected.clone(),
            lets_next_come: expected.lets_next_come(early, capturing),
        }
    }

    /// Stands for a recording that cannot be changed.
    fn refused() -> bool {
        false
    }

    #[test]
    fn a_kernel_begins_early_behind_a_batch_that_expects_it() {
        let expected = Expected::default();
        let step =
            |can| batch(&expected, Early::Resident, false).kernel_follows(can, false, refused);
        let often = [(); 4].map(|()| step(true));
        assert_eq!(often, [false, false, true, true]);
        // After one other launch, a kernel is not expected any more.
        batch(&expected, Early::Resident, false).other_follows(false);
        assert_eq!([(); 3].map(|()| step(true)), [false, false, true]);
        // A kernel that cannot begin early never does.
        assert!(!step(false) && !step(true));
    }

    #[test]
    fn by_turns_nothing_is_expected() {
        let expected = Expected::default();
        for _ in 0..4 {
            let first = batch(&expected, Early::Resident, false);
            assert!(matches!(
                first,
                Last::Batch {
                    lets_next_come: true,
                    ..
                }
            ));
            assert!(!first.kernel_follows(true, false, refused));
            batch(&expected, Early::Resident, false).other_follows(false);
        }
    }

    #[test]
    fn recordings_expect_nothing_and_teach_nothing() {
        let expected = Expected::default();
        for _ in 0..4 {
            let recorded = batch(&expected, Early::Resident, true);
            assert!(!recorded.kernel_follows(true, true, refused));
        }
        assert!(expected.lets_next_come(Early::Resident, false));
        for _ in 0..2 {
            batch(&expected, Early::Resident, false).kernel_follows(true, false, refused);
        }
        assert!(!expected.lets_next_come(Early::Resident, false));
        assert!(expected.lets_next_come(Early::Resident, true));
        batch(&expected, Early::Resident, true).other_follows(true);
        assert!(!expected.lets_next_come(Early::Resident, false));
    }

    #[test]
    fn batches_that_never_let_the_next_come_have_kernels_early_behind_them() {
        let expected = Expected::default();
        for early in [Early::Launch, Early::No] {
            for capturing in [false, true] {
                assert!(!expected.lets_next_come(early, capturing));
            }
        }
        assert!(batch(&expected, Early::Launch, false).kernel_follows(true, false, refused));
        let unchanged = || unreachable!("it lets nobody come");
        assert!(batch(&expected, Early::Launch, true).kernel_follows(true, true, unchanged));
    }

    #[test]
    fn a_batch_of_a_recording_is_told_what_follows() {
        let expected = Expected::default();
        let recorded = batch(&expected, Early::Resident, true);
        assert!(recorded.kernel_follows(true, true, || true));
        assert!(!recorded.kernel_follows(true, true, refused));
        // A kernel that cannot begin early changes no recorded batch, and a batch that was launched is not changed.
        let unchanged = || unreachable!("nothing is to be changed");
        assert!(!recorded.kernel_follows(false, true, unchanged));
        assert!(!recorded.kernel_follows(true, false, unchanged));
    }

    #[test]
    fn kernels_follow_kernels_early_and_nothing_else() {
        assert!(Last::Kernel.kernel_follows(true, false, refused));
        assert!(!Last::Kernel.kernel_follows(false, false, refused));
        assert!(!Last::Other.kernel_follows(true, false, refused));
        assert!(Last::Kernel.is_kernel() && !Last::Other.is_kernel());
    }
}
