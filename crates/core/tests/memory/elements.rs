//! Each element type goes through a window and back. Ranks that disagree about the type are refused.

use std::fmt::Debug;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use num_complex::Complex;
use tidegate_core::element::{Element, PodElement};
use tidegate_core::window::{SlotWindow, Slots, exchange};
use tidegate_core::{Region, World, stream};
use tidegate_host::Host;

/// Each rank puts `values`, one of which is its own, to the other rank, where a kernel checks what has come.
fn round_trip<T: Element + PartialEq + Debug>(of_rank: [[T; 3]; 2]) {
    let outcomes = World::<Host>::local(2, |world| {
        let (rank, peer) = (world.rank(), 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<T>::new("elements");
        let from = window.slot_from(peer, 0, 3);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let source = Region::from_slice(&world, &of_rank[rank]).unwrap();
        let source = source.on(&s).unwrap();
        let mut came = Region::<T, _>::zeroed(&world, 3).unwrap().on(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&source, to).unwrap();
        let (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
        let take =
            move |slots: Slots<'_, T>, came: &mut [T]| came.copy_from_slice(slots.slot(from));
        s.launch(take, (inbox.view(), &mut came)).unwrap();
        assert_eq!(*came.into_host(&s).unwrap(), of_rank[peer]);
        drop((inbox, outbox, source));
    });
    assert_eq!(outcomes.len(), 2);
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    at: [f32; 3],
    number: u32,
}

#[test]
fn halves_go_through_a_window() {
    let [a, b] = [1.5, -0.25].map(f16::from_f32);
    round_trip([[a, f16::NEG_INFINITY, a], [f16::MAX, b, b]]);
    let [a, b] = [1.5, -0.25].map(bf16::from_f32);
    round_trip([[a, bf16::NEG_INFINITY, a], [bf16::MAX, b, b]]);
}

#[test]
fn complex_numbers_go_through_a_window() {
    let c = Complex::new;
    round_trip([
        [c(1.5, 2.5); 3],
        [c(-1.0, 0.5), c(0.0, 1.0), c(f64::MAX, 3.0)],
    ]);
    let half = |at: f32| Complex::new(f16::from_f32(at), f16::from_f32(-at));
    round_trip([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].map(|of| of.map(half)));
}

#[test]
fn integers_of_128_bits_go_through_a_window() {
    round_trip([[1u128 << 127, 1 << 64, 1], [u128::MAX, 2, 3]]);
    round_trip([[i128::MIN, -1, 1], [i128::MAX, 2, 3]]);
}

#[test]
fn arrays_go_through_a_window() {
    let array = |first: u128| [[first, first + 1], [first + 2, first + 3]];
    round_trip([[1, 5, 9], [13, 17, 21]].map(|of| of.map(array)));
    let bytes = |first: u8| [first, first + 1, first + 2];
    round_trip([[1, 5, 9], [13, 17, 21]].map(|of| of.map(bytes)));
}

#[test]
fn whatever_is_a_pod_goes_through_a_window() {
    let particle = |number: u32| {
        let at = [number as f32, 0.5, -1.0];
        PodElement(Particle { at, number })
    };
    round_trip([[1, 2, 3], [4, 5, 6]].map(|of| of.map(particle)));
    // A type with a niche, for which all bytes are valid.
    let option = |number: u32| PodElement(std::num::NonZeroU32::new(number));
    round_trip([[0, 1, 2], [3, 0, 4]].map(|of| of.map(option)));
}

/// A kernel on a device also gets elements by value.
#[test]
fn numbers_are_arguments_of_kernels() {
    World::<Host>::local(1, |world| {
        stream!(let s = world.stream().unwrap());
        let mut sums = Region::<f16, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let kernel = |sums: &mut [f16], a: f16, b: bf16, c: u128, d: i128| {
            sums[0] = f16::from_f32(a.to_f32() + b.to_f32() + c as f32 + d as f32);
        };
        let [a, b] = [f16::from_f32(0.5), f16::from_f32(0.25)];
        let b = bf16::from_f32(b.to_f32());
        s.launch(kernel, (&mut sums, a, b, 3u128, -1i128)).unwrap();
        assert_eq!(sums.into_host(&s).unwrap()[0].to_f32(), 2.75);
    });
}

/// Types whose bytes mean different things have different layouts, even with the same size.
#[test]
fn layouts_tell_types_apart() {
    let same_size = [
        &[
            u16::LAYOUT,
            i16::LAYOUT,
            f16::LAYOUT,
            bf16::LAYOUT,
            PodElement::<u16>::LAYOUT,
        ][..],
        &[
            u64::LAYOUT,
            <[f32; 2]>::LAYOUT,
            <[f32; 1]>::LAYOUT,
            Complex::<f32>::LAYOUT,
            <[Complex<f16>; 2]>::LAYOUT,
            Complex::<[f16; 2]>::LAYOUT,
            Complex::<[bf16; 2]>::LAYOUT,
            PodElement::<u64>::LAYOUT,
            PodElement::<[u32; 2]>::LAYOUT,
        ],
        &[
            u128::LAYOUT,
            i128::LAYOUT,
            <[u64; 2]>::LAYOUT,
            Complex::<f64>::LAYOUT,
        ],
    ];
    let all = same_size.concat();
    for (at, layout) in all.iter().enumerate() {
        assert!(!all[..at].contains(layout), "the {at}th is no other's");
    }
}

/// Ranks that give the same bytes different meanings get no window.
#[test]
fn ranks_agree_on_the_type() {
    fn open<T: Element>(world: &World<Host>) -> Option<String> {
        let peer = 1 - world.rank();
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<T>::new("one");
        window.slot_from(peer, 0, 3);
        window.slot_to(peer, 0);
        window.open(&s).err().map(|error| error.to_string())
    }
    let halves = World::<Host>::local(2, |world| match world.rank() {
        0 => open::<f16>(&world),
        _ => open::<u16>(&world),
    });
    let complex = World::<Host>::local(2, |world| match world.rank() {
        0 => open::<Complex<f32>>(&world),
        _ => open::<[f32; 2]>(&world),
    });
    for error in halves.into_iter().chain(complex) {
        let error = error.expect("it is refused");
        assert!(error.contains("element"), "{error}");
    }
}
