//! The collectives of NCCL, by a library that is loaded at run time.
//!
//! # Model
//!
//! A [`Nccl`] is a communicator of all ranks, with two pairs of buffers from NCCL's own allocator. One pair is
//! registered as symmetric windows, for which NCCL has kernels of its own. Calls are enqueued on a stream of the
//! communicator's, or captured from it. Everything lives in the primary context of the rank's GPU, like the memory of
//! this library.
//!
//! # Failure
//!
//! Errors are texts with the call and NCCL's words for it.

use super::args::{By, NUMBER};
use super::case::Case;
use super::kind::Kind;
use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::time::Instant;
use tidegate_core::World;
use tidegate_cuda::Cuda;
use tidegate_ffi::cuda::{Context, DevicePtr, Driver, GraphExec, GraphFlags, Stream};

/// The variable that names the library.
const LIBRARY: &str = "NCCL_LIBRARY";

type Answer<T> = Result<T, Box<dyn Error>>;
type Comm = *mut c_void;
type RawStream = *mut c_void;
/// `ncclUniqueId`.
type Id = [u8; 128];
/// `ncclFloat32`, `ncclSum`, `NCCL_WIN_COLL_SYMMETRIC`.
const FLOAT: c_int = 7;
const SUM: c_int = 0;
const SYMMETRIC: c_int = 1;

/// `ncclUniqueId`, as it is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId(Id);

macro_rules! functions {
    ($($field:ident: $name:literal ($($arg:ty),*);)*) => {
        /// The functions that are called here.
        struct Functions {
            $($field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            describe: unsafe extern "C" fn(c_int) -> *const c_char,
            _library: Library,
        }

        impl Functions {
            /// # Errors
            ///
            /// The loader's, for the library or a function.
            fn load() -> Answer<Functions> {
                let name = std::env::var_os(LIBRARY).unwrap_or_else(|| "libnccl.so.2".into());
                // SAFETY: NCCL's initialisers may run in any process, and each function has the type that `nccl.h` of
                // versions 2.28 to 2.32 declares for its name.
                unsafe {
                    let library = Library::new(&name)
                        .map_err(|error| format!("{error} (the variable {LIBRARY} names NCCL's library)"))?;
                    Ok(Functions {
                        $($field: *library.get(concat!($name, "\0").as_bytes())?,)*
                        describe: *library.get(b"ncclGetErrorString\0")?,
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    version: "ncclGetVersion" (*mut c_int);
    unique_id: "ncclGetUniqueId" (*mut UniqueId);
    init_rank: "ncclCommInitRank" (*mut Comm, c_int, UniqueId, c_int);
    destroy: "ncclCommDestroy" (Comm);
    alloc: "ncclMemAlloc" (*mut *mut c_void, usize);
    free: "ncclMemFree" (*mut c_void);
    register: "ncclCommWindowRegister" (Comm, *mut c_void, usize, *mut *mut c_void, c_int);
    deregister: "ncclCommWindowDeregister" (Comm, *mut c_void);
    broadcast: "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, RawStream);
    reduce: "ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, RawStream);
    all_reduce: "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, RawStream);
    reduce_scatter: "ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, RawStream);
    all_gather: "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Comm, RawStream);
    all_to_all: "ncclAlltoAll" (*const c_void, *mut c_void, usize, c_int, Comm, RawStream);
    gather: "ncclGather" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, RawStream);
    scatter: "ncclScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, RawStream);
}

/// Memory of a GPU for the input and the output of a call.
struct Buffers {
    memory: [*mut c_void; 2],
    windows: [*mut c_void; 2],
}

/// A communicator of all ranks.
pub(super) struct Nccl {
    nccl: Functions,
    driver: &'static Driver,
    comm: Comm,
    stream: Stream,
    plain: Buffers,
    windows: Buffers,
    bytes: usize,
}

impl Nccl {
    /// Makes a communicator of all ranks, with buffers of so many bytes; collective.
    pub(super) fn new(world: &World<Cuda>, bytes: usize) -> Answer<Nccl> {
        let driver = Driver::load()?;
        let device = driver.device(world.device().ordinal() as i32)?;
        let context: Context = driver.primary_ctx_retain(device)?;
        // SAFETY: the context was just retained, and is never released.
        unsafe { driver.ctx_set_current(context)? };
        let stream = driver.stream_create(0)?;
        let nccl = Functions::load()?;
        let none = Buffers {
            memory: [ptr::null_mut(); 2],
            windows: [ptr::null_mut(); 2],
        };
        let mut made = Nccl {
            nccl,
            driver,
            comm: ptr::null_mut(),
            stream,
            plain: Buffers { ..none },
            windows: none,
            bytes,
        };
        let mut id = UniqueId([0; 128]);
        if world.rank() == 0 {
            // SAFETY: there is room for an id.
            made.told("ncclGetUniqueId", unsafe { (made.nccl.unique_id)(&mut id) })?;
        }
        let ids = world.all_gather("nccl id", id.0.to_vec())?;
        id.0.copy_from_slice(&ids[0]);
        let (ranks, rank) = (world.size() as c_int, world.rank() as c_int);
        // SAFETY: the context of this rank's GPU is current, and the id is that of rank 0.
        let code = unsafe { (made.nccl.init_rank)(&mut made.comm, ranks, id, rank) };
        made.told("ncclCommInitRank", code)?;
        for windows in [false, true] {
            for at in 0..2 {
                made.allocate(windows, at)?;
            }
        }
        Ok(made)
    }

    fn allocate(&mut self, windows: bool, at: usize) -> Answer<()> {
        let (mut memory, mut window) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the communicator is alive, and the pointers are to values of the types that are wanted.
        unsafe {
            self.told("ncclMemAlloc", (self.nccl.alloc)(&mut memory, self.bytes))?;
            if windows {
                let register = self.nccl.register;
                let code = register(self.comm, memory, self.bytes, &mut window, SYMMETRIC);
                self.told("ncclCommWindowRegister", code)?;
            }
        }
        let buffers = match windows {
            true => &mut self.windows,
            false => &mut self.plain,
        };
        (buffers.memory[at], buffers.windows[at]) = (memory, window);
        Ok(())
    }

    /// As `NCCL 2.32.3`.
    pub(super) fn label(&self) -> Answer<String> {
        let mut code = 0;
        // SAFETY: there is room for the number.
        self.told("ncclGetVersion", unsafe { (self.nccl.version)(&mut code) })?;
        Ok(format!(
            "NCCL {}.{}.{}",
            code / 10000,
            code / 100 % 100,
            code % 100
        ))
    }

    fn told(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL has a text of static storage for each code.
        let text = unsafe { CStr::from_ptr((self.nccl.describe)(code)) };
        Err(format!("{call}: {}", text.to_string_lossy()))
    }

    /// Enqueues a call.
    fn call(&self, case: &Case, buffers: &Buffers) -> Result<(), String> {
        let [x, y] = buffers.memory;
        let (n, comm, stream) = (case.count, self.comm, self.stream.as_raw().cast());
        let nccl = &self.nccl;
        // SAFETY: communicator and stream are alive, and the buffers have room for the input and the output of the
        // collective: `measure` has compared that.
        let code = unsafe {
            match case.kind {
                Kind::Broadcast => (nccl.broadcast)(y, y, n, FLOAT, 0, comm, stream),
                Kind::Reduce => (nccl.reduce)(x, y, n, FLOAT, SUM, 0, comm, stream),
                Kind::AllReduce => (nccl.all_reduce)(x, y, n, FLOAT, SUM, comm, stream),
                Kind::ReduceScatter => (nccl.reduce_scatter)(x, y, n, FLOAT, SUM, comm, stream),
                Kind::AllGather => (nccl.all_gather)(x, y, n, FLOAT, comm, stream),
                Kind::AllToAll => (nccl.all_to_all)(x, y, n, FLOAT, comm, stream),
                Kind::Gather => (nccl.gather)(x, y, n, FLOAT, 0, comm, stream),
                Kind::Scatter => (nccl.scatter)(x, y, n, FLOAT, 0, comm, stream),
                Kind::Barrier | Kind::Scan => return Err("NCCL does not have it".into()),
            }
        };
        self.told(&case.kind.name(), code)
    }

    fn synchronize(&self) -> Answer<()> {
        // SAFETY: the stream is alive.
        Ok(unsafe { self.driver.stream_synchronize(self.stream) }?)
    }

    /// Writes what this rank brings.
    fn write(&self, case: &Case, buffers: &Buffers, turn: u32) -> Answer<()> {
        for (to, from) in buffers.memory.iter().zip(&*case.brings(turn)) {
            let (from, bytes) = (from.as_ptr().cast(), size_of_val(from.as_slice()));
            if bytes != 0 {
                let to = DevicePtr(*to as u64);
                // SAFETY: `measure` has compared the lengths, and nobody else uses the memory until the copy is over.
                unsafe {
                    self.driver
                        .memcpy_htod_async(to, from, bytes, self.stream)?
                };
                self.synchronize()?;
            }
        }
        Ok(())
    }

    /// Compares the output with the expected one.
    fn check(&self, case: &Case, buffers: &Buffers, turn: u32) -> Answer<()> {
        let mut found = vec![0f32; case.lengths().1];
        let (to, bytes) = (found.as_mut_ptr().cast(), size_of_val(&*found));
        if bytes != 0 {
            let from = DevicePtr(buffers.memory[1] as u64);
            // SAFETY: as above.
            unsafe {
                self.driver
                    .memcpy_dtoh_async(to, from, bytes, self.stream)?
            };
            self.synchronize()?;
        }
        Ok(case.check(turn, 1, &found)?)
    }

    /// Seconds of all calls, on this rank; collective.
    pub(super) fn measure(&self, world: &World<Cuda>, by: By, case: &Case) -> Answer<f64> {
        let buffers = match by {
            By::NcclWindows | By::NcclWindowsGraph => &self.windows,
            _ => &self.plain,
        };
        let (input, output) = case.lengths();
        if input.max(output) * NUMBER > self.bytes {
            return Err("the buffers are too short".into());
        }
        let graph = match by.is_graph() {
            true => Some(self.record(case, buffers)?),
            false => None,
        };
        let times = |count: u64| -> Answer<()> {
            for _ in 0..count / graph.as_ref().map_or(1, |_| case.unroll) {
                match &graph {
                    // SAFETY: the graph and the stream are alive.
                    Some(graph) => unsafe { self.driver.graph_launch(graph.exec, self.stream)? },
                    None => self.call(case, buffers)?,
                }
            }
            Ok(())
        };
        for turn in 1..=case.turns() {
            self.write(case, buffers, turn)?;
            world.all_gather("written", Vec::new())?;
            times(case.unroll)?;
            self.synchronize()?;
            self.check(case, buffers, turn)?;
        }
        let turn = case.turns();
        world.all_gather("measured", Vec::new())?;
        times(case.ahead())?;
        self.synchronize()?;
        let start = Instant::now();
        times(case.calls)?;
        self.synchronize()?;
        let seconds = start.elapsed().as_secs_f64();
        self.check(case, buffers, turn)?;
        Ok(seconds)
    }

    /// A graph of some calls.
    fn record(&self, case: &Case, buffers: &Buffers) -> Answer<Graph> {
        // SAFETY: the stream is alive, and not being captured. The graph is destroyed once it is instantiated.
        unsafe {
            self.driver.stream_begin_capture(self.stream)?;
            let called = (0..case.unroll).try_for_each(|_| self.call(case, buffers));
            let graph = self.driver.stream_end_capture(self.stream)?;
            called?;
            let exec = self.driver.graph_instantiate(graph, GraphFlags::NONE)?;
            self.driver.graph_destroy(graph)?;
            self.driver.graph_upload(exec, self.stream)?;
            let driver = self.driver;
            Ok(Graph { driver, exec })
        }
    }
}

/// A recording.
struct Graph {
    driver: &'static Driver,
    exec: GraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is ours. The driver keeps what still runs.
        _ = unsafe { self.driver.graph_exec_destroy(self.exec) };
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: all of it is ours, or null, and the stream has nothing left to do. Errors change nothing any more.
        unsafe {
            _ = self.driver.stream_synchronize(self.stream);
            for buffers in [&self.plain, &self.windows] {
                for (memory, window) in buffers.memory.iter().zip(buffers.windows) {
                    if !window.is_null() {
                        (self.nccl.deregister)(self.comm, window);
                    }
                    if !memory.is_null() {
                        (self.nccl.free)(*memory);
                    }
                }
            }
            if !self.comm.is_null() {
                (self.nccl.destroy)(self.comm);
            }
            _ = self.driver.stream_destroy(self.stream);
        }
    }
}
