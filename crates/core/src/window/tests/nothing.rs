//! Slots, ranges, memory and operations without elements.

use crate::error::EpochError;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_hal::batch::Op;
use tidegate_host::Host;
use tidegate_loopback::Loopback;

use super::super::{AtomicWindow, Buffers, RangeWindow, SlotWindow, Slots, Tested, exchange};
use crate::{AllReduce, Error, IndexSet, Layout, Region, Route, World, WorldOptions};

/// The routes between two ranks. Windows by slot work with all of them.
const ROUTES: [&str; 4] = ["mapped", "by NIC", "staged", "with itself"];

fn over(route: &str, program: impl Fn(World<Host>) + Sync) {
    let options = |_: usize| match route {
        "mapped" | "with itself" => WorldOptions::new(),
        "by NIC" => WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic),
        _ => WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
            .staged(),
    };
    World::local_with(if route == "with itself" { 1 } else { 2 }, options, program);
}

#[test]
fn a_put_of_nothing_is_a_signal_and_no_more() {
    for route in ROUTES {
        for buffers in [Buffers::Single, Buffers::Double] {
            let completed = AtomicUsize::new(0);
            over(route, |world| {
                crate::stream!(let s = world.stream().unwrap());
                let (rank, peer) = (world.rank(), world.size() - 1 - world.rank());
                let mut window = SlotWindow::<u64>::new("signals").buffers(buffers);
                let from = window.slot_from(peer, 0, 0);
                let to = window.slot_to_with_len(peer, 0, 0);
                let (mut inbox, mut outbox) = window.open(&s).unwrap();
                let nothing = Region::<u64, _>::zeroed(&world, 0).unwrap();
                let nothing = nothing.on(&s).unwrap();
                for round in 0..6 {
                    let mut exposed = inbox.post(&s).unwrap();
                    if world.size() == 2 && rank == 1 {
                        // Rank 0 has not completed this epoch, so there is no signal yet.
                        exposed = match exposed.test(&s).unwrap() {
                            Tested::Pending(exposed) => exposed,
                            Tested::Done(_) => panic!("{route}, {buffers:?}: too early"),
                        };
                    }
                    world.all_gather("not yet", Vec::new()).unwrap();
                    let mut epoch = outbox.start();
                    if round % 2 == 0 {
                        epoch.put(&nothing, to).unwrap();
                        epoch.put(nothing.slice(0..0).unwrap(), to.at(0)).unwrap();
                    }
                    outbox = epoch.complete(&s).unwrap();
                    completed.fetch_add(1, Ordering::SeqCst);
                    inbox = exposed.wait(&s).unwrap();
                    let slots = inbox.read(&s).unwrap();
                    assert_eq!((slots.len(), slots.slot(from)), (1, &[][..]));
                    let view = move |slots: Slots<'_, u64>, nothing: &[u64]| {
                        assert!(slots.slot(from).is_empty() && nothing.is_empty());
                        assert!(slots.slot(from).as_ptr().is_aligned());
                    };
                    s.launch(view, (inbox.view(), &nothing)).unwrap();
                    world.all_gather("over", Vec::new()).unwrap();
                }
                let one = Region::from_slice(&world, &[1]).unwrap().on(&s).unwrap();
                let mut epoch = outbox.start();
                let error = epoch.put(&one, to).unwrap_err();
                assert!(
                    matches!(error, Error::Epoch(EpochError::OutOfBounds { .. })),
                    "{error}"
                );
                let _halves = exchange(&s, inbox, epoch).unwrap();
                s.synchronize().unwrap();
            });
            assert_ne!(completed.into_inner(), 0);
        }
    }
}

#[test]
fn empty_slots_stand_beside_others() {
    for route in ROUTES {
        for buffers in [Buffers::Single, Buffers::Double] {
            over(route, |world| {
                crate::stream!(let s = world.stream().unwrap());
                let peer = world.size() - 1 - world.rank();
                let mut window = SlotWindow::<u32>::new("w").buffers(buffers);
                let lens = [0, 3, 0, 0, 5, 0];
                let (mut from, mut to) = (Vec::new(), Vec::new());
                for (key, len) in (0..).zip(lens) {
                    from.push(window.slot_from(peer, key, len));
                    to.push(window.slot_to(peer, key));
                }
                let (mut inbox, mut outbox) = window.open(&s).unwrap();
                for round in 1..6u32 {
                    let x = Region::from_slice(&world, &[round; 5]).unwrap();
                    let (x, count) = (x.on(&s).unwrap(), [u64::from(round) - 1]);
                    let count = Region::from_slice(&world, &count).unwrap();
                    let count = count.on(&s).unwrap();
                    let mut epoch = outbox.start();
                    for (slot, len) in to.iter().copied().zip(lens) {
                        if slot != to[4] {
                            epoch.put(x.slice(0..len).unwrap(), slot).unwrap();
                        }
                        // An empty put goes to the beginning, the middle and the end of a slot that has elements.
                        epoch.put(x.slice(2..2).unwrap(), slot.at(len)).unwrap();
                        epoch.put(x.slice(5..5).unwrap(), slot.at(len / 2)).unwrap();
                        let none = x.slice(0..0).unwrap();
                        epoch.put_counted(none, &count, slot).unwrap();
                    }
                    epoch.put_counted(&x, &count, to[4]).unwrap();
                    (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
                    let slots = inbox.read(&s).unwrap();
                    for (slot, len) in slots.iter().zip(lens) {
                        assert_eq!(slot.len(), len);
                    }
                    assert_eq!(slots.slot(from[1]), [round; 3], "{route}, {buffers:?}");
                    // A NIC does not look at the count.
                    let counted = &slots.slot(from[4])[..round as usize - 1];
                    assert!(counted.iter().all(|x| *x == round), "{route}, {buffers:?}");
                }
                drop((inbox, outbox));
            });
        }
    }
}

#[test]
fn ranges_and_memory_of_nothing() {
    for route in ["mapped", "by NIC", "with itself"] {
        over(route, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let peer = world.size() - 1 - world.rank();
            let mut window = RangeWindow::<f64>::new("none", 0);
            let range = window.range_to(peer, 0..0);
            let (inbox, outbox) = window.open(&s).unwrap();
            let mut nothing = Region::<f64, _>::zeroed(&world, 0).unwrap().on(&s).unwrap();
            let source = Region::<f64, _>::zeroed(&world, 0).unwrap().on(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&source, range).unwrap();
            epoch.get(&mut nothing, range).unwrap();
            let carried = epoch.accumulate(&source, range, Op::Sum);
            if route != "by NIC" {
                carried.unwrap();
            }
            let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
            assert!(inbox.host_mut(&s).unwrap().is_empty());
            let views = |a: &[f64], b: &[f64]| assert!(a.is_empty() && b.is_empty());
            s.launch(views, (inbox.memory(), &nothing)).unwrap();

            // Empty ranges lie at the end of the memory, at its beginning, and within another range.
            let mut window = RangeWindow::<f64>::new("ends", 4);
            let all = window.range_to(peer, 0..4);
            let empty = [4..4, 2..2, 0..0].map(|range| window.range_to(peer, range));
            let (inbox, outbox) = window.open(&s).unwrap();
            let four = Region::from_slice(&world, &[1., 2., 3., 4.]).unwrap();
            let four = four.on(&s).unwrap();
            let mut epoch = outbox.start();
            for range in empty {
                epoch.put(&source, range).unwrap();
                let error = epoch.put(&four, range).unwrap_err();
                assert!(
                    matches!(error, Error::Epoch(EpochError::OutOfBounds { .. })),
                    "{error}"
                );
            }
            epoch.put(&four, all).unwrap();
            let (mut inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            assert_eq!(inbox.host_mut(&s).unwrap(), [1., 2., 3., 4.]);
            // A range may be put to in parts, and an empty part of it overlaps with nothing.
            let mut epoch = outbox.start();
            epoch.put(&four, all).unwrap();
            epoch.put(four.slice(1..1).unwrap(), all.at(2)).unwrap();
            epoch.get(&mut nothing, all.at(1)).unwrap();
            let _halves = exchange(&s, inbox, epoch).unwrap();
            s.synchronize().unwrap();
        });
    }
}

#[test]
fn atomic_operations_on_nothing() {
    for route in ["mapped", "with itself"] {
        over(route, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let peer = world.size() - 1 - world.rank();
            for len in [0, 3] {
                let mut window = AtomicWindow::<u64>::new("a", len);
                let target = window.target(peer);
                let (inbox, outbox) = window.open(&s).unwrap();
                let source = Region::<u64, _>::zeroed(&world, 0).unwrap().on(&s).unwrap();
                let mut results =
                    [(); 3].map(|()| Region::<u64, _>::zeroed(&world, 0).unwrap().on(&s).unwrap());
                let [a, b, c] = &mut results;
                let mut epoch = outbox.start();
                epoch.accumulate(&source, target.at(len), Op::Sum).unwrap();
                epoch
                    .fetch_and_op(&source, a, target.at(len), Op::Max)
                    .unwrap();
                epoch.get(b, target.at(len)).unwrap();
                epoch
                    .compare_and_swap(&source, &source, c, target.at(len))
                    .unwrap();
                let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
                assert_eq!(inbox.host_mut(&s).unwrap(), &[0; 3][..len]);
            }
        });
    }
}

#[test]
fn an_all_reduce_of_nothing_is_a_meeting() {
    for route in ROUTES {
        over(route, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let mut sum = AllReduce::<f64, _>::open(&s, "sum", 0, Op::Sum).unwrap();
            let mut x = Region::zeroed(&world, 0).unwrap().on(&s).unwrap();
            for _ in 0..3 {
                sum.enqueue(&s, &mut x).unwrap();
            }
            assert!(x.into_host(&s).unwrap().is_empty());
        });
    }
}

#[test]
fn layouts_parts_and_regions_of_nothing() {
    over("mapped", |world| {
        crate::stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let layouts = [
            Layout::indexed(&world, &[]).unwrap(),
            Layout::strided(7, &[(3, 2), (0, 5)]).unwrap(),
            Layout::strided(0, &[(0, 1)]).unwrap(),
        ];
        let mut window = SlotWindow::<u64>::new("w");
        let from = window.slot_from(peer, 0, 2);
        let slot = window.slot_to(peer, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let nothing = Region::<u64, _>::zeroed(&world, 0).unwrap();
        let some = Region::from_slice(&world, &[5, 6]).unwrap();
        // One region has no elements, and another has elements of which no part has any.
        let none = IndexSet::from_ranges([]).unwrap();
        let empty = nothing.partition([none.clone(), none.clone()]).unwrap();
        let [first, second] = some
            .partition([none.clone(), IndexSet::from_indices([1]).unwrap()])
            .unwrap();
        let (first, second) = (first.on(&s).unwrap(), second.on(&s).unwrap());
        let source = Region::from_slice(&world, &[8, 9]).unwrap().on(&s).unwrap();
        for layout in &layouts {
            assert_eq!((layout.count(), layout.extent()), (0, 0));
            assert!(layout.is_distinct() && layout.runs().next().is_none());
            let mut epoch = outbox.start();
            epoch.put(source.with(layout).unwrap(), slot).unwrap();
            epoch.put(first.with(layout).unwrap(), slot).unwrap();
            epoch.put(second.with(layout).unwrap(), slot).unwrap();
            let to = slot.at(2).with(layout);
            epoch.put(source.slice(1..1).unwrap(), to).unwrap();
            epoch.put(&source, slot).unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            assert_eq!(inbox.read(&s).unwrap().slot(from), [8, 9]);
        }
        s.synchronize().unwrap();
        drop((inbox, outbox));
        let first = first.into_host(&s).unwrap();
        let second = second.into_host(&s).unwrap();
        let whole = Region::reunite([first, second]).unwrap();
        assert_eq!(whole[..], [5, 6]);
        let whole = Region::reunite(empty).unwrap();
        let (a, b) = whole.split_at(0).unwrap();
        assert!(a.join(b).unwrap().is_empty());
        let mut none = Region::from_slice(&world, &[0u8; 0]).unwrap();
        none.write(0, &[]).unwrap();
        none.read(0, &mut []).unwrap();
    });
}
