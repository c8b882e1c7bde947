//! Lanes that put, wait for what lands, and reduce.

use super::*;
use tidegate_hal::batch::{Landed, Landing, MOST_REDUCED, Op, Scalar};

const BYTES: usize = 64;
const RESULT: usize = 0x7000;
const OWN: usize = 0x6000;
const SAVED: usize = 0x6800;

fn landing(base: usize) -> Landing {
    Landing {
        base: ptr(base),
        flip: 256,
    }
}

/// The wait for the data of an origin, by number.
fn origin(number: usize) -> Step {
    origin_of(number, BYTES)
}

fn origin_of(number: usize, bytes: usize) -> Step {
    let mut waits = waiting(0x4000 + 64 * number);
    waits.landed = Some(Landed {
        from: landing(0x40_0000 + 4096 * number),
        slot: ptr(0x30_0000 + 4096 * number),
        flip: 128,
        bytes,
    });
    Step::Wait(waits)
}

fn doubles(src: usize, dst: usize) -> Move {
    let mut copy = copy(BYTES / 8);
    (copy.src.base, copy.dst.base, copy.early) = (ptr(src), ptr(dst), false);
    copy
}

fn fold(src: usize, op: Op) -> Move {
    let mut fold = doubles(src, RESULT);
    fold.action = Action::Fold {
        op,
        scalar: Scalar::F64,
        before: false,
    };
    fold
}

/// The term from an origin's slot.
fn slot(number: usize, op: Op) -> Move {
    let mut fold = fold(0x30_0000 + 4096 * number, op);
    (fold.src.flip, fold.parity) = (128, ptr(0x4000 + 64 * number + 8));
    fold
}

/// The put to a target, by number.
fn target(number: usize, src: usize) -> Vec<Step> {
    let mut copy = doubles(src, 0x20_0000 + 4096 * number);
    (copy.landing, copy.early) = (Some(landing(0x50_0000 + 4096 * number)), true);
    let words = 0x8000 + 128 * number;
    vec![wait(words), Step::Move(copy), Step::Flush, add(words + 64)]
}

/// Three ranks, of which this one is the second: its steps, with the own vector here or there.
fn all_reduce(own: usize) -> Vec<Step> {
    let terms = [slot(0, Op::Replace), fold(own, Op::Sum), slot(2, Op::Sum)];
    let moves = terms.map(Step::Move);
    let waits = vec![origin(0), origin(2)];
    [target(0, OWN), target(2, OWN), waits, moves.to_vec()].concat()
}

/// The form of a lane beside a post, and its list.
fn form(steps: Vec<Step>) -> Result<(ShortLane, Vec<Vector>), DeviceError> {
    let program = program(vec![steps, vec![add(0x9000)]], 8)?;
    assert!(program.reduces);
    assert_eq!(teams(&program), [1, 1]);
    let first = |record: usize| -> ShortLane {
        read(&program.bytes[record * program.stride + size_of::<Record>()..])
    };
    let (post, lane) = (first(0), first(1));
    assert_eq!(post.kind, LANE_ADDS);
    let at = 16 * (lane.steps as usize + lane.tail as usize);
    let vector = |number: u64| read(&program.bytes[at + number as usize * size_of::<Vector>()..]);
    Ok((lane, (0..lane.from + lane.to).map(vector).collect()))
}

#[test]
fn one_lane_puts_waits_and_reduces() {
    let (lane, list) = form(all_reduce(OWN)).unwrap();
    assert_eq!(lane.kind, LANE_LANDS | LANE_REDUCES);
    assert_eq!((lane.from, lane.to, lane.count), (2, 3, BYTES as u64));
    assert_eq!((lane.dst, lane.out, lane.unit), (RESULT as u64, 0, 3));
    let sources: Vec<_> = list.iter().map(|it| it.src).collect();
    let own = OWN as u64;
    assert_eq!(sources, [own, own, 0x30_0000, own, 0x30_2000]);
    let landings: Vec<_> = list.iter().map(|it| it.landing).collect();
    assert_eq!(landings, [0x50_0000, 0x50_2000, 0x40_0000, 0, 0x40_2000]);
    let waits: Vec<_> = list.iter().map(|it| it.operand).collect();
    assert_eq!(waits, [0x8008, 0x8108, 0x4008, 0, 0x4088]);
    let ops: Vec<_> = list[2..].iter().map(|it| u32::from(it.op)).collect();
    assert_eq!(ops, [reductions::REPLACE, 0, 0]);
    // Each wait is where its vector says.
    let program = program(vec![all_reduce(OWN)], 8).unwrap();
    let steps = 16 * lanes(&program)[0].steps as usize;
    for vector in list.iter().filter(|it| it.operand != 0) {
        let step: WaitStep = read(&program.bytes[steps + 16 * usize::from(vector.wait)..]);
        assert_eq!((step.head.kind, step.operand), (STEP_WAIT, vector.operand));
    }
}

#[test]
fn what_the_result_overwrites_is_saved_or_comes_first() {
    // It is saved, and the term is read where it was.
    let mut steps = all_reduce(SAVED);
    let folds = steps.len() - 3;
    steps.insert(folds, Step::Move(doubles(RESULT, SAVED)));
    let (lane, list) = form(steps).unwrap();
    assert_eq!((lane.src, lane.out), (RESULT as u64, SAVED as u64));
    assert_eq!(list[3].src, RESULT as u64);
    // What is there is the first term. Nothing is put.
    let first = [slot(0, Op::Sum), slot(2, Op::Sum)].map(Step::Move);
    let (lane, list) = form([&[origin(0), origin(2)][..], &first].concat()).unwrap();
    assert_eq!((lane.from, lane.to, list[0].src), (0, 3, RESULT as u64));
    assert_eq!(u32::from(list[0].op), reductions::REPLACE);
}

#[test]
fn other_reductions_of_what_lands_are_refused() {
    let waits = || vec![origin(0), origin(2)];
    let of = |moves: Vec<Move>| {
        let moves: Vec<_> = moves.into_iter().map(Step::Move).collect();
        [waits(), moves].concat()
    };
    let both = || vec![slot(0, Op::Replace), slot(2, Op::Sum)];
    for accepted in [of(both()), [target(0, OWN), of(both())].concat()] {
        assert!(form(accepted).is_ok());
    }
    let changed = |change: fn(&mut Move)| {
        let mut moves = both();
        change(&mut moves[1]);
        of(moves)
    };
    let refused = [
        // A wait whose slot nobody reads; a slot that is read twice, or is of another wait.
        of(vec![slot(0, Op::Replace)]),
        of([both(), vec![slot(2, Op::Sum)]].concat()),
        of(vec![slot(0, Op::Replace), slot(1, Op::Sum)]),
        // A part of a slot; the wrong buffer; the wrong parity; a destination of its own.
        changed(|mv| mv.count = 4),
        changed(|mv| mv.src.flip = 64),
        changed(|mv| mv.parity = ptr(0x4008)),
        changed(|mv| mv.dst.base = ptr(0x7800)),
        // What one thread reads, another one writes.
        of([both(), vec![fold(RESULT + 8, Op::Sum)]].concat()),
        [target(0, RESULT + 8), of(both())].concat(),
        // A step behind the folds.
        [of(both()), vec![add(0x3000)]].concat(),
    ];
    for (number, steps) in refused.into_iter().enumerate() {
        let refused = matches!(form(steps), Err(DeviceError::Unsupported { .. }));
        assert!(refused, "{number}");
    }
    // The kernel has room for the vectors of one such lane.
    let two = program(vec![of(both()), of(both())], 8);
    assert!(matches!(two, Err(DeviceError::Unsupported { .. })));
}

#[test]
fn as_many_ranks_take_part_as_the_contract_says() {
    // All puts, all waits, and one own term, which may be there already.
    let of = |puts: usize, waits: usize, first: bool| {
        let puts = (0..puts).flat_map(|number| target(number, OWN));
        let origins = (0..waits).map(origin);
        let own = first.then(|| fold(OWN, Op::Replace));
        let slots = (0..waits).map(|number| slot(number, Op::Sum));
        let folds = own.into_iter().chain(slots).map(Step::Move);
        form(puts.chain(origins).chain(folds).collect())
    };
    for first in [true, false] {
        let (lane, list) = of(MOST_REDUCED, MOST_REDUCED, first).unwrap();
        assert_eq!(
            (lane.to as usize, list.len()),
            (MOST_REDUCED + 1, 2 * MOST_REDUCED + 1)
        );
        for (puts, waits) in [(MOST_REDUCED + 1, 2), (2, MOST_REDUCED + 1)] {
            let refused = of(puts, waits, first);
            assert!(matches!(refused, Err(DeviceError::Unsupported { .. })));
        }
    }
}

/// A long vector has a thread for each pair, if there are so many blocks. They count who is the last.
#[test]
fn blocks_divide_a_long_vector() {
    let of = |bytes: usize, quota: usize| {
        let (mut first, mut second) = (slot(0, Op::Replace), fold(OWN, Op::Sum));
        (first.count, second.count) = (bytes / 8, bytes / 8);
        second.src.base = ptr(0x10_0000);
        let lane = vec![origin_of(0, bytes), Step::Move(first), Step::Move(second)];
        let program = program(vec![lane], quota).unwrap();
        (teams(&program), lanes(&program)[0].arrivals != 0)
    };
    assert_eq!(of(8, 64), ([0, 1], false));
    assert_eq!(of(4096, 64), ([0, 1], false));
    assert_eq!(of(4104, 64), ([0, 2], true));
    assert_eq!(of(65536, 64), ([0, 16], true));
    assert_eq!(of(65536, 4), ([0, 4], true));
    assert_eq!(of(65536, 1), ([0, 1], false));
}
