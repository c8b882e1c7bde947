//! The deferred works that a process may have, and who has them.
//!
//! # Model
//!
//! Only cxi says how many works there are, for all processes of its service; each takes its part
//! ([`Choice::sharers`](super::Choice::sharers)). Of that part each chain takes a *share* when it is made, a quarter of
//! what is left, and keeps it to its end: what one chain has queued is never in another's way.
//!
//! *Shares and trigger slots.* A program that has a [trigger slot](tidegate_hal::slots) may still find no works, when
//! those that were armed before it on the same queue have them. That delays it, and hangs nothing: they are of its own
//! queue, and before it, so they are rung for before it is; what is rung for comes to its end by itself, and gives its
//! works back. A program that would not fit alone is refused when it is prepared. So slots decide *that* a program is
//! fired, and works only how many of a queue are with the hardware at a time.
//!
//! # Failure
//!
//! [`NicError::Exhausted`] when a chain is made and fewer than [`LEAST`] works are left: the window is not created.
//! What other processes have taken although it is not theirs is found out when a work is queued, which is tried again
//! for as long as [`Options::silence`](crate::Options::silence) says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_hal::nic::NicError;

use crate::base::NAME;

/// How many works a chain takes of the NIC's pool, at most.
const MOST: usize = 64;
/// And at least: a put of one piece, with its signal and a write-back, and one more.
const LEAST: usize = 4;

/// The deferred works that this process may have.
pub(super) struct Pool {
    left: AtomicUsize,
}

/// A chain's part of them.
pub(super) struct Share {
    pool: Arc<Pool>,
    /// How many.
    pub(super) works: usize,
    /// How many of them are queued, or were leaked.
    pub(super) used: usize,
}

impl Pool {
    pub(super) fn new(works: usize) -> Arc<Self> {
        Arc::new(Pool {
            left: AtomicUsize::new(works),
        })
    }

    pub(super) fn take(self: &Arc<Self>) -> Result<Share, NicError> {
        let part = |left: usize| (left / 4).clamp(LEAST, MOST);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(part(left))
            });
        match taken {
            Ok(left) => Ok(Share {
                pool: self.clone(),
                works: part(left),
                used: 0,
            }),
            Err(left) => Err(NicError::Exhausted {
                nic: NAME,
                what: "deferred works",
                detail: format!(
                    "a queue needs {LEAST}, and {left} are left of this process's part"
                ),
            }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // What was leaked is with the NIC for good.
        let free = self.works - self.used;
        self.pool.left.fetch_add(free, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_the_pool_and_come_back() {
        let pool = Pool::new(40);
        let mut shares = Vec::new();
        let refused = loop {
            match pool.take() {
                Ok(share) => shares.push(share),
                Err(error) => break error,
            }
        };
        let works: Vec<_> = shares.iter().map(|share| share.works).collect();
        assert_eq!(works, [10, 7, 5, 4, 4, 4, 4]);
        assert!(refused.to_string().contains("2 are left"), "{refused}");
        shares[0].used = 3;
        drop(shares);
        assert_eq!(pool.left.load(Ordering::Relaxed), 37);
        assert_eq!(Pool::new(4096).take().unwrap().works, MOST);
    }
}
