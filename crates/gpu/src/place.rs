//! Programs in memory of the device.
//!
//! # Model
//!
//! A batch becomes one program or several, depending on how it is submitted: whole, the usual form, which can be
//! recorded; [apart](crate::lower::apart), with couriers for large puts; or in [parts](crate::lower::parts), with
//! gates. [`Forms`] keeps the forms that were needed so far, so that each is placed once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::batch::{Awaited, Batch, Step, Tag, Wait};
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};

use crate::block::GpuBlock;
use crate::courier::Couriers;
use crate::driver::Launch;
use crate::gpu::{Gpu, lock};
use crate::last::{Early, Expected};
use crate::lower::apart::{self, Errand};
use crate::lower::operands::{self, Advance};
use crate::lower::{LAUNCH_NEXT, LaunchParameter, Names, Program, THREADS, parts};
use crate::pinned::Count;

/// From how many bytes on a batch without waits has more blocks than may wait.
const WIDE: u64 = 4 << 20;

/// A program that can be launched.
pub(crate) struct Placed {
    _block: GpuBlock,
    /// A word that the program names, besides the memory that the batch names.
    _word: Option<GpuBlock>,
    /// The parameter of every launch, except for the stream's own fields.
    parameter: LaunchParameter,
    pub(crate) blocks: usize,
    /// Whether lists would make the program faster.
    divides: bool,
    /// Whether it may wait for more words than are reported at a time.
    pub(crate) crowded: bool,
    /// Whether it has been launched, and not only recorded.
    launched: AtomicBool,
    early: Early,
    pub(crate) expected: Expected,
    /// Whether it has more blocks than a stream's quota. None of them waits. So it never begins early, since it would
    /// wait for the batch in front.
    pub(crate) wide: bool,
    /// Whether it is for the kernel that reduces.
    pub(crate) reduces: bool,
}

impl Placed {
    /// Makes the program with lists, if `lists` allows them, they are of use, and there is memory for them.
    fn new(
        gpu: &Arc<Gpu>,
        batch: &Batch,
        names: &Names,
        quota: usize,
        lists: bool,
    ) -> Result<Self, DeviceError> {
        // Blocks that wait for nobody end by themselves, and keep no room from others for long. So there may be as many as
        // the device has room for. But for less data, to begin early gains more.
        let most = match batch.waits() || batch.bytes() < WIDE {
            true => quota,
            false => quota.max(2 * gpu.limits.multiprocessors),
        };
        let lower = |lists| {
            // SAFETY: words that a batch adds to are live.
            let count = |word: Ptr| unsafe { gpu.count_of(word) };
            Program::new(batch, names, most, gpu.limits.wave, lists, count)
        };
        let alloc =
            |program: &Program| GpuBlock::alloc(gpu, program.len().max(16), Sharing::Private);
        let mut program = lower(lists)?;
        let block = match alloc(&program) {
            Err(_) if program.lists => {
                program = lower(false)?;
                program.divides = false;
                alloc(&program)
            }
            block => block,
        }?;
        let base = block.base().0.addr() as u64;
        program.placed_at(base);
        let bytes = &program.bytes;
        // SAFETY: the block was allocated with this size, and is ours alone; the source lives until the service stream is done.
        gpu.serve("placing a batch", |driver, stream| unsafe {
            driver.copy_in(base, bytes.as_ptr(), bytes.len(), stream)
        })?;
        let wide = program.blocks > quota;
        Ok(Placed {
            _block: block,
            _word: None,
            parameter: LaunchParameter {
                program: base,
                stride: program.stride as u32,
                ..LaunchParameter::NONE
            },
            blocks: program.blocks,
            divides: program.divides,
            crowded: program.crowded,
            launched: AtomicBool::new(false),
            early: if wide { Early::No } else { gpu.early },
            wide,
            expected: Expected::default(),
            reduces: program.reduces,
        })
    }

    /// A program of these lanes only. The batch itself holds everything else that it needs.
    fn of_lanes(
        gpu: &Arc<Gpu>,
        lanes: Vec<Vec<Step>>,
        names: &Names,
        quota: usize,
    ) -> Result<Self, DeviceError> {
        // SAFETY: this batch is lowered, and never submitted.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        Self::new(gpu, &batch, names, quota, true)
    }

    /// A program without work of its own. It looks at the streams that are followed, as every program does.
    pub(crate) fn look(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let word = GpuBlock::alloc(gpu, size_of::<u64>(), Sharing::Private)?;
        let lanes = vec![vec![look_step(word.base())]];
        let mut look = Self::of_lanes(gpu, lanes, &Names::none(), 1)?;
        look._word = Some(word);
        Ok(look)
    }

    /// The parameter of a launch on a stream with this state.
    pub(crate) fn parameter(
        &self,
        state: u64,
        mirror: u64,
        follow: [u64; 2],
        lets_next_come: bool,
    ) -> LaunchParameter {
        LaunchParameter {
            state,
            mirror,
            follow,
            flags: if lets_next_come { LAUNCH_NEXT } else { 0 },
            ..self.parameter
        }
    }

    /// One block for each entry. `behind_gate` says that the item in front is a gate, and no kernel.
    pub(crate) fn config(&self, behind_gate: bool) -> Launch {
        Launch {
            blocks: [self.blocks as u32, 1, 1],
            threads: [THREADS as u32, 1, 1],
            shared: 0,
            early: self.early != Early::No && !behind_gate,
            together: false,
        }
    }

    /// Whether a stream with this quota can launch it.
    fn fits(&self, quota: usize) -> bool {
        self.wide || self.blocks <= quota
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Notes that the program is launched. If it is launched again, it should have lists.
    pub(crate) fn launches(&self) {
        self.launched.store(true, Ordering::Relaxed);
    }
}

/// A wait that is over at once: for a count of 0, of a word that stays 0 and is its own operand.
pub(crate) fn look_step(zero: Ptr) -> Step {
    Step::Wait(Wait {
        word: zero,
        operand: zero,
        quantum: 0,
        tag: Tag {
            window: None,
            peer: 0,
            awaited: Awaited::Event,
        },
        landed: None,
        ring: None,
    })
}

impl Gpu {
    /// The address of the count of a word that lies in pinned memory, and to which only this GPU adds; 0 for any other
    /// word.
    ///
    /// # Safety
    ///
    /// The word is live.
    pub(crate) unsafe fn count_of(self: &Arc<Self>, word: Ptr) -> Result<u64, DeviceError> {
        // SAFETY: the caller's promise.
        let Some(value) = (unsafe { self.pinned_word(word.0) }) else {
            return Ok(0);
        };
        let pinned = &self.pinned;
        if let Some(count) = pinned.count_of(word.0.addr()) {
            return Ok(count);
        }
        let count = GpuBlock::alloc(self, size_of::<u64>(), Sharing::Private)?;
        let value = value.load(Ordering::Relaxed);
        if value != 0 {
            let bytes = value.to_ne_bytes();
            // SAFETY: the block is as large as the count, and only this call uses it; the source lives until the
            // service stream is done.
            self.serve("setting a count", |driver, stream| unsafe {
                let to = count.base().0.addr() as u64;
                driver.copy_in(to, bytes.as_ptr(), bytes.len(), stream)
            })?;
        }
        // Nothing has been counted in ours yet, because no program names it.
        let count = Count {
            at: count.base().0.addr() as u64,
            _memory: Box::new(count),
        };
        let (at, spare) = pinned.add_count(word.0.addr(), count);
        // It is dropped here, under no lock, because this calls the driver.
        drop(spare);
        Ok(at)
    }
}

/// A batch with couriers.
pub(crate) struct ApartForm {
    /// The id of the couriers whose words the program names.
    couriers: u64,
    pub(crate) program: Arc<Placed>,
    pub(crate) errands: Vec<Vec<Errand>>,
}

/// A part of a batch with gates.
pub(crate) struct PartForm {
    pub(crate) gate: Vec<Wait>,
    pub(crate) program: Arc<Placed>,
    pub(crate) advance: Advance,
}

/// The programs that a device has for a batch.
pub(crate) struct Forms {
    gpu: Arc<Gpu>,
    /// Whether there are lanes for couriers.
    pub(crate) large: bool,
    whole: Mutex<Option<Arc<Placed>>>,
    apart: Mutex<Option<Arc<ApartForm>>>,
    parts: Mutex<Option<Arc<[PartForm]>>>,
}

impl Forms {
    pub(crate) fn new(gpu: &Arc<Gpu>, batch: &Batch) -> Self {
        Forms {
            gpu: gpu.clone(),
            large: apart::is_large(batch, gpu.copy_engine_from, &|copy| gpu.has_both(copy)),
            whole: Mutex::new(None),
            apart: Mutex::new(None),
            parts: Mutex::new(None),
        }
    }

    /// Whether a stream of this device with this quota can launch the program that has been made so far.
    pub(crate) fn fits(&self, gpu: &Arc<Gpu>, quota: usize) -> bool {
        let whole = lock(&self.whole);
        Arc::ptr_eq(&self.gpu, gpu) && whole.as_ref().is_none_or(|whole| whole.fits(quota))
    }

    /// The program of the whole batch, to be launched or `recorded`. It has lists if it is launched repeatedly: in a
    /// recording, or if it has been launched before.
    pub(crate) fn whole(
        &self,
        batch: &Batch,
        quota: usize,
        recorded: bool,
    ) -> Result<Arc<Placed>, DeviceError> {
        let mut kept = lock(&self.whole);
        let again = |whole: &Placed| recorded || whole.launched.load(Ordering::Relaxed);
        if let Some(whole) = &*kept
            && whole.fits(quota)
            && !(whole.divides && again(whole))
        {
            return Ok(whole.clone());
        }
        let lists = kept.as_deref().map_or(recorded, again);
        let own = Arc::new(Placed::new(
            &self.gpu,
            batch,
            &Names::of(batch),
            quota,
            lists,
        )?);
        // A program for a stream with a larger quota is kept, unless it would be faster with lists and this one would
        // not.
        if kept
            .as_ref()
            .is_none_or(|kept| kept.divides && !own.divides)
        {
            *kept = Some(own.clone());
        }
        Ok(own)
    }

    /// The form for a stream with these couriers.
    pub(crate) fn apart(
        &self,
        batch: &Batch,
        quota: usize,
        couriers: &Couriers,
    ) -> Result<Arc<ApartForm>, DeviceError> {
        let mut made = lock(&self.apart);
        if let Some(form) = &*made
            && form.couriers == couriers.id
            && form.program.fits(quota)
        {
            return Ok(form.clone());
        }
        let apart = apart::take_apart(
            batch,
            self.gpu.copy_engine_from,
            &|copy| self.gpu.has_both(copy),
            &couriers.words(),
        );
        let form = Arc::new(ApartForm {
            couriers: couriers.id,
            program: Arc::new(Placed::of_lanes(
                &self.gpu,
                apart.lanes,
                &Names::of(batch),
                quota,
            )?),
            errands: apart.errands,
        });
        *made = Some(form.clone());
        Ok(form)
    }

    pub(crate) fn parts(
        &self,
        batch: &Batch,
        quota: usize,
    ) -> Result<Arc<[PartForm]>, DeviceError> {
        let mut made = lock(&self.parts);
        if let Some(parts) = &*made
            && parts.iter().all(|part| part.program.fits(quota))
        {
            return Ok(parts.clone());
        }
        let parts = parts::parts(batch).into_iter().map(|part| {
            let advance = operands::advance(part.lanes.iter().map(Vec::as_slice));
            let names = Names::of_lanes(batch, part.names);
            let program = Placed::of_lanes(&self.gpu, part.lanes, &names, quota)?;
            Ok(PartForm {
                gate: part.gate,
                program: Arc::new(program),
                advance,
            })
        });
        let parts: Arc<[PartForm]> = parts.collect::<Result<Vec<_>, DeviceError>>()?.into();
        *made = Some(parts.clone());
        Ok(parts)
    }
}
