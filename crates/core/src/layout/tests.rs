//! The elements of layouts, their pieces, and what is refused.

use super::Layout;
use crate::World;
use crate::error::Error;
use crate::ground::VISITS;
use tidegate_hal::batch::Shape;
use tidegate_host::Host;

#[test]
fn layouts_of_very_many_pieces_are_refused() {
    for loops in [&[(1 << 31, 2)][..], &[(1 << 13, 2), (1 << 14, 1 << 15)]] {
        let refused = Layout::<Host>::strided(0, loops).unwrap_err();
        assert!(matches!(refused, Error::Region(_)), "{refused}");
        assert!(refused.to_string().contains("pieces"), "{refused}");
    }
    // A row is one piece, however long it is, even inside loops of one round.
    let row = Layout::<Host>::strided(0, &[(1, 7), ((1 << 26) + 1, 1)]).unwrap();
    assert_eq!(row.runs().collect::<Vec<_>>(), [(0, (1 << 26) + 1)]);
    let one = Layout::<Host>::strided(3, &[(1, 7), (1, 9)]).unwrap();
    assert_eq!(one.runs().collect::<Vec<_>>(), [(3, 4)]);
    let rows = Layout::<Host>::strided(5, &[(1 << 20, 1), (3, 1 << 21)]).unwrap();
    assert_eq!((rows.count(), rows.runs().count()), (3 << 20, 3));
}

/// The elements one by one, as the documentation of `strided` defines them.
fn elements(first: usize, loops: &[(u32, i32)]) -> Vec<usize> {
    let mut elements = vec![first as i64];
    for &(times, stride) in loops.iter().rev() {
        let turns =
            |base: i64| (0..i64::from(times)).map(move |turn| base + turn * i64::from(stride));
        elements = elements.into_iter().flat_map(turns).collect();
    }
    elements
        .into_iter()
        .map(|element| element as usize)
        .collect()
}

#[test]
fn a_box_is_its_elements_row_by_row() {
    // All boxes of an array, compared with their indices.
    let dims = [3, 2, 1, 4];
    let ranges = |dim: usize| (0..=dim).flat_map(move |end| (0..=end).map(move |at| at..end));
    let mut looked = 0;
    for a in ranges(dims[0]) {
        for b in ranges(dims[1]) {
            for c in ranges(dims[2]) {
                for d in ranges(dims[3]) {
                    let layout = Layout::<Host>::subarray(
                        &dims,
                        &[a.clone(), b.clone(), c.clone(), d.clone()],
                    )
                    .unwrap();
                    let mut all = Vec::new();
                    for i in a.clone() {
                        for j in b.clone() {
                            for k in c.clone() {
                                all.extend(d.clone().map(|l| ((i * 2 + j) + k) * 4 + l));
                            }
                        }
                    }
                    let runs = layout.runs().flat_map(|(first, end)| first..end);
                    assert_eq!(runs.collect::<Vec<_>>(), all);
                    assert_eq!(layout.count(), all.len());
                    assert_eq!(layout.extent(), all.last().map_or(0, |last| last + 1));
                    assert!(layout.is_distinct());
                    looked += 1;
                }
            }
        }
    }
    assert_eq!(looked, 10 * 6 * 3 * 15);
}

#[test]
fn a_box_has_as_few_loops_as_can_be() {
    let loops = |dims: &[usize], ranges: &[std::ops::Range<usize>]| {
        VISITS.set(0);
        let (first, shape) = Layout::<Host>::subarray(dims, ranges).unwrap().shape();
        assert_eq!(VISITS.get(), 0);
        match shape {
            Shape::Linear => (first, Vec::new()),
            Shape::Strided { dims, rank } => (first, dims[..rank as usize].to_vec()),
            Shape::Indexed { .. } => unreachable!("a box has no table"),
        }
    };
    let side = 1 << 10;
    let dims = [side; 3];
    let plane = (side * side) as i32;
    assert_eq!(loops(&dims, &[5..9, 0..side, 0..side]), (5 << 20, vec![]));
    assert_eq!(
        loops(&dims, &[5..6, 7..9, 0..side]),
        ((5 << 20) + (7 << 10), vec![])
    );
    let inner = 1..side - 1;
    let rows = (side - 2) as u32;
    assert_eq!(
        loops(&dims, &[0..1, inner.clone(), inner.clone()]),
        (side + 1, vec![(rows, 1), (rows, side as i32)])
    );
    assert_eq!(
        loops(&dims, &[inner.clone(), 0..1, inner.clone()]),
        (side * side + 1, vec![(rows, 1), (rows, plane)])
    );
    assert_eq!(
        loops(&dims, &[inner.clone(), inner, 0..1]),
        (side * side + side, vec![(rows, side as i32), (rows, plane)])
    );
    // Dimensions of one element, and dimensions that are taken whole, are not loops of their own.
    let many = [2, 1, 3, 4, 1, 1, 5, 2, 2];
    let ranges = [0..1, 0..1, 1..3, 0..4, 0..1, 0..1, 2..4, 0..2, 0..2];
    assert_eq!(loops(&many, &ranges), (80 + 8, vec![(8, 1), (8, 20)]));
    // An array may be longer than a layout reaches, if the box is one piece.
    assert_eq!(loops(&[1 << 40], &[7..1 << 39]), (7, vec![]));
}

#[test]
fn what_is_no_box_is_refused() {
    let said = |dims: &[usize], ranges: &[std::ops::Range<usize>]| {
        let refused = Layout::<Host>::subarray(dims, ranges).unwrap_err();
        assert!(matches!(refused, Error::Region(_)), "{refused}");
        refused.to_string()
    };
    assert!(said(&[], &[]).ends_with("an array has at least one dimension"));
    assert!(said(&[3, 3], &[0..1; 1]).ends_with("1 ranges for 2 dimensions"));
    assert!(said(&[3, 3], &[0..3, 1..4]).ends_with("range 1, 1..4, does not lie within 0..3"));
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let reversed = said(&[3], &[2..1]);
    assert!(
        reversed.ends_with("range 0, 2..1, does not lie within 0..3"),
        "{reversed}"
    );
    for dims in [
        &[usize::MAX][..],
        &[1 << 32, 1 << 31],
        &[1 << 40, 0, 1 << 40],
    ] {
        let ranges = vec![0..0; dims.len()];
        assert!(said(dims, &ranges).ends_with("larger than memory can be"));
    }
    let every_other: Vec<_> = (0..12).map(|k| 0..2 - k % 2).collect();
    let deep = said(&[2; 12], &every_other);
    assert!(
        deep.contains("6 loops deep, and at most 5 are allowed"),
        "{deep}"
    );
    let apart = said(&[2, 1 << 31], &[0..2, 0..1]);
    assert!(apart.contains("2^31"), "{apart}");
    let far = said(&[1 << 20, 1 << 20], &[0..1 << 20, 0..1]);
    assert!(far.contains("fewer than 2^32 elements"), "{far}");
    let none = Layout::<Host>::subarray(&[3, 0, 2], &[0..3, 0..0, 0..2]).unwrap();
    assert_eq!((none.count(), none.extent()), (0, 0));
}

#[test]
fn what_is_one_piece_is_looked_at_once() {
    VISITS.set(0);
    let all = 1 << 32;
    let one: [(&[(u32, i32)], usize); 6] = [
        (&[(u32::MAX, 1)], u32::MAX as usize),
        (&[(1 << 16, 1), (1 << 16, 1 << 16)], all),
        (&[(1, -5), (1 << 16, 1), (1, 9), (1 << 16, 1 << 16)], all),
        (&[(2, 1), (1 << 31, 2)], all),
        // The largest strides that are allowed.
        (&[(1 << 30, 1), (1 << 30, 1 << 30)], 1 << 60),
        (&[(1, 3), (1, 0)], 1),
    ];
    for (loops, count) in one {
        let layout = Layout::<Host>::strided(7, loops).unwrap();
        assert_eq!((layout.count(), layout.extent()), (count, count + 7));
        assert!(layout.is_distinct() && layout.shape().1 == Shape::Linear);
        assert_eq!(layout.runs().collect::<Vec<_>>(), [(7, count + 7)]);
    }
    // Rows beside other rows, and separate elements, are nested. So no search for repeated elements is needed.
    let rows = Layout::<Host>::strided(0, &[(1 << 15, 1), (1 << 15, 1 << 16)]).unwrap();
    let apart = Layout::<Host>::strided(u32::MAX as usize - 10, &[(1 << 26, -3)]).unwrap();
    assert!(rows.is_distinct() && apart.is_distinct());
    let still = Layout::<Host>::strided(0, &[(1 << 20, 0), (64, 1)]).unwrap();
    assert!(!still.is_distinct());
    assert_eq!(VISITS.get(), 0);
}

#[test]
fn beyond_its_limits_a_layout_says_them() {
    let said = |first, loops: &[(u32, i32)]| {
        let refused = Layout::<Host>::strided(first, loops).unwrap_err();
        assert!(matches!(refused, Error::Region(_)), "{refused}");
        refused.to_string()
    };
    for (first, loops) in [
        (0, &[(1 << 31, 1), (3, i32::MAX)][..]),
        (0, &[(u32::MAX, 0), (2, 1)]),
        (u32::MAX as usize, &[(2, 2)]),
        (0, &[(u32::MAX, i32::MAX); 5]),
    ] {
        let text = said(first, loops);
        assert!(text.contains("fewer than 2^32 elements"), "{text}");
    }
    let text = said(3, &[(2, 1), (2, -4)]);
    assert!(text.ends_with("it reaches down to element -1"), "{text}");
    let text = said(isize::MAX as usize, &[(2, 1)]);
    assert!(text.contains("beyond what can be addressed"), "{text}");
    for loops in [&[][..], &[(1, 1); 6]] {
        assert!(said(0, loops).ends_with("a strided layout has 1 to 5 loops"));
    }
}

#[test]
fn elements_that_occur_twice_are_found() {
    // All nests of three of these loops.
    let loops = [
        (2, 1),
        (3, 1),
        (2, 2),
        (3, -2),
        (2, 3),
        (4, 3),
        (1, 8),
        (2, 0),
        (3, 6),
    ];
    let mut twice = 0;
    for a in loops {
        for b in loops {
            for c in loops {
                let nest = [a, b, c];
                let layout = Layout::<Host>::strided(20, &nest).unwrap();
                let mut all = elements(20, &nest);
                assert_eq!(layout.count(), all.len());
                assert_eq!(layout.extent(), all.iter().max().unwrap() + 1);
                all.sort_unstable();
                let distinct = all.windows(2).all(|pair| pair[0] != pair[1]);
                assert_eq!(layout.is_distinct(), distinct, "{nest:?}");
                twice += usize::from(!distinct);
            }
        }
    }
    assert!(twice > 100 && twice < 600, "{twice}");
    World::<Host>::local(1, |world| {
        let distinct = |indices: &[u32]| {
            let layout = Layout::indexed(&world, indices).unwrap();
            layout.is_distinct()
        };
        assert!(distinct(&[3]) && distinct(&[3, 4, 9]) && distinct(&[9, 3, 4, 2, u32::MAX]));
        assert!(!distinct(&[3, 3]) && !distinct(&[3, 4, 5, 9, 4]));
        assert!(!distinct(&[u32::MAX, 0, u32::MAX]));
    });
}

#[test]
fn runs_are_those_of_the_elements() {
    let nests: [&[(u32, i32)]; 8] = [
        &[(7, 1)],
        &[(1, 1), (3, 4)],
        &[(4, 1), (3, 4)],
        &[(4, 1), (3, 5), (2, 20)],
        &[(2, 1), (2, 3), (2, 6)],
        &[(5, 2), (2, 1)],
        &[(3, -2), (2, 7)],
        &[(3, 1), (3, -3)],
    ];
    for loops in nests {
        let layout = Layout::<Host>::strided(10, loops).unwrap();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for element in elements(10, loops) {
            match runs.last_mut() {
                Some((_, end)) if *end == element => *end += 1,
                _ => runs.push((element, element + 1)),
            }
        }
        assert_eq!(layout.runs().collect::<Vec<_>>(), runs, "{loops:?}");
    }
}

#[test]
fn what_is_regular_takes_no_memory_for_its_pieces() {
    let layout = Layout::<Host>::strided(1, &[(3, 1), (1 << 16, 5)]).unwrap();
    assert_eq!(
        (layout.inner.listed.capacity(), layout.runs().count()),
        (0, 1 << 16)
    );
    World::<Host>::local(1, |world| {
        let listed = Layout::indexed(&world, &[3, 4, 9, 2]).unwrap();
        assert_eq!(listed.runs().collect::<Vec<_>>(), [(3, 5), (9, 10), (2, 3)]);
    });
}
