//! Schedules on a GPU: the functions of `kernels/schedules.cu`, a set for each element type.
//!
//! # Model
//!
//! Code is loaded once for each process and GPU, by the first rank that needs it, and kept, so later worlds use the
//! same functions. The host of this device looks at a copy of memory, and not in place. For a region, it uses
//! [`Region::read`] and [`Region::write`]. A window's memory, which only kernels and peers reach, is copied by a kernel
//! to a region, and back, since the host may have changed it.
//!
//! Inline streams need no counterpart: those of a GPU are streams that are synchronised after every submission.
//!
//! # Failure
//!
//! As in `device`. Loading is refused while a stream of the GPU has work; here there is none before all ranks have met.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tidegate::CellsMut;
use tidegate::generic::{Inbox, On, OnHost, Part, Region, Stream, World};
use tidegate::host::prelude::*;
use tidegate::kernel::{Argument, Function, LoweredExclusive, LoweredShared, Module};
use tidegate::window::InboxView;

use crate::schedules::bag::{Elem, Flat, Pixel};
use crate::schedules::device::Bench;
use crate::vendor::prelude::Gpu;

/// All kernels, on one GPU.
pub(crate) struct Kernels(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

/// The kernels for one element type.
struct Functions<T: Elem> {
    change: Function<Gpu, (&'static mut [T], u64)>,
    change_part: Function<Gpu, (CellsMut<'static, T>, u64, u64, u64)>,
    fold: Function<Gpu, (Slots<'static, T>, u64, &'static mut [T])>,
    log: Function<Gpu, (&'static [T], &'static mut [u64])>,
    sum_slots: Function<Gpu, (Slots<'static, T>, &'static mut [u64])>,
    sum: Function<Gpu, (&'static [T], &'static mut [u64])>,
    #[expect(clippy::type_complexity, reason = "a signature, plainly")]
    harvest: Function<
        Gpu,
        (
            &'static mut [T],
            u64,
            u64,
            &'static mut [u64],
            &'static mut [u64],
        ),
    >,
    copy: Function<Gpu, (&'static [T], &'static mut [T])>,
    copy_slot: Function<Gpu, (Slots<'static, T>, u64, &'static mut [T])>,
}

impl<T: Elem> Functions<T> {
    fn of(module: &Module<Gpu>) -> Result<Self> {
        let name = |kernel: &str| format!("{kernel}_{:?}", T::TY).to_lowercase();
        // SAFETY: the module is `schedules.cu`. Its functions with these names take these parameters. They keep to the
        // lengths, and `change_part` to the elements of the part.
        unsafe {
            Ok(Functions {
                change: module.function(&name("change"))?,
                change_part: module.function(&name("change_part"))?,
                fold: module.function(&name("fold"))?,
                log: module.function(&name("log"))?,
                sum_slots: module.function(&name("sum_slots"))?,
                sum: module.function(&name("sum"))?,
                harvest: module.function(&name("harvest"))?,
                copy: module.function(&name("copy"))?,
                copy_slot: module.function(&name("copy_slot"))?,
            })
        }
    }
}

impl Kernels {
    fn load(world: &World<Gpu>) -> Result<Self> {
        let module = Module::load(world, tidegate_kernels::SCHEDULES)?;
        let mut kernels = Kernels(HashMap::new());
        kernels.bind::<u64>(&module)?;
        kernels.bind::<u32>(&module)?;
        kernels.bind::<u8>(&module)?;
        kernels.bind::<i32>(&module)?;
        kernels.bind::<f64>(&module)?;
        kernels.bind::<Pixel>(&module)?;
        kernels.bind::<[u16; 3]>(&module)?;
        Ok(kernels)
    }

    fn bind<T: Elem>(&mut self, module: &Module<Gpu>) -> Result<()> {
        let functions = Functions::<T>::of(module)?;
        self.0.insert(TypeId::of::<T>(), Box::new(functions));
        Ok(())
    }

    fn of<T: Elem>(&self) -> &Functions<T> {
        let functions = self.0.get(&TypeId::of::<T>());
        let functions = functions.and_then(|functions| functions.downcast_ref());
        functions.expect("all element types are bound")
    }
}

/// A kernel for each element works with any grid; this one is large enough for several blocks.
const THREADS: usize = 1024;
const BLOCK: u32 = 128;

impl Bench for Gpu {
    type Kernels = Arc<Kernels>;

    fn kernels(world: &World<Self>) -> Result<Self::Kernels> {
        static LOADED: Mutex<BTreeMap<usize, Arc<Kernels>>> = Mutex::new(BTreeMap::new());
        let kernels = {
            let mut loaded = LOADED.lock().expect("nothing panics under the lock");
            match loaded.get(&world.device().ordinal()) {
                Some(kernels) => kernels.clone(),
                None => {
                    let kernels = Arc::new(Kernels::load(world)?);
                    loaded.insert(world.device().ordinal(), kernels.clone());
                    kernels
                }
            }
        };
        world.all_gather("kernels are loaded", Vec::new())?;
        Ok(kernels)
    }

    fn change<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        all: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        salt: u64,
    ) -> Result<()> {
        let change = &kernels.of::<T>().change;
        s.launch(change.threads(THREADS, BLOCK), (all, salt))
    }

    fn change_part<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        part: &mut Part<T, On<'s, Self>>,
        step: usize,
        chosen: bool,
        salt: u64,
    ) -> Result<()> {
        let change_part = &kernels.of::<T>().change_part;
        let arguments = (part, step as u64, u64::from(chosen), salt);
        s.launch(change_part.threads(THREADS, BLOCK), arguments)
    }

    fn fold<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        slot: In<T>,
        all: &mut Region<T, On<'s, Self>>,
    ) -> Result<()> {
        let fold = &kernels.of::<T>().fold;
        s.launch(
            fold.threads(THREADS, BLOCK),
            (slots, u64::from(slot.index()), all),
        )
    }

    fn log<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        fetched: &Region<T, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        s.launch(kernels.of::<T>().log.threads(1, 32), (fetched, log))
    }

    fn sum_slots<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        s.launch(kernels.of::<T>().sum_slots.threads(1, 32), (slots, sums))
    }

    fn sum<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredShared<T>>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        s.launch(kernels.of::<T>().sum.threads(1, 32), (memory, sums))
    }

    fn harvest<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        locks: Range<usize>,
        sums: &mut Region<u64, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        let (first, end) = (locks.start as u64, locks.end as u64);
        let harvest = &kernels.of::<T>().harvest;
        s.launch(harvest.threads(1, 32), (memory, first, end, sums, log))
    }

    fn region<T: Elem, R>(
        region: &mut Region<T, OnHost<Self>>,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R> {
        let mut copy = vec![T::of(0); region.len()];
        region.read(0, &mut copy)?;
        let seen = look(&mut copy);
        region.write(0, &copy)?;
        Ok(seen)
    }

    fn slots<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, BySlot>,
        lens: &[usize],
    ) -> Result<Vec<Vec<T>>> {
        let copy_slot = &kernels.of::<T>().copy_slot;
        let slot = |(slot, len): (usize, &usize)| {
            let mut copy = Region::zeroed(s.world(), *len)?.on(s)?;
            let arguments = (inbox.view(), slot as u64, &mut copy);
            s.launch(copy_slot.threads(THREADS, BLOCK), arguments)?;
            let mut seen = vec![T::of(0); *len];
            copy.into_host(s)?.read(0, &mut seen)?;
            Ok(seen)
        };
        lens.iter().enumerate().map(slot).collect()
    }

    fn memory<'s, T: Elem, K: Flat, R>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, K>,
        len: usize,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R> {
        let copy = &kernels.of::<T>().copy;
        let mut there = Region::zeroed(s.world(), len)?.on(s)?;
        s.launch(copy.threads(THREADS, BLOCK), (K::memory(inbox), &mut there))?;
        let mut here = there.into_host(s)?;
        let seen = Self::region(&mut here, look)?;
        let back = here.on(s)?;
        s.launch(copy.threads(THREADS, BLOCK), (&back, K::memory_mut(inbox)))?;
        Ok(seen)
    }
}
