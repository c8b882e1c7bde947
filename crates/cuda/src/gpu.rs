//! One GPU: its context, and the rules that keep waits from blocking the job.
//!
//! # Model
//!
//! There is one [`Gpu`] for each device that a process uses, for the life of the process; everything else of this crate
//! holds it. It has two streams of its own: the *service* stream for allocation, clearing and copies, and the *alarm*
//! stream, which poisons words while everything else may be waiting.
//!
//! # Rules
//!
//! - *Residency.* Blocks that wait must all be resident, and must leave room for the kernels that peers wait for. The
//!   batches of all streams together get three blocks for four multiprocessors ([`SHARE`]), each of half a
//!   multiprocessor at most; a batch that is launched early stands beside the one that it follows. So all of them are
//!   always resident, and a block of a user's kernel that needs no more than half of a multiprocessor always finds
//!   room. One that needs more may have to wait until a batch is over: it must not be what a peer waits for. And no
//!   kernel takes room before its turn while the batch in front of it waits for what has no room yet (`last.rs`). A
//!   stream gets its quota with its first batch, and gives it back when it is gone. Under MPS the kernels of all
//!   processes on the GPU must find room together: so each gets its part of this share (`share.rs`).
//! - *Hardware queues.* Streams share them, and what is behind a wait in one queue waits too, whichever stream it is
//!   of. There are 8 (under MPS 2), or as many as `CUDA_DEVICE_MAX_CONNECTIONS` says (up to 32; the launcher sets it).
//!   No more streams are made than there are queues. A courier takes one too (`courier.rs`).
//! - *Calls that block behind a wait.* Loading of code is refused while a stream has work. What recordings need is
//!   reserved (`reserve.rs`). Pinned memory is kept for the next stream, and never freed; pages of NICs stay registered
//!   until nothing waits (`registers.rs`). Memory of the device is freed by the stream-ordered allocator or by
//!   unmapping, which do not block.
//! - *Time slices.* Where several processes of the job use the GPU, without MPS, waits have gates, so that none of them
//!   keeps it from the others (`gates.rs`).
//!
//! # The environment
//!
//! | variable | what it says |
//! |---|---|
//! | [`QUEUES`] | how many hardware queues there are |
//! | [`WAITING_STREAMS`] | how many streams of a device will wait |
//! | [`EARLY`] | how early batches may be launched, and kernels that wait by themselves |
//! | [`COPY_ENGINE_FROM`] | from how many bytes on the puts of a lane go by the copy engines: a number, or `never`; 4 MiB to other GPUs, 24 MiB within one. Not in recordings, nor where a slot has two buffers |
//! | [`LAND_UP_TO`] | up to how many bytes a slot has a landing, where a put is found without waiting for its fence (from 257 bytes on: if there is a block for it): a number; 4096. The least of what the ranks say counts |
//! | [`STRIKES`] | whether streams store to registers of NICs, where those have some that the GPU reaches: `auto`, `no` |
//! | [`GATES`] | when waits have gates: `auto`, `always`, `never` |

use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use tidegate_ffi::cuda::{
    Context, ContextFlags, Device, DeviceAttribute, DevicePtr, Driver, Function, HostFlags, Module,
    PointerAttribute, Pool, PoolProps, Stream,
};
use tidegate_hal::batch::{Move, POISON, Side};
use tidegate_hal::device::DeviceError;
use tidegate_hal::process::Process;
use tidegate_hal::tell;

pub(crate) use tidegate_hal::lock;

use crate::error::Doing;
use crate::gates;
pub use crate::gates::GATES;
pub use crate::lower::apart::COPY_ENGINE_FROM;
use crate::lower::apart::Crossover;
use crate::lower::landings;
pub use crate::lower::landings::LAND_UP_TO;
use crate::lower::operands::{self, Operands};
use crate::lower::{Mirror, THREADS};
use crate::pinned::{Pinned, keep_from_children};
use crate::reclaim::Shared;
use crate::registers::{self, Registers};
use crate::reserve::Reserve;
use crate::share::{self, Admitted};
pub use crate::share::{QUEUES, SHARE, WAITING_STREAMS};

/// The environment variable that says how early batches may be launched, from compute capability 9.0 on: `no`, `launch`
/// (when nobody of what stands before it waits any more), or, if it is not set, while the batch before it waits, too. With `no` kernels that
/// wait by themselves are not launched early either.
pub const EARLY: &str = "TIDEGATE_CUDA_EARLY";

/// The environment variable that says whether streams store to registers of NICs: `auto` (if it is not set: wherever the
/// driver maps them), or `no`.
pub const STRIKES: &str = "TIDEGATE_CUDA_STRIKES";

/// What the environment of a process should say before its driver starts: as many hardware queues as there are, and
/// code loaded when it is asked for, not behind a wait. The launcher sets these for its ranks.
pub const ENVIRONMENT: [(&str, &str); 2] = [(QUEUES, "32"), ("CUDA_MODULE_LOADING", "EAGER")];

/// How many mirrors are allocated at a time.
const MIRRORS: usize = 32;

/// How early a batch may be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    No,
    /// When nobody of what stands before it waits any more.
    Launch,
    /// While the batch before it is at work, and waits.
    Resident,
}

/// One GPU, as this process uses it.
pub struct Gpu {
    /// Its children cannot use the driver, nor locks that other threads may have held.
    pub(crate) process: Process,
    pub(crate) driver: &'static Driver,
    pub(crate) device: Device,
    pub(crate) context: Context,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// Those that this process may use: of a portion, where MPS limits it to one.
    pub(crate) multiprocessors: usize,
    /// Whether MPS lets kernels of several processes run at the same time.
    pub(crate) mps: bool,
    pub(crate) capability: (u32, u32),
    pub(crate) pool: Pool,
    pub(crate) batch: Function,
    /// For batches whose lanes all reduce.
    pub(crate) reduce: Function,
    pub(crate) early: Early,
    /// Whether streams can wait for words of 64 bits, and write them.
    pub(crate) memory_operations: bool,
    /// From how many bytes on the puts of a lane go by the copy engines.
    pub(crate) copy_engine_from: Crossover,
    /// Up to how many bytes a slot has a landing.
    pub(crate) land_up_to: usize,
    pub(crate) gates: gates::Mode,
    /// Whether waits have gates, and operands are counted.
    pub(crate) gated: AtomicBool,
    pub(crate) operands: operands::Shared,
    service: Mutex<Stream>,
    alarm: Mutex<Alarm>,
    /// What the driver calls the highest priority.
    pub(crate) high_priority: i32,
    pub(crate) admitted: Mutex<Admitted>,
    /// The number of the dealing in which streams get their quotas: another, when processes have come. Changed under
    /// the lock of `admitted`.
    pub(crate) dealing: AtomicUsize,
    mirrors: Mutex<Vec<NonNull<Mirror>>>,
    pub(crate) pinned: Pinned,
    /// Whether streams may store to registers of NICs.
    pub(crate) strikes: bool,
    pub(crate) registers: Registers,
    pub(crate) reserve: Reserve,
}

// SAFETY: the pointers are to pinned memory that is never freed; each is in the hands of one stream at a time.
unsafe impl Send for Gpu {}
// SAFETY: as above, under the lock.
unsafe impl Sync for Gpu {}

struct Alarm {
    stream: Stream,
    /// Pinned bytes to copy from: the poison, and "stop".
    bytes: NonNull<u8>,
}

fn missing(detail: String) -> DeviceError {
    DeviceError::Missing {
        device: "cuda",
        detail,
    }
}

impl Gpu {
    /// The driver, ready.
    pub(crate) fn driver() -> Result<&'static Driver, DeviceError> {
        let driver = Driver::load().map_err(|error| missing(error.to_string()))?;
        driver.init().map_err(|error| missing(error.to_string()))?;
        Ok(driver)
    }

    /// The GPU for a number: ranks take the devices by turns.
    pub(crate) fn open(number: usize) -> Result<Arc<Gpu>, DeviceError> {
        let driver = Self::driver()?;
        let count = driver
            .device_count()
            .map_err(|error| missing(error.to_string()))?;
        if count == 0 {
            return Err(missing("the driver lists no device".into()));
        }
        let ordinal = (number % count) as i32;
        static GPUS: OnceLock<Mutex<HashMap<i32, Arc<Gpu>>>> = OnceLock::new();
        let mut gpus = lock(GPUS.get_or_init(Mutex::default));
        if let Some(gpu) = gpus.get(&ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Arc::new(Self::start(driver, ordinal)?);
        gpus.insert(ordinal, gpu.clone());
        Ok(gpu)
    }

    fn start(driver: &'static Driver, ordinal: i32) -> Result<Gpu, DeviceError> {
        let what = "starting the GPU";
        let device = driver.device(ordinal).doing(what)?;
        let attribute = |attribute| driver.device_attribute(device, attribute).doing(what);
        let major = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let name = driver.device_name(device).doing(what)?;
        if major < 8 {
            return Err(DeviceError::Unsupported {
                device: "cuda",
                what: format!("{name} has compute capability {major}.x; 8.0 is needed"),
            });
        }
        // A driver that does not know the question (before CUDA 12.3 or so) counts as without MPS: waits have gates then.
        let mps =
            attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|on| on != 0);
        // The driver spins or yields, by how many processors there are. Not ours to insist on: the context may be in use.
        let _ = driver.primary_ctx_set_flags(device, ContextFlags::SCHED_AUTO);
        let context = driver.primary_ctx_retain(device);
        let context = context.map_err(|error| share::no_context(what, error))?;
        // SAFETY: the context was just retained, and is never released.
        unsafe { driver.ctx_set_current(context) }.doing(what)?;
        let multiprocessors = share::multiprocessors(
            attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            driver.ctx_multiprocessors().ok().filter(|_| mps),
        );
        let (_, greatest) = driver.ctx_stream_priority_range().doing(what)?;
        let service = driver.stream_create(greatest).doing(what)?;
        let alarm = driver.stream_create(greatest).doing(what)?;
        let flags = HostFlags::PORTABLE | HostFlags::DEVICE_MAP;
        let bytes: NonNull<u8> = driver
            .mem_host_alloc(64, flags)
            .doing("allocating pinned memory")?
            .cast();
        // SAFETY: 64 bytes were allocated.
        unsafe {
            bytes.as_ptr().write(Self::POISON_BYTE);
            bytes.as_ptr().add(1).write(1);
        }
        let pool = driver
            .mem_pool_create(&PoolProps::pinned(device))
            .doing(what)?;
        // Kept for the next allocation: giving it back costs a synchronisation.
        // SAFETY: the pool was just made.
        unsafe { driver.mem_pool_set_release_threshold(pool, u64::MAX) }.doing(what)?;
        let early = match std::env::var(EARLY).as_deref() {
            _ if major < 9 => Early::No,
            Ok("no") => Early::No,
            Ok("launch") => Early::Launch,
            _ => Early::Resident,
        };
        // An older driver does not know the question.
        let memory_operations =
            attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
                .is_ok_and(|can| can != 0);
        let variable = |name: &str| std::env::var(name).ok();
        let gates = gates::mode(variable(GATES).as_deref());
        let code = if major >= 9 {
            tidegate_kernels::BATCH_SM_90_PTX
        } else {
            tidegate_kernels::BATCH_PTX
        };
        let code = std::ffi::CString::new(code).expect("PTX has no zero bytes");
        let module = driver
            .module_load_ptx(&code)
            .doing("loading the batch kernel")?;
        let (batch, resident) = Self::kernel(driver, module, c"tidegate_batch")?;
        let (reduce, _) = Self::kernel(driver, module, c"tidegate_reduce")?;
        if resident == 0 {
            return Err(DeviceError::Unsupported {
                device: "cuda",
                what: format!(
                    "a block of the batch kernel does not fit a multiprocessor of {name}"
                ),
            });
        }
        let gpu = Gpu {
            process: Process::this(),
            driver,
            device,
            context,
            uuid: driver.device_uuid(device).doing(what)?,
            name,
            multiprocessors,
            mps,
            capability: (major as u32, minor.max(0) as u32),
            pool,
            batch,
            reduce,
            early,
            memory_operations,
            copy_engine_from: Crossover::variable(variable(COPY_ENGINE_FROM).as_deref()),
            land_up_to: landings::up_to(variable(LAND_UP_TO).as_deref()),
            gates,
            gated: AtomicBool::new(false),
            operands: operands::Shared::default(),
            service: Mutex::new(service),
            high_priority: greatest,
            alarm: Mutex::new(Alarm {
                stream: alarm,
                bytes,
            }),
            admitted: Mutex::new(Admitted::of(multiprocessors)),
            dealing: AtomicUsize::new(0),
            mirrors: Mutex::default(),
            pinned: Pinned::default(),
            strikes: registers::strikes(variable(STRIKES).as_deref()),
            registers: Registers::default(),
            reserve: Reserve::default(),
        };
        gpu.more_mirrors(&mut lock(&gpu.mirrors))?;
        gpu.reserve_recordings()?;
        let (gates, can) = (gpu.gates, gpu.memory_operations);
        gpu.set_waits(
            share::terms(gates, gpu.alone(), can).waits,
            "they are asked for",
        );
        Ok(gpu)
    }

    /// A kernel of the module, ready, and how many blocks of it a multiprocessor holds.
    fn kernel(
        driver: &'static Driver,
        module: Module,
        name: &CStr,
    ) -> Result<(Function, u32), DeviceError> {
        let what = "loading the batch kernel";
        // SAFETY: the module is never unloaded.
        let function = unsafe { driver.module_function(module, name) }.doing(what)?;
        // SAFETY: as above. Where the driver cannot do it, the first launch does.
        let _ = unsafe { driver.func_load(function) };
        // SAFETY: as above.
        let resident =
            unsafe { driver.max_active_blocks_per_multiprocessor(function, THREADS as u32, 0) }
                .doing(what)?;
        Ok((function, resident))
    }

    /// The byte of a word in which the poison stands, alone.
    const POISON_BYTE: u8 = (tidegate_hal::batch::POISON >> 56) as u8;

    /// Makes the context current to the calling thread.
    pub(crate) fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is never released.
        unsafe { self.driver.ctx_set_current(self.context) }.doing("entering the context")
    }

    /// Whether source and target of a copy are memory of this GPU, whoever has allocated it. What the driver does not
    /// tell counts as another's.
    pub(crate) fn has_both(&self, copy: &Move) -> bool {
        // `CU_MEMORYTYPE_DEVICE`: pinned memory of the host may have an ordinal, too.
        const OF_A_GPU: u64 = 2;
        let is = |side: &Side, attribute, wanted: u64| {
            let at = DevicePtr(side.base.0.addr() as u64);
            self.driver.pointer_attribute(at, attribute) == Ok(wanted)
        };
        let here = |side| {
            is(
                side,
                PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                OF_A_GPU,
            ) && is(
                side,
                PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                self.device.0 as u64,
            )
        };
        self.enter().is_ok() && here(&copy.src) && here(&copy.dst)
    }

    /// Does one thing on the service stream, and waits until it is done: after an error, too, if it was enqueued.
    pub(crate) fn serve<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&'static Driver, Stream) -> Result<T, tidegate_ffi::cuda::CudaError>,
    ) -> Result<T, DeviceError> {
        self.enter()?;
        let stream = lock(&self.service);
        let value = work(self.driver, *stream).doing(what)?;
        // SAFETY: the stream is never destroyed.
        let waited = unsafe { self.driver.stream_synchronize(*stream) }.doing(what);
        if waited.is_err() {
            // What was enqueued is under way, and the caller may give back now what the device is at work on. (Of a context
            // that is lost the driver does not say that it is at work.)
            // SAFETY: as above.
            while let Ok(false) = unsafe { self.driver.stream_query(*stream) } {
                std::thread::yield_now();
            }
        }
        waited.map(|()| value)
    }

    /// As [`Gpu::serve`], without waiting: for what is only to be ordered before what follows on the service stream.
    pub(crate) fn serve_later(
        &self,
        work: impl FnOnce(&'static Driver, Stream) -> Result<(), tidegate_ffi::cuda::CudaError>,
    ) {
        if self.enter().is_ok() {
            let stream = lock(&self.service);
            // What cannot be given back is lost, as is the context then.
            let _ = work(self.driver, *stream);
        }
    }

    /// Sets POISON in a word, whatever streams are doing.
    ///
    /// # Safety
    ///
    /// `word` points to a live word that the device can reach.
    pub(crate) unsafe fn poison(&self, word: u64) {
        let at = std::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.pinned_word(at) } {
            // Threads of the host add to it. (Doorbells, which the GPU stores to, nobody poisons from here.)
            word.fetch_or(POISON, Ordering::Release);
            return;
        }
        // The poison stands alone in the last byte (little endian), and adds never reach it: so writing that byte is
        // atomic with them.
        // SAFETY: the caller's promise.
        unsafe { self.ring_alarm(word + 7, 0) };
    }

    /// Tells the waits of a stream to end.
    ///
    /// # Safety
    ///
    /// `state` is the address of a live [`crate::lower::State`].
    pub(crate) unsafe fn stop(&self, state: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.ring_alarm(state + 1, 1) };
    }

    /// # Safety
    ///
    /// `at` is the address of a live byte that the device can reach.
    unsafe fn ring_alarm(&self, at: u64, which: usize) {
        let done = self.enter().and_then(|()| {
            let alarm = lock(&self.alarm);
            let source = alarm.bytes.as_ptr().wrapping_add(which).cast();
            // SAFETY: the caller's promise for the target; the source is pinned, and lives as long as the process.
            unsafe {
                self.driver
                    .memcpy_htod_async(DevicePtr(at), source, 1, alarm.stream)
                    .doing("poisoning a word")?;
                self.driver
                    .stream_synchronize(alarm.stream)
                    .doing("poisoning a word")
            }
        });
        if let Err(error) = done {
            // Then nothing on this device comes to an end that is not over already.
            tell(|| tracing::error!(%error, "a word could not be poisoned"));
        }
    }

    /// How far operands will have come. Only kept where waits have gates.
    pub(crate) fn operands(&self) -> MutexGuard<'_, Operands> {
        self.operands.lock()
    }

    /// What a word says now, whatever streams are doing.
    ///
    /// # Safety
    ///
    /// `word` is the address of a live word that the device can reach.
    pub(crate) unsafe fn look_at(&self, word: u64) -> Option<u64> {
        let at = std::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.pinned_word(at) } {
            return Some(word.load(Ordering::Acquire));
        }
        let mut value = 0u64;
        let (at, from) = (&raw mut value, DevicePtr(word));
        // SAFETY: the caller's promise; the value lives until the service stream is done. A copy of an aligned word is not torn.
        let read = self.serve("reading a word", |driver, stream| unsafe {
            driver.memcpy_dtoh_async(at.cast(), from, size_of::<u64>(), stream)
        });
        read.ok().map(|()| value)
    }

    /// An error if a stream has work: it may be waiting, and `what` could block behind it.
    pub(crate) fn idle(&self, what: &'static str) -> Result<(), DeviceError> {
        self.is_idle().then_some(()).ok_or(DeviceError::Busy(what))
    }

    /// Whether no stream has work.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = self.streams().iter().all(|stream| stream.is_idle());
        idle && lock(&self.admitted).waiting_for_ever == 0
    }

    /// Whether no stream has work any more. If there is but one it is waited for: what the driver does only when the
    /// device is idle would wait as well, but with a lock that whoever ends the stream's waits needs, too.
    pub(crate) fn quiet(&self) -> bool {
        if let [only] = self.streams().as_slice()
            && !only.is_capturing()
        {
            let _ = only.synchronize();
        }
        self.is_idle()
    }

    fn streams(&self) -> Vec<Arc<Shared>> {
        let admitted = lock(&self.admitted);
        admitted.streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// A mirror for a stream: pinned, zeroed.
    pub(crate) fn take_mirror(&self) -> Result<NonNull<Mirror>, DeviceError> {
        self.enter()?;
        let mut mirrors = lock(&self.mirrors);
        if mirrors.is_empty() {
            self.more_mirrors(&mut mirrors)?;
        }
        let mirror = mirrors.pop().expect("there are some now");
        // SAFETY: it is nobody's now; any bytes are a mirror.
        unsafe { mirror.as_ptr().write_bytes(0, 1) };
        Ok(mirror)
    }

    /// Takes a mirror back that no stream uses any more.
    pub(crate) fn return_mirror(&self, mirror: NonNull<Mirror>) {
        lock(&self.mirrors).push(mirror);
    }

    fn more_mirrors(&self, mirrors: &mut Vec<NonNull<Mirror>>) -> Result<(), DeviceError> {
        let flags = HostFlags::PORTABLE | HostFlags::DEVICE_MAP;
        let memory = self
            .driver
            .mem_host_alloc(MIRRORS * size_of::<Mirror>(), flags)
            .doing("allocating pinned memory")?
            .cast::<Mirror>();
        keep_from_children(memory.cast(), MIRRORS * size_of::<Mirror>());
        mirrors.extend((0..MIRRORS).map(|index| {
            // SAFETY: there are so many.
            unsafe { memory.add(index) }
        }));
        Ok(())
    }
}
