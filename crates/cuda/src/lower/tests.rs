use super::*;
use tidegate_hal::batch::{Action, Add, Awaited, Move, QUANTUM, Shape, Side, Tag, Wait};

fn ptr(address: usize) -> Ptr {
    Ptr(std::ptr::without_provenance_mut(address))
}

fn wait(word: usize) -> Step {
    Step::Wait(Wait {
        word: ptr(word),
        operand: ptr(word + 8),
        quantum: QUANTUM,
        tag: Tag {
            window: 1,
            peer: 2,
            awaited: Awaited::Exposure,
        },
    })
}

fn add(word: usize) -> Step {
    Step::Add(Add {
        word: ptr(word),
        value: QUANTUM,
        bell: ptr(64),
    })
}

fn put(doubles: usize) -> Step {
    let side = |base| Side {
        base: ptr(base),
        flip: 0,
        shape: Shape::Linear,
    };
    Step::Move(Move {
        action: Action::Copy,
        size: 8,
        count: doubles,
        src: side(0x10_0000),
        dst: side(0x20_0000),
        parity: Ptr::NULL,
        early: true,
    })
}

fn program(lanes: Vec<Vec<Step>>, quota: usize) -> Result<Program, DeviceError> {
    // SAFETY: the batch is never executed.
    let batch = unsafe { Batch::new(lanes, Vec::new()) };
    Program::new(&batch, quota, true)
}

/// How many blocks each kind of team has.
fn teams(program: &Program) -> [usize; 2] {
    [TEAM_WARPS, TEAM_BLOCKS].map(|team| {
        program
            .records()
            .iter()
            .filter(|record| record.team == team)
            .count()
    })
}

#[test]
fn lanes_get_teams_by_what_they_move() {
    // The 2x2x2 exchange: seven posts, seven completes (three large), seven waits.
    let exchange = || {
        let mut lanes: Vec<Vec<Step>> = Vec::new();
        lanes.extend((0..7).map(|peer| vec![add(0x1000 + peer * 64)]));
        for doubles in [26_208, 28_080, 30_240, 180, 168, 156, 1] {
            lanes.push(vec![wait(0x2000), put(doubles), Step::Flush, add(0x3000)]);
        }
        lanes.extend((0..7).map(|peer| vec![wait(0x4000 + peer * 64)]));
        lanes
    };
    let lowered = program(exchange(), 49).unwrap();
    // Eighteen lanes for warps: a block, and two more.
    let [warps, blocks] = teams(&lowered);
    assert_eq!(warps, 2);
    assert!((44..=47).contains(&blocks), "{blocks}");
    // With room, one unit a thread: 13,104 + 14,040 + 15,120 units of 16 bytes.
    assert_eq!(teams(&program(exchange(), 128).unwrap()), [2, 26 + 28 + 30]);
    // Without, each has one, or is left to warps.
    assert_eq!(teams(&program(exchange(), 5).unwrap()), [2, 3]);
    assert_eq!(teams(&program(exchange(), 2).unwrap()), [2, 0]);
    assert!(matches!(
        program(exchange(), 1),
        Err(DeviceError::Exhausted { .. })
    ));
}

#[test]
fn blocks_of_a_lane_count_who_has_read_the_operand() {
    let mut lowered = program(vec![vec![wait(0x2000), put(10_000), add(0x3000)]], 16).unwrap();
    assert_eq!(teams(&lowered), [0, 10]);
    let record = lowered.records()[3];
    assert_eq!((record.index, record.count), (3, 10));
    // Each block has its own record, with the same counter.
    assert_eq!(lowered.relocations.len(), 10);
    let at = lowered.relocations[4];
    let arrivals =
        |program: &Program| u64::from_ne_bytes(program.bytes[at..at + 8].try_into().unwrap());
    let counter = arrivals(&lowered);
    // Behind what is only read, and in a line of its own.
    assert!(counter as usize >= 10 * lowered.stride && counter % 128 == 0);
    assert!(counter as usize + 8 <= lowered.len());
    lowered.placed_at(0x7000_0000);
    assert_eq!(arrivals(&lowered), 0x7000_0000 + counter);
    // One team alone advances it without counting.
    assert!(
        program(vec![vec![wait(0x2000), put(10), add(0x3000)]], 16)
            .unwrap()
            .relocations
            .is_empty()
    );
}

#[test]
fn many_lanes_share_blocks() {
    let lanes = |count: usize| {
        (0..count)
            .map(|peer| vec![wait(0x2000 + peer * 64), put(4), add(0x3000)])
            .collect()
    };
    assert_eq!(teams(&program(lanes(26), 49).unwrap()), [2, 0]);
    let words = (0..300)
        .map(|peer| vec![wait(0x2000 + peer * 64)])
        .collect();
    assert_eq!(teams(&program(words, 49).unwrap()), [19, 0]);
    assert!(program(Vec::new(), 1).unwrap().records().is_empty());
}

#[test]
fn an_add_that_is_too_small_to_be_parted_has_one_team() {
    let small = Step::Add(Add {
        word: ptr(0x3000),
        value: 1,
        bell: Ptr::NULL,
    });
    assert_eq!(
        teams(&program(vec![vec![put(100_000), small]], 49).unwrap()),
        [1, 0]
    );
}

#[test]
fn lanes_that_do_not_fit_into_a_record_stand_behind() {
    let lane = |moves: usize| {
        let mut steps = vec![wait(0x2000)];
        steps.extend((0..moves).map(|_| put(4)));
        steps.push(add(0x3000));
        steps
    };
    let far = |program: &Program| {
        program
            .records()
            .iter()
            .map(|record| record.far)
            .collect::<Vec<_>>()
    };
    let near = program(vec![lane(2), lane(3)], 8).unwrap();
    assert_eq!(far(&near), [0]);
    assert!(near.stride <= WINDOW && near.bytes.len() >= near.stride);
    let long = program(vec![lane(2), lane(60)], 8).unwrap();
    assert_eq!(far(&long), [1]);
    // The record is only its head then: 16 bytes, and two places.
    assert_eq!(long.stride, 32);
    let place = |index: usize| {
        u32::from_ne_bytes(long.bytes[16 + 4 * index..][..4].try_into().unwrap()) as usize * 16
    };
    let kind = |at: usize| u16::from_ne_bytes(long.bytes[at..at + 2].try_into().unwrap());
    assert_eq!((kind(place(0)), kind(place(1))), (STEP_WAIT, STEP_WAIT));
}

#[test]
fn large_copies_are_left_to_the_bulk_engine() {
    // Whether each move of the lane is, as the records have it.
    let marks = |doubles: usize, quota: usize, bulk: bool| {
        let lane = vec![wait(0x2000), put(doubles), add(0x3000)];
        // SAFETY: the batch is never executed.
        let batch = unsafe { Batch::new(vec![lane], Vec::new()) };
        let program = Program::new(&batch, quota, bulk).unwrap();
        let head = size_of::<Record>() + 16;
        let at = head + size_of::<WaitStep>().next_multiple_of(16);
        let marks = (0..program.blocks).map(|block| {
            let step = &program.bytes[block * program.stride + at..];
            assert_eq!(u16::from_ne_bytes([step[0], step[1]]), STEP_MOVE);
            u32::from_ne_bytes(step[4..8].try_into().unwrap()) & MOVE_BULK != 0
        });
        let marks: Vec<_> = marks.collect();
        assert!(marks.iter().all(|mark| *mark == program.bulk));
        (program.blocks, program.bulk)
    };
    let enough = 2 * BULK as usize;
    assert_eq!(marks(4 * enough, 4, true), (4, true));
    assert_eq!(marks(4 * enough - 2, 4, true), (4, false));
    // It is what a block has that counts.
    assert_eq!(marks(4 * enough, 8, true), (8, false));
    assert_eq!(marks(4 * enough, 4, false), (4, false));
    // A warp has none.
    assert_eq!(marks(100, 4, true), (1, false));
}
