//! Regions that take over vectors. The memory belongs to the vector for as long as the region or a stream needs it, and
//! is freed with the layout that it was allocated with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::element::PodElement;
use tidegate_core::window::{SlotWindow, exchange};
use tidegate_core::{OnHost, Region, World, stream};
use tidegate_host::Host;

type Memory<T> = Region<T, OnHost<Host>>;

/// A vector with room for more elements.
fn with_room<T: Copy>(values: &[T]) -> Vec<T> {
    let mut all = Vec::with_capacity(values.len() + 7);
    all.extend_from_slice(values);
    all
}

/// The address of a vector's memory, and its capacity.
fn place<T>(values: &Vec<T>) -> (*const T, usize) {
    (values.as_ptr(), values.capacity())
}

fn local(program: impl Fn(&World<Host>) + Sync) {
    World::<Host>::local(1, |world| program(&world));
}

#[test]
fn a_vector_goes_in_and_comes_out() {
    local(|world| {
        let values = with_room(&[1u32, 2, 3]);
        let before = place(&values);
        let mut region = Region::from_vec(world, values).unwrap();
        assert_eq!((region.as_ptr(), region.len()), (before.0, 3));
        region[1] += 5;
        region.write(2, &[9]).unwrap();
        let values = region.into_vec().unwrap();
        assert_eq!(place(&values), before);
        assert_eq!(values, [1, 7, 9]);
    });
}

#[test]
fn elements_of_any_size_and_alignment_keep_theirs() {
    #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(64))]
    struct Line([u64; 8]);

    fn there_and_back<T: tidegate_core::Element + PartialEq + std::fmt::Debug>(values: [T; 2]) {
        local(|world| {
            let vector = with_room(&values);
            let before = place(&vector);
            let region = Region::from_vec(world, vector).unwrap();
            assert_eq!(*region, values);
            let vector = region.into_vec().unwrap();
            assert_eq!(place(&vector), before);
            drop(Region::from_vec(world, vector).unwrap());
        });
    }
    there_and_back([1u8, 2]);
    there_and_back([[1u8, 2, 3], [4, 5, 6]]);
    there_and_back([[1u64; 100], [2; 100]]);
    there_and_back([u128::MAX, 1]);
    there_and_back([PodElement(Line([1; 8])), PodElement(Line([2; 8]))]);
}

#[test]
fn a_vector_without_elements_is_an_empty_region() {
    local(|world| {
        for values in [Vec::new(), with_room::<u64>(&[])] {
            let region = Region::from_vec(world, values).unwrap();
            assert!(region.is_empty());
            assert_eq!(*region, []);
            stream!(let s = world.stream().unwrap());
            let mut region = region.on(&s).unwrap();
            s.launch(|x: &mut [u64]| assert!(x.is_empty()), &mut region)
                .unwrap();
            let region = region.into_host(&s).unwrap();
            assert_eq!(region.into_vec().unwrap(), []);
        }
    });
}

/// The region is dropped before a queued kernel that uses it has begun.
#[test]
fn memory_lasts_as_long_as_a_kernel_that_is_queued() {
    local(|world| {
        let (go, seen) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        stream!(let s = world.stream().unwrap());
        let region = Region::from_vec(world, with_room(&[1u64, 2, 3])).unwrap();
        let mut region = region.on(&s).unwrap();
        let (wait, tell) = (go.clone(), seen.clone());
        let kernel = move |x: &mut [u64]| {
            while !wait.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            x[0] = 7;
            tell.store(*x == [7, 2, 3], Ordering::Release);
        };
        s.launch(kernel, &mut region).unwrap();
        drop(region);
        go.store(true, Ordering::Release);
        s.synchronize().unwrap();
        assert!(seen.load(Ordering::Acquire));
    });
}

#[test]
fn parts_keep_the_memory_until_they_are_joined() {
    local(|world| {
        let values = with_room(&[1u64, 2, 3, 4]);
        let before = place(&values);
        let (first, second) = Region::from_vec(world, values)
            .unwrap()
            .split_at(3)
            .unwrap();
        let whole = first.join(second).unwrap();
        let values = whole.into_vec().unwrap();
        assert_eq!(place(&values), before);
        // If only the first part is left, it owns the memory of both.
        let (first, second) = Region::from_vec(world, values)
            .unwrap()
            .split_at(3)
            .unwrap();
        drop(second);
        let mut values = first.into_vec().unwrap();
        assert_eq!(place(&values), before);
        assert_eq!(values, [1, 2, 3]);
        values.push(4);
        // If there is another part, or if the part is not the first, the vector is a copy.
        let (first, second) = Region::from_vec(world, values)
            .unwrap()
            .split_at(3)
            .unwrap();
        assert_eq!(first.into_vec().unwrap(), [1, 2, 3]);
        let copy = second.into_vec().unwrap();
        assert_eq!(copy, [4]);
        assert_ne!(copy.as_ptr(), before.0);
    });
}

#[test]
fn what_was_no_vector_comes_out_as_a_copy() {
    local(|world| {
        let region = Region::from_slice(world, &[1u32, 2, 3]).unwrap();
        let at = region.as_ptr();
        let values = region.into_vec().unwrap();
        assert_eq!(values, [1, 2, 3]);
        assert_ne!(values.as_ptr(), at);
        // A vector of other elements would be freed with another layout.
        let block = Region::from_vec(world, vec![u64::MAX; 3]).unwrap();
        let block = block.into_block().ok().unwrap();
        // SAFETY: the block belongs to this device, and nothing else has it.
        let region: Memory<u32> = unsafe { Region::adopt(world, block, 6) }.ok().unwrap();
        assert_eq!(region.into_vec().unwrap(), [u32::MAX; 6]);
        // The block holds no more than these elements.
        let block = Region::from_vec(world, with_room(&[1u8])).unwrap();
        let block = block.into_block().ok().unwrap();
        // SAFETY: as above.
        let more: Result<Memory<u8>, _> = unsafe { Region::adopt(world, block, 2) };
        assert!(more.is_err());
    });
}

/// A block that was a vector is aligned for the vector's elements.
#[test]
fn a_block_is_adopted_only_as_elements_that_may_begin_there() {
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(64))]
    struct Line([u64; 8]);

    local(|world| {
        let regions = [(); 8].map(|()| Region::from_vec(world, vec![0u8; 80]).unwrap());
        let refused = regions.map(|bytes| {
            let address = bytes.as_ptr().addr();
            let block = bytes.into_block().unwrap();
            // SAFETY: the block belongs to this device, and nothing else has it.
            let adopted = unsafe { Region::<PodElement<Line>, _>::adopt(world, block, 1) };
            assert_eq!(adopted.is_ok(), address.is_multiple_of(64));
            adopted.err().map(|error| error.to_string())
        });
        let said = "elements are aligned to 64 bytes, and the block begins at 0x";
        // Vectors of so few bytes do not all begin at a cache line.
        let refused: Vec<_> = refused.into_iter().flatten().collect();
        assert!(!refused.is_empty() && refused.iter().all(|text| text.starts_with(said)));
    });
}

#[test]
fn it_is_put_and_got_as_any_other() {
    World::<Host>::local(2, |world| {
        let (rank, peer) = (world.rank() as u8, 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u8>::new("bytes");
        let from = window.slot_from(peer, 0, 5);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let values = with_room(&[rank, 10 + rank, 20, 30, 40]);
        let before = place(&values);
        let source = Region::from_vec(&world, values).unwrap().on(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&source, to).unwrap();
        let (mut inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
        let peer = peer as u8;
        assert_eq!(
            inbox.read(&s).unwrap().slot(from),
            [peer, 10 + peer, 20, 30, 40]
        );
        let values = source.into_host(&s).unwrap().into_vec().unwrap();
        assert_eq!(place(&values), before);
        drop((inbox, outbox));
    });
}
