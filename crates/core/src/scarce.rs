//! An allocator for tests. On request it refuses large pieces of memory to a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

std::thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Scarce;

fn refuses(bytes: usize) -> bool {
    // A thread that is ending no longer has this cell, and no limit.
    MOST.try_with(|most| bytes > most.get()).unwrap_or(false)
}

#[global_allocator]
static SCARCE: Scarce = Scarce;

// SAFETY: each call goes to the system's allocator, or is refused, which an allocator may do.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if refuses(bytes) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.realloc(ptr, layout, bytes) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Calls `call` while this thread gets no piece of memory of more than `most` bytes.
pub(crate) fn with_pieces_up_to<T>(most: usize, call: impl FnOnce() -> T) -> T {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            MOST.set(usize::MAX);
        }
    }
    MOST.set(most);
    let _back = Back;
    call()
}

mod tests {
    use super::with_pieces_up_to;
    use crate::*;
    use tidegate_hal::device::DeviceError;
    use tidegate_host::Host;

    /// More than everything whose size the test does not choose.
    const MOST: usize = 32 << 10;

    #[track_caller]
    fn is_short<T>(result: Result<T>) {
        match result.err() {
            Some(Error::Device(DeviceError::Exhausted { what: "memory", .. })) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn short_memory_is_an_error_and_loses_nothing() {
        World::<Host>::local(1, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let short = |call: &mut dyn FnMut()| with_pieces_up_to(MOST, call);
            let spread = || (0..10_000).map(|index| 2 * index);
            short(&mut || is_short(IndexSet::from_indices(spread())));
            short(&mut || {
                let ranges = spread().map(|index| index..index + 1);
                is_short(IndexSet::from_ranges(ranges));
            });

            // A bit for each element of the whole is too much, and so is a list of the ranges of both sets.
            let sets = [0, 20_000].map(|from| IndexSet::from_indices(spread().map(|at| at + from)));
            let sets = sets.map(Result::unwrap);
            let region = Region::<u8, _>::zeroed(&world, 1 << 22).unwrap();
            let mut region = Some(region);
            let small = IndexSet::from_indices([0, 7]).unwrap();
            for sets in [[small.clone(), IndexSet::from_indices([1]).unwrap()], sets] {
                short(&mut || {
                    let parted = region.take().unwrap().try_partition(sets.clone());
                    let refused = parted.err().unwrap();
                    is_short(Err::<(), _>(refused.error));
                    region = Some(refused.value);
                });
            }

            // The device allocated the memory, so a vector of the elements is a copy.
            let region = region.unwrap();
            let refused = with_pieces_up_to(MOST, || region.try_into_vec()).unwrap_err();
            is_short(Err::<(), _>(refused.error));
            assert_eq!(refused.value.into_vec().unwrap(), vec![0; 1 << 22]);

            let indices: Vec<_> = spread().map(|index| index as u32).rev().collect();
            short(&mut || is_short(Layout::indexed(&world, &indices)));
            // The rows of two loops cross each other, so the layout must search for elements that occur twice.
            let crossing = [(3000, 5), (5, 7)];
            short(&mut || is_short(Layout::<Host>::strided(0, &crossing)));
            Layout::<Host>::strided(0, &crossing).unwrap();

            // The pieces of two operations are listed. The epoch stays open, and can be completed when there is memory.
            let mut window = SlotWindow::<u8>::new("w");
            window.slot_from(0, 0, 1 << 16);
            let way = window.slot_to(0, 0);
            let (inbox, outbox) = window.open(&s).unwrap();
            let source = Region::<u8, _>::zeroed(&world, 1 << 16)
                .unwrap()
                .on(&s)
                .unwrap();
            let apart = Layout::strided(0, &[(10_000, 2)]).unwrap();
            let mut epoch = outbox.start();
            let to = way.with(&apart);
            epoch.put(source.slice(0..10_000).unwrap(), to).unwrap();
            let end = way.at(30_000);
            epoch.put(source.slice(0..10).unwrap(), end).unwrap();
            let refused = with_pieces_up_to(MOST, || epoch.try_complete(&s))
                .err()
                .unwrap();
            is_short(Err::<(), _>(refused.error));
            let _outbox = refused.value.complete(&s).unwrap();
            let _inbox = inbox.expose(&s).unwrap();
            s.synchronize().unwrap();
        });
    }
}
