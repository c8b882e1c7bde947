//! Checks whether the ranks' descriptions of a window fit together.
//!
//! Every rank gets every rank's description and checks all of them, so that all ranks come to the same verdict.

use super::Kind;
use super::describe::{Description, Purpose, SLOT_ALIGN, room};
use super::edges::Edges;
use crate::epochs::MOST;
use crate::error::{Declared, Disagreement, Property};
use crate::footprint::{Footprint, Overlap, find_overlap};

/// Checks that the descriptions fit together.
pub(super) fn check(edges: &Edges<'_>) -> Result<(), Disagreement> {
    let all = edges.all;
    let first = &all[0];
    // This explains more than a slot that does not fit because of it.
    for (rank, each) in all.iter().enumerate() {
        if each.purpose != first.purpose && each.layout == first.layout {
            return Err(purposes_differ(first.purpose, rank, each.purpose));
        }
    }
    for (rank, each) in all.iter().enumerate() {
        let differs = |what, mine: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            let (first, other) = (format!("{mine:?}"), format!("{theirs:?}"));
            Err(Disagreement::Differs {
                what,
                first,
                rank,
                other,
            })
        };
        if each.kind != first.kind {
            return differs(Property::Discipline, &first.kind, &each.kind);
        }
        if (each.layout, each.size) != (first.layout, first.size) {
            return Err(elements_differ(first, rank, each));
        }
        if each.buffers != first.buffers {
            return differs(Property::Buffers, &first.buffers, &each.buffers);
        }
        if each.before != first.before {
            return differs(Property::Epochs, &first.before, &each.before);
        }
        if each.before > MOST {
            let (before, most) = (each.before, MOST);
            return Err(Disagreement::Epochs { before, most });
        }
        if each.staged != first.staged {
            return differs(Property::Staging, &first.staged, &each.staged);
        }
        if let Some(&other) = each.far.iter().find(|_| each.kind != Kind::Slot) {
            return Err(Disagreement::Staged { rank, other });
        }
        // If the slots follow from the purpose, they fit. And if the memory of one rank can be addressed, that of all
        // can.
        if each.purpose != Purpose::Barrier || rank == 0 {
            check_rank(edges, rank, each)?;
        }
    }
    if first.kind == Kind::Range {
        check_disjoint(all)
    } else {
        Ok(())
    }
}

/// Two types may have the same name, in two versions of a program, say.
fn elements_differ(first: &Description, rank: usize, each: &Description) -> Disagreement {
    let said = |each: &Description| format!("`{}` ({} bytes)", each.element, each.size);
    let but = match (first.element == each.element, first.size == each.size) {
        (true, true) => ", of different layouts",
        _ => "",
    };
    Disagreement::Differs {
        what: Property::Elements,
        first: said(first),
        rank,
        other: said(each) + but,
    }
}

/// Refuses windows of different purposes. The slots alone would not show that, since a put may be shorter than its
/// slot.
fn purposes_differ(first: Purpose, rank: usize, each: Purpose) -> Disagreement {
    let what = |purpose: Purpose| match purpose {
        Purpose::Program => "a window".to_owned(),
        Purpose::Collective(joint) => joint.to_string(),
        Purpose::Barrier => "a barrier".to_owned(),
    };
    Disagreement::Differs {
        what: Property::Purpose,
        first: what(first),
        rank,
        other: what(each),
    }
}

fn check_rank(edges: &Edges<'_>, rank: usize, each: &Description) -> Result<(), Disagreement> {
    let all = edges.all;
    let size = all.len();
    let no_such = |named: usize| Disagreement::NoSuchRank {
        rank,
        named,
        size,
        alone: each.started_alone,
    };
    for (index, slot) in each.inbound.iter().enumerate() {
        if slot.origin >= size {
            return Err(no_such(slot.origin));
        }
        let (origin, key) = (slot.origin, slot.key);
        if edges.slot(rank, origin, key) != Some(index) {
            return Err(Disagreement::TwoSlots { rank, origin, key });
        }
        if edges.outbound_slot(origin, rank, key).is_none() {
            return Err(Disagreement::NotNamed { rank, origin, key });
        }
    }
    for (index, out) in each.outbound.iter().enumerate() {
        let (key, target) = (
            out.key,
            all.get(out.target).ok_or_else(|| no_such(out.target))?,
        );
        let there = out.target;
        if each.kind == Kind::Slot {
            if edges.outbound_slot(rank, there, key) != Some(index) {
                let target = there;
                return Err(Disagreement::NamedTwice { rank, target, key });
            }
            let Some(slot) = edges.slot(there, rank, key) else {
                let target = there;
                return Err(Disagreement::NoSlot { rank, target, key });
            };
            let len = target.inbound[slot].len;
            if let Some(expected) = out.expected.filter(|expected| *expected != len) {
                return Err(Disagreement::Length {
                    rank,
                    target: there,
                    key,
                    expected,
                    len,
                });
            }
        } else {
            let extent = out.elements.extent();
            if extent
                .as_ref()
                .is_none_or(|extent| extent.end > target.memory)
            {
                return Err(Disagreement::Range {
                    rank,
                    target: there,
                    declared: declared(&out.elements),
                    len: target.memory,
                });
            }
        }
    }
    let outbound = each.outbound.iter().try_fold(0, |end, out| {
        let slot = edges.slot(out.target, rank, out.key);
        let len = slot.map_or(0, |slot| all[out.target].inbound[slot].len);
        room(end, len, each.size)
    });
    let landings = each.inbound.iter().try_fold(0usize, |sum, slot| {
        let bytes = slot.len.checked_mul(each.size)?;
        sum.checked_add(if bytes <= each.land_up_to {
            bytes.checked_mul(2)?.checked_add(SLOT_ALIGN)?
        } else {
            0
        })
    });
    let bytes = each.slots(|_| false).and_then(|(_, [near, far])| {
        near.checked_add(far)?
            .checked_add(outbound?)?
            .checked_add(landings?)?
            .checked_mul(each.buffers as usize)
    });
    if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Disagreement::Memory { rank });
    }
    Ok(())
}

/// The elements that a rank has declared, for an error.
fn declared(elements: &Footprint) -> Declared {
    match (elements, elements.extent()) {
        (Footprint::Range(range), _) => Declared::Range(range.clone()),
        (_, Some(extent)) => Declared::Layout(extent),
        (_, None) => Declared::Nothing,
    }
}

/// Checks that no two ranges or layouts overlap that were declared for one target.
fn check_disjoint(all: &[Description]) -> Result<(), Disagreement> {
    let mut of_targets: Vec<Vec<(usize, &Footprint)>> = vec![Vec::new(); all.len()];
    for (origin, each) in all.iter().enumerate() {
        for out in &each.outbound {
            of_targets[out.target].push((origin, &out.elements));
        }
    }
    for (target, origins) in of_targets.iter().enumerate() {
        let elements: Vec<_> = origins.iter().map(|(_, elements)| *elements).collect();
        let Some(Overlap { of, at }) = find_overlap(&elements) else {
            continue;
        };
        let [one, other] = of.map(|number| {
            let (origin, elements) = origins[number];
            (declared(elements), origin)
        });
        return Err(Disagreement::Overlap {
            target,
            one,
            other,
            at,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::describe::{Inbound, Outbound};
    use super::*;
    use std::ops::Range;

    fn check(all: &[Description]) -> Result<(), String> {
        super::check(&Edges::new(all)).map_err(|found| found.to_string())
    }

    fn plain(inbound: &[(usize, u64, usize)], outbound: &[(usize, u64)]) -> Description {
        Description {
            element: "f64".into(),
            layout: 1,
            size: 8,
            kind: Kind::Slot,
            buffers: 2,
            memory: 0,
            purpose: Purpose::Program,
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
                    expected: None,
                })
                .collect(),
            staged: false,
            far: Vec::new(),
            land_up_to: 0,
            started_alone: false,
            before: 0,
        }
    }

    #[test]
    fn a_ring_of_two_with_two_keys_fits() {
        let all = [
            plain(&[(1, 0, 4), (1, 1, 9)], &[(1, 0), (1, 1)]),
            plain(&[(0, 0, 1), (0, 1, 1)], &[(0, 0), (0, 1)]),
        ];
        check(&all).unwrap();
        assert_eq!(Edges::new(&all).origins(0), [1]);
        assert_eq!(all[0].slots(|_| false), Some((vec![0, 64], [192, 0])));
        assert_eq!(all[0].slots(|_| true), Some((vec![0, 64], [0, 192])));
    }

    #[test]
    fn the_slots_of_a_barrier_fit_for_every_number_of_ranks() {
        for ranks in 1..=40 {
            let barrier = Description {
                purpose: Purpose::Barrier,
                ..plain(&[], &[])
            };
            let all: Vec<_> = (0..ranks)
                .map(|rank| barrier.clone().in_full(rank, ranks))
                .collect();
            let edges = Edges::new(&all);
            // This describes the same slots as a window of the program, which is sent in full.
            for (rank, each) in all.iter().enumerate() {
                check_rank(&edges, rank, each).unwrap();
                // There is one round for each power of two, and the rounds have different ranks.
                let expected = ranks.next_power_of_two().trailing_zeros() as usize;
                assert_eq!(each.targets().len(), expected);
                assert_eq!(edges.origins(rank).len(), expected);
                assert!(!each.neighbours().contains(&rank));
            }
        }
    }

    #[test]
    fn staged_memory_is_agreed_upon() {
        let staged = |far: &[usize], other: usize| Description {
            staged: true,
            far: far.to_vec(),
            ..plain(&[(other, 0, 4)], &[(other, 0)])
        };
        let all = [staged(&[1], 1), staged(&[], 0)];
        check(&all).unwrap();
        // One of them wants staging, so both have it.
        let edges = Edges::new(&all);
        assert!(edges.far(0, 1) && edges.far(1, 0) && !edges.far(0, 0));
        let plainly = plain(&[(0, 0, 4)], &[(0, 0)]);
        let error = check(&[staged(&[1], 1), plainly]).unwrap_err();
        assert!(error.contains("staging"), "{error}");
        let atomic = |far: &[usize]| Description {
            staged: true,
            far: far.to_vec(),
            kind: Kind::Atomic,
            ..plain(&[], &[])
        };
        check(&[atomic(&[]), atomic(&[])]).unwrap();
        let error = check(&[atomic(&[]), atomic(&[0])]).unwrap_err();
        assert!(error.contains("windows by slot"), "{error}");
    }

    #[test]
    fn disagreements_are_named() {
        let fits = plain(&[(1, 0, 4)], &[(1, 0)]);
        let other = plain(&[(0, 0, 4)], &[(0, 0)]);
        check(&[fits.clone(), other.clone()]).unwrap();
        let verdict = |other: Description| check(&[fits.clone(), other]).unwrap_err();
        let differs = verdict(Description {
            layout: 2,
            size: 4,
            element: "u32".into(),
            ..other.clone()
        });
        let types = "the element type: `f64` (8 bytes) and `u32` (4 bytes)";
        assert!(differs.ends_with(types), "{differs}");
        let differs = verdict(Description {
            layout: 2,
            ..other.clone()
        });
        let types = "`f64` (8 bytes) and `f64` (8 bytes), of different layouts";
        assert!(differs.ends_with(types), "{differs}");
        assert!(
            verdict(Description {
                buffers: 1,
                ..other.clone()
            })
            .contains("buffers")
        );
        let after = |before, other: &Description| Description {
            before,
            ..other.clone()
        };
        let differs = verdict(after(1, &other));
        assert!(differs.contains("epochs before the first"), "{differs}");
        check(&[after(MOST, &fits), after(MOST, &other)]).unwrap();
        for many in [MOST + 1, u64::MAX] {
            let refused = check(&[after(many, &fits), after(many, &other)]).unwrap_err();
            assert!(refused.contains("can have no more than"), "{refused}");
        }
        assert!(
            verdict(Description {
                kind: Kind::Atomic,
                ..other.clone()
            })
            .contains("discipline")
        );
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
            kind: Kind::Range,
            buffers: 1,
            memory: 10,
            outbound: ranges
                .iter()
                .map(|(target, range)| Outbound {
                    target: *target,
                    key: 0,
                    elements: Footprint::Range(range.clone()),
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
            kind: Kind::Range,
            buffers: 1,
            memory: 12,
            outbound: each
                .iter()
                .map(|(target, elements)| Outbound {
                    target: *target,
                    key: 0,
                    elements: elements.clone(),
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
