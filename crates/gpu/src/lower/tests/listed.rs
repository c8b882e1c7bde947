//! Copies with lists, and several copies that are carried out as one.

use super::*;

#[test]
fn listed_units_share_threads_by_bytes() {
    let lane = |doubles| vec![wait(0x2000), gather(doubles), add(0x3000)];
    let of = |doubles| teams(&program(vec![lane(doubles)], 128).unwrap());
    // There are as many threads as for a linear copy of as many bytes.
    assert_eq!(of(26_208), [0, 26]);
    // A warp has this many units on their way at a time.
    assert_eq!((of(128), of(129)), ([1, 0], [0, 1]));
    // Two blocks are for three lanes, one of which only adds. The lane with more bytes has a block.
    let linear = |doubles| vec![wait(0x2000), put(doubles), add(0x3000)];
    let both = program(vec![lane(600), linear(1000), vec![add(0x40)]], 2).unwrap();
    assert_eq!(teams(&both), [1, 1]);
    let record = both
        .records()
        .iter()
        .position(|one| one.team == TEAM_BLOCKS);
    let at = record.unwrap() * both.stride + size_of::<Record>();
    let short: ShortLane = read(&both.bytes[at..]);
    assert_eq!((short.kind & LANE_LISTED, short.count), (0, 500));
}

#[test]
fn a_list_lies_in_its_program() {
    let lanes = vec![vec![wait(0x2000), gather(1000), add(0x3000)]];
    let mut listed = program(lanes.clone(), 16).unwrap();
    assert!(listed.lists && !listed.divides);
    listed.placed_at(0x7000_0000);
    for index in 0..listed.blocks {
        let at = index * listed.stride + size_of::<Record>();
        let short: ShortLane = read(&listed.bytes[at..]);
        assert_eq!(short.kind & (LANE_LISTED | LANE_STEPS), LANE_LISTED);
        assert_eq!((short.unit, short.count, short.to), (3, 1000, 0));
        let list = &listed.bytes[(short.from - 0x7000_0000) as usize..][..4000];
        let entries = list.chunks_exact(4).zip((0u32..).step_by(12));
        for (entry, place) in entries {
            assert_eq!(entry, place.to_ne_bytes());
        }
    }
    // Without lists, the lane is carried out by its steps.
    let without = lowered(lanes, 16, false).unwrap();
    assert!(without.divides && !without.lists);
    assert_eq!(first(&without).kind, LANE_STEPS);
    let linear = vec![vec![wait(0x2000), put(1000), add(0x3000)]];
    let linear = lowered(linear, 16, false).unwrap();
    assert!(!linear.divides && !linear.lists);
}

#[test]
fn what_lies_one_behind_the_other_is_gathered() {
    let lane = |count: usize, table: usize, dst: usize| {
        let mut copy = gathering(8);
        copy.count = count;
        copy.src.shape = Shape::Indexed { table: ptr(table) };
        copy.dst.base = ptr(dst);
        let lane = vec![wait(0x2000), Step::Move(copy), add(0x3000)];
        first(&program(vec![lane], 16).unwrap()).kind & (LANE_LISTED | LANE_GATHERS)
    };
    let (listed, gathers) = (LANE_LISTED, LANE_LISTED | LANE_GATHERS);
    assert_eq!(lane(8, 0x7000, 0x9000), gathers);
    // Two entries are one access, and so are two units.
    assert_eq!(lane(8, 0x7004, 0x9000), listed);
    assert_eq!(lane(8, 0x7000, 0x9008), listed);
    // The kernel counts up to this number.
    assert_eq!(lane((1 << 31) - 1, 0x7000, 0x9000), gathers);
    assert_eq!(lane(1 << 31, 0x7000, 0x9000), listed);
}

/// The move of `doubles` doubles from one address to another.
fn copy_at(src: usize, dst: usize, doubles: usize) -> Move {
    let mut copy = copy(doubles);
    (copy.src.base, copy.dst.base) = (ptr(src), ptr(dst));
    copy
}

fn put_at(src: usize, dst: usize, doubles: usize) -> Step {
    Step::Move(copy_at(src, dst, doubles))
}

#[test]
fn several_copies_are_one_in_short() {
    let lane = |copies: &[Step]| [&[wait(0x2000)], copies, &[add(0x3000)]].concat();
    let all = LANE_WAITS | LANE_COPIES | LANE_ADDS;
    let short = |copies: &[Step], lists| {
        let program = lowered(vec![lane(copies)], 16, lists).unwrap();
        (first(&program), program.divides)
    };
    // The targets are separate slots, in any order.
    let apart = [put_at(0x9_0000, 0x8_1000, 6), put_at(0x9_1000, 0x8_0000, 4)];
    let (listed, divides) = short(&apart, true);
    assert_eq!((listed.kind, divides), (all | LANE_LISTED, false));
    assert_eq!((listed.src, listed.dst), (0x9_0000, 0x8_0000));
    assert_eq!((listed.count, listed.unit), (5, 4));
    let (steps, divides) = short(&apart, false);
    assert_eq!((steps.kind, divides), (LANE_STEPS, true));
    // The copies are contiguous at their targets; and on both sides.
    let (gathers, _) = short(
        &[put_at(0x9_1000, 0x8_0000, 4), put_at(0x9_0000, 0x8_0020, 6)],
        true,
    );
    assert_eq!(gathers.kind, all | LANE_LISTED | LANE_GATHERS);
    let on = [put_at(0x9_0020, 0x8_0020, 7), put_at(0x9_0000, 0x8_0000, 4)];
    let (linear, divides) = short(&on, false);
    assert_eq!((linear.kind, divides), (all, false));
    assert_eq!((linear.src, linear.dst), (0x9_0000, 0x8_0000));
    assert_eq!((linear.count, linear.tail), (5, 8));
    // Copies that are aligned to less than a unit of 16 bytes need no list either.
    let (narrow, divides) = short(&[put_at(0x9_0008, 0x8_0000, 9)], false);
    assert_eq!((narrow.kind, divides), (all | LANE_LISTED, false));
    assert_eq!(
        (narrow.unit, narrow.count, narrow.from, narrow.to),
        (3, 9, 0, 0)
    );
    // A warp moves few bytes; for many there are as many blocks as for one copy.
    let of = |doubles| {
        let copies: Vec<_> = (0..26)
            .map(|at| put_at(0x9_0000 + at * 0x4000, 0x80_0000 + at * 0x4400, doubles))
            .collect();
        teams(&program(vec![lane(&copies)], 128).unwrap())
    };
    assert_eq!((of(2), of(1024)), ([1, 0], [0, 26]));
}

#[test]
fn some_copies_have_no_list() {
    let kind = |lane: Vec<Step>| first(&program(vec![lane], 16).unwrap()).kind;
    // A lane that goes to a NIC; and a copy that must not begin before the wait is over, beside one that may.
    assert_eq!(kind(vec![wait(0x2000), gather(10), add(HOST)]), LANE_STEPS);
    let mut late = gathering(10);
    late.early = false;
    let both = vec![wait(0x2000), Step::Move(late), gather(10), add(0x3000)];
    assert_eq!(kind(both), LANE_STEPS);
    // Only one of the copies has a second buffer.
    let mut flips = copy_at(0x9_0000, 0x8_0000, 4);
    (flips.dst.flip, flips.parity) = (4096, ptr(0x2008));
    let flips = Step::Move(flips);
    let one = [wait(0x2000), flips, add(0x3000)];
    assert_eq!(kind(one.to_vec()) & LANE_STEPS, 0);
    let two = vec![
        wait(0x2000),
        flips,
        put_at(0x9_1000, 0x8_1000, 4),
        add(0x3000),
    ];
    assert_eq!(kind(two), LANE_STEPS);
    // A long copy that would have narrower units, because of its own ends or those of another copy.
    let long = |src: usize| put_at(src, 0x80_0008, 2000);
    assert_eq!(
        kind(vec![wait(0x2000), long(0x90_0008), add(0x3000)]),
        LANE_STEPS
    );
    assert_eq!(
        kind(vec![wait(0x2000), long(0x90_0000), add(0x3000)]) & LANE_STEPS,
        0
    );
    let beside = vec![
        wait(0x2000),
        put_at(0x9_0000, 0x8_0000, 2000),
        put_at(0xa_0000, 0xb_0000, 1),
        add(0x3000),
    ];
    assert_eq!(kind(beside), LANE_STEPS);
    // More entries than all lists of a program may have.
    let most = 1 << 20;
    let lane = |doubles| vec![wait(0x2000), gather(doubles), add(0x3000)];
    let full = program(vec![lane(most), lane(8)], 16).unwrap();
    assert!(full.lists && !full.divides);
    assert_eq!(
        first(&full).kind,
        LANE_STEPS,
        "the lane of a warp stands first"
    );
    assert_eq!(kind(lane(most + 1)), LANE_STEPS);
    // The lists of linear copies may have a quarter, and come last.
    let apart = |doubles: usize| {
        let copies = [0, 1].map(|at| {
            put_at(
                0x1000_0000 + at * 0x800_0000,
                0x2000_0000 + at * 0x900_0000,
                doubles,
            )
        });
        [&[wait(0x2000)], &copies[..], &[add(0x3000)]].concat()
    };
    assert_eq!(kind(apart(1 << 17)) & LANE_STEPS, 0);
    assert_eq!(kind(apart((1 << 17) + 2)), LANE_STEPS);
    let full = program(vec![apart(1 << 17), lane(most)], 16).unwrap();
    let kinds = blocks_of(&full).map(|short| short.kind & (LANE_STEPS | LANE_LISTED));
    let mut kinds: Vec<_> = kinds.collect();
    kinds.dedup();
    assert_eq!(kinds, [LANE_STEPS, LANE_LISTED]);
}

/// The short forms of the blocks' lanes.
fn blocks_of(program: &Program) -> impl Iterator<Item = ShortLane> {
    let records = program.records().into_iter().enumerate();
    let blocks = records.filter(|(_, record)| record.team == TEAM_BLOCKS);
    blocks.map(|(index, _)| read(&program.bytes[index * program.stride + size_of::<Record>()..]))
}

/// Contiguous copies have the blocks of one copy.
#[test]
fn copies_that_go_on_share_threads_by_bytes() {
    let of = |count: usize, doubles: usize| {
        let copies = (0..count).map(|at| {
            put_at(
                0x90_0000 + 8 * at * doubles,
                0x80_0000 + 8 * at * doubles,
                doubles,
            )
        });
        let mut lane = vec![wait(0x2000)];
        lane.extend(copies);
        lane.push(add(0x3000));
        teams(&program(vec![lane], 128).unwrap())
    };
    assert_eq!((of(1, 1024), of(1024, 1)), ([0, 1], [0, 1]));
    assert_eq!((of(1, 8192), of(8192, 1)), ([0, 8], [0, 8]));
    assert_eq!((of(1, 3000), of(1000, 3)), ([0, 3], [0, 3]));
    assert_eq!(of(4, 1), [1, 0]);
}
