//! What launches know of what stands last on a stream, and so what may begin early behind it.
//!
//! # Model
//!
//! From compute capability 9.0 on a launch may begin early, and then waits by itself for the end of what stands before
//! it. What that is decides when it may:
//!
//! - Behind a *kernel* that waits for nobody: when that kernel lets it.
//! - A *batch* behind a batch: while the other still waits for peers. There is room for both ([`crate::gpu`]).
//! - A *kernel* behind a batch: only when all that the batch still waits for has its place. Else the kernel could take the
//!   room of what a peer waits for, and so of what the batch waits for. So the batch must not let it come earlier; it has
//!   to know before it is launched. What it does instead: a block lets what is next come when none of its lanes waits
//!   any more, or only for data whose origins have *promised* it (`kernels/batch.cu`): they wait for nobody, and need no
//!   more room. (A block with a lane that goes by its steps does by its end.) So the kernel takes its place while data is
//!   on its way, and operands are advanced.
//!
//! It cannot know, but programs repeat themselves: a batch that such a kernel followed twice lets nobody come before all
//! of its waits are over ([`Expected`]), and the kernel is launched early. What that saves on a stream is most of a
//! launch. If something else follows after all, nothing is lost but time: a batch comes later than it could. And a
//! kernel behind a batch that does let the next one come is launched as ever, to begin when the batch is over.
//!
//! In a *recording* it is known what follows: when the kernel comes, the batch in front of it, whose node can still be
//! changed, is told to let nobody come while it waits.
//!
//! Events that only say how far the stream has come, and functions of the host that do, are not noted here: behind them,
//! too, a kernel is launched early only behind a kernel, or a batch that lets nobody come while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::gpu::Early;

/// What is expected to be launched behind a program: how often in a row, the last times, that was a kernel that can
/// begin early.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected(Arc<AtomicU8>);

/// As often makes a kernel expected.
const ENOUGH: u8 = 2;

impl Expected {
    /// Whether the program, launched now, is to let the next one come while it waits.
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
    /// Something that nothing but a batch may begin early behind.
    #[default]
    Other,
    /// A kernel of the user's: one that waits for nobody.
    Kernel,
    /// A batch.
    Batch {
        expected: Expected,
        /// Whether it lets the next one come while it waits.
        lets_next_come: bool,
    },
}

impl Last {
    /// A kernel is next, and `can` begin early or not: whether it may, here. In a recording a batch that stands last can
    /// still be told to let nobody come while it waits: whether it is, `let_nobody_come` says.
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

    /// Anything else is next.
    pub(crate) fn other_follows(&self, capturing: bool) {
        self.came(false, capturing);
    }

    /// Whether it is a kernel of the user's.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Last::Kernel)
    }

    /// What follows in a recording says nothing of what will on the stream.
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

    /// No recording can be changed.
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
        // Once something else: then it is not expected any more.
        batch(&expected, Early::Resident, false).other_follows(false);
        assert_eq!([(); 3].map(|()| step(true)), [false, false, true]);
        // Who cannot begin early never does.
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
        // Who cannot begin early has nothing changed for it; nor is what was launched changed.
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
