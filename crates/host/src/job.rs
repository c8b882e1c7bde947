//! A kernel in the queue: a closure, stored in place if it is small.

use std::mem::{MaybeUninit, align_of, size_of};

/// Bytes that a closure may have to be stored without an allocation: a dozen pointers.
const INLINE: usize = 96;

/// A closure to be called once; `F: Fn() + Send + 'static` erased.
pub(crate) struct Job {
    data: MaybeUninit<[u64; INLINE / 8]>,
    table: &'static Table,
}

struct Table {
    /// Calls the closure that `data` holds.
    call: unsafe fn(*const u8),
    /// Drops it.
    drop: unsafe fn(*mut u8),
}

// SAFETY: `Job::new` takes only closures that are `Send`.
unsafe impl Send for Job {}

impl Job {
    pub(crate) fn new<F: Fn() + Send + 'static>(closure: F) -> Self {
        if size_of::<F>() <= INLINE && align_of::<F>() <= align_of::<u64>() {
            Self::inline(closure)
        } else {
            Self::inline(Box::new(closure))
        }
    }

    fn inline<F: Fn() + Send + 'static>(closure: F) -> Self {
        assert!(
            size_of::<F>() <= INLINE && align_of::<F>() <= align_of::<u64>(),
            "the closure fits in place"
        );
        let mut data = MaybeUninit::<[u64; INLINE / 8]>::uninit();
        // SAFETY: `data` is large enough and aligned for `F`, as just checked.
        unsafe { data.as_mut_ptr().cast::<F>().write(closure) };
        Job {
            data,
            table: &Erased::<F>::TABLE,
        }
    }

    pub(crate) fn call(&self) {
        // SAFETY: `data` holds the closure that `table` was made for, from `new` until `drop`.
        unsafe { (self.table.call)(self.data.as_ptr().cast()) }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: `data` holds the closure that `table` was made for, and it is dropped only here.
        unsafe { (self.table.drop)(self.data.as_mut_ptr().cast()) }
    }
}

struct Erased<F>(std::marker::PhantomData<F>);

impl<F: Fn() + Send + 'static> Erased<F> {
    const TABLE: Table = Table {
        call: Self::call,
        drop: Self::drop,
    };

    /// # Safety
    ///
    /// `data` points to a live `F`.
    unsafe fn call(data: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { (*data.cast::<F>())() }
    }

    /// # Safety
    ///
    /// `data` points to a live `F` that is not used again.
    unsafe fn drop(data: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { data.cast::<F>().drop_in_place() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn small_and_large_closures_are_called_and_dropped() {
        let seen = Arc::new(AtomicU64::new(0));
        for wide in [false, true] {
            let held = seen.clone();
            let ballast = [7u64; 64];
            let job = if wide {
                Job::new(move || {
                    held.fetch_add(ballast[63], Ordering::Relaxed);
                })
            } else {
                Job::new(move || {
                    held.fetch_add(7, Ordering::Relaxed);
                })
            };
            job.call();
            job.call();
            assert_eq!(Arc::strong_count(&seen), 2);
            drop(job);
            assert_eq!(Arc::strong_count(&seen), 1);
        }
        assert_eq!(seen.load(Ordering::Relaxed), 28);
    }
}
