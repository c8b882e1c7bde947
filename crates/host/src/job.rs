//! A kernel in the queue: a closure, stored in place if it is small.

use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, align_of, size_of};

use tidegate_hal::device::Issues;

use crate::reclaim::Named;

/// The most bytes of a closure that is stored without an allocation: a dozen pointers.
const INLINE: usize = 96;

/// A kernel: an `F: Fn(&dyn Issues) + Send + 'static` whose type is erased.
pub(crate) struct Job {
    /// The cell is needed because captured values may change through a shared reference: a `Cell`, an atomic number.
    data: UnsafeCell<MaybeUninit<[u64; INLINE / 8]>>,
    table: &'static Table,
}

struct Table {
    name: Named,
    /// Calls the closure that `data` holds.
    call: unsafe fn(*const u8, &dyn Issues),
    /// Drops the closure that `data` holds.
    drop: unsafe fn(*mut u8),
}

// SAFETY: `Job::new` takes only closures that are `Send`.
unsafe impl Send for Job {}

impl Job {
    /// Stores a closure. Reports name it after the type `N`.
    pub(crate) fn new<N: 'static, F: Fn(&dyn Issues) + Send + 'static>(closure: F) -> Self {
        if size_of::<F>() <= INLINE && align_of::<F>() <= align_of::<u64>() {
            Self::inline::<N, F>(closure)
        } else {
            Self::inline::<N, Box<F>>(Box::new(closure))
        }
    }

    fn inline<N: 'static, F: Fn(&dyn Issues) + Send + 'static>(closure: F) -> Self {
        assert!(
            size_of::<F>() <= INLINE && align_of::<F>() <= align_of::<u64>(),
            "the closure fits in place"
        );
        let mut data = MaybeUninit::<[u64; INLINE / 8]>::uninit();
        // SAFETY: `data` is large enough and aligned for `F`, as just checked.
        unsafe { data.as_mut_ptr().cast::<F>().write(closure) };
        Job {
            data: UnsafeCell::new(data),
            table: &Erased::<N, F>::TABLE,
        }
    }

    pub(crate) fn name(&self) -> &'static Named {
        &self.table.name
    }

    /// Calls the closure. `stream` is the stream that the kernel runs on.
    pub(crate) fn call(&self, stream: &dyn Issues) {
        // SAFETY: `data` holds the closure that `table` was made for, from `new` until `drop`. Only shared references to
        // it are made meanwhile, and only by one thread at a time, since a cell is not `Sync`.
        unsafe { (self.table.call)(self.data.get().cast_const().cast(), stream) }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: `data` holds the closure that `table` was made for, and it is dropped only here.
        unsafe { (self.table.drop)(self.data.get_mut().as_mut_ptr().cast()) }
    }
}

struct Erased<N, F>(std::marker::PhantomData<(N, F)>);

impl<N: 'static, F: Fn(&dyn Issues) + Send + 'static> Erased<N, F> {
    const TABLE: Table = Table {
        name: Named(std::any::type_name::<N>),
        call: Self::call,
        drop: Self::drop,
    };

    /// # Safety
    ///
    /// `data` points to a live `F`.
    unsafe fn call(data: *const u8, stream: &dyn Issues) {
        // SAFETY: the caller's promise.
        unsafe { (*data.cast::<F>())(stream) }
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
    use tidegate_hal::batch::Batch;
    use tidegate_hal::device::Stopped;
    use tidegate_hal::site::CallSite;

    /// A stream for kernels that issue nothing.
    struct Nothing;

    impl Issues for Nothing {
        unsafe fn issue(&self, _: &Batch, _: CallSite) -> Result<(), Stopped> {
            unreachable!("the kernels of these tests issue nothing")
        }
    }

    #[test]
    fn what_a_closure_has_captured_may_change() {
        let seen = Arc::new(AtomicU64::new(0));
        let (last, calls) = (seen.clone(), std::cell::Cell::new(0));
        let job = Job::new::<(), _>(move |_: &dyn Issues| {
            calls.set(calls.get() + 1);
            last.store(calls.get(), Ordering::Relaxed);
        });
        (0..3).for_each(|_| job.call(&Nothing));
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn small_and_large_closures_are_called_and_dropped() {
        let seen = Arc::new(AtomicU64::new(0));
        for wide in [false, true] {
            let held = seen.clone();
            let ballast = [7u64; 64];
            let job = if wide {
                Job::new::<(), _>(move |_: &dyn Issues| {
                    held.fetch_add(ballast[63], Ordering::Relaxed);
                })
            } else {
                Job::new::<(), _>(move |_: &dyn Issues| {
                    held.fetch_add(7, Ordering::Relaxed);
                })
            };
            job.call(&Nothing);
            job.call(&Nothing);
            assert_eq!(Arc::strong_count(&seen), 2);
            drop(job);
            assert_eq!(Arc::strong_count(&seen), 1);
        }
        assert_eq!(seen.load(Ordering::Relaxed), 28);
    }
}
