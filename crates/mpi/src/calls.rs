//! The calls of MPI that are needed to make a world, with results.
//!
//! # Model
//!
//! [`Own`] is a duplicate of the user's communicator, so its messages never meet the user's messages. It returns
//! errors, whatever error handler the user's communicator has. Only one thread may use it, because MPI may not allow
//! more.
//!
//! # Failure
//!
//! [`MpiError::Call`] with MPI's own text. After an error, the state of the communicator is unknown, and it is not
//! freed.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::ffi;

use crate::error::MpiError;

/// The sleep between two looks at ranks that have not come.
const LOOK: Duration = Duration::from_micros(500);

/// The longest error text of MPI: more than any MPI's MPI_MAX_ERROR_STRING.
const LONGEST_TEXT: usize = 8192;

/// Calls a function of MPI, and checks its code by the `check` that is in scope. Like the function, it is unsafe.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        check(stringify!($function), ffi::$function($($argument),*))
    };
}
pub(crate) use call;

/// What MPI says of an error.
#[cold]
pub(crate) fn said_of(code: c_int) -> String {
    let mut text = vec![0u8; LONGEST_TEXT];
    let mut length = 0;
    // SAFETY: MPI runs (one of its calls has just failed), and the buffer is longer than MPI_MAX_ERROR_STRING.
    let known = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    text.truncate(if known == ffi::MPI_SUCCESS as c_int {
        usize::try_from(length).unwrap_or(0)
    } else {
        0
    });
    if text.is_empty() {
        format!("error {code}, which MPI has no words for")
    } else {
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A code of MPI as a result.
fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let text = said_of(code);
    Err(MpiError::Call { call, code, text })
}

/// Checks that this thread may call MPI now.
pub(crate) fn usable() -> Result<(), MpiError> {
    if mpi::environment::is_finalized() {
        return Err(MpiError::Finalized);
    }
    if !mpi::environment::is_initialized() {
        return Err(MpiError::NotInitialized);
    }
    let provided = mpi::environment::threading_support();
    if matches!(provided, Threading::Single | Threading::Funneled) {
        let mut is_main = 0;
        // SAFETY: MPI is initialised, and not finalised.
        unsafe { call!(MPI_Is_thread_main(&mut is_main)) }?;
        if is_main == 0 {
            return Err(MpiError::WrongThread { provided });
        }
    }
    Ok(())
}

/// A duplicate of a communicator.
pub(crate) struct Own {
    raw: ffi::MPI_Comm,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    one_thread: PhantomData<*const ()>,
}

/// The memory to which MPI writes when a duplicate is ready. It is on the heap, so that it can stay if that never
/// happens.
struct Pending {
    raw: ffi::MPI_Comm,
    request: ffi::MPI_Request,
}

impl Own {
    /// Duplicates a communicator. Collective. Waits until all its ranks have come, but no longer than `limit`.
    ///
    /// # Safety
    ///
    /// The handle is that of a live communicator (or null), and [`usable`] returned `Ok`.
    pub(crate) unsafe fn duplicate(raw: ffi::MPI_Comm, limit: Duration) -> Result<Self, MpiError> {
        // SAFETY: the constant is MPI's own, and never changes.
        if raw == unsafe { ffi::RSMPI_COMM_NULL } {
            return Err(MpiError::NoCommunicator);
        }
        let mut inter = 0;
        // SAFETY: the communicator is live, by the caller's promise; so for the calls below.
        unsafe { call!(MPI_Comm_test_inter(raw, &mut inter)) }?;
        if inter != 0 {
            return Err(MpiError::InterCommunicator);
        }
        // Until the duplicate exists, errors go to the handler of the user's communicator, which usually ends the
        // process.
        // SAFETY: the constant is MPI's own.
        let mut users = unsafe { ffi::RSMPI_ERRORS_ARE_FATAL };
        // SAFETY: as above.
        unsafe { call!(MPI_Comm_get_errhandler(raw, &mut users)) }?;
        // SAFETY: as above; the handler is one of MPI's own.
        unsafe { call!(MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN)) }?;
        // SAFETY: as above.
        let duplicated = unsafe { Self::when_all_have_come(raw, limit) };
        // SAFETY: as above; the handler was this communicator's, and this frees the reference to it that we were given.
        let restored = unsafe {
            let restored = call!(MPI_Comm_set_errhandler(raw, users));
            restored.and(call!(MPI_Errhandler_free(&mut users)))
        };
        let raw = duplicated?;
        restored?;
        // SAFETY: the duplicate is ours, and live; so for the calls below.
        unsafe { call!(MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN)) }?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: as above.
        unsafe { call!(MPI_Comm_rank(raw, &mut rank)) }?;
        // SAFETY: as above.
        unsafe { call!(MPI_Comm_size(raw, &mut size)) }?;
        Ok(Own {
            raw,
            rank: number(rank),
            size: number(size),
            one_thread: PhantomData,
        })
    }

    /// # Safety
    ///
    /// The communicator is live.
    unsafe fn when_all_have_come(
        raw: ffi::MPI_Comm,
        limit: Duration,
    ) -> Result<ffi::MPI_Comm, MpiError> {
        let started = Instant::now();
        let mut pending = Box::new(Pending {
            // SAFETY: the constants are MPI's own.
            raw: unsafe { ffi::RSMPI_COMM_NULL },
            // SAFETY: as above.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
        });
        // SAFETY: the communicator is live. MPI may write to `pending` until the request is complete, and it stays that
        // long.
        unsafe { call!(MPI_Comm_idup(raw, &mut pending.raw, &mut pending.request)) }?;
        loop {
            let mut done = 0;
            // SAFETY: the request is that of the call above.
            let tested = unsafe {
                call!(MPI_Test(
                    &mut pending.request,
                    &mut done,
                    ffi::RSMPI_STATUS_IGNORE
                ))
            };
            if let Err(error) = tested {
                Box::leak(pending);
                return Err(error);
            }
            if done != 0 {
                return Ok(pending.raw);
            }
            let waited = started.elapsed();
            if waited >= limit {
                // Another rank may still come, and then MPI writes to it.
                Box::leak(pending);
                return Err(MpiError::Absent { waited });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Gathers the numbers of all ranks, in the order of ranks. Collective.
    pub(crate) fn all_gather<const N: usize>(
        &self,
        mine: [u64; N],
    ) -> Result<Vec<[u64; N]>, MpiError> {
        let mut all = vec![[0u64; N]; self.size];
        let count = c_int::try_from(N).expect("a handful of numbers");
        // SAFETY: `mine` has `count` numbers, and `all` as many for each rank; the communicator is ours, and live.
        unsafe {
            call!(MPI_Allgather(
                mine.as_ptr().cast::<c_void>(),
                count,
                ffi::RSMPI_UINT64_T,
                all.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT64_T,
                self.raw,
            ))
        }?;
        Ok(all)
    }

    /// Sends the bytes of `root` to every rank. Collective. The bytes of other ranks are ignored.
    pub(crate) fn broadcast(&self, root: usize, bytes: Vec<u8>) -> Result<Vec<u8>, MpiError> {
        let from = c_int::try_from(root).unwrap_or(c_int::MAX);
        let mut length = bytes.len() as u64;
        // SAFETY: it is one number; the communicator is ours, and live.
        unsafe {
            call!(MPI_Bcast(
                (&raw mut length).cast(),
                1,
                ffi::RSMPI_UINT64_T,
                from,
                self.raw,
            ))
        }?;
        let mut bytes = bytes;
        bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        let count = c_int::try_from(length).expect("what is said here is short");
        // SAFETY: `bytes` has `count` bytes on every rank.
        unsafe {
            call!(MPI_Bcast(
                bytes.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                from,
                self.raw,
            ))
        }?;
        Ok(bytes)
    }

    /// The lowest rank that can share memory with this one, according to MPI. Collective.
    pub(crate) fn lowest_on_node(&self) -> Result<u64, MpiError> {
        let key = c_int::try_from(self.rank).expect("it was one");
        // SAFETY: the constant is MPI's own.
        let mut here = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: the communicator is ours, and live.
        unsafe {
            call!(MPI_Comm_split_type(
                self.raw,
                ffi::RSMPI_COMM_TYPE_SHARED,
                key,
                ffi::RSMPI_INFO_NULL,
                &mut here,
            ))
        }?;
        let mut lowest = self.rank as u64;
        // SAFETY: the new communicator is ours, and live; its rank 0 is the lowest of our ranks, because of the keys.
        unsafe {
            call!(MPI_Bcast(
                (&raw mut lowest).cast(),
                1,
                ffi::RSMPI_UINT64_T,
                0,
                here
            ))
        }?;
        // SAFETY: nothing else uses it.
        unsafe { call!(MPI_Comm_free(&mut here)) }?;
        Ok(lowest)
    }

    /// Gives the handle away. It stays valid until the new owner frees it, or MPI ends.
    pub(crate) fn keep(self) -> ffi::MPI_Comm {
        self.raw
    }

    /// Frees it. Collective.
    pub(crate) fn free(mut self) -> Result<(), MpiError> {
        // SAFETY: it is ours, and no operation uses it.
        unsafe { call!(MPI_Comm_free(&mut self.raw)) }
    }
}

fn number(of_mpi: c_int) -> usize {
    usize::try_from(of_mpi).expect("MPI counts from 0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpi::traits::AsRaw as _;

    /// This is one test, since MPI is initialised once in a process: first without MPI, then with it, then after its
    /// end.
    #[test]
    fn errors_are_returned() {
        assert!(matches!(usable(), Err(MpiError::NotInitialized)));
        let (universe, provided) =
            mpi::initialize_with_threading(Threading::Funneled).expect("the first");
        usable().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(usable).join().unwrap();
            match provided {
                Threading::Single | Threading::Funneled => {
                    assert!(
                        matches!(other, Err(MpiError::WrongThread { .. })),
                        "{other:?}"
                    );
                }
                _ => other.unwrap(),
            }
        });
        let limit = Duration::from_secs(10);
        // SAFETY: null is allowed.
        let none = unsafe { Own::duplicate(ffi::RSMPI_COMM_NULL, limit) };
        assert!(matches!(none, Err(MpiError::NoCommunicator)));

        let world = universe.world();
        // SAFETY: the world communicator is live.
        let own = unsafe { Own::duplicate(world.as_raw(), limit) }.unwrap();
        assert_eq!((own.rank, own.size), (0, 1));
        assert_eq!(own.broadcast(0, vec![1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(own.all_gather([7, 9]).unwrap(), [[7, 9]]);
        assert_eq!(own.lowest_on_node().unwrap(), 0);
        // There is no rank 7. With MPI's own handler the process would end here.
        let error = own.broadcast(7, Vec::new()).unwrap_err();
        let MpiError::Call { call, text, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*call, "MPI_Bcast");
        assert!(text.to_lowercase().contains("root"), "{text}");
        own.free().unwrap();

        drop(universe);
        assert!(matches!(usable(), Err(MpiError::Finalized)));
    }
}
