//! Lanes that stand in the record in short.

use super::*;

#[test]
fn plain_lanes_stand_in_the_record_in_short() {
    let odd = |doubles| {
        let mut copy = copy(doubles);
        copy.dst.flip = 4096;
        copy.parity = ptr(0x2008);
        Step::Move(copy)
    };
    let lowered = program(
        vec![
            vec![add(0x1000)],
            vec![wait(0x2000), odd(3), Step::Flush, add(0x3000)],
            vec![wait(0x2000), put(4), add(0x3000)],
            vec![wait(0x4000)],
            vec![wait(0x2000), put(4), wait(0x2040), put(4), add(0x3000)],
        ],
        4,
    )
    .unwrap();
    let short = lanes(&lowered);
    assert_eq!(
        (short[0].kind, short[0].out, short[0].value),
        (LANE_ADDS, 0x1000, QUANTUM)
    );
    // The bytes that are not whole units follow.
    assert_eq!(short[1].kind, LANE_WAITS | LANE_COPIES | LANE_ADDS);
    assert_eq!((short[1].flip, short[1].count, short[1].tail), (4096, 1, 8));
    assert_eq!(short[2].kind, LANE_WAITS | LANE_COPIES | LANE_ADDS);
    assert_eq!(
        (
            short[2].word,
            short[2].operand,
            short[2].count,
            short[2].arrivals
        ),
        (0x2000, 0x2008, 2, 0)
    );
    assert_eq!(short[3].kind, LANE_WAITS);
    assert_eq!(short[4].kind, LANE_STEPS);
    let steps = |lane: &ShortLane| read::<Head>(&lowered.bytes[lane.steps as usize * 16..]).kind;
    assert_eq!(
        short.iter().map(steps).collect::<Vec<_>>(),
        [STEP_ADD, STEP_WAIT, STEP_WAIT, STEP_WAIT, STEP_WAIT]
    );
    // A single double is all tail.
    let corner = program(vec![vec![wait(0x2000), odd(1), add(0x3000)]], 8).unwrap();
    let short = first(&corner);
    assert_eq!(short.kind, LANE_WAITS | LANE_COPIES | LANE_ADDS);
    assert_eq!((short.flip, short.count, short.tail), (4096, 0, 8));
}

/// A copy out of a slot reads what the wait is for, and has a short form all the same.
#[test]
fn a_copy_behind_its_wait_stands_in_the_record_in_short() {
    let taken = |doubles, flips: [usize; 2]| {
        let mut copy = copy(doubles);
        (copy.src.flip, copy.dst.flip) = flips.into();
        copy.early = false;
        copy.parity = ptr(0x2008);
        copy
    };
    let kind = |steps: Vec<Step>| {
        let short = first(&program(vec![steps], 8).unwrap());
        (short.kind, short.flip, short.count, short.tail)
    };
    let all = LANE_WAITS | LANE_COPIES | LANE_BEHIND;
    assert_eq!(
        kind(vec![wait(0x2000), Step::Move(taken(5, [4096, 0]))]),
        (all, 4096, 2, 8)
    );
    assert_eq!(
        kind(vec![
            wait(0x2000),
            Step::Move(taken(1, [0, 0])),
            add(0x3000)
        ]),
        (all | LANE_ADDS, 0, 0, 8)
    );
    // Another buffer of the target, another wait's parity, and a place that is not aligned go step by step.
    let other = |change: fn(&mut Move)| {
        let mut copy = taken(4, [4096, 0]);
        change(&mut copy);
        Step::Move(copy)
    };
    for steps in [
        vec![wait(0x2000), other(|copy| copy.dst.flip = 4096)],
        vec![wait(0x2000), other(|copy| copy.parity = ptr(0x7000))],
        vec![wait(0x2000), other(|copy| copy.src.base = ptr(0x8008))],
        vec![other(|_| {})],
    ] {
        assert_eq!(kind(steps).0, LANE_STEPS);
    }
}

/// The lane of a target that a kernel has completed is short, as long as it adds nothing and allows nothing.
#[test]
fn a_lane_that_checks_a_kernel_is_short() {
    let check = |count: usize, most: u64| {
        Step::Check(Check {
            count: ptr(count),
            most,
            tag: waiting(0x2000).tag,
        })
    };
    let nothing = |word: usize| Step::Add(adding(word, 0));
    let lane = |most, word| {
        vec![
            check(0x6000, 0),
            wait(0x2000),
            check(0x7000, most),
            nothing(word),
            nothing(0x4000),
        ]
    };
    let first = |steps: Vec<Step>| first(&program(vec![steps], 8).unwrap());
    let short = first(lane(0, 0x3000));
    assert_eq!(short.kind, LANE_CHECKS);
    assert_eq!((short.src, short.dst, short.word), (0x6000, 0x7000, 0x2000));
    let mut adds = lane(0, 0x3000);
    adds[4] = add(0x4000);
    for other in [
        lane(1, 0x3000),
        lane(0, HOST),
        adds,
        lane(0, 0x3000)[..4].to_vec(),
    ] {
        assert_eq!(first(other).kind, LANE_STEPS);
    }
    // What it falls back on is all there.
    assert_eq!(short.count, first(lane(1, 0x3000)).count);
}
