//! What stands last on a stream, and so what may begin early behind it.
//!
//! # Model
//!
//! From compute capability 9.0 on a launch may begin early, and then waits by itself for the end of what stands before
//! it. What that is decides when it may:
//!
//! - Behind a *kernel* that waits for nobody: when that kernel lets it.
//! - A *batch* behind a batch: while the other still waits for peers. There is room for both ([`crate::gpu`]).
//! - A *kernel* behind a batch: only when no block of the batch is left that waits. Else the kernel could take the room
//!   of what a peer waits for, and so of what the batch waits for. So the batch must not let it come earlier; it has to
//!   know before it is launched.
//!
//! It cannot know, but programs repeat themselves: a batch that a kernel followed the last time lets nobody come before
//! its blocks have ended ([`Follower`]), and then the kernel begins about a microsecond earlier than behind the batch's
//! end. If something else follows after all, nothing is lost but time: a batch comes later than it could; and a kernel
//! behind a batch that does let the next one come begins when the batch is over.
//!
//! In recordings a batch always lets the next one come: there a kernel begins as soon behind the end of a batch as
//! behind its last block (H200: 0.6 us and 0.8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a kernel that can begin early came next when a program was launched last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follower(Arc<AtomicBool>);

impl Follower {
    /// Whether one is expected.
    pub(crate) fn is_kernel(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What stands last on a stream.
#[derive(Debug, Default)]
pub(crate) enum Behind {
    /// Something that nothing but a batch may begin early behind.
    #[default]
    Other,
    /// A kernel of the user's: one that waits for nobody.
    Kernel,
    /// A batch.
    Batch {
        program: Follower,
        /// Whether it lets the next one come while it waits.
        lets_next_come: bool,
    },
}

impl Behind {
    /// A kernel is next, which can begin `early` or not: whether it may, here.
    pub(crate) fn kernel_follows(&self, early: bool) -> bool {
        match self {
            Behind::Other => false,
            Behind::Kernel => early,
            Behind::Batch {
                program,
                lets_next_come,
            } => {
                program.0.store(early, Ordering::Relaxed);
                early && !lets_next_come
            }
        }
    }

    /// A batch is next.
    pub(crate) fn batch_follows(&self) {
        if let Behind::Batch { program, .. } = self {
            program.0.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it is a kernel of the user's.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Behind::Kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches a batch in front of a kernel: what the kernel may do.
    fn step(program: &Follower, early: bool) -> bool {
        let behind = Behind::Batch {
            program: program.clone(),
            lets_next_come: !program.is_kernel(),
        };
        behind.kernel_follows(early)
    }

    #[test]
    fn a_kernel_begins_early_behind_a_batch_that_has_expected_it() {
        let program = Follower::default();
        let often: Vec<_> = (0..3).map(|_| step(&program, true)).collect();
        assert_eq!(often, [false, true, true]);
        // Who never begins early has no use for it.
        assert!(!step(&program, false) && !program.is_kernel());
        assert!(!step(&program, true) && step(&program, true));
        // A batch instead.
        let behind = Behind::Batch {
            program: program.clone(),
            lets_next_come: false,
        };
        behind.batch_follows();
        assert!(!program.is_kernel() && !step(&program, true));
    }

    #[test]
    fn kernels_follow_kernels_early_and_nothing_else() {
        assert!(Behind::Kernel.kernel_follows(true) && !Behind::Kernel.kernel_follows(false));
        assert!(!Behind::Other.kernel_follows(true));
        assert!(Behind::Kernel.is_kernel() && !Behind::Other.is_kernel());
    }
}
