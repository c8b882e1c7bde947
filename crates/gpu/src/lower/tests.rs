//! Which teams carry out the lanes of a batch, and what the tests of programs share.

mod folds;
mod landings;
mod listed;
mod short;
mod steps;

use super::*;
use tidegate_hal::batch::{Action, Add, Awaited, Check, Move, QUANTUM, Shape, Side, Tag, Wait};

fn ptr(address: usize) -> Ptr {
    Ptr(std::ptr::without_provenance_mut(address))
}

/// The wait for `word`, whose operand lies behind it.
fn waiting(word: usize) -> Wait {
    Wait {
        word: ptr(word),
        operand: ptr(word + 8),
        quantum: QUANTUM,
        tag: Tag {
            window: None,
            peer: 2,
            awaited: Awaited::Exposure,
        },
        landed: None,
        ring: None,
    }
}

fn wait(word: usize) -> Step {
    Step::Wait(waiting(word))
}

fn adding(word: usize, value: u64) -> Add {
    Add {
        tag: None,
        word: ptr(word),
        value,
        bell: ptr(64),
        turn: None,
    }
}

fn add(word: usize) -> Step {
    Step::Add(adding(word, QUANTUM))
}

/// The move of `doubles` doubles in a row.
fn copy(doubles: usize) -> Move {
    let side = |base| Side {
        base: ptr(base),
        flip: 0,
        shape: Shape::Linear,
    };
    Move {
        action: Action::Copy,
        size: 8,
        count: doubles,
        src: side(0x10_0000),
        dst: side(0x20_0000),
        parity: Ptr::NULL,
        early: true,
        landing: None,
        buffers: 2,
    }
}

fn put(doubles: usize) -> Step {
    Step::Move(copy(doubles))
}

/// The move of every twelfth double.
fn gathering(doubles: usize) -> Move {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[0] = (doubles as u32, 12);
    let mut copy = copy(doubles);
    copy.src.shape = Shape::Strided { dims, rank: 1 };
    copy
}

fn gather(doubles: usize) -> Step {
    Step::Move(gathering(doubles))
}

/// Words from here on are in memory of the host.
const HOST: usize = 0x5000_0000;
/// The distance from a word of the host to its count.
const COUNTS: u64 = 0x1000_0000;

fn program(lanes: Vec<Vec<Step>>, quota: usize) -> Result<Program, DeviceError> {
    lowered(lanes, quota, true)
}

fn lowered(lanes: Vec<Vec<Step>>, quota: usize, lists: bool) -> Result<Program, DeviceError> {
    for_wave(32, lanes, quota, lists)
}

fn for_wave(
    wave: usize,
    lanes: Vec<Vec<Step>>,
    quota: usize,
    lists: bool,
) -> Result<Program, DeviceError> {
    // SAFETY: the batch is never executed.
    let batch = unsafe { Batch::new(lanes, Vec::new()) };
    Program::new(&batch, &Names::of(&batch), quota, wave, lists, |word| {
        let address = word.0.addr();
        Ok(if address >= HOST {
            address as u64 + COUNTS
        } else {
            0
        })
    })
}

/// How many blocks each kind of team has.
fn teams(program: &Program) -> [usize; 2] {
    [TEAM_WARPS, TEAM_BLOCKS].map(|team| {
        program
            .records()
            .iter()
            .filter(|entry| entry.team == team)
            .count()
    })
}

/// The short forms of the lanes in the first record.
fn lanes(program: &Program) -> Vec<ShortLane> {
    let record = program.records()[0];
    let lane =
        |index: usize| read(&program.bytes[size_of::<Record>() + index * size_of::<ShortLane>()..]);
    (0..usize::from(record.lanes)).map(lane).collect()
}

/// The first lane's short form.
fn first(program: &Program) -> ShortLane {
    lanes(program)[0]
}

fn store(to: usize) -> Step {
    Step::Store(tidegate_hal::batch::Store {
        to: ptr(to),
        value: 1,
    })
}

#[test]
fn lanes_get_teams_by_what_they_move() {
    // The exchange of 2x2x2 ranks: seven posts, seven completes (three of them large), seven waits.
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
    // Eighteen lanes are for warps, on a quarter of the blocks.
    let [warps, blocks] = teams(&lowered);
    assert_eq!(warps, 12);
    assert!((34..=37).contains(&blocks), "{blocks}");
    // With enough blocks, each thread has one unit: 13,104 + 14,040 + 15,120 units of 16 bytes.
    assert_eq!(
        teams(&program(exchange(), 128).unwrap()),
        [18, 26 + 28 + 30]
    );
    // With fewer, the small lanes share two blocks, and the large lanes have one each, or are left to warps.
    assert_eq!(teams(&program(exchange(), 5).unwrap()), [2, 3]);
    assert_eq!(teams(&program(exchange(), 2).unwrap()), [2, 0]);
    assert!(matches!(
        program(exchange(), 1),
        Err(DeviceError::Exhausted { .. })
    ));
}

#[test]
fn a_block_has_at_most_a_lane_for_each_wave() {
    for (wave, waves) in [(32, 16), (64, 8)] {
        for count in [1, waves, waves + 1, 5 * waves] {
            let lanes = || (0..count).map(|peer| vec![wait(0x4000 + peer * 64)]);
            let program = |quota| for_wave(wave, lanes().collect(), quota, true);
            let least = count.div_ceil(waves);
            let lowered = program(least).unwrap();
            assert_eq!(teams(&lowered), [least, 0]);
            let records = lowered.records();
            let of_blocks: Vec<_> = records.iter().map(|record| record.lanes as usize).collect();
            assert_eq!(of_blocks.iter().sum::<usize>(), count);
            assert!(
                of_blocks.iter().all(|lanes| *lanes <= waves),
                "{of_blocks:?}"
            );
            let fewer =
                least > 1 && !matches!(program(least - 1), Err(DeviceError::Exhausted { .. }));
            assert!(!fewer, "{count} lanes on {} blocks", least - 1);
        }
    }
}

#[test]
fn a_lane_that_adds_to_a_word_of_the_host_has_few_blocks() {
    let lanes = |word: usize| vec![vec![wait(0x2000), put(1 << 20), add(word)]];
    let near = program(lanes(0x3000), 16).unwrap();
    assert_eq!(teams(&near), [0, 16]);
    let far = program(lanes(HOST), 16).unwrap();
    assert_eq!(teams(&far), [0, 2]);
}

/// A lane that rings in parts has one block, which stores its count at each part. With several blocks, one could be
/// ahead with the next chunk while another is still at this one.
#[test]
fn a_lane_that_rings_in_parts_has_one_block() {
    let parts = |doubles: usize, parts: u64| {
        let part = |index| Step::Add(adding(HOST, tidegate_hal::nic::part(index, parts)));
        let mut lane = vec![wait(0x2000), wait(0x2040)];
        (0..parts).for_each(|index| lane.extend([put(doubles), part(index)]));
        program(vec![lane, vec![wait(0x4000)]], 16).unwrap()
    };
    let lowered = parts(1 << 15, 3);
    assert_eq!(teams(&lowered), [1, 1]);
    // One team does not count which blocks have read an operand.
    assert!(lowered.relocations.is_empty());
    let records = lowered.records();
    let block = records.iter().find(|record| record.team == TEAM_BLOCKS);
    assert_eq!(
        block.map(|record| (record.index, record.count)),
        Some((0, 1))
    );
    assert_eq!(teams(&parts(1 << 15, 1)), [1, 2]);
    // A small lane is still a warp's.
    assert_eq!(teams(&parts(8, 3)), [2, 0]);
}

#[test]
fn blocks_of_a_lane_count_who_has_read_the_operand() {
    let mut lowered = program(vec![vec![wait(0x2000), put(10_000), add(0x3000)]], 16).unwrap();
    assert_eq!(teams(&lowered), [0, 10]);
    let record = lowered.records()[3];
    assert_eq!((record.index, record.count), (3, 10));
    // Each block has its own record, with the same counter, and so has the step.
    assert_eq!(lowered.relocations.len(), 11);
    let at = lowered.relocations[4];
    let arrivals =
        |program: &Program| u64::from_ne_bytes(program.bytes[at..at + 8].try_into().unwrap());
    let counter = arrivals(&lowered);
    // The counter is behind everything that is only read, in a cache line of its own.
    assert!(counter as usize >= 10 * lowered.stride && counter % 128 == 0);
    assert!(counter as usize + 8 <= lowered.len());
    lowered.placed_at(0x7000_0000);
    assert_eq!(arrivals(&lowered), 0x7000_0000 + counter);
    // A single team advances the operand without counting.
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
    let lowered = program(lanes(26), 49).unwrap();
    assert_eq!(teams(&lowered), [12, 0]);
    // Lanes are dealt in turn.
    let numbers: Vec<_> = lowered
        .records()
        .iter()
        .map(|record| record.lanes)
        .collect();
    assert_eq!(numbers, [3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    let words = (0..300)
        .map(|peer| vec![wait(0x2000 + peer * 64)])
        .collect();
    assert_eq!(teams(&program(words, 49).unwrap()), [19, 0]);
    assert!(program(Vec::new(), 1).unwrap().records().is_empty());
}

#[test]
fn an_add_that_is_too_small_to_be_parted_has_one_team() {
    let small = Step::Add(adding(0x3000, MOST_BLOCKS * PART - 1));
    let teams_of = |doubles| teams(&program(vec![vec![put(doubles), small]], 49).unwrap());
    // One team is a block or a warp.
    assert_eq!((teams_of(100_000), teams_of(8)), ([0, 1], [1, 0]));
}

/// One of several blocks must know that it is the last: the block that has just stored the count of a word of the host.
#[test]
fn a_lane_that_stores_has_several_blocks_only_if_one_knows_that_it_is_the_last() {
    let blocks = |lane: Vec<Step>| teams(&program(vec![lane], 16).unwrap())[1];
    let put = || put(1 << 20);
    let ring = [wait(0x2000), put(), add(HOST), Step::Flush, store(0x5000)];
    assert_eq!(blocks(ring.to_vec()), 2);
    assert_eq!(
        blocks(vec![put(), add(HOST), store(0x5000), store(0x5000)]),
        2
    );
    assert_eq!(blocks(vec![put(), add(0x3000), store(0x5000)]), 1);
    assert_eq!(blocks(vec![put(), store(0x5000), add(HOST)]), 1);
    assert_eq!(blocks(vec![add(HOST), put(), store(0x5000)]), 1);
    assert_eq!(
        blocks(vec![put(), add(HOST), wait(0x2000), store(0x5000)]),
        1
    );
    assert_eq!(
        blocks(vec![put(), add(HOST), add(0x3000), store(0x5000)]),
        1
    );
}

#[test]
fn where_waits_share_places_is_known() {
    let waits = |count: usize| {
        let lanes = (0..count).map(|peer| vec![wait(0x4000 + peer * 64)]);
        program(lanes.collect(), 49).unwrap().crowded
    };
    assert!(!waits(MAX_BLOCKED) && waits(MAX_BLOCKED + 1));
}
