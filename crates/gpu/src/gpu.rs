//! One GPU: its context, and the rules that keep waits from blocking the job.
//!
//! # Model
//!
//! There is one [`Gpu`] for each device that a process uses. It lives as long as the process, and everything else in
//! this crate holds it. It has two streams of its own: the *service* stream for allocation, clearing and copies, and
//! the *alarm* stream, which can poison words while every other stream waits.
//!
//! # Rules
//!
//! - *Residency.* All blocks that wait must be resident, and must leave room for the kernels that peers wait for. The
//!   batches of all streams together get three blocks for four multiprocessors ([`SHARE`]), and each block needs at
//!   most half of a multiprocessor. A batch that is launched early stands beside the batch in front of it. So all
//!   waiting blocks are always resident, and a block of a user's kernel always finds room if it needs no more than half
//!   of a multiprocessor. A larger block may have to wait until a batch is over, so no peer may wait for it. And no
//!   kernel takes room before its turn while the batch in front of it waits for something that has no room yet
//!   (`last.rs`). A kernel that owns halves of windows waits with all of its blocks. It is launched only if they fit,
//!   and leave half of a multiprocessor, wherever they stand (`owners.rs`). On a multiprocessor to which a block that
//!   waits comes first, the shared memory is as large as it can be, so that half of it is left, too. A stream gets its
//!   quota of blocks with its first batch, and gives it back when the stream is dropped. If kernels of all processes on
//!   the GPU run at the same time, they must find room together, so each process gets a part of this share
//!   (`share.rs`).
//! - *Hardware queues.* Streams share them, and work behind a wait in a queue waits too, even if it is of another
//!   stream. So no more streams are made than there are queues ([`Limits::queues`]). A courier takes a queue, too
//!   (`courier.rs`).
//! - *Calls that block behind a wait.* Loading code is refused while a stream has work. The driver's memory for
//!   recordings is reserved in advance (`reserve.rs`). Pinned memory is never freed, but kept for the next stream.
//!   Pages of NICs stay registered until nothing waits (`registers.rs`). Device memory is freed by the stream-ordered
//!   allocator or by unmapping, and neither blocks.
//! - *Time slices.* If several processes of the job use the GPU in turn, waits have gates, so that no process spends its
//!   time slice on waiting (`gates.rs`).
//!
//! # The environment
//!
//! | variable | meaning |
//! |---|---|
//! | [`WAITING_STREAMS`] | how many streams of a device will wait |
//! | [`EARLY`] | how early batches, and kernels that wait by themselves, may be launched |
//! | [`COPY_ENGINE_FROM`] | from how many bytes on the puts of a lane go by the copy engines: a number, or `never`. The default is 4 MiB to other GPUs, and 24 MiB within one. It does not apply to recordings, nor to slots with two buffers |
//! | [`LAND_UP_TO`] | up to how many bytes a slot has a landing, where a put is found without waiting for its fence: a number; the default is 4096. From 257 bytes on, this also takes a free block. The smallest value of all ranks counts |
//! | [`REDUCE_UP_TO`] | the same for collectives that reduce all that comes, in one round: a number, at most 1048576; the default is 65536. Up to a block for each 4096 bytes |
//! | [`STRIKES`] | whether streams store to registers of NICs, if the GPU can reach them: `auto`, `no` |
//! | [`GATES`] | when waits have gates: `auto`, `always`, `never` |

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use tidegate_hal::batch::{Move, POISON, Side};
use tidegate_hal::device::{DeviceError, Priority};
use tidegate_hal::process::Process;
use tidegate_hal::tell;

pub(crate) use tidegate_hal::lock;

use crate::driver::{self, Doing, Driver, Function, Limits, Start, Stream, Vendor};
use crate::gates;
pub use crate::gates::GATES;
use crate::kernels::{Kernels, Stamped};
use crate::last::Early;
use crate::lower::Mirror;
pub use crate::lower::apart::COPY_ENGINE_FROM;
use crate::lower::apart::Crossover;
pub use crate::lower::folds::REDUCE_UP_TO;
pub use crate::lower::landings::LAND_UP_TO;
use crate::lower::operands::{self, Operands};
use crate::lower::{folds, landings};
use crate::pinned::{PAGE, Pinned, keep_from_children};
pub use crate::registers::STRIKES;
use crate::registers::{self, Registers};
use crate::reserve::Reserve;
use crate::share::{self, Admitable, Admitted};
pub use crate::share::{SHARE, WAITING_STREAMS};

/// The environment variable that says how early batches may be launched, if the device can begin a kernel early. `no`: never.
/// `launch`: when nothing in front of the batch waits any more. If it is not set: even while the batch in front still
/// waits. `no` also holds for kernels that wait by themselves.
pub const EARLY: &str = "TIDEGATE_GPU_EARLY";

/// How many mirrors are allocated at a time.
const MIRRORS: usize = 32;

/// One GPU, as this process uses it.
pub struct Gpu {
    /// Remembers which process opened the GPU: a forked child cannot use the driver, nor locks that other threads may
    /// have held.
    pub(crate) process: Process,
    pub(crate) driver: &'static dyn Driver,
    pub(crate) limits: Limits,
    pub(crate) kernels: Kernels,
    /// What streams that are stamped need. It is loaded when the first of them is made.
    pub(crate) stamped: Stamped,
    pub(crate) early: Early,
    /// From how many bytes on the puts of a lane go by the copy engines.
    pub(crate) copy_engine_from: Crossover,
    /// The largest slot that has a landing, in bytes.
    pub(crate) land_up_to: usize,
    /// The same where all that lands is reduced as it comes.
    pub(crate) reduce_up_to: usize,
    pub(crate) gates: gates::Mode,
    /// Whether waits have gates. If so, operands are counted.
    pub(crate) gated: AtomicBool,
    pub(crate) operands: operands::Shared,
    service: Mutex<Stream>,
    alarm: Mutex<Alarm>,
    pub(crate) admitted: Mutex<Admitted>,
    /// The number of times that quotas have been dealt. It changes when processes have come, and then streams need new
    /// quotas. It is changed under the lock of `admitted`.
    pub(crate) dealing: AtomicUsize,
    mirrors: Mutex<Vec<NonNull<Mirror>>>,
    pub(crate) pinned: Pinned,
    /// Whether streams may store to registers of NICs.
    pub(crate) strikes: bool,
    pub(crate) registers: Registers,
    pub(crate) reserve: Reserve,
}

// SAFETY: the pointers are to pinned memory that is never freed. One stream at a time uses each mirror.
unsafe impl Send for Gpu {}
// SAFETY: as above; the lists of the pointers are behind locks.
unsafe impl Sync for Gpu {}

struct Alarm {
    stream: Stream,
    /// Pinned bytes that the alarm stream copies from: the byte of poison, and the byte that means "stop".
    bytes: NonNull<u8>,
}

impl Gpu {
    /// The GPU for a rank's number: ranks take a vendor's devices in turn.
    pub(crate) fn open(vendor: &'static Vendor, number: usize) -> Result<Arc<Gpu>, DeviceError> {
        let count = (vendor.count)()?;
        if count == 0 {
            return Err(DeviceError::Missing {
                device: vendor.name,
                detail: "the driver lists no device".into(),
            });
        }
        let ordinal = number % count;
        type Opened = HashMap<(&'static str, usize), Arc<Gpu>>;
        static GPUS: OnceLock<Mutex<Opened>> = OnceLock::new();
        let mut gpus = lock(GPUS.get_or_init(Mutex::default));
        if let Some(gpu) = gpus.get(&(vendor.name, ordinal)) {
            return Ok(gpu.clone());
        }
        let gpu = Arc::new(Self::start((vendor.start)(ordinal)?)?);
        gpus.insert((vendor.name, ordinal), gpu.clone());
        Ok(gpu)
    }

    fn start(start: Start) -> Result<Gpu, DeviceError> {
        let Start {
            driver,
            limits,
            code,
            stamped,
        } = start;
        // Programs say which wave has which lane, so a wrong width would leave lanes out.
        if ![32, 64].contains(&limits.wave) {
            let what = format!("{} has waves of {} threads", limits.name, limits.wave);
            return Err(DeviceError::Unsupported {
                device: limits.vendor,
                what,
            });
        }
        let what = "starting the GPU";
        driver.enter().doing(what)?;
        let service = driver.stream_create(Priority::High).doing(what)?;
        let alarm = driver.stream_create(Priority::High).doing(what)?;
        let bytes = driver.pin(64).doing("allocating pinned memory")?;
        // SAFETY: 64 bytes were allocated.
        unsafe {
            bytes.as_ptr().write(Self::POISON_BYTE);
            bytes.as_ptr().add(1).write(1);
        }
        let early = match std::env::var(EARLY).as_deref() {
            _ if !limits.dependent_launch => Early::No,
            Ok("no") => Early::No,
            Ok("launch") => Early::Launch,
            _ => Early::Resident,
        };
        let variable = |name: &str| std::env::var(name).ok();
        let gates = gates::mode(variable(GATES).as_deref());
        let module = driver.load(&code)?;
        let kernels = Kernels::of(
            driver,
            module,
            [c"tidegate_batch", c"tidegate_reduce"],
            &limits,
        )?;
        let gpu = Gpu {
            process: Process::this(),
            driver,
            kernels,
            stamped: Stamped::new(stamped),
            early,
            copy_engine_from: Crossover::variable(variable(COPY_ENGINE_FROM).as_deref()),
            land_up_to: landings::up_to(variable(LAND_UP_TO).as_deref()),
            reduce_up_to: folds::up_to(variable(REDUCE_UP_TO).as_deref()),
            gates,
            gated: AtomicBool::new(false),
            operands: operands::Shared::default(),
            service: Mutex::new(service),
            alarm: Mutex::new(Alarm {
                stream: alarm,
                bytes,
            }),
            admitted: Mutex::new(Admitted::of(&limits, early)),
            dealing: AtomicUsize::new(0),
            mirrors: Mutex::default(),
            pinned: Pinned::default(),
            strikes: registers::strikes(variable(STRIKES).as_deref()),
            registers: Registers::default(),
            reserve: Reserve::default(),
            limits,
        };
        gpu.more_mirrors(&mut lock(&gpu.mirrors))?;
        gpu.reserve_recordings()?;
        let waits = share::terms(gpu.gates, gpu.alone(), gpu.limits.word_operations).waits;
        gpu.set_waits(waits, "they are asked for");
        Ok(gpu)
    }

    /// The byte of a word that is the poison. It contains nothing else.
    const POISON_BYTE: u8 = (tidegate_hal::batch::POISON >> 56) as u8;

    /// Whether a function is the batch kernel, stamped or not.
    pub(crate) fn is_batch(&self, function: Function) -> bool {
        let stamped = lock(&self.stamped.loaded);
        let mut all = [self.kernels]
            .into_iter()
            .chain(stamped.as_ref().map(|loaded| loaded.kernels));
        all.any(|kernels| kernels.contains(function))
    }

    /// Makes the context current to the calling thread.
    pub(crate) fn enter(&self) -> Result<(), DeviceError> {
        self.driver.enter().doing("entering the context")
    }

    /// Whether the source and the target of a copy are both memory of this GPU, whichever process allocated them. If
    /// the driver does not say, the answer is no.
    pub(crate) fn has_both(&self, copy: &Move) -> bool {
        let here = |side: &Side| self.driver.is_here(side.base.0.addr() as u64);
        self.enter().is_ok() && here(&copy.src) && here(&copy.dst)
    }

    /// Does one thing on the service stream, and waits until it is done. After an error it waits too, since some work
    /// may have been enqueued.
    pub(crate) fn serve<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&'static dyn Driver, Stream) -> driver::Result<T>,
    ) -> Result<T, DeviceError> {
        self.enter()?;
        let stream = lock(&self.service);
        let done = work(self.driver, *stream).doing(what);
        // SAFETY: the stream is never destroyed.
        let waited = unsafe { self.driver.stream_synchronize(*stream) }.doing(what);
        if waited.is_err() {
            // The enqueued work may still run, and the caller may now free the memory that it uses. (If the context is
            // lost, the driver does not report the stream as busy.)
            // SAFETY: as above.
            while let Ok(false) = unsafe { self.driver.stream_query(*stream) } {
                std::thread::yield_now();
            }
        }
        done.and_then(|value| waited.map(|()| value))
    }

    /// Like [`Gpu::serve`], but does not wait: for work that only has to come before later work of the service stream.
    pub(crate) fn serve_later(
        &self,
        work: impl FnOnce(&'static dyn Driver, Stream) -> driver::Result<()>,
    ) {
        if self.enter().is_ok() {
            let stream = lock(&self.service);
            // If giving back fails, the context is lost, and the memory with it.
            let _ = work(self.driver, *stream);
        }
    }

    /// Sets POISON in a word, even while all streams wait.
    ///
    /// # Safety
    ///
    /// `word` points to a live word that the device can reach.
    pub(crate) unsafe fn poison(&self, word: u64) {
        let at = std::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.pinned_word(at) } {
            // Threads of the host add to this word. (Nobody poisons doorbells, which the GPU stores to, from here.)
            word.fetch_or(POISON, Ordering::Release);
            return;
        }
        // The poison has the last byte (little endian) for itself, and adds never reach that byte. So writing it is
        // atomic with respect to adds.
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
            let source = alarm.bytes.as_ptr().wrapping_add(which);
            // SAFETY: the caller's promise for the target; the source is pinned, and lives as long as the process.
            unsafe { self.driver.poke(at, source, alarm.stream) }.doing("poisoning a word")
        });
        if let Err(error) = done {
            // Now no wait on this device ends by poison.
            tell(|| tracing::error!(%error, "a word could not be poisoned"));
        }
    }

    /// Zeroed memory of the host, at one address for both sides.
    pub(crate) fn pin(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError> {
        let whole = bytes
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| DeviceError::Exhausted {
                what: "pinned memory",
                detail: format!("{bytes} bytes"),
            })?;
        let base = match self.pinned.reuse(whole) {
            Some(base) => base,
            None => {
                self.enter()?;
                let base = self.driver.pin(whole).doing("allocating pinned memory")?;
                keep_from_children(base, whole);
                self.pinned.add(base, whole);
                base
            }
        };
        // SAFETY: the piece has at least this many bytes, and nobody else uses it.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        Ok(base)
    }

    /// The word at an address, if it lies in pinned memory. Threads of the host access such words directly.
    ///
    /// # Safety
    ///
    /// There is a live word at the address, for `'a`.
    pub(crate) unsafe fn pinned_word<'a>(&self, word: *mut u8) -> Option<&'a AtomicU64> {
        // SAFETY: the caller's promise; words are only accessed atomically.
        self.pinned
            .holds(word.addr())
            .then(|| unsafe { &*word.cast::<AtomicU64>() })
    }

    /// The counts that operands will have after all that is enqueued. They are kept only while waits have gates.
    pub(crate) fn operands(&self) -> MutexGuard<'_, Operands> {
        self.operands.lock()
    }

    /// Reads a word, even while all streams wait.
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
        let (at, from) = (&raw mut value, word);
        // SAFETY: the caller's promise; the value lives until the service stream is done. A copy of an aligned word is
        // not torn.
        let read = self.serve("reading a word", |driver, stream| unsafe {
            driver.copy_out(at.cast(), from, size_of::<u64>(), stream)
        });
        read.ok().map(|()| value)
    }

    /// Returns an error if a stream has work: the stream may wait for a peer, and `what` could block behind it.
    pub(crate) fn idle(&self, what: &'static str) -> Result<(), DeviceError> {
        self.is_idle().then_some(()).ok_or(DeviceError::Busy(what))
    }

    /// Whether no stream has work.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = self.streams().iter().all(|stream| stream.is_idle());
        idle && lock(&self.admitted).waiting_for_ever == 0
    }

    /// Lets the driver give up memory that it could not give up behind a wait.
    pub(crate) fn sweep_memory(&self) {
        if self.driver.has_left() && self.is_idle() && self.enter().is_ok() {
            self.driver.give_up();
        }
    }

    /// Whether no stream has work any more. If there is only one stream, this waits for it. The driver would wait for
    /// it as well, but with a lock that the call that ends the stream's waits also needs.
    pub(crate) fn quiet(&self) -> bool {
        if let [only] = self.streams().as_slice()
            && !only.is_capturing()
        {
            let _ = only.synchronize();
        }
        self.is_idle()
    }

    fn streams(&self) -> Vec<Arc<dyn Admitable>> {
        let admitted = lock(&self.admitted);
        admitted.streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// A mirror for a stream: pinned memory, zeroed.
    pub(crate) fn take_mirror(&self) -> Result<NonNull<Mirror>, DeviceError> {
        self.enter()?;
        let mut mirrors = lock(&self.mirrors);
        if mirrors.is_empty() {
            self.more_mirrors(&mut mirrors)?;
        }
        let mirror = mirrors.pop().expect("there are some now");
        // SAFETY: nobody else has this mirror, and all bytes are valid in a mirror.
        unsafe { mirror.as_ptr().write_bytes(0, 1) };
        Ok(mirror)
    }

    /// Takes a mirror back that no stream uses any more.
    pub(crate) fn return_mirror(&self, mirror: NonNull<Mirror>) {
        lock(&self.mirrors).push(mirror);
    }

    fn more_mirrors(&self, mirrors: &mut Vec<NonNull<Mirror>>) -> Result<(), DeviceError> {
        let memory = self
            .driver
            .pin(MIRRORS * size_of::<Mirror>())
            .doing("allocating pinned memory")?
            .cast::<Mirror>();
        keep_from_children(memory.cast(), MIRRORS * size_of::<Mirror>());
        mirrors.extend((0..MIRRORS).map(|index| {
            // SAFETY: `index` is less than the number of mirrors that were allocated.
            unsafe { memory.add(index) }
        }));
        Ok(())
    }
}
