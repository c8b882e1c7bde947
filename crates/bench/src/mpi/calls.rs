//! The calls of MPI that are measured, no more than wrapped.
//!
//! # Model
//!
//! [`Comm`] is a duplicate of MPI_COMM_WORLD, [`Window`] a window on it for active-target epochs. Each method is one
//! call of MPI.
//!
//! # Failure
//!
//! Errors are fatal, as MPI has it unless told otherwise: they end the job.

use std::ffi::{c_int, c_void};
use std::ptr;
use tidegate_mpi::mpi::environment::{is_finalized, is_initialized, library_version};
use tidegate_mpi::mpi::ffi;

/// How a window gets its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum WindowBy {
    /// MPI_Win_allocate: MPI chooses
    #[default]
    Allocate,
    /// MPI_Win_create: over memory of the program
    Create,
}

/// How the calls are made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How {
    /// How windows get their memory.
    pub(crate) window: WindowBy,
    /// Instead of waiting in MPI, test, and give the processor away between: for an MPI that does not, where there are
    /// more ranks than processors.
    pub(crate) polls: bool,
}

/// The choice of the command line; set once, by the program.
static HOW: std::sync::OnceLock<How> = std::sync::OnceLock::new();

impl How {
    /// Makes it that of all runs of this process.
    pub(crate) fn choose(self) {
        _ = HOW.set(self);
    }

    /// The program's choice; the default if it has made none.
    pub(crate) fn chosen() -> How {
        HOW.get().copied().unwrap_or_default()
    }
}

/// Ends the job for an error for which MPI itself would have ended it.
pub(crate) fn fatal(call: &str, code: c_int) {
    if code != ffi::MPI_SUCCESS as c_int {
        eprintln!("{call} failed with code {code}");
        std::process::abort();
    }
}

pub(crate) fn int(number: usize) -> c_int {
    c_int::try_from(number).expect("MPI counts with 31 bits")
}

/// The MPI's name and version, in short.
pub(crate) fn library() -> String {
    let text = library_version().unwrap_or_default();
    let text = text.split(['\n', ',']).next().unwrap_or_default();
    let text = text.replace("Version:", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A duplicate of MPI_COMM_WORLD; made and dropped by all ranks alike, by the thread that has initialised MPI.
pub(crate) struct Comm {
    raw: ffi::MPI_Comm,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Comm {
    /// `None` where there is no MPI now.
    pub(crate) fn world() -> Option<Comm> {
        if !is_initialized() || is_finalized() {
            return None;
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised, and not finalised; the pointers are to values of the types that are wanted.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            fatal(
                "MPI_Comm_dup",
                ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut raw),
            );
            fatal("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank));
            fatal("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size));
            raw
        };
        Some(Comm {
            raw,
            rank: rank as usize,
            size: size as usize,
        })
    }

    pub(crate) fn barrier(&self) {
        // SAFETY: the communicator is alive.
        fatal("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) });
    }

    /// MPI's own handle, alive as long as this is.
    pub(crate) fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    /// Begins to receive from a rank.
    ///
    /// # Safety
    ///
    /// The values are this message's alone until [`wait_all`] has returned.
    pub(crate) unsafe fn receive(
        &self,
        to: *mut f64,
        len: usize,
        rank: usize,
        tag: usize,
    ) -> ffi::MPI_Request {
        let (len, rank, tag) = (int(len), int(rank), int(tag));
        begun("MPI_Irecv", |request| {
            // SAFETY: the communicator is alive; the memory is good by the caller's promise.
            unsafe {
                let of = ffi::RSMPI_DOUBLE;
                ffi::MPI_Irecv(to.cast(), len, of, rank, tag, self.raw, request)
            }
        })
    }

    /// Begins to send to a rank.
    ///
    /// # Safety
    ///
    /// The values are not written until [`wait_all`] has returned.
    pub(crate) unsafe fn send(
        &self,
        from: *const f64,
        len: usize,
        rank: usize,
        tag: usize,
    ) -> ffi::MPI_Request {
        let (len, rank, tag) = (int(len), int(rank), int(tag));
        begun("MPI_Isend", |request| {
            // SAFETY: the communicator is alive; the memory is good by the caller's promise.
            unsafe {
                let of = ffi::RSMPI_DOUBLE;
                ffi::MPI_Isend(from.cast(), len, of, rank, tag, self.raw, request)
            }
        })
    }
}

/// The request of a call that begins an operation.
fn begun(call: &str, begin: impl FnOnce(&mut ffi::MPI_Request) -> c_int) -> ffi::MPI_Request {
    // SAFETY: the constant is MPI's own.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    fatal(call, begin(&mut request));
    request
}

/// Asks until it is so; gives the processor away between.
fn polled(call: &str, mut test: impl FnMut(&mut c_int) -> c_int) {
    let mut done = 0;
    loop {
        fatal(call, test(&mut done));
        if done != 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// Waits for all requests.
pub(crate) fn wait_all(requests: &mut Vec<ffi::MPI_Request>, polls: bool) {
    let (count, all) = (int(requests.len()), requests.as_mut_ptr());
    if polls {
        polled("MPI_Testall", |done| {
            // SAFETY: all are requests that were begun; as many as are said.
            unsafe { ffi::MPI_Testall(count, all, done, ffi::RSMPI_STATUSES_IGNORE) }
        });
    } else {
        // SAFETY: as above.
        let code = unsafe { ffi::MPI_Waitall(count, all, ffi::RSMPI_STATUSES_IGNORE) };
        fatal("MPI_Waitall", code);
    }
    requests.clear();
}

impl Drop for Comm {
    fn drop(&mut self) {
        // In a panic the others are not here.
        if !std::thread::panicking() && !is_finalized() {
            // SAFETY: it is ours, and nothing is under way.
            fatal("MPI_Comm_free", unsafe {
                ffi::MPI_Comm_free(&mut self.raw)
            });
        }
    }
}

/// Ranks that an epoch is with.
pub(crate) struct Group(ffi::MPI_Group);

impl Group {
    /// The ranks must be in the communicator, none twice.
    pub(crate) fn of(comm: &Comm, ranks: &[usize]) -> Group {
        let ranks: Vec<c_int> = ranks.iter().map(|rank| int(*rank)).collect();
        // SAFETY: the communicator is alive; the array is as long as is said.
        unsafe {
            let mut all = ffi::RSMPI_GROUP_NULL;
            let mut group = ffi::RSMPI_GROUP_NULL;
            fatal("MPI_Comm_group", ffi::MPI_Comm_group(comm.raw, &mut all));
            fatal(
                "MPI_Group_incl",
                ffi::MPI_Group_incl(all, int(ranks.len()), ranks.as_ptr(), &mut group),
            );
            fatal("MPI_Group_free", ffi::MPI_Group_free(&mut all));
            Group(group)
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: it is ours. (The empty group may be MPI's own, which takes no harm.)
        if !is_finalized() && self.0 != unsafe { ffi::RSMPI_GROUP_EMPTY } {
            // SAFETY: as above.
            fatal("MPI_Group_free", unsafe {
                ffi::MPI_Group_free(&mut self.0)
            });
        }
    }
}

/// A window; made and dropped by all ranks alike.
pub(crate) struct Window {
    raw: ffi::MPI_Win,
    base: *mut u8,
    bytes: usize,
    /// The memory, if it is not MPI's.
    _memory: Vec<u64>,
}

impl Window {
    /// The code with which MPI refuses to make a window over memory of the program's, if it does: some builds have no
    /// means to (Open MPI 4.1.6 of one machine). Collective.
    pub(crate) fn create_is_refused(comm: &Comm) -> Option<c_int> {
        let mut memory = [0u64; 1];
        // SAFETY: the communicator is ours, and gets its handler back; the window is freed before its memory.
        unsafe {
            let (mut window, info) = (ffi::RSMPI_WIN_NULL, ffi::RSMPI_INFO_NULL);
            let handled_by = |handler| {
                let set = ffi::MPI_Comm_set_errhandler(comm.raw, handler);
                fatal("MPI_Comm_set_errhandler", set);
            };
            handled_by(ffi::RSMPI_ERRORS_RETURN);
            let base = memory.as_mut_ptr().cast();
            let code = ffi::MPI_Win_create(base, 8, 1, info, comm.raw, &mut window);
            handled_by(ffi::RSMPI_ERRORS_ARE_FATAL);
            if code != ffi::MPI_SUCCESS as c_int {
                return Some(code);
            }
            fatal("MPI_Win_free", ffi::MPI_Win_free(&mut window));
        }
        None
    }

    /// So many bytes on each rank, zeroed; collective.
    pub(crate) fn new(comm: &Comm, bytes: usize, by: WindowBy) -> Window {
        // A place for the pointer, even if there is nothing behind it.
        let size = ffi::MPI_Aint::try_from(bytes.max(8)).expect("it is memory");
        let mut memory = Vec::new();
        let mut base: *mut c_void = ptr::null_mut();
        // SAFETY: the communicator is alive; `base` is where MPI leaves a pointer, or points to `size` bytes that live
        // as long as the window.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_WIN_NULL;
            // Hints for the MPI: epochs are active-target ones only, and all windows are alike.
            let mut info = ffi::RSMPI_INFO_NULL;
            fatal("MPI_Info_create", ffi::MPI_Info_create(&mut info));
            for key in [c"no_locks", c"same_size", c"same_disp_unit"] {
                fatal(
                    "MPI_Info_set",
                    ffi::MPI_Info_set(info, key.as_ptr(), c"true".as_ptr()),
                );
            }
            match by {
                WindowBy::Allocate => fatal(
                    "MPI_Win_allocate",
                    ffi::MPI_Win_allocate(
                        size,
                        1,
                        info,
                        comm.raw,
                        (&raw mut base).cast(),
                        &mut raw,
                    ),
                ),
                WindowBy::Create => {
                    memory = vec![0u64; bytes.max(8).div_ceil(8)];
                    base = memory.as_mut_ptr().cast();
                    fatal(
                        "MPI_Win_create",
                        ffi::MPI_Win_create(base, size, 1, info, comm.raw, &mut raw),
                    );
                }
            }
            fatal("MPI_Info_free", ffi::MPI_Info_free(&mut info));
            raw
        };
        let base: *mut u8 = base.cast();
        // SAFETY: so many bytes are there, and no rank puts before this rank has posted.
        unsafe { base.write_bytes(0, bytes) };
        Window {
            raw,
            base,
            bytes,
            _memory: memory,
        }
    }

    /// This rank's memory, and how long it is.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.base, self.bytes)
    }

    pub(crate) fn post(&self, origins: &Group) {
        // SAFETY: window and group are alive, here and below.
        fatal("MPI_Win_post", unsafe {
            ffi::MPI_Win_post(origins.0, 0, self.raw)
        });
    }

    pub(crate) fn start(&self, targets: &Group) {
        // SAFETY: as above.
        fatal("MPI_Win_start", unsafe {
            ffi::MPI_Win_start(targets.0, 0, self.raw)
        });
    }

    /// Puts bytes to a rank, at an offset.
    ///
    /// # Safety
    ///
    /// The bytes are there, and are not written before [`Window::complete`] has returned.
    pub(crate) unsafe fn put(&self, from: *const u8, bytes: usize, rank: usize, offset: usize) {
        let offset = ffi::MPI_Aint::try_from(offset).expect("it is memory");
        let count = int(bytes);
        // SAFETY: as above; the source is good by the caller's promise, and MPI checks the target.
        let code = unsafe {
            ffi::MPI_Put(
                from.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                int(rank),
                offset,
                count,
                ffi::RSMPI_UINT8_T,
                self.raw,
            )
        };
        fatal("MPI_Put", code);
    }

    pub(crate) fn complete(&self) {
        // SAFETY: as above.
        fatal("MPI_Win_complete", unsafe {
            ffi::MPI_Win_complete(self.raw)
        });
    }

    pub(crate) fn wait(&self, polls: bool) {
        if polls {
            polled("MPI_Win_test", |done| {
                // SAFETY: as above.
                unsafe { ffi::MPI_Win_test(self.raw, done) }
            });
        } else {
            // SAFETY: as above.
            fatal("MPI_Win_wait", unsafe { ffi::MPI_Win_wait(self.raw) });
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // In a panic the others are not here.
        if !std::thread::panicking() && !is_finalized() {
            // SAFETY: it is ours; epochs on it are over.
            fatal("MPI_Win_free", unsafe { ffi::MPI_Win_free(&mut self.raw) });
        }
    }
}
