mod listed;

use super::*;
use tidegate_hal::batch::{Action, Add, Awaited, Check, Move, QUANTUM, Shape, Side, Tag, Wait};

fn ptr(address: usize) -> Ptr {
    Ptr(std::ptr::without_provenance_mut(address))
}

fn wait(word: usize) -> Step {
    Step::Wait(Wait {
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
    })
}

fn add(word: usize) -> Step {
    Step::Add(Add {
        tag: None,
        word: ptr(word),
        value: QUANTUM,
        bell: ptr(64),
        turn: None,
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
        landing: None,
        buffers: 2,
    })
}

/// A put of every twelfth double.
fn gather(doubles: usize) -> Step {
    let Step::Move(mut copy) = put(doubles) else {
        unreachable!("a put moves")
    };
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[0] = (doubles as u32, 12);
    copy.src.shape = Shape::Strided { dims, rank: 1 };
    Step::Move(copy)
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

/// The first lane's short form.
fn first(program: &Program) -> ShortLane {
    read(&program.bytes[size_of::<Record>()..])
}

#[test]
fn a_lane_that_adds_to_a_word_of_the_host_has_few_blocks() {
    let lanes = |word: usize| vec![vec![wait(0x2000), put(1 << 20), add(word)]];
    let near = program(lanes(0x3000), 16).unwrap();
    assert_eq!(teams(&near), [0, 16]);
    let far = program(lanes(HOST), 16).unwrap();
    assert_eq!(teams(&far), [0, 2]);
}

#[test]
fn a_word_of_the_host_is_counted_on_the_device() {
    // The lane is carried out by its steps.
    let kinds = [0x3000, HOST].map(|word| {
        let lowered = program(vec![vec![wait(0x2000), put(8), add(word)]], 16).unwrap();
        let lane: ShortLane = read(&lowered.bytes[size_of::<Record>()..]);
        let steps = &lowered.bytes[16 * lane.steps as usize..];
        // A wait and a move come before it.
        let mut rest = steps;
        let add: AddStep = loop {
            let head: Head = read(rest);
            if head.kind == STEP_ADD {
                break read(rest);
            }
            rest = &rest[usize::from(head.length) * 16..];
        };
        (lane.kind & LANE_STEPS != 0, add.count)
    });
    assert_eq!(kinds, [(false, 0), (true, HOST as u64 + COUNTS)]);
    // Several blocks count together in quanta; a value that is not a multiple is counted by one team.
    let odd = Step::Add(Add {
        tag: None,
        word: ptr(HOST),
        value: QUANTUM + 1,
        bell: Ptr::NULL,
        turn: None,
    });
    let lanes = vec![vec![wait(0x2000), put(1 << 20), odd]];
    assert_eq!(teams(&program(lanes, 16).unwrap()), [0, 1]);
}

/// A lane that rings in parts has one block, which stores its count at each part. With several blocks, one could be
/// ahead with the next chunk while another is still at this one.
#[test]
fn a_lane_that_rings_in_parts_has_one_block() {
    let parts = |doubles: usize, parts: u64| {
        let part = |index| {
            Step::Add(Add {
                tag: None,
                word: ptr(HOST),
                value: tidegate_hal::nic::part(index, parts),
                bell: ptr(64),
                turn: None,
            })
        };
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

/// A warp carries out a landing with at most 8 bytes for each of its threads; a block carries out a larger one. A put
/// without a block uses a fence, but the wait still looks for its landing.
#[test]
fn bytes_that_land_have_one_team() {
    let landing = tidegate_hal::batch::Landing {
        base: ptr(0x40_0000),
        flip: 0,
    };
    let lanes = |doubles: usize| {
        let Step::Move(mut copy) = put(doubles) else {
            unreachable!("a put moves")
        };
        copy.landing = Some(landing);
        let Step::Wait(mut waits) = wait(0x4000) else {
            unreachable!("a wait waits")
        };
        waits.landed = Some(tidegate_hal::batch::Landed {
            from: landing,
            slot: ptr(0x30_0000),
            flip: 0,
            bytes: 8 * doubles,
        });
        vec![
            vec![wait(0x2000), Step::Move(copy), add(0x3000)],
            vec![Step::Wait(waits)],
        ]
    };
    let kinds = |program: &Program| -> Vec<(u8, u16)> {
        let records = program.records().into_iter().zip(0..);
        let lane = |(record, index): (Record, usize)| {
            let at = index * program.stride + size_of::<Record>();
            (0..usize::from(record.lanes)).map(move |lane| {
                let at = at + lane * size_of::<ShortLane>();
                (record.team, read::<ShortLane>(&program.bytes[at..]).kind)
            })
        };
        records.flat_map(lane).collect()
    };
    let (puts, waits) = (
        LANE_WAITS | LANE_COPIES | LANE_ADDS,
        LANE_WAITS | LANE_LANDS,
    );
    let of = |doubles, quota| kinds(&program(lanes(doubles), quota).unwrap());
    let both = |team| vec![(team, puts | LANE_LANDS), (team, waits)];
    assert_eq!(of(32, 16), both(TEAM_WARPS));
    assert_eq!(of(33, 16), both(TEAM_BLOCKS));
    assert_eq!(of(512, 16), both(TEAM_BLOCKS));
    let warps = [(TEAM_WARPS, puts), (TEAM_WARPS, waits)];
    assert_eq!(of(33, 1), warps);
    // A landing takes no block from lanes that have too few.
    let long = [
        lanes(33),
        vec![vec![wait(0x5000), put(10_000), add(0x6000)]],
    ]
    .concat();
    let beside = |quota| kinds(&program(long.clone(), quota).unwrap());
    let blocks = |number| vec![(TEAM_BLOCKS, puts); number];
    assert_eq!(beside(11), [&warps[..], &blocks(9)].concat());
    assert_eq!(beside(12), [both(TEAM_BLOCKS), blocks(10)].concat());
    // A few landings come before a very long lane; many never get more than a third.
    let long = [
        lanes(33),
        vec![vec![wait(0x5000), put(1 << 20), add(0x6000)]],
    ]
    .concat();
    let beside = |quota| kinds(&program(long.clone(), quota).unwrap());
    assert_eq!(beside(15)[..2], warps);
    assert_eq!(beside(16), [both(TEAM_BLOCKS), blocks(14)].concat());
    let many: Vec<_> = (0..4).flat_map(|_| lanes(33)).collect();
    let many = |quota| teams(&program(many.clone(), quota).unwrap());
    assert_eq!((many(24), many(23)), ([0, 8], [5, 0]));
}

/// The thread that finds landed bytes copies them. So behind such a wait a lane can only have a copy of the whole slot.
#[test]
fn landed_bytes_are_copied_as_they_are_found() {
    let landed = tidegate_hal::batch::Landed {
        from: tidegate_hal::batch::Landing {
            base: ptr(0x40_0000),
            flip: 64,
        },
        slot: ptr(0x30_0000),
        flip: 128,
        bytes: 24,
    };
    let lane = |change: fn(&mut Move)| {
        let (Step::Wait(mut waits), Step::Move(mut copy)) = (wait(0x4000), put(3)) else {
            unreachable!("a wait waits, and a put moves")
        };
        waits.landed = Some(landed);
        (copy.src.base, copy.src.flip) = (landed.slot, landed.flip);
        (copy.parity, copy.early) = (waits.operand, false);
        change(&mut copy);
        vec![Step::Wait(waits), Step::Move(copy)]
    };
    let to = |lane: Vec<Step>| {
        let lowered = program(vec![lane], 8)?;
        let short = lanes(&lowered)[0];
        assert_eq!(short.kind, LANE_WAITS | LANE_LANDS);
        Ok::<_, DeviceError>(short.out)
    };
    let place = lane(|copy| copy.dst.base = ptr(0x7004));
    assert_eq!(to(place).unwrap(), 0x7004);
    let Step::Wait(alone) = lane(|_| {})[0] else {
        unreachable!("as above")
    };
    assert_eq!(to(vec![Step::Wait(alone)]).unwrap(), 0);
    for refused in [
        lane(|copy| copy.dst.base = ptr(0x7002)),
        lane(|copy| copy.dst.flip = 128),
        lane(|copy| copy.src.base = ptr(0x30_0008)),
        lane(|copy| copy.src.flip = 64),
        lane(|copy| copy.count = 2),
        lane(|copy| copy.parity = ptr(0x9000)),
        [lane(|_| {}), vec![add(0x3000)]].concat(),
        [lane(|_| {}), lane(|_| {})[1..].to_vec()].concat(),
    ] {
        assert!(matches!(to(refused), Err(DeviceError::Unsupported { .. })));
    }
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
    let small = Step::Add(Add {
        tag: None,
        word: ptr(0x3000),
        value: MOST_BLOCKS * PART - 1,
        bell: Ptr::NULL,
        turn: None,
    });
    let teams_of = |doubles| teams(&program(vec![vec![put(doubles), small]], 49).unwrap());
    // One team is a block or a warp.
    assert_eq!((teams_of(100_000), teams_of(8)), ([0, 1], [1, 0]));
}

/// The short forms of the lanes in the first record.
fn lanes(program: &Program) -> Vec<ShortLane> {
    let record = program.records()[0];
    let lane =
        |index: usize| read(&program.bytes[size_of::<Record>() + index * size_of::<ShortLane>()..]);
    (0..usize::from(record.lanes)).map(lane).collect()
}

#[test]
fn plain_lanes_stand_in_the_record_in_short() {
    let odd = |doubles| {
        let Step::Move(mut put) = put(doubles) else {
            unreachable!()
        };
        put.dst.flip = 4096;
        put.parity = ptr(0x2008);
        Step::Move(put)
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
    let short = lanes(&corner)[0];
    assert_eq!(short.kind, LANE_WAITS | LANE_COPIES | LANE_ADDS);
    assert_eq!((short.flip, short.count, short.tail), (4096, 0, 8));
}

/// A copy out of a slot reads what the wait is for, and has a short form all the same.
#[test]
fn a_copy_behind_its_wait_stands_in_the_record_in_short() {
    let taken = |doubles, flips: [usize; 2]| {
        let Step::Move(mut copy) = put(doubles) else {
            unreachable!()
        };
        (copy.src.flip, copy.dst.flip) = flips.into();
        copy.early = false;
        copy.parity = ptr(0x2008);
        Step::Move(copy)
    };
    let kind = |steps: Vec<Step>| {
        let lowered = program(vec![steps], 8).unwrap();
        let short = lanes(&lowered)[0];
        (short.kind, short.flip, short.count, short.tail)
    };
    let all = LANE_WAITS | LANE_COPIES | LANE_BEHIND;
    assert_eq!(
        kind(vec![wait(0x2000), taken(5, [4096, 0])]),
        (all, 4096, 2, 8)
    );
    assert_eq!(
        kind(vec![wait(0x2000), taken(1, [0, 0]), add(0x3000)]),
        (all | LANE_ADDS, 0, 0, 8)
    );
    // Another buffer of the target, another wait's parity, and a place that is not aligned go step by step.
    let other = |change: fn(&mut Move)| {
        let Step::Move(mut copy) = taken(4, [4096, 0]) else {
            unreachable!()
        };
        change(&mut copy);
        Step::Move(copy)
    };
    for steps in [
        vec![wait(0x2000), taken(4, [4096, 4096])],
        vec![wait(0x2000), other(|copy| copy.parity = ptr(0x7000))],
        vec![wait(0x2000), other(|copy| copy.src.base = ptr(0x8008))],
        vec![taken(4, [4096, 0])],
    ] {
        assert_eq!(kind(steps).0, LANE_STEPS);
    }
}

/// The lane of a target that a kernel has completed is short, as long as it adds nothing and allows nothing.
#[test]
fn a_lane_that_checks_a_kernel_is_short() {
    let check = |count: usize, most: u64| {
        let Step::Wait(Wait { tag, .. }) = wait(0x2000) else {
            unreachable!()
        };
        Step::Check(Check {
            count: ptr(count),
            most,
            tag,
        })
    };
    let nothing = |word: usize| {
        let Step::Add(add) = add(word) else {
            unreachable!()
        };
        Step::Add(Add { value: 0, ..add })
    };
    let lane = |most, word| {
        vec![
            check(0x6000, 0),
            wait(0x2000),
            check(0x7000, most),
            nothing(word),
            nothing(0x4000),
        ]
    };
    let first = |steps: Vec<Step>| lanes(&program(vec![steps], 8).unwrap())[0];
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

fn store(to: usize) -> Step {
    Step::Store(tidegate_hal::batch::Store {
        to: ptr(to),
        value: 1,
    })
}

/// The kinds of the first lane's steps.
fn steps(program: &Program) -> Vec<u16> {
    let lane: ShortLane = read(&program.bytes[size_of::<Record>()..]);
    let mut rest = &program.bytes[16 * lane.steps as usize..];
    let mut kinds = Vec::new();
    loop {
        let head: Head = read(rest);
        kinds.push(head.kind);
        if head.kind == STEP_STORE {
            let step: StoreStep = read(rest);
            assert_eq!((step.to, step.value), (0x5000, 1));
        }
        if head.kind == STEP_END {
            return kinds;
        }
        rest = &rest[usize::from(head.length) * 16..];
    }
}

/// A step stores to a register; it has no short form.
#[test]
fn a_store_is_a_step() {
    for word in [0x3000, HOST] {
        let lowered = program(vec![vec![add(word), store(0x5000)]], 8).unwrap();
        assert_eq!(lanes(&lowered)[0].kind, LANE_STEPS);
        assert_eq!(steps(&lowered), [STEP_ADD, STEP_STORE, STEP_END]);
    }
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

/// Short copies in a row are dealt to warps, but not with one that is much longer, nor with others in between.
#[test]
fn copies_that_stand_in_a_row_are_marked() {
    let rows = |lane: Vec<Step>| -> Vec<u16> {
        let program = lowered(vec![lane], 16, false).unwrap();
        let mut at = program.blocks * program.stride;
        let mut rows = Vec::new();
        loop {
            let head: Head = read(&program.bytes[at..]);
            match head.kind {
                STEP_END => return rows,
                STEP_MOVE => rows.push(read::<MoveStep>(&program.bytes[at..]).row),
                _ => {}
            }
            at += usize::from(head.length) * 16;
        }
    };
    let puts = |lengths: &[usize]| {
        let mut lane = vec![wait(0x2000)];
        lane.extend(lengths.iter().map(|doubles| put(*doubles)));
        lane.push(add(0x3000));
        lane
    };
    assert_eq!(rows(puts(&[8; 3])), [0; 3]);
    assert_eq!(rows(puts(&[8; 5])), [5, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[8, 16, 24, 8])), [4, 0, 0, 0]);
    // A long copy ends the row, and another row may begin behind it.
    let long = [8, 8, 8, 8, 4096, 8, 8, 8, 8, 8];
    assert_eq!(rows(puts(&long)), [4, 0, 0, 0, 0, 5, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[4096, 3000, 4096, 2048, 2046])), [4, 0, 0, 0, 0]);
    // The bytes that are not whole units are a step of their own. It is part of the row for short copies, but not for
    // long ones.
    assert_eq!(rows(puts(&[9; 4])), [8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[2049; 4])), [0; 8]);
    let mut parted = puts(&[8; 8]);
    parted.insert(4, add(HOST));
    assert_eq!(rows(parted), [0, 0, 0, 5, 0, 0, 0, 0]);
}

#[test]
fn where_waits_share_places_is_known() {
    let waits = |count: usize| {
        let lanes = (0..count).map(|peer| vec![wait(0x4000 + peer * 64)]);
        program(lanes.collect(), 49).unwrap().crowded
    };
    assert!(!waits(MAX_BLOCKED) && waits(MAX_BLOCKED + 1));
}
