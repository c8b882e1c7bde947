//! Tests of a batch's forms: apart, in parts, and how far operands come.

use tidegate_hal::batch::{Action, Add, Awaited, Batch, Move, QUANTUM, Shape, Side, Step, Wait};
use tidegate_hal::memory::Ptr;

use super::apart::{self, Apart, Crossover, Errand, Words};
use super::lane_name;
use super::model::{COURIERS, add, address, batch, copy, ptr, put, wait};
use super::operands::{self, Operands};
use super::parts::parts;

fn words(number: u64) -> Words {
    let at = COURIERS + 0x100 * number;
    Words {
        go: ptr(at),
        back: ptr(at + 16),
        operand: ptr(at + 24),
    }
}

/// For tests in which the limit does not depend on where the memory is.
fn nobody_asks(_: &Move) -> bool {
    unreachable!("it is the same limit everywhere")
}

fn take_apart(batch: &Batch, from: u64, couriers: &[Words]) -> Apart {
    apart::take_apart(batch, Crossover::everywhere(from), &nobody_asks, couriers)
}

fn is_large(batch: &Batch, from: u64) -> bool {
    apart::is_large(batch, Crossover::everywhere(from), &nobody_asks)
}

/// A short name of a step.
fn name(step: &Step) -> String {
    match step {
        Step::Wait(wait) => format!("wait {:x}", address(wait.word)),
        Step::Move(mv) => format!("move {}", mv.count * mv.size as usize),
        Step::Pull(pull) => format!("pull {}", pull.bytes),
        Step::Check(check) => format!("check {}", check.most),
        Step::Flush => "flush".into(),
        Step::Store(store) => format!("store {:x}", address(store.to)),
        Step::Add(add) => format!("add {:x}", address(add.word)),
    }
}

fn names(lanes: &[Vec<Step>]) -> Vec<String> {
    let lane = |steps: &Vec<Step>| steps.iter().map(name).collect::<Vec<_>>().join(", ");
    lanes.iter().map(lane).collect()
}

#[test]
fn large_plain_lanes_are_taken_apart_and_others_are_not() {
    let lane = |moves: Vec<Move>| {
        let mut lane = vec![wait(0x100)];
        lane.extend(moves.into_iter().map(Step::Move));
        lane.extend([Step::Flush, add(0x200)]);
        lane
    };
    let whole = |moves| {
        let lane = lane(moves);
        let apart = take_apart(&batch(vec![lane.clone()]), 1024, &[words(0)]);
        let is_whole = apart.errands.is_empty();
        assert_eq!(
            names(&apart.lanes) == names(std::slice::from_ref(&lane)),
            is_whole
        );
        assert_eq!(is_large(&batch(vec![lane]), 1024), !is_whole);
        is_whole
    };
    assert!(!whole(vec![copy(1024)]));
    assert!(whole(vec![copy(1016)]));
    // The sum of the copies counts.
    assert!(!whole(vec![copy(512), copy(512)]));
    let flipped = |parity| Move {
        dst: Side {
            flip: 4096,
            ..copy(8).dst
        },
        parity,
        ..copy(2048)
    };
    assert!(whole(vec![flipped(ptr(0x108))]));
    assert!(whole(vec![copy(2048), flipped(ptr(0x108))]));
    // With a null parity, the address does not depend on the epoch.
    assert!(!whole(vec![flipped(Ptr::NULL)]));
    let mut strided = copy(2048);
    strided.src.shape = Shape::Indexed { table: ptr(64) };
    assert!(whole(vec![strided]));
    let sum = Action::Accumulate {
        op: tidegate_hal::batch::Op::Sum,
        scalar: tidegate_hal::batch::Scalar::F64,
        atomic: true,
    };
    let action = Move {
        action: sum,
        ..copy(2048)
    };
    assert!(whole(vec![action]));
    // The lane rings between its copies, once for each copy that has been made.
    let parts = vec![wait(0x100), put(2048), add(0x200), put(2048), add(0x200)];
    let apart = take_apart(&batch(vec![parts.clone()]), 1024, &[words(0)]);
    assert!(apart.errands.is_empty() && names(&apart.lanes) == names(&[parts]));
    // The moves are at two different times.
    let twice = vec![wait(0x100), put(2048), wait(0x300), put(2048), add(0x200)];
    let apart = take_apart(&batch(vec![twice]), 1024, &[words(0)]);
    assert!(apart.errands.is_empty());
}

#[test]
fn couriers_get_the_largest_lanes_and_lanes_speak_to_their_couriers() {
    let lanes = vec![
        vec![add(0x40)],
        vec![wait(0x100), put(2048), Step::Flush, add(0x200)],
        vec![wait(0x140), put(4096), put(8), Step::Flush, add(0x240)],
        vec![wait(0x180), put(3000), Step::Flush, add(0x280)],
        vec![wait(0x300)],
    ];
    let apart = take_apart(&batch(lanes.clone()), 1024, &[words(0), words(1)]);
    assert_eq!(
        names(&apart.lanes),
        [
            "add 40",
            "wait 100, move 2048, flush, add 200",
            "wait 140, add 80000000, wait 80000010, flush, add 240",
            "wait 180, add 80000100, wait 80000110, flush, add 280",
            "wait 300",
        ]
    );
    let bytes = |apart: &Apart| -> Vec<Vec<u64>> {
        let of = |errands: &Vec<Errand>| errands.iter().map(|errand| errand.bytes).collect();
        apart.errands.iter().map(of).collect()
    };
    assert_eq!(bytes(&apart), [vec![4096, 8], vec![3000]]);
    let errand = apart.errands[0][0];
    assert_eq!((errand.src, errand.dst), (0x10_0000, 0x90_0000));
    // A failed stream must leave its courier where it is. A report names the rank that the copy is for.
    let (go, back) = match apart.lanes[2][1..3] {
        [Step::Add(go), Step::Wait(back)] => (go, back),
        _ => unreachable!("as above"),
    };
    assert!(go.bell.is_null() && go.value == QUANTUM && back.quantum == QUANTUM);
    assert_eq!((back.tag.peer, back.tag.awaited), (3, Awaited::Event));
    // If there are more couriers than lanes, a lane with several copies gets two.
    let five: Vec<_> = (0..5).map(words).collect();
    let apart = take_apart(&batch(lanes), 1024, &five);
    assert_eq!(bytes(&apart), [vec![4096], vec![8], vec![3000], vec![2048]]);
    assert_eq!(
        names(&apart.lanes[2..3]),
        ["wait 140, add 80000000, add 80000100, wait 80000010, wait 80000110, flush, add 240"]
    );
}

#[test]
fn copies_that_go_on_are_one_and_others_are_dealt_by_size() {
    let at = |src: u64, dst: u64, bytes| {
        let mut mv = copy(bytes);
        (mv.src.base, mv.dst.base) = (ptr(src), ptr(dst));
        Step::Move(mv)
    };
    let lane = vec![
        at(0x1000, 0x9000, 64),
        at(0x1040, 0x9040, 0),
        Step::Flush,
        at(0x1040, 0x9040, 32),
        // In the first two copies the source continues and the target does not; in the next, the other way round.
        at(0x1060, 0xa000, 16),
        at(0x2000, 0xa010, 16),
        at(0x3000, 0xb000, 100),
        at(0x4000, 0xc000, 8),
    ];
    let apart = take_apart(&batch(vec![lane]), 1, &[words(0), words(1)]);
    let of = |errands: &Vec<Errand>| -> Vec<(u64, u64)> {
        errands
            .iter()
            .map(|errand| (errand.src, errand.bytes))
            .collect()
    };
    let dealt: Vec<_> = apart.errands.iter().map(of).collect();
    let [first, second] = &dealt[..] else {
        unreachable!("there are two")
    };
    assert_eq!(*first, [(0x1000, 96), (0x4000, 8)]);
    assert_eq!(*second, [(0x1060, 16), (0x2000, 16), (0x3000, 96)]);
}

#[test]
fn within_one_gpu_the_engines_take_what_is_larger() {
    const FROM: Crossover = Crossover {
        elsewhere: 1000,
        within: 5000,
    };
    let lane = |at: u64, bytes| vec![wait(at), put(bytes), Step::Flush, add(at + 8)];
    let lanes = vec![
        lane(0x100, 992),
        lane(0x200, 1000),
        lane(0x300, 4992),
        lane(0x400, 5000),
        // The sum of the copies is large.
        vec![wait(0x500), put(2000), put(3000), Step::Flush, add(0x508)],
    ];
    let all = batch(lanes.clone());
    let couriers: Vec<_> = (0..8).map(words).collect();
    // For each lane, whether it signals a courier where its copies were.
    let apart = |within: &dyn Fn(&Move) -> bool| -> Vec<bool> {
        let apart = apart::take_apart(&all, FROM, within, &couriers);
        let changed = |(now, before): (&Vec<Step>, &Vec<Step>)| {
            names(std::slice::from_ref(now)) != names(std::slice::from_ref(before))
        };
        apart.lanes.iter().zip(&lanes).map(changed).collect()
    };
    assert_eq!(apart(&|_| false), [false, true, true, true, true]);
    assert_eq!(apart(&|_| true), [false, false, false, true, true]);
    let only = |number: usize| batch(vec![lanes[number].clone()]);
    assert!(apart::is_large(&only(2), FROM, &|_| false));
    assert!(!apart::is_large(&only(2), FROM, &|_| true));
    assert!(apart::is_large(&only(4), FROM, &|_| true));
    // The driver is asked only if it matters.
    assert!(!apart::is_large(&only(0), FROM, &nobody_asks));
    assert!(apart::is_large(&only(3), FROM, &nobody_asks));
}

#[test]
fn the_variable_is_a_number_of_bytes_or_never() {
    let unset = Crossover {
        elsewhere: 4 << 20,
        within: 24 << 20,
    };
    for (value, from) in [
        (None, unset),
        (Some("never"), Crossover::everywhere(u64::MAX)),
        (Some(" 65536 "), Crossover::everywhere(65_536)),
        (Some("0"), Crossover::everywhere(0)),
        (Some("4 MiB"), unset),
        (Some("-1"), unset),
    ] {
        assert_eq!(Crossover::variable(value), from, "{value:?}");
    }
    // From 0 on, every copy is large, but not a lane without copies.
    assert!(!is_large(
        &batch(vec![vec![wait(0x100), put(0), add(0x200)]]),
        0
    ));
    assert!(is_large(&batch(vec![vec![put(8)]]), 0));
    assert!(!is_large(&batch(vec![vec![put(8)]]), u64::MAX));
}

#[test]
fn parts_have_posts_first_and_pure_waits_last() {
    let shape = |lanes| -> Vec<(usize, Vec<String>)> {
        let parts = parts(&batch(lanes));
        parts
            .iter()
            .map(|part| (part.gate.len(), names(&part.lanes)))
            .collect()
    };
    let text = |lanes: &[&str]| {
        lanes
            .iter()
            .map(|lane| (*lane).to_owned())
            .collect::<Vec<_>>()
    };
    let alone = vec![
        vec![wait(0x300)],
        vec![wait(0x100), put(8), add(0x200)],
        vec![add(0x40)],
        vec![wait(0x380)],
    ];
    assert_eq!(
        shape(alone),
        [
            (0, text(&["add 40"])),
            (1, text(&["wait 100, move 8, add 200"])),
            (2, text(&["wait 300", "wait 380"])),
        ]
    );
    // Several lanes do something: none may wait for another's word.
    let several = vec![
        vec![wait(0x100), add(0x200)],
        vec![wait(0x140), add(0x240)],
        vec![wait(0x300)],
    ];
    assert_eq!(
        shape(several),
        [
            (0, text(&["wait 100, add 200", "wait 140, add 240"])),
            (1, text(&["wait 300"])),
        ]
    );
    // A barrier.
    let rounds = vec![vec![add(0x40), wait(0x100), add(0x80), wait(0x140)]];
    assert_eq!(
        shape(rounds),
        [
            (0, text(&["add 40"])),
            (1, text(&["wait 100, add 80"])),
            (1, text(&["wait 140"])),
        ]
    );
    assert!(parts(&batch(Vec::new())).is_empty());
}

/// Parts of a lane stamp the legs that the whole lane has, under its number.
#[test]
fn parts_have_the_names_of_their_lanes() {
    let names = |lanes| -> Vec<Vec<u32>> {
        let parts = parts(&batch(lanes));
        parts.into_iter().map(|part| part.names).collect()
    };
    let alone = vec![
        vec![wait(0x300)],
        vec![wait(0x100), put(8), add(0x200)],
        vec![add(0x40)],
        vec![wait(0x380)],
    ];
    assert_eq!(names(alone), [vec![2], vec![1], vec![0, 3]]);
    let several = vec![vec![wait(0x100), add(0x200)], vec![wait(0x140), add(0x240)]];
    assert_eq!(names(several), [[0, 1]]);
    let leg = |number| lane_name(1, number);
    let rounds = vec![add(0x40), wait(0x100), add(0x80), wait(0x140)];
    let rounds = vec![vec![wait(0x300)], rounds];
    assert_eq!(
        names(rounds),
        [vec![leg(0)], vec![leg(1)], vec![leg(2)], vec![0]]
    );
    // Two waits, one after the other, are in one part and have two legs.
    let twice = vec![wait(0x100), wait(0x140), add(0x80), wait(0x180), put(8)];
    let twice = vec![vec![wait(0x300)], twice];
    assert_eq!(names(twice), [vec![leg(0)], vec![leg(2)], vec![0]]);
}

#[test]
fn operands_are_followed_through_submissions_replays_and_memory() {
    let Step::Wait(one) = wait(0x1000) else {
        unreachable!()
    };
    let ticket = Wait { quantum: 0, ..one };
    let value = |known: &Operands, wait: &Wait| known.awaited(wait).map(|(value, _)| value);
    let mut known = Operands::default();
    // An operand whose memory was there before the counting began is not known.
    known.advance(&[(0x1008, QUANTUM)], 1);
    assert_eq!(known.awaited(&one), None);
    known.allocated(0x1000, 0x100, true);
    assert_eq!(value(&known, &one), Some(QUANTUM));
    let own = Step::Add(Add {
        tag: None,
        word: ptr(0x1008),
        value: QUANTUM,
        bell: Ptr::NULL,
        turn: None,
    });
    let steps = batch(vec![
        vec![wait(0x1000), add(0x2000)],
        vec![wait(0x1040), Step::Wait(ticket)],
    ]);
    let advance = operands::advance_of(&steps);
    // A ticket advances nothing, and a word with a bell is no operand.
    assert_eq!(advance, [(0x1008, QUANTUM), (0x1048, QUANTUM)]);
    known.advance(&advance, 1);
    known.advance(&advance, 1000);
    assert_eq!(value(&known, &one), Some(1002 * QUANTUM));
    assert_eq!(value(&known, &ticket), Some(1001 * QUANTUM));
    known.advance(&operands::advance([&[own][..]]), 2);
    assert_eq!(value(&known, &ticket), Some(1003 * QUANTUM));
    // Memory next to the operand's, and an address beyond its end.
    known.allocated(0x1100, 0x100, true);
    known.advance(&[(0x1208, QUANTUM)], 1);
    let beyond = Wait {
        operand: ptr(0x1208),
        ..one
    };
    assert_eq!(known.awaited(&beyond), None);
    assert_eq!(value(&known, &one), Some(1004 * QUANTUM));
    // The memory is freed, and allocated again.
    known.freed(0x1000);
    assert_eq!(known.awaited(&one), None);
    known.allocated(0x1000, 0x40, true);
    assert_eq!(value(&known, &one), Some(QUANTUM));
    known.allocated(0x1000, 0x40, true);
    known.advance(&advance, 1);
    known.allocated(0x1000, 0x40, true);
    assert_eq!(value(&known, &one), Some(QUANTUM));
    // A piece's number tells whether a word's memory is still the same.
    let has = |known: &mut Operands, word, piece| known.piece_of(word, piece).is_some();
    let (_, piece) = known.awaited(&one).unwrap();
    assert!(has(&mut known, 0x1000, piece) && has(&mut known, 0x103f, piece));
    assert!(!has(&mut known, 0x1040, piece) && !has(&mut known, 0xfff, piece));
    known.freed(0x1000);
    assert!(!has(&mut known, 0x1000, piece));
    known.allocated(0x1000, 0x40, true);
    assert!(!has(&mut known, 0x1000, piece));
    // Memory of the pool, where the driver refuses such operations.
    known.allocated(0x1000, 0x40, false);
    assert_eq!(known.awaited(&one), None);
}
