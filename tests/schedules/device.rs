//! What schedules need from a device: the kernels that they launch, and a look at memory by the host.
//!
//! # Model
//!
//! [`Bench`] has one function for each kernel, generic over the element type. Each has the same effect as in the
//! oracle, and uses the functions of `value`. The host uses those functions themselves, and other devices have copies
//! of them. So a difference comes from the device, or from its kernels.
//!
//! # Failure
//!
//! The errors of launches and copies. If a kernel's input is wrong (for example, a wrong program's log is too long), it
//! panics on the host. On a device that cannot panic, it stays within the lengths, and the judge finds the error.

use std::ops::Range;

use tidegate::CellsMut;
use tidegate::generic::Device;
use tidegate::generic::{Inbox, On, OnHost, Part, Region, Stream, World};
use tidegate::host::Host;
use tidegate::host::prelude::*;
use tidegate::kernel::{Argument, LoweredExclusive, LoweredShared};
use tidegate::window::InboxView;

use super::bag::{Elem, Flat};
use super::value::{changed, checksum};

/// A device that schedules run on.
pub(crate) trait Bench: Device {
    /// Its kernels, loaded.
    type Kernels;

    /// Loads the kernels. Collective: no rank goes on, and waits for peers on the device, before all have them.
    fn kernels(world: &World<Self>) -> Result<Self::Kernels>;

    /// Changes all elements.
    fn change<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        all: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        salt: u64,
    ) -> Result<()>;

    /// Changes elements of a part: those whose index is a multiple of `step`, or the others if not `chosen`.
    fn change_part<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        part: &mut Part<T, On<'s, Self>>,
        step: usize,
        chosen: bool,
        salt: u64,
    ) -> Result<()>;

    /// Mixes a slot into a region.
    fn fold<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        slot: In<T>,
        all: &mut Region<T, On<'s, Self>>,
    ) -> Result<()>;

    /// Appends the fetched values to a log.
    fn log<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        fetched: &Region<T, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()>;

    /// Adds each slot to a sum of its own.
    fn sum_slots<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()>;

    /// Adds memory to the first sum.
    fn sum<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredShared<T>>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()>;

    /// Adds the elements before the locks to the first sum. Appends the holders of the locks to the log, and frees the
    /// locks.
    fn harvest<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        locks: Range<usize>,
        sums: &mut Region<u64, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()>;

    /// Lets the host look at a region, and change it.
    fn region<T: Elem, R>(
        region: &mut Region<T, OnHost<Self>>,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R>;

    /// The contents of slots with these lengths.
    fn slots<'s, T: Elem>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, BySlot>,
        lens: &[usize],
    ) -> Result<Vec<Vec<T>>>;

    /// Lets the host look at the `len` elements of a window's memory, and change them.
    fn memory<'s, T: Elem, K: Flat, R>(
        kernels: &Self::Kernels,
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, K>,
        len: usize,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R>;
}

pub(crate) fn change<T: Elem>(all: &mut [T], salt: u64) {
    for (index, element) in all.iter_mut().enumerate() {
        *element = T::of(changed(T::TY, element.bits(), index, salt));
    }
}

fn append(log: &mut [u64], value: u64) {
    log[0] += 1;
    log[log[0] as usize] = value;
}

impl Bench for Host {
    type Kernels = ();

    fn kernels(_: &World<Self>) -> Result<()> {
        Ok(())
    }

    fn change<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        all: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        salt: u64,
    ) -> Result<()> {
        s.launch(move |all: &mut [T]| change(all, salt), (all,))
    }

    fn change_part<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        part: &mut Part<T, On<'s, Self>>,
        step: usize,
        chosen: bool,
        salt: u64,
    ) -> Result<()> {
        let kernel = move |mut cells: CellsMut<'_, T>| {
            let mine = |index: &usize| index.is_multiple_of(step) == chosen;
            for index in (0..cells.whole_len()).filter(mine) {
                let new = changed(T::TY, cells.get(index).bits(), index, salt);
                cells.set(index, T::of(new));
            }
        };
        s.launch(kernel, part)
    }

    fn fold<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        slot: In<T>,
        all: &mut Region<T, On<'s, Self>>,
    ) -> Result<()> {
        let kernel = move |slots: Slots<'_, T>, all: &mut [T]| {
            let seen = slots.slot(slot);
            for (index, element) in all.iter_mut().enumerate() {
                let with = seen[index % seen.len()].bits();
                *element = T::of(changed(T::TY, element.bits(), index, with));
            }
        };
        s.launch(kernel, (slots, all))
    }

    fn log<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        fetched: &Region<T, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        let kernel = |fetched: &[T], log: &mut [u64]| {
            fetched.iter().for_each(|value| append(log, value.bits()));
        };
        s.launch(kernel, (fetched, log))
    }

    fn sum_slots<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        slots: InboxView<'_, 's, T, Self>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        let kernel = |slots: Slots<'_, T>, sums: &mut [u64]| {
            for (slot, sum) in slots.iter().zip(sums) {
                *sum = checksum(*sum, slot.iter().map(|element| element.bits()));
            }
        };
        s.launch(kernel, (slots, sums))
    }

    fn sum<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredShared<T>>,
        sums: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        let kernel = |memory: &[T], sums: &mut [u64]| {
            sums[0] = checksum(sums[0], memory.iter().map(|element| element.bits()));
        };
        s.launch(kernel, (memory, sums))
    }

    fn harvest<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        memory: impl Argument<'s, Self, Lowered = LoweredExclusive<T>>,
        locks: Range<usize>,
        sums: &mut Region<u64, On<'s, Self>>,
        log: &mut Region<u64, On<'s, Self>>,
    ) -> Result<()> {
        let kernel = move |memory: &mut [T], sums: &mut [u64], log: &mut [u64]| {
            let certain = memory[..locks.start].iter().map(|element| element.bits());
            sums[0] = checksum(sums[0], certain);
            for lock in &mut memory[locks.clone()] {
                append(log, lock.bits());
                *lock = T::of(0);
            }
        };
        s.launch(kernel, (memory, sums, log))
    }

    fn region<T: Elem, R>(
        region: &mut Region<T, OnHost<Self>>,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R> {
        Ok(look(region))
    }

    fn slots<'s, T: Elem>(
        (): &(),
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, BySlot>,
        _: &[usize],
    ) -> Result<Vec<Vec<T>>> {
        Ok(inbox.read(s)?.iter().map(<[T]>::to_vec).collect())
    }

    fn memory<'s, T: Elem, K: Flat, R>(
        (): &(),
        s: &Stream<'s, Self>,
        inbox: &mut Inbox<'s, T, Self, K>,
        _: usize,
        look: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R> {
        Ok(look(K::host_mut(inbox, s)?))
    }
}
