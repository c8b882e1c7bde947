//! The collectives of NCCL, by a library that is loaded at run time.
//!
//! # Model
//!
//! A [`Nccl`] is a communicator of a team, with two sets of buffers from NCCL's own allocator. One set is registered
//! as symmetric windows, for which NCCL has kernels of its own. Calls are enqueued on a stream of the communicator's, or
//! captured from it. Everything lives in the primary context of the rank's GPU, like the memory of this library.
//!
//! NCCL has no call for rows whose numbers only the stream knows. Whole blocks can go, with the numbers beside them. Or
//! the numbers go first, and the host waits for them and sends as many rows. A recording can only do the former.
//!
//! This library puts up to 64 replays of a recording into one graph of the driver (`tidegate_gpu`'s `graph.rs`). A
//! graph of NCCL's calls has as many replays as that or more ([`launches`]), so NCCL's recorded calls need as few
//! launches.
//!
//! # Failure
//!
//! Errors are texts with the call and NCCL's words for it.

use super::args::{By, NUMBER};
use super::case::Case;
use super::kind::{Kind, all_sent, clear_unsent, rows};
use super::table::Measured;
use libloading::Library;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::Instant;
use tidegate_core::{Team, World};
use tidegate_cuda::Cuda;
use tidegate_ffi::cuda::{Context, DevicePtr, Driver, GraphExec, GraphFlags, HostFlags, Stream};

/// The variable that names the library.
const LIBRARY: &str = "NCCL_LIBRARY";

type Answer<T> = Result<T, Box<dyn Error>>;
type Comm = *mut c_void;
type RawStream = *mut c_void;
/// `ncclUniqueId`.
type Id = [u8; 128];
/// `ncclFloat32`, `ncclUint64`, `ncclSum`, `NCCL_WIN_COLL_SYMMETRIC`.
const FLOAT: c_int = 7;
const COUNT: c_int = 5;
const SUM: c_int = 0;
const SYMMETRIC: c_int = 1;
/// Bytes of a number of rows.
const COUNT_BYTES: usize = size_of::<u64>();

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
    send: "ncclSend" (*const c_void, usize, c_int, c_int, Comm, RawStream);
    recv: "ncclRecv" (*mut c_void, usize, c_int, c_int, Comm, RawStream);
    group_start: "ncclGroupStart" ();
    group_end: "ncclGroupEnd" ();
}

/// Memory of a GPU: the input and the output of a call, rows that have come to an expert, and numbers of rows. Those are
/// the numbers that this rank sends, those that have come with the rows, and those that have come back.
struct Buffers {
    memory: [*mut c_void; 4],
    windows: [*mut c_void; 4],
}

/// A communicator of a team.
pub(super) struct Nccl {
    nccl: Functions,
    driver: &'static Driver,
    comm: Comm,
    stream: Stream,
    plain: Buffers,
    windows: Buffers,
    bytes: usize,
    /// Pinned memory for the numbers of rows that this rank sends, and that come. It stays until the process ends.
    counts: NonNull<u64>,
}

impl Nccl {
    /// Makes a communicator of a team's ranks, with buffers of so many bytes; collective over them.
    pub(super) fn new(team: &Team<Cuda>, bytes: usize) -> Answer<Nccl> {
        let driver = Driver::load()?;
        let device = driver.device(team.world().device().ordinal() as i32)?;
        let context: Context = driver.primary_ctx_retain(device)?;
        // SAFETY: the context was just retained, and is never released.
        unsafe { driver.ctx_set_current(context)? };
        let stream = driver.stream_create(0)?;
        let nccl = Functions::load()?;
        let none = Buffers {
            memory: [ptr::null_mut(); 4],
            windows: [ptr::null_mut(); 4],
        };
        let counts = driver.mem_host_alloc(2 * team.size() * COUNT_BYTES, HostFlags::default())?;
        let mut made = Nccl {
            nccl,
            driver,
            comm: ptr::null_mut(),
            stream,
            plain: Buffers { ..none },
            windows: none,
            bytes,
            counts: counts.cast(),
        };
        let mut id = UniqueId([0; 128]);
        if team.rank() == 0 {
            // SAFETY: there is room for an id.
            made.told("ncclGetUniqueId", unsafe { (made.nccl.unique_id)(&mut id) })?;
        }
        let ids = team.all_gather("nccl id", id.0.to_vec())?;
        id.0.copy_from_slice(&ids[0]);
        let (ranks, rank) = (team.size() as c_int, team.rank() as c_int);
        // SAFETY: the context of this rank's GPU is current, and the id is that of the first rank.
        let code = unsafe { (made.nccl.init_rank)(&mut made.comm, ranks, id, rank) };
        made.told("ncclCommInitRank", code)?;
        for windows in [false, true] {
            for at in 0..4 {
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
    fn call(&self, by: By, case: &Case, buffers: &Buffers) -> Answer<()> {
        let [x, y, ..] = buffers.memory;
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
                Kind::DispatchCombine if by == By::NcclCounts => return self.rows(case, buffers),
                Kind::DispatchCombine => return self.blocks(case, buffers),
                Kind::Barrier | Kind::Scan => return Err("NCCL does not have it".into()),
            }
        };
        Ok(self.told(&case.kind.name(), code)?)
    }

    /// Calls that NCCL makes one kernel of.
    fn group(&self, calls: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        // SAFETY: a group is of this thread, and ends below.
        self.told("ncclGroupStart", unsafe { (self.nccl.group_start)() })?;
        let called = calls();
        // SAFETY: the group was just begun.
        self.told("ncclGroupEnd", unsafe { (self.nccl.group_end)() })?;
        called
    }

    /// Numbers of rows of a rank's, by which the buffers begin: those that it sends, that have come, that are back.
    fn numbers(&self, case: &Case, buffers: &Buffers, which: usize) -> *mut c_void {
        buffers.memory[3].wrapping_byte_add(which * case.ranks * COUNT_BYTES)
    }

    /// Blocks that go whole, and the numbers of their rows.
    fn blocks(&self, case: &Case, buffers: &Buffers) -> Answer<()> {
        let [x, y, came, _] = buffers.memory;
        let (comm, stream) = (self.comm, self.stream.as_raw().cast());
        let all = |from, to, n, kind| {
            // SAFETY: communicator and stream are alive; the buffers have room for the blocks, which `measure` has
            // compared, and for the numbers.
            let code = unsafe { (self.nccl.all_to_all)(from, to, n, kind, comm, stream) };
            self.told("ncclAlltoAll", code)
        };
        for (turn, from, to) in [(0, x, came), (1, came, y)] {
            let [counts, received] = [turn, turn + 1].map(|at| self.numbers(case, buffers, at));
            self.group(|| {
                all(counts, received, 1, COUNT)?;
                all(from, to, case.count, FLOAT)
            })?;
        }
        Ok(())
    }

    /// The numbers of rows; then, once the host knows them, so many rows, and back.
    fn rows(&self, case: &Case, buffers: &Buffers) -> Answer<()> {
        let [x, y, came, counts] = buffers.memory;
        let (comm, stream) = (self.comm, self.stream.as_raw().cast());
        let received = self.numbers(case, buffers, 1);
        // SAFETY: as in `blocks`. The pinned memory has room for the numbers of both directions, and is read below, when
        // the copy is over.
        let known = unsafe {
            let code = (self.nccl.all_to_all)(counts, received, 1, COUNT, comm, stream);
            self.told("ncclAlltoAll", code)?;
            let (to, from) = (self.counts.cast(), DevicePtr(counts as u64));
            let bytes = 2 * case.ranks * COUNT_BYTES;
            self.driver
                .memcpy_dtoh_async(to.as_ptr(), from, bytes, self.stream)?;
            self.synchronize()?;
            std::slice::from_raw_parts(self.counts.as_ptr(), 2 * case.ranks)
        };
        let (sends, comes) = known.split_at(case.ranks);
        let (most, width) = rows(case.count);
        if known.iter().any(|rows| *rows > most as u64) {
            return Err(format!("numbers of rows are wrong: {known:?}").into());
        }
        let both = |from: *mut c_void, sends: &[u64], to: *mut c_void, comes: &[u64]| {
            self.group(|| {
                for (rank, (sends, comes)) in sends.iter().zip(comes).enumerate() {
                    let block = rank * case.count * NUMBER;
                    let [sends, comes] = [sends, comes].map(|rows| *rows as usize * width);
                    let (from, to, rank) = (
                        from.wrapping_byte_add(block),
                        to.wrapping_byte_add(block),
                        rank as c_int,
                    );
                    // SAFETY: no block is longer than the buffers have room for: no number of rows is greater than
                    // that of a block.
                    let codes = unsafe {
                        let sent = (self.nccl.send)(from, sends, FLOAT, rank, comm, stream);
                        [sent, (self.nccl.recv)(to, comes, FLOAT, rank, comm, stream)]
                    };
                    self.told("ncclSend", codes[0])?;
                    self.told("ncclRecv", codes[1])?;
                }
                Ok(())
            })
        };
        both(x, sends, came, comes)?;
        Ok(both(came, comes, y, sends)?)
    }

    fn synchronize(&self) -> Answer<()> {
        // SAFETY: the stream is alive.
        Ok(unsafe { self.driver.stream_synchronize(self.stream) }?)
    }

    /// Writes what this rank brings.
    fn write(&self, case: &Case, buffers: &Buffers, turn: u32) -> Answer<()> {
        let counts: Vec<_> = match case.kind {
            Kind::DispatchCombine => all_sent(case.rank, case.ranks, case.count),
            _ => Vec::new(),
        };
        let [x, y] = &*case.brings(turn);
        let numbers = [x, y].map(|of| (of.as_ptr().cast(), size_of_val(of.as_slice())));
        let counts = (counts.as_ptr().cast(), size_of_val(&*counts));
        let [to_x, to_y, _, to_counts] = buffers.memory;
        for (to, (from, bytes)) in [to_x, to_y, to_counts]
            .into_iter()
            .zip([numbers[0], numbers[1], counts])
        {
            if bytes != 0 {
                let to = DevicePtr(to as u64);
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
    fn check(&self, by: By, case: &Case, buffers: &Buffers, turn: u32) -> Answer<()> {
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
        // Blocks that went whole bring the rest of their rows back, too. Nobody asked for it.
        if case.kind == Kind::DispatchCombine && by != By::NcclCounts {
            clear_unsent(case.rank, case.count, &mut found);
        }
        Ok(case.check(turn, 1, &found)?)
    }

    /// Measures all calls, on this rank; collective.
    pub(super) fn measure(&self, world: &World<Cuda>, by: By, case: &Case) -> Answer<Measured> {
        let buffers = match by {
            By::NcclWindows | By::NcclWindowsGraph => &self.windows,
            _ => &self.plain,
        };
        let (input, output) = case.lengths();
        let numbers = 3 * case.ranks * COUNT_BYTES;
        if (input.max(output) * NUMBER).max(numbers) > self.bytes {
            return Err("the buffers are too short".into());
        }
        // By how many replays each has.
        let mut graphs: BTreeMap<u64, Graph> = BTreeMap::new();
        if by.is_graph() {
            let all = launches(case.calls / case.unroll);
            let all = all.into_iter().filter(|(_, launches)| *launches > 0);
            for replays in [1].into_iter().chain(all.map(|(replays, _)| replays)) {
                if let Entry::Vacant(place) = graphs.entry(replays) {
                    place.insert(self.record(by, case, buffers, replays * case.unroll)?);
                }
            }
        }
        let times = |count: u64| -> Answer<()> {
            if !by.is_graph() {
                return (0..count).try_for_each(|_| self.call(by, case, buffers));
            }
            for (replays, launches) in launches(count / case.unroll) {
                for _ in 0..launches {
                    // SAFETY: the graph and the stream are alive.
                    unsafe {
                        self.driver
                            .graph_launch(graphs[&replays].exec, self.stream)?
                    };
                }
            }
            Ok(())
        };
        for turn in 1..=case.turns() {
            self.write(case, buffers, turn)?;
            world.all_gather("written", Vec::new())?;
            times(case.unroll)?;
            self.synchronize()?;
            self.check(by, case, buffers, turn)?;
        }
        let turn = case.turns();
        world.all_gather("measured", Vec::new())?;
        // Each graph is launched before the clock starts.
        times(match by.is_graph() {
            true => case.calls,
            false => case.ahead(),
        })?;
        self.synchronize()?;
        let start = Instant::now();
        times(case.calls)?;
        self.synchronize()?;
        let seconds = start.elapsed().as_secs_f64();
        self.check(by, case, buffers, turn)?;
        // NCCL launches other calls in another way as long as there is a graph. So the calls that are enqueued are
        // recorded behind the clock. Where the host waits in a call, it cannot be recorded.
        let blocks = match graphs.get(&1) {
            Some(graph) => Some(graph.blocks),
            None if by == By::NcclCounts => None,
            None => Some(self.record(by, case, buffers, case.unroll)?.blocks),
        };
        Ok(Measured { seconds, blocks })
    }

    /// A graph of so many calls.
    fn record(&self, by: By, case: &Case, buffers: &Buffers, calls: u64) -> Answer<Graph> {
        // SAFETY: the stream is alive, and not being captured. The graph is destroyed once it is instantiated.
        unsafe {
            self.driver.stream_begin_capture(self.stream)?;
            let called = (0..calls).try_for_each(|_| self.call(by, case, buffers));
            let graph = self.driver.stream_end_capture(self.stream)?;
            called?;
            let driver = self.driver;
            let exec = driver.graph_instantiate(graph, GraphFlags::NONE)?;
            let mut blocks = 0;
            for node in driver.graph_nodes(graph)? {
                let kernel = driver.graph_kernel_node(node)?;
                blocks = blocks.max(kernel.map_or(0, |kernel| kernel.blocks()));
            }
            driver.graph_destroy(graph)?;
            driver.graph_upload(exec, self.stream)?;
            Ok(Graph {
                driver,
                exec,
                blocks,
            })
        }
    }
}

/// The most replays of a recording that this library puts into one graph.
const MOST: u64 = 64;

/// By which graphs `replays` replays are launched: how many replays each has, and how often it is launched.
fn launches(replays: u64) -> [(u64, u64); 2] {
    let rest = replays % MOST;
    [(MOST, replays / MOST), (rest, u64::from(rest != 0))]
}

/// A recording.
struct Graph {
    driver: &'static Driver,
    exec: GraphExec,
    /// The blocks of its widest kernel. NCCL has one for each of its channels that a call uses.
    blocks: usize,
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

#[cfg(test)]
mod tests {
    use super::launches;

    /// No division into graphs of at most 64 replays needs fewer launches.
    #[test]
    fn recordings_need_as_few_launches_as_ours() {
        for replays in [0, 1, 10, 63, 64, 65, 100, 128, 1000] {
            let made = launches(replays);
            let sum: u64 = made.iter().map(|(each, times)| each * times).sum();
            let count: u64 = made.iter().map(|(_, times)| times).sum();
            assert_eq!((sum, count), (replays, replays.div_ceil(64)));
        }
    }
}
