//! Parts of a region: what they hold, what is refused, and how they are joined.

use super::*;
use crate::World;
use crate::error::{Error, StreamError};
use tidegate_host::Host;

fn set(ranges: &[Range<usize>]) -> IndexSet {
    IndexSet::from_ranges(ranges.iter().cloned()).unwrap()
}

#[test]
fn sets_are_sorted_merged_and_disjoint() {
    let merged = set(&[5..7, 0..2, 2..4, 9..9]);
    assert_eq!(merged.ranges(), [0..4, 5..7]);
    assert!(merged.contains(3) && !merged.contains(4) && merged.contains(6) && !merged.contains(7));
    assert!(IndexSet::from_ranges([0..3, 2..4]).is_err());
    assert!(IndexSet::from_indices([1, 2, 1]).is_err());
    assert_eq!(IndexSet::from_indices([3, 1, 2]).unwrap().ranges(), [1..4]);
}

#[test]
fn the_largest_number_is_in_no_set() {
    for all in [set(&[]), set(&[0..usize::MAX])] {
        assert!(!all.contains(usize::MAX));
    }
    assert!(set(&[0..usize::MAX]).contains(usize::MAX - 1));
    assert!(IndexSet::from_indices([usize::MAX]).is_err());
}

/// A slice without elements has an address, too, which is not null.
#[test]
fn a_part_of_an_empty_region_is_an_empty_slice() {
    World::<Host>::local(1, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let none = Region::<u64, _>::zeroed(&world, 0).unwrap();
        let [part] = none.partition([set(&[])]).unwrap();
        let mut part = part.on(&s).unwrap();
        let look = |mut part: CellsMut<'_, u64>| {
            assert!(part.slice(0..0).is_empty() && part.slice_mut(0..0).is_empty());
        };
        s.launch(look, &mut part).unwrap();
        s.launch(
            |part: Cells<'_, u64>| assert!(part.slice(0..0).is_empty()),
            &part,
        )
        .unwrap();
        let mut none = Region::reunite([part.into_host(&s).unwrap()]).unwrap();
        assert!(none.is_empty() && none.iter_mut().next().is_none());
    });
}

#[test]
fn parts_are_checked_used_and_put_together() {
    World::<Host>::local(1, |world| {
        let region = Region::from_slice(&world, &[0u32, 1, 2, 3, 4, 5]).unwrap();
        let region = region
            .try_partition([set(&[0..3]), set(&[2..4])])
            .err()
            .unwrap()
            .value;
        let region = region
            .try_partition([set(&[0..3]), set(&[4..7])])
            .err()
            .unwrap()
            .value;
        let [low, high] = region
            .partition([set(&[0..2, 3..4]), set(&[4..6])])
            .unwrap();
        crate::stream!(let a = world.stream().unwrap());
        crate::stream!(let b = world.stream().unwrap());
        let (mut low, mut high) = (low.on(&a).unwrap(), high.on(&b).unwrap());
        a.launch(
            |mut low: CellsMut<'_, u32>| low.set(3, low.get(0) + 70),
            &mut low,
        )
        .unwrap();
        b.launch(
            |mut high: CellsMut<'_, u32>| high.set(5, high.get(4) + 10),
            &mut high,
        )
        .unwrap();
        let layout = Layout::strided(0, &[(2, 1)]).unwrap();
        assert!(low.with(&layout).is_ok());
        assert!(low.with(&Layout::strided(1, &[(2, 1)]).unwrap()).is_err());
        let (low, high) = (low.into_host(&a).unwrap(), high.into_host(&b).unwrap());
        let [high, low] = Region::try_reunite([high, low]).err().unwrap().value;
        let whole = Region::reunite([low, high]).unwrap();
        assert_eq!(whole[..], [0, 1, 2, 70, 4, 14]);
    });
}

#[test]
fn a_part_of_nothing_lives_as_long_as_its_kernels() {
    World::<Host>::local(1, |world| {
        let region = Region::<u32, _>::zeroed(&world, 0).unwrap();
        let [part] = region.partition([set(&[])]).unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let part = part.on(&s).unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let gone = Arc::new(std::sync::Mutex::new(gone));
        let kernel = move |part: Cells<'_, u32>| {
            gone.lock().unwrap().recv().unwrap();
            assert_eq!(part.whole_len(), 0);
        };
        s.launch(kernel, &part).unwrap();
        let members = Arc::downgrade(&part.members);
        drop(part);
        let alive = members.upgrade().is_some();
        go.send(()).unwrap();
        s.synchronize().unwrap();
        assert!(alive, "the kernel looks at it still");
    });
}

#[test]
fn a_part_of_nothing_has_slices_of_nothing() {
    World::<Host>::local(1, |world| {
        let region = Region::<u64, _>::zeroed(&world, 0).unwrap();
        let [part] = region.partition([set(&[])]).unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let mut part = part.on(&s).unwrap();
        let read = |part: Cells<'_, u64>| assert!(part.slice(0..0).is_empty());
        s.launch(read, &part).unwrap();
        let write = |mut part: CellsMut<'_, u64>| part.slice_mut(0..0).fill(1);
        s.launch(write, &mut part).unwrap();
        let region = Region::reunite([part.into_host(&s).unwrap()]).unwrap();
        assert!(region.is_empty() && region.into_vec().unwrap().is_empty());
    });
}

#[test]
fn slices_are_within_the_part() {
    World::<Host>::local(1, |world| {
        let region = Region::from_slice(&world, &[0u32, 1, 2, 3, 4, 5]).unwrap();
        let [part] = region.partition([set(&[0..2, 3..6])]).unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let mut part = part.on(&s).unwrap();
        let write = |mut part: CellsMut<'_, u32>| {
            part.slice_mut(3..5).copy_from_slice(&[7, 8]);
            let first = part.slice(0..2).to_vec();
            part.slice_mut(4..6).copy_from_slice(&first);
        };
        s.launch(write, &mut part).unwrap();
        let read = |part: Cells<'_, u32>| {
            assert_eq!(part.ranges(), [0..2, 3..6]);
            assert_eq!(part.slice(3..6), [7, 0, 1]);
            // There is nothing at any index, up to the end.
            for at in 0..=6 {
                assert!(part.slice(at..at).is_empty());
            }
        };
        s.launch(read, &part).unwrap();
        s.synchronize().unwrap();
        #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
        let outside = [1..4, 2..3, 5..7, 7..7, 2..1, 0..usize::MAX];
        // Miri takes a minute to print where a thread has panicked.
        for outside in outside.into_iter().filter(|_| !cfg!(miri)) {
            crate::stream!(let s = world.stream().unwrap());
            let region = Region::from_slice(&world, &[0u32; 6]).unwrap();
            let [part] = region.partition([set(&[0..2, 3..6])]).unwrap();
            let part = part.on(&s).unwrap();
            let kernel =
                move |part: Cells<'_, u32>| assert!(part.slice(outside.clone()).is_empty());
            s.launch(kernel, &part).unwrap();
            let error = s.synchronize().unwrap_err();
            assert!(
                error.to_string().contains("are not all in this part"),
                "{error}"
            );
        }
    });
}

#[test]
fn touching_what_is_not_in_the_part_panics() {
    World::<Host>::local(1, |world| {
        let region = Region::from_slice(&world, &[0u32; 4]).unwrap();
        let [part] = region.partition([set(&[0..2])]).unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let part = part.on(&s).unwrap();
        s.launch(|part: Cells<'_, u32>| assert_eq!(part.get(2), 0), &part)
            .unwrap();
        let error = s.synchronize().unwrap_err();
        assert!(
            matches!(error, Error::Stream(StreamError::KernelPanicked { .. })),
            "{error}"
        );
    });
}

/// The data that a solver keeps beside its regions is carried with them: numbers, layouts and index sets.
#[test]
fn what_is_plain_is_carried() {
    fn is_carried<'s, X: Carry<'s, Host>>() {}
    is_carried::<(u128, i128, Vec<crate::Cartesian<3>>)>();
    is_carried::<(Layout<Host>, Option<IndexSet>)>();
    #[cfg(feature = "half")]
    is_carried::<[half::f16; 2]>();
}
