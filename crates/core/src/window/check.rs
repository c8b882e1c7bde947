//! Checks whether what the ranks declare of a window fits together.
//!
//! # Model
//!
//! Three things can be wrong, and each is found where it is known:
//!
//! - The ranks disagree about the terms. The control plane compares them, and [`differ`] says what differs.
//! - A rank's own declaration is wrong: [`check_own`], before the rank tells others of it.
//! - The two ends of an edge do not fit together: [`check`], when each end has heard from the other. Each rank checks
//!   what it has declared itself; a target also checks what its origins declare of its memory.
//!
//! All ranks hear of what the lowest rank finds.

use super::Kind;
use super::describe::{Description, Purpose, SLOT_ALIGN, Terms, room};
use super::edges::Edges;
use super::ring::RING_BEYOND;
use crate::epochs::MOST;
use crate::error::{Declared, Disagreement, Property};
use crate::footprint::{Footprint, Overlap, find_overlap};

/// What differs between the terms of the lowest rank and of `rank`.
pub(super) fn differ((lowest, first): (usize, &Terms), rank: usize, other: &Terms) -> Disagreement {
    let differs = |what, first: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| {
        let (first, other) = (format!("{first:?}"), format!("{other:?}"));
        Disagreement::Differs {
            what,
            lowest,
            first,
            rank,
            other,
        }
    };
    if other.purpose != first.purpose && other.layout == first.layout {
        // This explains more than what differs because of it.
        purposes_differ((lowest, first.purpose), rank, other.purpose)
    } else if other.kind != first.kind {
        differs(Property::Discipline, &first.kind, &other.kind)
    } else if (other.layout, other.size) != (first.layout, first.size) {
        elements_differ((lowest, first), rank, other)
    } else if other.buffers != first.buffers {
        differs(Property::Buffers, &first.buffers, &other.buffers)
    } else if other.before != first.before {
        differs(Property::Epochs, &first.before, &other.before)
    } else {
        differs(Property::Staging, &first.staged, &other.staged)
    }
}

/// Two types may have the same name, in two versions of a program, say.
fn elements_differ((lowest, first): (usize, &Terms), rank: usize, each: &Terms) -> Disagreement {
    let said = |each: &Terms| format!("`{}` ({} bytes)", each.element, each.size);
    let but = match (first.element == each.element, first.size == each.size) {
        (true, true) => ", of different layouts",
        _ => "",
    };
    Disagreement::Differs {
        what: Property::Elements,
        lowest,
        first: said(first),
        rank,
        other: said(each) + but,
    }
}

/// Refuses windows of different purposes. The slots alone would not show that, since a put may be shorter than its
/// slot.
fn purposes_differ((lowest, first): (usize, Purpose), rank: usize, each: Purpose) -> Disagreement {
    let what = |purpose: Purpose| match purpose {
        Purpose::Program => "a window".to_owned(),
        Purpose::Collective(joint) => joint.to_string(),
        Purpose::Barrier => "a barrier".to_owned(),
    };
    Disagreement::Differs {
        what: Property::Purpose,
        lowest,
        first: what(first),
        rank,
        other: what(each),
    }
}

/// Checks what a rank declares, as far as it does not concern others.
pub(super) fn check_own(edges: &Edges<'_>) -> Result<(), Disagreement> {
    let (rank, mine) = (edges.rank, edges.mine);
    let before = mine.terms.before;
    if before > MOST {
        return Err(Disagreement::Epochs { before, most: MOST });
    }
    if let Some(&other) = mine.far.iter().find(|_| mine.terms.kind == Kind::Atomic) {
        return Err(Disagreement::Staged { rank, other });
    }
    if let Some((origin, key)) = edges.inbound_twice() {
        return Err(Disagreement::TwoSlots { rank, origin, key });
    }
    match edges.outbound_twice() {
        Some((target, key)) if mine.terms.kind == Kind::Slot => {
            Err(Disagreement::NamedTwice { rank, target, key })
        }
        _ => Ok(()),
    }
}

/// Checks that what a rank declares fits to what its neighbours have told it.
pub(super) fn check(edges: &Edges<'_>) -> Result<(), Disagreement> {
    let (rank, mine) = (edges.rank, edges.mine);
    // How much room is taken by copies of what goes to other nodes.
    let mut sent = Some(0);
    // How much room is taken by what comes to ranges from other nodes.
    let mut come = Some(0);
    for neighbour in &edges.neighbours {
        let slots = neighbour.inbound.iter().map(|index| &mine.inbound[*index]);
        for slot in slots {
            let (origin, key) = (slot.origin, slot.key);
            if !neighbour.puts_to(key) {
                return Err(Disagreement::NotNamed { rank, origin, key });
            }
        }
        if mine.terms.kind != Kind::Slot {
            for out in &neighbour.said.outbound {
                let extent = out.elements.extent();
                if extent.is_none_or(|extent| extent.end > mine.memory) {
                    return Err(Disagreement::Range {
                        rank: neighbour.rank,
                        target: rank,
                        declared: declared(&out.elements),
                        len: mine.memory,
                    });
                }
                if edges.is_far(neighbour.rank) {
                    come = come.and_then(|end| room(end, out.elements.count(), mine.terms.size));
                }
            }
            for index in &neighbour.outbound {
                let len = mine.outbound[*index].elements.count();
                if edges.is_far(neighbour.rank) {
                    sent = sent.and_then(|end| room(end, len, mine.terms.size));
                }
            }
            continue;
        }
        for out in neighbour
            .outbound
            .iter()
            .map(|index| &mine.outbound[*index])
        {
            let (target, key) = (out.target, out.key);
            let Some((_, len)) = neighbour.slot(key) else {
                return Err(Disagreement::NoSlot { rank, target, key });
            };
            if let Some(expected) = out.expected.filter(|expected| *expected != len) {
                return Err(Disagreement::Length {
                    rank,
                    target,
                    key,
                    expected,
                    len,
                });
            }
            sent = sent.and_then(|end| room(end, len, mine.terms.size));
        }
    }
    let moved = sent
        .zip(come)
        .and_then(|(sent, come)| sent.checked_add(come));
    if bytes(mine, moved).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Disagreement::Memory { rank });
    }
    if mine.terms.kind == Kind::Range {
        check_disjoint(edges)
    } else {
        Ok(())
    }
}

/// The most bytes that the rank may allocate, if `moved` bytes of one buffer are copies of what goes to other nodes, or
/// comes from there. `None` if that cannot be
/// counted.
fn bytes(mine: &Description, moved: Option<usize>) -> Option<usize> {
    let landings = mine.inbound.iter().try_fold(0usize, |sum, slot| {
        let bytes = slot.len.checked_mul(mine.terms.size)?;
        sum.checked_add(if bytes <= mine.land_up_to {
            bytes.checked_mul(2)?.checked_add(SLOT_ALIGN)?
        } else if !mine.rings.is_empty() {
            RING_BEYOND
        } else {
            0
        })
    });
    let (_, [near, far]) = mine.slots(|_| false, |_| false)?;
    near.checked_add(far)?
        .checked_add(moved?)?
        .checked_add(landings?)?
        .checked_mul(mine.terms.buffers as usize)
}

/// The elements that a rank has declared, for an error.
fn declared(elements: &Footprint) -> Declared {
    match (elements, elements.extent()) {
        (Footprint::Range(range), _) => Declared::Range(range.clone()),
        (_, Some(extent)) => Declared::Layout(extent),
        (_, None) => Declared::Nothing,
    }
}

/// Checks that no two ranges or layouts overlap that were declared of this rank's memory.
fn check_disjoint(edges: &Edges<'_>) -> Result<(), Disagreement> {
    let origins = edges.neighbours.iter();
    let origins = origins.flat_map(|each| each.said.outbound.iter().map(|out| (each.rank, out)));
    let origins: Vec<_> = origins.map(|(rank, out)| (rank, &out.elements)).collect();
    let elements: Vec<_> = origins.iter().map(|(_, elements)| *elements).collect();
    let Some(Overlap { of, at }) = find_overlap(&elements) else {
        return Ok(());
    };
    let [one, other] = of.map(|number| {
        let (origin, elements) = origins[number];
        (declared(elements), origin)
    });
    Err(Disagreement::Overlap {
        target: edges.rank,
        one,
        other,
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::super::describe::{Inbound, Outbound};
    use super::super::edges::tests::{meet, terms};
    use super::*;
    use std::ops::Range;

    fn check(all: &[Description]) -> Result<(), String> {
        meet(all).map(drop).map_err(|found| found.to_string())
    }

    fn plain(inbound: &[(usize, u64, usize)], outbound: &[(usize, u64)]) -> Description {
        Description {
            terms: terms(Kind::Slot, 2),
            memory: 0,
            inbound: inbound
                .iter()
                .map(|&(origin, key, len)| Inbound { origin, key, len })
                .collect(),
            outbound: outbound
                .iter()
                .map(|&(target, key)| Outbound {
                    target,
                    key,
                    elements: Footprint::Range(0..0),
                    order: None,
                    expected: None,
                })
                .collect(),
            far: Vec::new(),
            land_up_to: 0,
            rings: Vec::new(),
            readable: None,
            started_alone: false,
        }
    }

    #[test]
    fn a_ring_of_two_with_two_keys_fits() {
        let all = [
            plain(&[(1, 0, 4), (1, 1, 9)], &[(1, 0), (1, 1)]),
            plain(&[(0, 0, 1), (0, 1, 1)], &[(0, 0), (0, 1)]),
        ];
        assert_eq!(meet(&all).unwrap()[0].origins(), [1]);
        assert_eq!(
            all[0].slots(|_| false, |_| false),
            Some((vec![0, 64], [192, 0]))
        );
        assert_eq!(
            all[0].slots(|_| true, |_| false),
            Some((vec![0, 64], [0, 192]))
        );
    }

    #[test]
    fn the_slots_of_a_barrier_fit_for_every_number_of_ranks() {
        for ranks in 1..=40 {
            let all = |purpose| -> Vec<_> {
                let rank = |rank| {
                    let mut each = plain(&[], &[]);
                    each.terms.purpose = purpose;
                    each.fill_in(rank, ranks);
                    each
                };
                (0..ranks).map(rank).collect()
            };
            for edges in meet(&all(Purpose::Barrier)).unwrap() {
                // There is one round for each power of two, and the rounds have different ranks.
                let expected = ranks.next_power_of_two().trailing_zeros() as usize;
                assert_eq!(edges.targets().len(), expected);
                assert_eq!(edges.origins().len(), expected);
                assert!(edges.of(edges.rank).is_none());
            }
        }
    }

    #[test]
    fn staged_memory_is_agreed_upon() {
        let staged = |far: &[usize], each: Description| Description {
            terms: Terms {
                staged: true,
                ..each.terms
            },
            far: far.to_vec(),
            ..each
        };
        let slots = |other| plain(&[(other, 0, 4)], &[(other, 0)]);
        let all = [staged(&[1], slots(1)), staged(&[], slots(0))];
        // One of them wants staging, so both have it.
        let edges = meet(&all).unwrap();
        assert!(edges[0].is_far(1) && edges[1].is_far(0) && !edges[0].is_far(0));
        let error = check(&[staged(&[1], slots(1)), slots(0)]).unwrap_err();
        assert!(error.contains("staging"), "{error}");
        let atomic = |far: &[usize]| {
            let each = plain(&[], &[]);
            staged(
                far,
                Description {
                    terms: terms(Kind::Atomic, 1),
                    ..each
                },
            )
        };
        check(&[atomic(&[]), atomic(&[])]).unwrap();
        let error = check(&[atomic(&[]), atomic(&[0])]).unwrap_err();
        assert!(error.contains("atomic windows"), "{error}");
    }

    #[test]
    fn disagreements_are_named() {
        let fits = plain(&[(1, 0, 4)], &[(1, 0)]);
        let other = plain(&[(0, 0, 4)], &[(0, 0)]);
        check(&[fits.clone(), other.clone()]).unwrap();
        let verdict = |other: Description| check(&[fits.clone(), other]).unwrap_err();
        let with = |change: &dyn Fn(&mut Terms)| {
            let mut other = other.clone();
            change(&mut other.terms);
            other
        };
        let differs = verdict(with(&|terms| {
            (terms.layout, terms.size, terms.element) = (2, 4, "u32".into());
        }));
        let types = "the element type: `f64` (8 bytes) and `u32` (4 bytes)";
        assert!(differs.ends_with(types), "{differs}");
        let differs = verdict(with(&|terms| terms.layout = 2));
        let types = "`f64` (8 bytes) and `f64` (8 bytes), of different layouts";
        assert!(differs.ends_with(types), "{differs}");
        assert!(verdict(with(&|terms| terms.buffers = 1)).contains("buffers"));
        let after = |before, other: &Description| {
            let mut other = other.clone();
            other.terms.before = before;
            other
        };
        let differs = verdict(after(1, &other));
        assert!(differs.contains("epochs before the first"), "{differs}");
        check(&[after(MOST, &fits), after(MOST, &other)]).unwrap();
        for many in [MOST + 1, u64::MAX] {
            let refused = check(&[after(many, &fits), after(many, &other)]).unwrap_err();
            assert!(refused.contains("can have no more than"), "{refused}");
        }
        assert!(verdict(with(&|terms| terms.kind = Kind::Atomic)).contains("discipline"));
        assert!(verdict(plain(&[(0, 0, 4)], &[])).contains("has no `slot_to` for it"));
        assert!(verdict(plain(&[], &[(0, 0)])).contains("no such `slot_from`"));
        // A slot without elements is a slot.
        check(&[fits.clone(), plain(&[(0, 0, 0)], &[(0, 0)])]).unwrap();
        assert!(verdict(plain(&[(0, 0, 4), (7, 0, 1)], &[(0, 0)])).contains("the job has 2 ranks"));
        assert!(verdict(plain(&[(0, 0, usize::MAX)], &[(0, 0)])).contains("exceeds"));
        let one = check(&[plain(&[], &[(1, 0)])]).unwrap_err();
        assert!(one.ends_with("the job has 1 rank"), "{one}");
    }

    #[test]
    fn an_expected_length_is_that_of_the_slot() {
        let expects = |expected| {
            let mut one = plain(&[(1, 0, 4)], &[(1, 0)]);
            one.outbound[0].expected = expected;
            check(&[one, plain(&[(0, 0, 6)], &[(0, 0)])])
        };
        expects(None).unwrap();
        expects(Some(6)).unwrap();
        let empty = [plain(&[(1, 0, 0)], &[(1, 0)]), {
            let mut other = plain(&[(0, 0, 6)], &[(0, 0)]);
            other.outbound[0].expected = Some(0);
            other
        }];
        check(&empty).unwrap();
        for wrong in [0, 4, 7] {
            let error = expects(Some(wrong)).unwrap_err();
            let both = format!("key 0 to have {wrong} elements, but it has 6");
            assert!(
                error.starts_with("rank 0 expects") && error.ends_with(&both),
                "{error}"
            );
        }
    }

    #[test]
    fn ranges_must_be_disjoint_and_within() {
        let ranged = |ranges: &[(usize, Range<usize>)]| Description {
            terms: terms(Kind::Range, 1),
            memory: 10,
            outbound: ranges
                .iter()
                .map(|(target, range)| Outbound {
                    target: *target,
                    key: 0,
                    elements: Footprint::Range(range.clone()),
                    order: None,
                    expected: None,
                })
                .collect(),
            ..plain(&[], &[])
        };
        check(&[ranged(&[(1, 0..5)]), ranged(&[(1, 5..10), (0, 0..10)])]).unwrap();
        assert!(
            check(&[ranged(&[(1, 0..6)]), ranged(&[(1, 5..10)])])
                .unwrap_err()
                .contains("overlap")
        );
        // Empty ranges overlap with nothing: in the middle of another range, at its ends, and at the end of the memory.
        let empty = [(1, 3..3), (1, 0..0), (1, 5..5), (1, 10..10), (1, 3..3)];
        check(&[ranged(&[(1, 0..10)]), ranged(&empty)]).unwrap();
        check(&[ranged(&empty), ranged(&[(1, 0..10)])]).unwrap();
        #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
        for wrong in [0..11, 11..11, 10..11, 5..4, usize::MAX..usize::MAX] {
            let error = check(&[ranged(&[(1, wrong)]), ranged(&[])]).unwrap_err();
            assert!(error.contains("which has 10 elements"), "{error}");
        }
    }

    #[test]
    fn layouts_must_be_disjoint_and_within() {
        let declares = |each: &[(usize, Footprint)]| Description {
            terms: terms(Kind::Range, 1),
            memory: 12,
            outbound: each
                .iter()
                .map(|(target, elements)| Outbound {
                    target: *target,
                    key: 0,
                    elements: elements.clone(),
                    order: None,
                    expected: None,
                })
                .collect(),
            ..plain(&[], &[])
        };
        // A column of a matrix of 4 x 3 elements.
        let column = |k: usize| Footprint::of_nest(k, [(4, 3)].into_iter());
        let others = [
            declares(&[(1, column(0)), (0, column(2))]),
            declares(&[(1, column(1))]),
        ];
        check(&others).unwrap();
        let error =
            |one, other| check(&[declares(&[(1, one)]), declares(&[(1, other)])]).unwrap_err();
        let twice = error(column(1), Footprint::Range(3..6));
        let says =
            "of rank 1's memory, a layout of rank 0 and 3..6 of rank 1 overlap in elements 4..5";
        assert_eq!(twice, says);
        let alone = check(&[declares(&[(1, column(2)), (1, column(2))]), declares(&[])]);
        assert!(alone.unwrap_err().contains("overlap in elements 2..3"));
        let far = error(Footprint::Range(0..0), column(3));
        assert!(
            far.ends_with("a layout of elements 3..13 of rank 1, which has 12 elements"),
            "{far}"
        );
        let nothing = error(Footprint::Range(0..0), Footprint::Runs(vec![(0, 0)]));
        assert!(nothing.contains("declares a damaged layout"), "{nothing}");
    }
}
