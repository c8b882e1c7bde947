//! Opens windows into a stream's bag, and reads their contents.

use tidegate::generic::{Inbox, Layout, Stream};
use tidegate::host::prelude::*;

use super::bag::{Adjust, Bag, Elem, Keep, put, with_ty};
use super::device::Bench;
use super::job::{Job, Kind, Lay, Win};

/// A discipline whose memory the host can see.
pub(crate) trait See: Keep {
    /// The contents that the host sees: the slots, or the whole memory, which the host changes after that.
    fn see<'s, T: Elem, D: Bench>(
        kernels: &D::Kernels,
        inbox: &mut Inbox<'s, T, D, Self>,
        stream: &Stream<'s, D>,
        win: &Win,
        change: impl FnOnce(&mut [T]),
    ) -> Result<Vec<Vec<u64>>>;
}

fn bits_of<T: Elem>(elements: &[T]) -> Vec<u64> {
    elements.iter().map(|element| element.bits()).collect()
}

impl See for BySlot {
    fn see<'s, T: Elem, D: Bench>(
        kernels: &D::Kernels,
        inbox: &mut Inbox<'s, T, D, Self>,
        stream: &Stream<'s, D>,
        win: &Win,
        _: impl FnOnce(&mut [T]),
    ) -> Result<Vec<Vec<u64>>> {
        let rank = stream.world().rank();
        let lens: Vec<_> = win.inbound(rank).map(|edge| edge.len).collect();
        let slots = D::slots(kernels, stream, inbox, &lens)?;
        Ok(slots.iter().map(|slot| bits_of(slot)).collect())
    }
}

macro_rules! flat {
    ($($kind:ty),*) => {$(
        impl See for $kind {
            fn see<'s, T: Elem, D: Bench>(
                kernels: &D::Kernels,
                inbox: &mut Inbox<'s, T, D, Self>,
                stream: &Stream<'s, D>,
                win: &Win,
                change: impl FnOnce(&mut [T]),
            ) -> Result<Vec<Vec<u64>>> {
                D::memory(kernels, stream, inbox, win.memory, |memory| {
                    let seen = vec![bits_of(memory)];
                    change(memory);
                    seen
                })
            }
        }
    )*};
}
flat!(ByRange, Atomic);

impl<'s, D: Bench> Bag<'s, D> {
    /// Opens a window on the stream, which is collective.
    pub(crate) fn open(
        &mut self,
        kernels: &D::Kernels,
        stream: &Stream<'s, D>,
        job: &Job,
        number: usize,
        adjust: &Adjust,
    ) -> Result<()> {
        let (win, rank) = (&job.windows[number], stream.world().rank());
        let name = format!("{number}: {:?} of {:?}", win.kind, win.ty);
        macro_rules! keep {
            ($T:ident, $K:ident, $window:expr) => {{
                let window = match adjust.limit {
                    Some(limit) => $window.fail_after(limit),
                    None => $window,
                };
                let throttle = adjust.nic.map_or_else(Default::default, |nic| nic.throttle);
                let window = window.throttle(throttle);
                let (mut inbox, outbox) = window.open(stream)?;
                let fill = |memory: &mut [$T]| {
                    for (element, value) in memory.iter_mut().zip(win.first_memory(rank)) {
                        *element = $T::of(value);
                    }
                };
                <$K as See>::see(kernels, &mut inbox, stream, win, fill)?;
                let halves = <$K as Keep>::halves($T::shelf(self));
                put(&mut halves.0, number, inbox);
                put(&mut halves.2, number, outbox);
            }};
        }
        with_ty!(win.ty, T => match win.kind {
            Kind::Slots { double } => {
                let buffers = if double != adjust.swap_buffers {
                    tidegate::Buffers::Double
                } else {
                    tidegate::Buffers::Single
                };
                let mut window = SlotWindow::<T>::new(&name).buffers(buffers);
                for edge in win.inbound(rank) {
                    window.slot_from(edge.origin, edge.key, edge.len);
                }
                for edge in win.outbound(rank) {
                    window.slot_to(edge.target, edge.key);
                }
                keep!(T, BySlot, window);
            }
            Kind::Ranges => {
                let mut window = RangeWindow::<T>::new(&name, win.memory);
                for edge in win.outbound(rank) {
                    let Some(Lay::Strided { first, loops }) = edge.layout() else {
                        window.range_to(edge.target, edge.first..edge.first + edge.len);
                        continue;
                    };
                    window.layout_to(edge.target, &Layout::<D>::strided(first, &loops)?);
                }
                keep!(T, ByRange, window);
            }
            Kind::Atomic { .. } => {
                let mut window = AtomicWindow::<T>::new(&name, win.memory);
                for target in win.targets(rank) {
                    window.target(target);
                }
                keep!(T, Atomic, window);
            }
        });
        Ok(())
    }
}
