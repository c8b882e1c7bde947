//! Compares footprints with sets of elements that are listed in full.

use std::collections::BTreeSet;

use super::*;
use crate::ground::VISITS;
use crate::layout::Layout;
use crate::random::Rng;
use tidegate_host::Host;

/// A range within `0..len`, rarely an empty one.
fn range(random: &mut Rng, len: usize) -> Range<usize> {
    let first = random.below(len);
    first..(first + random.below(len - first + 1).max(1))
}

/// The elements of a box of an array, in order, from the definition.
fn elements(dims: &[usize], ranges: &[Range<usize>]) -> Vec<usize> {
    let rows = dims.iter().zip(ranges);
    rows.fold(vec![0], |at, (dim, range)| {
        let index = |at: usize| range.clone().map(move |index| at * dim + index);
        at.into_iter().flat_map(index).collect()
    })
}

fn subarray(dims: &[usize], ranges: &[Range<usize>]) -> Layout<Host> {
    Layout::subarray(dims, ranges).unwrap()
}

fn set(footprint: &Footprint) -> Vec<usize> {
    footprint.runs().flatten().collect()
}

/// A declaration: its elements, and the footprint that describes them.
fn random(random: &mut Rng, dims: &[usize]) -> (BTreeSet<usize>, Footprint) {
    let len: usize = dims.iter().product();
    match random.below(8) {
        0 => {
            let range = range(random, len);
            (range.clone().collect(), Footprint::Range(range))
        }
        1 => {
            let all: BTreeSet<_> = (0..random.below(6)).map(|_| random.below(len)).collect();
            let runs = all.iter().map(|element| (*element, element + 1)).collect();
            (all, Footprint::of_runs(runs))
        }
        // The array may be a different one.
        2 => {
            let dims = [1 + random.below(4), 1 + random.below(4)];
            let ranges = dims.map(|dim| range(random, dim));
            let all = elements(&dims, &ranges).into_iter().collect();
            (all, subarray(&dims, &ranges).footprint().unwrap())
        }
        _ => {
            let ranges: Vec<_> = dims.iter().map(|dim| range(random, *dim)).collect();
            let all = elements(dims, &ranges).into_iter().collect();
            (all, subarray(dims, &ranges).footprint().unwrap())
        }
    }
}

#[test]
fn overlaps_are_those_that_brute_force_finds() {
    let mut source = Rng::new(0x7e5e_ed17);
    let (mut met, mut apart) = (0, 0);
    for round in 0..if cfg!(miri) { 60 } else { 6000 } {
        let dims: Vec<_> = (0..1 + source.below(4))
            .map(|_| 1 + source.below(5))
            .collect();
        let many = 1 + source.below(4);
        let all: Vec<_> = (0..many).map(|_| random(&mut source, &dims)).collect();
        let mut seen = BTreeSet::new();
        let disjoint = all
            .iter()
            .flat_map(|(elements, _)| elements)
            .all(|element| seen.insert(*element));
        for (elements, footprint) in &all {
            let expected: Vec<_> = elements.iter().copied().collect();
            assert_eq!(set(footprint), expected, "{footprint:?}");
            let extent = footprint.extent().unwrap();
            if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
                assert_eq!(extent, *first..last + 1, "{footprint:?}");
            }
        }
        let footprints: Vec<_> = all.iter().map(|(_, footprint)| footprint).collect();
        match find_overlap(&footprints) {
            None => {
                assert!(disjoint, "round {round}: {footprints:?}");
                apart += 1;
                let len = seen.last().map_or(0, |last| last + 1) + source.below(3);
                let rest = complement(footprints.iter().copied(), len).unwrap();
                assert!(rest.iter().all(|piece| !piece.is_empty()));
                assert!(rest.windows(2).all(|pair| pair[0].end < pair[1].start));
                let expected: Vec<_> = (0..len).filter(|e| !seen.contains(e)).collect();
                assert_eq!(rest.into_iter().flatten().collect::<Vec<_>>(), expected);
            }
            Some(Overlap { of: [a, b], at }) => {
                assert!(a < b && !at.is_empty());
                let both = |element| all[a].0.contains(&element) && all[b].0.contains(&element);
                assert!(
                    at.clone().all(both),
                    "round {round}: {at:?} of {footprints:?}"
                );
                met += 1;
            }
        }
    }
    assert!(met > 10 && apart > 10, "{met} and {apart}");
}

#[test]
fn boxes_of_one_array_are_found_to_be_boxes() {
    let mut source = Rng::new(41);
    for _ in 0..if cfg!(miri) { 40 } else { 3000 } {
        let dims: Vec<_> = (0..1 + source.below(5))
            .map(|_| 1 + source.below(4))
            .collect();
        // The array comes behind another array with the same dimensions.
        let begin = source.below(2) * dims.iter().product::<usize>();
        let all: Vec<_> = (0..1 + source.below(5))
            .map(|_| {
                let ranges: Vec<_> = dims.iter().map(|dim| range(&mut source, *dim)).collect();
                let mut footprint = subarray(&dims, &ranges).footprint().unwrap();
                shift(&mut footprint, begin);
                footprint
            })
            .collect();
        let footprints: Vec<_> = all.iter().collect();
        let these: Vec<_> = (0..all.len()).collect();
        let boxes = boxes(&footprints, &these).expect("they are boxes of one array");
        for (sides, footprint) in boxes.iter().zip(&all) {
            let count: usize = sides.iter().map(Range::len).product();
            assert_eq!(count, set(footprint).len());
        }
    }
}

/// The same footprint, further on.
fn shift(footprint: &mut Footprint, by: usize) {
    match footprint {
        Footprint::Nest { first, .. } => *first += by,
        Footprint::Range(range) => *range = range.start + by..range.end + by,
        Footprint::Runs(_) => unreachable!("a box is no list"),
    }
}

/// The six ghost faces of a block, each one layer deep, without edges and corners.
fn faces(side: usize) -> Vec<Footprint> {
    let dims = [side; 3];
    let inner = 1..side - 1;
    let faces = (0..3).flat_map(|k| {
        [0..1, side - 1..side].map(|layer| {
            let mut ranges = [inner.clone(), inner.clone(), inner.clone()];
            ranges[k] = layer;
            subarray(&dims, &ranges).footprint().unwrap()
        })
    });
    faces.collect()
}

#[test]
fn boxes_of_one_array_are_compared_without_their_runs() {
    let looks = |footprints: &[Footprint]| {
        VISITS.set(0);
        let all: Vec<_> = footprints.iter().collect();
        assert_eq!(find_overlap(&all), None);
        VISITS.get()
    };
    assert_eq!(looks(&faces(16)), looks(&faces(1024)));
    // Each of 24 x 24 ranks has a block. It is compared with those beside it, and not with all.
    let blocks = |many: usize| -> Vec<_> {
        let dims = [many * 3, many * 5];
        let block = |at: usize| {
            [
                at / many * 3..at / many * 3 + 3,
                at % many * 5..at % many * 5 + 5,
            ]
        };
        (0..many * many)
            .map(|at| subarray(&dims, &block(at)).footprint().unwrap())
            .collect()
    };
    assert!(looks(&blocks(24)) < 24 * 24 * 30);
    // In a transpose each origin has a column.
    let columns = |many: usize| -> Vec<_> {
        let column = |k: usize| subarray(&[many, many], &[0..many, k..k + 1]);
        (0..many).map(|k| column(k).footprint().unwrap()).collect()
    };
    assert!(looks(&columns(512)) < 512 * 8);
    // Arrays of two sizes lie beside each other.
    let beside = |side| {
        let (mut all, mut others) = (faces(side), faces(side + 3));
        for footprint in &mut others {
            shift(footprint, side * side * side);
        }
        all.append(&mut others);
        all
    };
    assert_eq!(looks(&beside(16)), looks(&beside(512)));
}

#[test]
fn what_travels_of_a_box_is_short() {
    for face in faces(1000) {
        let bytes = postcard::to_stdvec(&face).unwrap();
        assert!(bytes.len() < 24, "{} bytes of {face:?}", bytes.len());
        assert_eq!(postcard::from_bytes::<Footprint>(&bytes).unwrap(), face);
    }
    let table = Footprint::of_runs(
        (0..1000)
            .map(|k| (1_000_000 + 7 * k, 1_000_002 + 7 * k))
            .collect(),
    );
    assert_eq!(table.listed(), 1000);
    assert!(postcard::to_stdvec(&table).unwrap().len() < 2020);
}

#[test]
fn what_is_no_footprint_has_no_extent() {
    let nest = |first, loops: &[(usize, usize)]| Footprint::Nest {
        first,
        loops: loops.to_vec(),
    };
    let runs = |runs: &[(usize, usize)]| Footprint::Runs(runs.to_vec());
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let wrong = [
        Footprint::Range(5..4),
        Footprint::Range(usize::MAX..usize::MAX),
        nest(0, &[(4, 1), (2, 3)]),
        nest(0, &[(4, 0)]),
        nest(0, &[(1, 1)]),
        nest(0, &[(0, 1)]),
        nest(usize::MAX, &[(2, 1)]),
        nest(0, &[(usize::MAX, 2)]),
        nest(0, &[(usize::MAX, 1), (2, usize::MAX)]),
        runs(&[(0, 0)]),
        runs(&[(0, 2), (0, 2)]),
        runs(&[(1, usize::MAX)]),
        runs(&[(usize::MAX, 1)]),
    ];
    for wrong in wrong {
        assert_eq!(wrong.extent(), None, "{wrong:?}");
    }
    assert_eq!(nest(3, &[(4, 1), (2, 4)]).extent(), Some(3..11));
    assert_eq!(runs(&[]).extent(), Some(0..0));
    assert_eq!(runs(&[(0, 2), (1, 2)]).extent(), Some(0..5));
}
