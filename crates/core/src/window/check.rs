//! Whether what the ranks say about a window fits together.
//!
//! Every rank gets every rank's description and checks all of them, so that all ranks come to the same verdict.

use super::Kind;
use super::describe::{Description, Purpose, SLOT_ALIGN, room};
use super::edges::Edges;
use crate::epochs::MOST;
use crate::footprint::{Footprint, Overlap, find_overlap};

/// What is said to who has perhaps forgotten the launcher.
const ALONE: &str =
    " (this process was started alone: `tidegate run -n N PROGRAM` starts a job of N ranks)";

/// Checks that the descriptions fit together.
pub(super) fn check(edges: &Edges<'_>) -> Result<(), String> {
    let all = edges.all;
    let first = &all[0];
    for (rank, each) in all.iter().enumerate() {
        let differs = |what: &str, mine: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            Err(format!(
                "ranks 0 and {rank} disagree about {what}: {mine:?} and {theirs:?}"
            ))
        };
        if each.kind != first.kind {
            return differs("its discipline", &first.kind, &each.kind);
        }
        if (each.layout, each.size) != (first.layout, first.size) {
            return Err(elements_differ(first, rank, each));
        }
        if each.purpose != first.purpose {
            return Err(purposes_differ(first.purpose, rank, each.purpose));
        }
        if each.buffers != first.buffers {
            return differs("buffers", &first.buffers, &each.buffers);
        }
        if each.before != first.before {
            return differs("epochs before the first", &first.before, &each.before);
        }
        if each.before > MOST {
            return Err(format!(
                "it would have had {} epochs, and no window has more than {MOST}",
                each.before
            ));
        }
        if each.staged != first.staged {
            return differs("staging", &first.staged, &each.staged);
        }
        if let Some(other) = each.far.iter().find(|_| each.kind != Kind::Slot) {
            return Err(format!(
                "ranks {rank} and {other} reach each other by NICs through staged memory, which only windows by slot have"
            ));
        }
        // Where the slots follow from the purpose they fit, and the memory of all ranks can be addressed if that of one can.
        if each.purpose == Purpose::Program || rank == 0 {
            check_rank(edges, rank, each)?;
        }
    }
    if first.kind == Kind::Range {
        check_disjoint(all)
    } else {
        Ok(())
    }
}

/// One name may stand for two types: of two versions of a program, say.
fn elements_differ(first: &Description, rank: usize, each: &Description) -> String {
    let (mine, theirs) = (&first.element, &each.element);
    let but = match (mine == theirs, first.size == each.size) {
        (true, true) => ", of different layouts",
        _ => "",
    };
    let (size, their_size) = (first.size, each.size);
    format!(
        "ranks 0 and {rank} disagree about the element type: \
         `{mine}` ({size} bytes) and `{theirs}` ({their_size} bytes){but}"
    )
}

/// Slots do not say so: what is put may be shorter than a slot.
fn purposes_differ(first: Purpose, rank: usize, each: Purpose) -> String {
    let what = |purpose: Purpose| match purpose {
        Purpose::Program => "a window".to_owned(),
        Purpose::AllReduce { len: 1 } => "an all-reduce of 1 element".to_owned(),
        Purpose::AllReduce { len } => format!("an all-reduce of {len} elements"),
        Purpose::Barrier => "a barrier".to_owned(),
    };
    let (mine, theirs) = (what(first), what(each));
    format!("ranks 0 and {rank} disagree about what it is: {mine} and {theirs}")
}

fn check_rank(edges: &Edges<'_>, rank: usize, each: &Description) -> Result<(), String> {
    let all = edges.all;
    let size = all.len();
    let no_such = |other: usize| {
        let ranks = if size == 1 { "rank" } else { "ranks" };
        let hint = if each.started_alone { ALONE } else { "" };
        format!("rank {rank} names rank {other}, but the job has {size} {ranks}{hint}")
    };
    for (index, slot) in each.inbound.iter().enumerate() {
        if slot.origin >= size {
            return Err(no_such(slot.origin));
        }
        if edges.slot(rank, slot.origin, slot.key) != Some(index) {
            return Err(format!(
                "rank {rank} has two slots for rank {} with key {}",
                slot.origin, slot.key
            ));
        }
        if edges.way(slot.origin, rank, slot.key).is_none() {
            let (origin, key) = (slot.origin, slot.key);
            return Err(format!(
                "rank {rank} has a slot for rank {origin} with key {key}, which rank {origin} does not name"
            ));
        }
    }
    for (index, out) in each.outbound.iter().enumerate() {
        let (key, target) = (
            out.key,
            all.get(out.target).ok_or_else(|| no_such(out.target))?,
        );
        let there = out.target;
        if each.kind == Kind::Slot {
            if edges.way(rank, there, key) != Some(index) {
                return Err(format!(
                    "rank {rank} names rank {there} with key {key} twice"
                ));
            }
            let Some(slot) = edges.slot(there, rank, key) else {
                return Err(format!(
                    "rank {rank} names rank {there} with key {key}, which has no such slot for it"
                ));
            };
            let len = target.inbound[slot].len;
            if let Some(expected) = out.expected.filter(|expected| *expected != len) {
                return Err(format!(
                    "rank {rank} expects the slot of rank {there} with key {key} to have {expected} elements, and it has {len}"
                ));
            }
        } else {
            let extent = out.elements.extent();
            if extent
                .as_ref()
                .is_none_or(|extent| extent.end > target.memory)
            {
                let len = target.memory;
                let what = match (&out.elements, extent) {
                    (Footprint::Range(range), _) => format!("{range:?}"),
                    (_, Some(extent)) => format!("a layout of elements {extent:?}"),
                    (_, None) => "what is no layout".into(),
                };
                return Err(format!(
                    "rank {rank} declares {what} of rank {there}, which has {len} elements"
                ));
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
        return Err(format!(
            "the memory of rank {rank} exceeds what can be addressed"
        ));
    }
    Ok(())
}

/// No two ranges or layouts that are declared of one target overlap.
fn check_disjoint(all: &[Description]) -> Result<(), String> {
    let mut of_targets: Vec<Vec<(usize, &Footprint)>> = vec![Vec::new(); all.len()];
    for (origin, each) in all.iter().enumerate() {
        for out in &each.outbound {
            of_targets[out.target].push((origin, &out.elements));
        }
    }
    for (target, declared) in of_targets.iter().enumerate() {
        let elements: Vec<_> = declared.iter().map(|(_, elements)| *elements).collect();
        let Some(Overlap { of, at }) = find_overlap(&elements) else {
            continue;
        };
        let [one, other] = of.map(|number| match declared[number] {
            (origin, Footprint::Range(range)) => format!("{range:?} of rank {origin}"),
            (origin, _) => format!("a layout of rank {origin}"),
        });
        return Err(format!(
            "of rank {target}'s memory, {one} and {other} overlap in elements {at:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::describe::{Inbound, Outbound};
    use super::*;
    use std::ops::Range;

    fn check(all: &[Description]) -> Result<(), String> {
        super::check(&Edges::new(all))
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
    fn what_is_sent_of_an_all_reduce_is_short() {
        let window = plain(&[(1, 3, 4)], &[(1, 3)]);
        assert_eq!(window.in_short().in_full(0, 2), window);
        let reduce = Description {
            purpose: Purpose::AllReduce { len: 4 },
            ..plain(&[], &[])
        };
        let reduce = reduce.in_full(0, 1000);
        check(&vec![reduce.clone(); 1000]).unwrap();
        assert_eq!((reduce.inbound.len(), reduce.outbound.len()), (1000, 1000));
        let sent = postcard::to_allocvec(&reduce.in_short()).unwrap();
        assert!(sent.len() < 100, "{} bytes", sent.len());
        assert_eq!(reduce.in_short().in_full(3, 1000), reduce);
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
            // Each as if it were the program's own, which takes nothing for granted.
            for (rank, each) in all.iter().enumerate() {
                check_rank(&edges, rank, each).unwrap();
                // One round for each power of two, each with ranks of its own.
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
        // One of them wants it: so both have it.
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
            assert!(refused.contains("no window has more"), "{refused}");
        }
        assert!(
            verdict(Description {
                kind: Kind::Atomic,
                ..other.clone()
            })
            .contains("discipline")
        );
        assert!(verdict(plain(&[(0, 0, 4)], &[])).contains("does not name"));
        assert!(verdict(plain(&[], &[(0, 0)])).contains("no such slot"));
        // A slot of no elements is one.
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
            let both = format!("key 0 to have {wrong} elements, and it has 6");
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
        // Empty ones overlap with nothing, in the middle of another, at its ends, and at the end of the memory.
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
        assert!(nothing.contains("declares what is no layout"), "{nothing}");
    }
}
