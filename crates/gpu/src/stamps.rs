//! Stamps of a stream: the ring that its kernels write, and from which tools take them.
//!
//! # Model
//!
//! A stream that is stamped launches the batch kernel of `kernels/stamped.cu` instead. That one writes a stamp for each
//! leg of a lane to a ring in pinned memory (`kernels/batch_stamps.cuh`), in recordings, too. Such a recording stamps
//! in every replay, on whichever stream. The reader looks whether the next stamp has its number, and then tells the
//! kernels that the place is free. It calls nothing of the driver.
//!
//! The code is loaded when the first such stream of a GPU is made. Then, and when such a stream is synchronised, the
//! GPU's clock is compared with the host's ([`crate::clock`]).
//!
//! If waits have gates (`gates.rs`), the kernel begins when its gate is open. So the leg begins then, and its wait seems
//! short.
//!
//! # Failure
//!
//! If the reader does not come, the kernels count what they cannot write. They never wait for it.

use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::device::DeviceError;
use tidegate_hal::stamps::{Leg, Stamp, Stamps};

use crate::clock::{Clock, LATER, PATIENCE};
use crate::gpu::{Gpu, lock};
use crate::kernels::{Kernels, Loaded, function};
use crate::lower::{RawStamp, RingHead, StampState, State};
use crate::pinned::PAGE;

/// How many stamps a ring holds.
const SLOTS: u64 = 1 << 14;

/// The names of the functions that `kernels/stamped.cu` has: for batches, for those of which a lane reduces, and the clock.
const NAMES: ([&CStr; 2], &CStr) = (
    [c"tidegate_batch_stamped", c"tidegate_reduce_stamped"],
    c"tidegate_clock",
);

/// The stamps of one stream.
pub(crate) struct Ring {
    gpu: Arc<Gpu>,
    pub(crate) loaded: Arc<Loaded>,
    /// Pinned memory: a head, and then the stamps.
    base: NonNull<RingHead>,
    /// How many stamps were taken.
    taken: Mutex<u64>,
}

// SAFETY: the pointer is to pinned memory that is this value's alone. Kernels write a stamp before they store its
// number, which is accessed atomically, and not again before `taken` says so.
unsafe impl Send for Ring {}
// SAFETY: as above. One thread at a time reads, under the lock.
unsafe impl Sync for Ring {}

impl Gpu {
    /// What streams that are stamped need. It is loaded at the first call.
    fn stamped(&self) -> Result<Arc<Loaded>, DeviceError> {
        let mut loaded = lock(&self.stamped.loaded);
        if let Some(loaded) = &*loaded {
            return Ok(loaded.clone());
        }
        self.idle("loading the kernel for stamps")?;
        self.enter()?;
        let module = self.driver.load(&self.stamped.code)?;
        let (names, clock) = NAMES;
        let made = Arc::new(Loaded {
            kernels: Kernels::of(self.driver, module, names, &self.limits)?,
            clock: Clock::new(
                function(self.driver, module, clock, &self.limits)?.0,
                self.pin(PAGE)?.cast(),
            ),
        });
        // SAFETY: nothing on the service stream waits, and it is never destroyed; the clock was made for this GPU, in
        // pinned memory that is never freed.
        self.serve("comparing clocks", |driver, stream| unsafe {
            made.clock.ask(driver, stream, PATIENCE)
        })?;
        Ok(loaded.insert(made).clone())
    }
}

impl Ring {
    /// A ring for a stream whose state is at this address, and which has no work yet.
    pub(crate) fn new(gpu: &Arc<Gpu>, state: u64) -> Result<Arc<Self>, DeviceError> {
        let loaded = gpu.stamped()?;
        let bytes = size_of::<RingHead>() + SLOTS as usize * size_of::<RawStamp>();
        let ring = Ring {
            gpu: gpu.clone(),
            loaded,
            base: gpu.pin(bytes)?.cast(),
            taken: Mutex::new(0),
        };
        let stamps = StampState {
            // Pinned memory has one address, on the host and on devices.
            ring: ring.base.as_ptr().addr() as u64,
            slots: SLOTS,
            ..StampState::default()
        };
        let to = state + offset_of!(State, stamps) as u64;
        // SAFETY: the state is live, and nothing uses it yet; the source lives until the service stream is done.
        gpu.serve("setting up stamps", |driver, stream| unsafe {
            let from = std::ptr::from_ref(&stamps).cast();
            driver.copy_in(to, from, size_of::<StampState>(), stream)
        })?;
        ring.compare_clocks();
        Ok(Arc::new(ring))
    }

    /// Compares the clocks, if that was long ago. If the GPU has no room for the kernel, the error of the times grows.
    fn compare_clocks(&self) {
        if self.loaded.clock.is_old() {
            // SAFETY: as in `Gpu::stamped`.
            self.gpu.serve_later(|driver, stream| unsafe {
                self.loaded.clock.ask(driver, stream, LATER)
            });
        }
    }

    /// Copies the stamp that is next in the ring, if it is there.
    fn next(&self, taken: u64) -> Option<RawStamp> {
        // SAFETY: the memory has room for a head and so many stamps.
        let at = unsafe { self.base.add(1).cast::<RawStamp>() };
        // SAFETY: as above.
        let at = unsafe { at.add((taken % SLOTS) as usize) };
        // SAFETY: the number is a word of live memory, which is only accessed atomically.
        let number = unsafe { AtomicU64::from_ptr(&raw mut (*at.as_ptr()).number) };
        // SAFETY: the kernel has written the stamp before its number. It writes there again when `taken` has passed it.
        (number.load(Ordering::Acquire) == taken + 1).then(|| unsafe {
            RawStamp {
                batch: (&raw const (*at.as_ptr()).batch).read_volatile(),
                leg: (&raw const (*at.as_ptr()).leg).read_volatile(),
                epoch: (&raw const (*at.as_ptr()).epoch).read_volatile(),
                begun: (&raw const (*at.as_ptr()).begun).read_volatile(),
                satisfied: (&raw const (*at.as_ptr()).satisfied).read_volatile(),
                moved: (&raw const (*at.as_ptr()).moved).read_volatile(),
                ended: (&raw const (*at.as_ptr()).ended).read_volatile(),
                number: taken + 1,
            }
        })
    }

    fn head(&self) -> (&AtomicU64, &AtomicU64) {
        let head = self.base.as_ptr();
        // SAFETY: the memory lives as long as this value, and these words are only accessed atomically.
        unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*head).taken),
                AtomicU64::from_ptr(&raw mut (*head).dropped),
            )
        }
    }
}

/// Compares the clocks for a stream that has been synchronised, if it is stamped.
pub(crate) fn compare_clocks(ring: Option<&Ring>) {
    if let Some(ring) = ring {
        ring.compare_clocks();
    }
}

impl Stamps for Ring {
    fn take(&self, each: &mut dyn FnMut(Stamp)) -> u64 {
        if !self.gpu.process.is_this() {
            // A forked child does not have the memory.
            return 0;
        }
        let (free, dropped) = self.head();
        let mut stamps = Vec::new();
        {
            let mut taken = lock(&self.taken);
            // The kernels may go on writing meanwhile.
            while stamps.len() < SLOTS as usize
                && let Some(stamp) = self.next(*taken)
            {
                stamps.push(stamp);
                *taken += 1;
            }
            free.store(*taken, Ordering::Release);
        }
        let dropped = dropped.load(Ordering::Relaxed);
        let clock = &self.loaded.clock;
        for stamp in stamps {
            let [begun, satisfied, moved, ended] =
                [stamp.begun, stamp.satisfied, stamp.moved, stamp.ended]
                    .map(|time| clock.host(time));
            each(Stamp::Leg(Leg {
                batch: stamp.batch,
                lane: stamp.leg as u32,
                leg: (stamp.leg >> 32) as u32,
                epoch: stamp.epoch,
                begun,
                satisfied,
                moved,
                ended,
            }));
        }
        dropped
    }

    fn clock_error(&self) -> u64 {
        self.loaded.clock.error()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.gpu.process.is_this() {
            self.gpu.pinned.give_back(self.base.cast());
        }
    }
}
