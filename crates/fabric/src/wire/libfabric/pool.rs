//! The deferred works that a process may have, and how they are divided.
//!
//! # Model
//!
//! Only cxi says how many works there are, for all processes of its service. Each process takes its part
//! ([`Choice::sharers`](super::Choice::sharers)). When a chain is made, it takes a *share* of that part, a quarter of
//! what is left, and keeps it to its end. So works of one chain are never in the way of another.
//!
//! *Shares and trigger slots.* A program that has a [trigger slot](tidegate_hal::slots) may find no works left, because
//! programs that were armed before it on the same queue have them. That delays it, but cannot hang: those programs are
//! before it in its own queue, so they are rung for first. A program that has been rung for ends by itself, and returns
//! its works. A program that does not fit even alone is refused when it is prepared. So slots decide *that* a program
//! is fired. Works decide only how many programs of a queue the hardware holds at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_hal::nic::NicError;

use crate::base::NAME;

/// The most works that a chain takes from the NIC's pool.
const MOST: usize = 64;
/// The fewest works that it takes: for a put of one piece, with its signal and a write-back, and one more.
const LEAST: usize = 4;

/// The deferred works that this process may have.
pub(super) struct Pool {
    left: AtomicUsize,
}

/// A chain's share of the works.
pub(super) struct Share {
    pool: Arc<Pool>,
    /// How many works it has.
    pub(super) works: usize,
    /// How many of its works are queued, or were leaked.
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
        // Leaked works stay with the NIC for good.
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
