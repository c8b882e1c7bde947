//! Attacks by safe code, with ranks as threads: empty and huge sizes. Each ends at once, with a typed error or without
//! an effect. A debug build checks each slice.

#![forbid(unsafe_code)]

use std::time::Duration;
use tidegate::error::EpochError;

use tidegate::host::prelude::*;
use tidegate::{IndexSet, Route, WorldOptions};
use tidegate_loopback::Loopback;

fn alone(program: impl Fn(World) -> Result<()> + Sync) {
    World::local(1, program).remove(0).unwrap();
}

/// The largest alignment of an element.
#[derive(Clone, Copy, Element)]
#[repr(C, align(64))]
struct Wide([u64; 8]);

fn is_aligned<T>(slice: &[T]) {
    assert_eq!(slice.as_ptr().addr() % align_of::<T>(), 0);
    assert!(
        slice
            .iter()
            .all(|each| std::ptr::from_ref(each).is_aligned())
    );
}

fn by_nic(_: usize) -> WorldOptions {
    WorldOptions::new()
        .nic(Loopback::default())
        .route(Route::Nic)
}

#[test]
fn what_is_empty_is_aligned_for_kernels_and_host() {
    let program = |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let me = world.rank();
        let mut window = SlotWindow::<Wide>::new("w");
        window.slot_from(me, 0, 0);
        let from_1 = window.slot_from(me, 1, 3);
        window.slot_from(me, 2, 0);
        let to_0 = window.slot_to(me, 0);
        let to_1 = window.slot_to(me, 1);
        let to_2 = window.slot_to(me, 2);
        let (mut inbox, outbox) = window.open(&s)?;
        let mut none = Region::<Wide, _>::zeroed(&world, 0)?;
        is_aligned(&none);
        is_aligned(&*none.as_mut());
        let mut none = none.on(&s)?;
        let three = Region::from_slice(&world, &[Wide([7; 8]); 3])?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.put(&none, to_0)?;
        epoch.put(&three, to_1)?;
        epoch.put(three.slice(3..3)?, to_2)?;
        (inbox, _) = exchange(&s, inbox, epoch)?;
        let look = move |slots: Slots<'_, Wide>, none: &mut [Wide]| {
            is_aligned(none);
            slots.iter().for_each(is_aligned);
            let lens: Vec<_> = slots.iter().map(<[_]>::len).collect();
            assert_eq!((slots.len(), &lens[..]), (3, &[0, 3, 0][..]));
            assert_eq!(slots.slot(from_1)[2].0, [7; 8]);
        };
        s.launch(look, (inbox.view(), &mut none))?;
        s.synchronize()?;
        inbox.read(&s)?.iter().for_each(is_aligned);
        Ok(())
    };
    World::local(2, program)
        .into_iter()
        .for_each(Result::unwrap);
    World::local_with(2, by_nic, program)
        .into_iter()
        .for_each(Result::unwrap);
}

#[test]
fn windows_without_a_slot_or_an_element_have_memory_for_nobody() {
    World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let window = SlotWindow::<Wide>::new("none");
        let (mut inbox, outbox) = window.open(&s)?;
        let inbox = {
            assert!(inbox.read(&s)?.is_empty());
            s.launch(
                |slots: Slots<'_, Wide>| assert!(slots.is_empty()),
                inbox.view(),
            )?;
            exchange(&s, inbox, outbox.start())?.0
        };
        let window = RangeWindow::<Wide>::new("ranges", 0);
        let (mut ranges, to) = window.open(&s)?;
        is_aligned(ranges.host_mut(&s)?);
        let window = AtomicWindow::<u64>::new("atomic", 0);
        let (mut atomic, _) = window.open(&s)?;
        is_aligned(atomic.host_mut(&s)?);
        s.launch(
            |memory: &mut [Wide]| is_aligned(memory),
            ranges.memory_mut(),
        )?;
        s.launch(|memory: &[u64]| is_aligned(memory), atomic.memory())?;
        s.synchronize()?;
        drop((inbox, to));
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn parts_of_nothing_hold_nothing() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let nothing = || IndexSet::from_ranges([5..5, 9..9]).unwrap();
        let empty = Region::<Wide, _>::zeroed(&world, 0)?;
        let [one, two] = empty.partition([nothing(), nothing()])?;
        let (mut one, two) = (one.on(&s)?, two.on(&t)?);
        let refused = |mut cells: tidegate::CellsMut<'_, Wide>| {
            let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                cells.set(0, Wide([1; 8]))
            }));
            assert!(got.is_err());
        };
        s.launch(refused, &mut one)?;
        // Its kernel may not have begun when its part is dropped.
        drop(one);
        let look = |cells: tidegate::Cells<'_, Wide>| assert_eq!(cells.whole_len(), 0);
        t.launch(look, &two)?;
        drop(two);
        t.synchronize()?;
        s.synchronize()?;
        let region = Region::<u64, _>::zeroed(&world, 64)?;
        let reversed = std::ops::Range { start: 60, end: 3 };
        let sets = [
            IndexSet::from_ranges([reversed])?,
            IndexSet::from_indices(0..64)?,
        ];
        let [none, all] = region.partition(sets)?;
        assert!(!none.set().contains(30));
        assert!(Region::reunite([all, none]).is_err());
        Ok(())
    });
}

#[test]
fn layouts_of_any_numbers_are_made_or_refused_at_once() {
    const COUNTS: [u32; 6] = [0, 1, 2, 1 << 16, 1 << 31, u32::MAX];
    const STRIDES: [i32; 8] = [0, 1, -1, 2, 1 << 16, -(1 << 16), i32::MAX, i32::MIN];
    const FIRSTS: [usize; 5] = [
        0,
        1 << 32,
        isize::MAX as usize,
        isize::MAX as usize + 1,
        usize::MAX,
    ];
    alone(|world| {
        stream!(let s = world.stream()?);
        let region = Region::<u64, _>::zeroed(&world, 8)?.on(&s)?;
        let mut made = 0;
        for first in FIRSTS {
            for stride in STRIDES {
                for count in COUNTS {
                    for (outer, far) in [
                        (1, 7),
                        (1 << 16, 1 << 16),
                        (u32::MAX, i32::MIN),
                        (u32::MAX, -1),
                    ] {
                        let loops = [(count, stride), (outer, far), (u32::MAX, 0)];
                        for loops in [&loops[..1], &loops[..2], &loops[..]] {
                            // A layout that is not one piece is checked element by element.
                            let elements: u128 =
                                loops.iter().map(|(count, _)| u128::from(*count)).product();
                            if elements > 1 << 20 && loops.len() > 1 && elements <= 1 << 32 {
                                continue;
                            }
                            let Ok(layout) = Layout::strided(first, loops) else {
                                continue;
                            };
                            made += 1;
                            let fits = layout.extent() <= 8;
                            assert_eq!(region.with(&layout).is_ok(), fits, "{first} {loops:?}");
                            assert!(!fits || layout.count() <= 8 || !layout.is_distinct());
                        }
                    }
                }
            }
        }
        assert!(made > 100, "{made}");
        Ok(())
    });
}

#[test]
fn sizes_that_no_memory_has_are_typed_errors_on_all_ranks_alike() {
    World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let sizes = [
            1 << 48,
            isize::MAX as usize / 64,
            isize::MAX as usize,
            1 << 61,
            usize::MAX - 63,
            usize::MAX,
        ];
        for len in sizes {
            assert!(Region::<Wide, _>::zeroed(&world, len).is_err());
            // The same if only rank 0 asks for too much.
            for all in [true, false] {
                let len = if all || world.rank() == 0 { len } else { 1 };
                let mut slots = SlotWindow::<Wide>::new("slots");
                slots.slot_from(peer, 0, len);
                slots.slot_from(peer, 1, len);
                slots.slot_to(peer, 0);
                slots.slot_to(peer, 1);
                assert!(slots.open(&s).is_err(), "{len}");
                assert!(
                    RangeWindow::<Wide>::new("range", len).open(&s).is_err(),
                    "{len}"
                );
                assert!(
                    AtomicWindow::<u64>::new("atomic", len).open(&s).is_err(),
                    "{len}"
                );
                assert!(
                    AllReduce::<u64>::open(&s, "sum", len, Op::Sum).is_err(),
                    "{len}"
                );
            }
        }
        // The names are free again, and the job works.
        let mut window = SlotWindow::<u64>::new("slots");
        let from = window.slot_from(peer, 0, 1);
        let to = window.slot_to(peer, 0);
        let (mut inbox, outbox) = window.open(&s)?;
        let x = Region::from_slice(&world, &[7])?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.put(&x, to)?;
        (inbox, _) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?.slot(from), [7]);
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn no_duration_or_name_is_too_long() {
    World::local(2, |world: World| -> Result<()> {
        let peer = 1 - world.rank();
        for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            world.report_waits_after(limit);
            assert!(world.nic_room(usize::MAX, limit));
        }
        for name in ["", "a\0b", "a\nb", "\u{1f980}", &"long".repeat(10_000)] {
            stream!(let s = world.named_stream(name)?);
            let mut window = SlotWindow::<u64>::new(name).fail_after(Duration::MAX);
            let from = window.slot_from(peer, 0, 1);
            let to = window.slot_to(peer, 0);
            let (mut inbox, outbox) = window.open(&s)?;
            let x = Region::from_slice(&world, &[7])?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&x, to)?;
            (inbox, _) = exchange(&s, inbox, epoch)?;
            assert_eq!(inbox.read(&s)?.slot(from), [7]);
            Barrier::open(&s, name)?.enqueue(&s)?;
            world.all_gather(name, Vec::new())?;
            s.synchronize()?;
        }
        world.report_waits_after(Duration::from_secs(60));
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
    World::local_with(2, by_nic, |world: World| {
        assert!(world.nic_room(usize::MAX, Duration::MAX));
    });
}

#[test]
fn counts_and_signals_of_nothing_touch_nothing() {
    let program = |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w");
        window.slot_from(peer, 0, 0);
        let from_1 = window.slot_from(peer, 1, 4);
        let to_0 = window.slot_to(peer, 0);
        let to_1 = window.slot_to(peer, 1);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let none = Region::<u64, _>::zeroed(&world, 0)?.on(&s)?;
        let four = Region::from_slice(&world, &[9u64; 4])?.on(&s)?;
        for count in [0, 1, u64::MAX] {
            let count = Region::from_slice(&world, &[count])?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.put_counted(&none, &count, to_0)?;
            epoch.put_counted(four.slice(4..4)?, &count, to_1.at(4))?;
            assert!(epoch.put(four.slice(0..1)?, to_0).is_err());
            assert!(epoch.put(four.slice(0..1)?, to_1.at(usize::MAX)).is_err());
            assert!(epoch.put_counted(&none, &none, to_1).is_err());
            (inbox, outbox) = exchange(&s, inbox, epoch)?;
            assert_eq!(inbox.read(&s)?.slot(from_1), [0; 4]);
        }
        Ok(())
    };
    World::local(2, program)
        .into_iter()
        .for_each(Result::unwrap);
    World::local_with(2, by_nic, program)
        .into_iter()
        .for_each(Result::unwrap);
}

#[test]
fn ranges_and_groups_of_any_numbers_are_typed_errors_on_all_ranks_alike() {
    World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let range = |start, end| std::ops::Range { start, end };
        let bad = [
            range(5, 2),
            range(3, 5),
            range(5, 5),
            range(usize::MAX, usize::MAX),
            range(0, usize::MAX),
            range(usize::MAX, 0),
        ];
        for range in bad {
            let mut window = RangeWindow::<Wide>::new("ranges", 4);
            window.range_to(peer, range.clone());
            assert!(window.open(&s).is_err(), "{range:?}");
        }
        let declared = |declare: fn(&mut SlotWindow<u64>, usize)| {
            let mut window = SlotWindow::new("w");
            declare(&mut window, peer);
            window.open(&s)
        };
        let twice = declared(|window, peer| {
            window.slot_from(peer, 7, 1);
            window.slot_from(peer, 7, 1);
        });
        assert!(twice.is_err());
        let nobody = declared(|window, _| {
            window.slot_from(usize::MAX, 7, 1);
        });
        assert!(nobody.is_err());
        let longer = declared(|window, peer| {
            window.slot_from(peer, u64::MAX, 0);
            window.slot_to_with_len(peer, u64::MAX, usize::MAX);
        });
        assert!(longer.is_err());
        let (mut inbox, mut outbox) = declared(|window, peer| {
            window.slot_from(peer, u64::MAX, 0);
            window.slot_to(peer, u64::MAX);
        })?;
        let (me, nobody) = (world.rank(), Vec::new());
        for group in [vec![usize::MAX], vec![peer, me], vec![peer, peer], nobody] {
            let group = Group::new(group);
            let refused = inbox.try_post_to(&s, &group);
            inbox = match refused {
                Ok(exposed) => {
                    outbox = outbox.start_to(&group)?.complete(&s)?;
                    exposed.wait(&s)?
                }
                Err(refused) => refused.value,
            };
        }
        s.synchronize()?;
        let (_inbox, _outbox) = exchange(&s, inbox, outbox.start())?;
        s.synchronize()
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn replays_without_end_are_refused_and_leave_the_window_as_it_was() {
    World::local(1, |world: World| -> Result<()> {
        stream!(let mut s = world.named_stream("s")?);
        let mut window = SlotWindow::<u64>::new("w");
        let from = window.slot_from(0, 0, 1);
        let to = window.slot_to(0, 0);
        let halves = window.open(&s)?;
        let x = Region::from_slice(&world, &[7])?.on(&s)?;
        let (graph, lent) = s.capture((x, halves), |s, (x, (inbox, outbox))| {
            let mut epoch = outbox.start();
            epoch.put(&x, to)?;
            let halves = exchange(s, inbox, epoch)?;
            Ok((x, halves))
        })?;
        let refused = graph
            .try_replay(&s, lent, usize::MAX)
            .expect_err("there are not so many epochs");
        let lent = graph.replay(&s, refused.value, 3)?;
        let (_x, (mut inbox, _outbox)) = lent;
        assert_eq!(inbox.read(&s)?.slot(from), [7]);
        Ok(())
    })
    .remove(0)
    .unwrap();
}

#[test]
fn sums_of_no_or_other_elements_are_nothing_or_errors() {
    let program = |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut none = AllReduce::<f32>::open(&s, "none", 0, Op::Sum)?;
        let mut some = AllReduce::<u8>::open(&s, "some", 3, Op::Sum)?;
        for len in [0, 1, 3, 4] {
            let mut x = Region::<f32, _>::zeroed(&world, len)?.on(&s)?;
            assert_eq!(none.enqueue(&s, &mut x).is_ok(), len == 0);
            let mut y = Region::from_slice(&world, &vec![200u8; len])?.on(&s)?;
            assert_eq!(some.enqueue(&s, &mut y).is_ok(), len == 3);
            if len == 3 {
                assert_eq!(y.into_host(&s)?[..], [200u8.wrapping_mul(2); 3]);
            }
        }
        s.synchronize()
    };
    World::local(2, program)
        .into_iter()
        .for_each(Result::unwrap);
    World::local_with(2, by_nic, program)
        .into_iter()
        .for_each(Result::unwrap);
}

/// Handles, and halves, of one window that are used with another.
#[test]
fn what_is_of_another_window_is_refused_or_does_no_harm() {
    World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let mut small = SlotWindow::<u8>::new("small");
        let (from_small, to_small) = (small.slot_from(peer, 0, 1), small.slot_to(peer, 0));
        let mut wide = SlotWindow::<u8>::new("wide");
        let [_, from_wide] = [0, 1].map(|key| wide.slot_from(peer, key, 9));
        let (small_in, small_out) = small.open(&s)?;
        let [to_first, to_wide] = [0, 1].map(|key| wide.slot_to(peer, key));
        let (wide_in, wide_out) = wide.open(&s)?;
        let x = Region::from_slice(&world, &[7u8; 9])?.on(&s)?;
        let none = Layout::strided(0, &[(0, 1)])?;
        let two = Layout::strided(0, &[(2, 8)])?;
        let (mut wide_epoch, mut small_epoch) = (wide_out.start(), small_out.start());
        let [one, other] = wide_epoch.take([to_first, to_wide])?;
        for refused in [
            small_epoch.put(x.slice(0..1)?, one),
            small_epoch.put(x.slice(0..1)?, other),
            small_epoch.put(x.slice(0..1)?, to_first),
            wide_epoch.put(x.slice(0..1)?, to_small),
            small_epoch.take([to_first]).map(drop),
        ] {
            assert!(
                matches!(refused, Err(Error::Epoch(EpochError::ForeignSlot { .. }))),
                "{refused:?}"
            );
        }
        for first in [1, 2, usize::MAX - 8, usize::MAX] {
            assert!(
                wide_epoch
                    .put(x.with(&two)?, to_first.at(first).with(&two))
                    .is_err(),
                "{first}"
            );
            let nothing = wide_epoch.put(x.with(&none)?, to_first.at(first).with(&none));
            assert_eq!(nothing.is_ok(), first <= 9, "{first}");
        }
        wide_epoch.put(x.with(&two)?, to_wide.with(&two))?;
        small_epoch.put(x.slice(8..9)?, to_small)?;
        // Halves of two windows may go together; each is in its own epoch.
        let small_out = small_epoch.complete(&s)?;
        let (mut small_in, wide_out) = exchange(&s, small_in, wide_epoch)?;
        let mut wide_in = wide_in.post(&s)?.wait(&s)?;
        assert_eq!(small_in.read(&s)?.slot(from_small), [7]);
        assert_eq!(
            wide_in.read(&s)?.slot(from_wide),
            [7, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        // The batch that is remembered for that fits no other inbox, though the first has been dropped.
        drop(small_in);
        let mut wide_epoch = wide_out.start();
        wide_epoch.put(x.with(&two)?, to_wide.with(&two))?;
        let (mut wide_in, _) = exchange(&s, wide_in, wide_epoch)?;
        assert_eq!(
            wide_in.read(&s)?.slot(from_wide),
            [7, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        drop(small_out);
        s.synchronize()
    })
    .into_iter()
    .for_each(Result::unwrap);
}
