//! Schedules of all ranks, carried out by a simulator.
//!
//! # Model
//!
//! An element is a list of (rank, number), so that a reduction is a concatenation: it shows what was reduced, and in which
//! order. Slots have two buffers. As on a stream, a rank posts first in each stage. A send waits for the post before the
//! last one, and a receive for its send. Otherwise the lanes of all ranks run in any order. A rank that reads too late,
//! or writes too early, finds other data than the oracle.

use std::collections::BTreeMap;
use std::ops::Range;

use super::algorithms::{Counts, What, schedule};
use super::choice::Choice;
use super::nodes::Nodes;
use super::schedule::{Buffer, From, How, Job, Local, NUMBER, Schedule, Sent, Slot, Spot, Stage};
use crate::random::Rng;
use crate::window::JointKind;

use self::cases::{case, kinds, matrix, vector};

mod cases;
mod sent;

type Value = Vec<(usize, usize)>;

/// The slot of one rank for another: two buffers.
type Slots = BTreeMap<(usize, Slot), [Vec<Value>; 2]>;

struct Rank {
    schedule: Schedule,
    stage: usize,
    /// Which lanes of the stage are over: the sends to each target, the receives, `beside`.
    sent: BTreeMap<usize, bool>,
    received: BTreeMap<usize, bool>,
    beside: Vec<bool>,
    buffers: BTreeMap<Buffer, Vec<Value>>,
}

impl Rank {
    fn at(&mut self, spot: Spot, count: usize) -> &mut [Value] {
        let buffer = self.buffers.get_mut(&spot.buffer);
        let buffer = buffer.unwrap_or_else(|| panic!("there is no {:?}", spot.buffer));
        &mut buffer[spot.first..][..count]
    }

    fn current(&self) -> Option<&Stage> {
        self.schedule.stages.get(self.stage)
    }
}

/// The stages of a pair of ranks, counted at both ends.
#[derive(Default)]
struct Pair {
    posts: usize,
    sends: usize,
    waits: usize,
}

/// Carries out schedules several times in a row, and returns the buffers.
fn simulate(
    schedules: &[Schedule],
    buffers: Vec<BTreeMap<Buffer, Vec<Value>>>,
    calls: usize,
    random: &mut Rng,
) -> Vec<BTreeMap<Buffer, Vec<Value>>> {
    let ranks = schedules.len();
    let mut all: Vec<Rank> = Vec::new();
    for (schedule, mut buffers) in schedules.iter().zip(buffers) {
        buffers.insert(Buffer::Scratch, vec![Value::new(); schedule.scratch]);
        let mut repeated = schedule.clone();
        for _ in 1..calls {
            repeated.stages.extend(schedule.stages.clone());
        }
        all.push(Rank {
            schedule: repeated,
            stage: 0,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            beside: Vec::new(),
            buffers,
        });
    }
    let mut slots = Slots::new();
    // By origin and target.
    let mut pairs: BTreeMap<(usize, usize), Pair> = BTreeMap::new();
    for (rank, each) in schedules.iter().enumerate() {
        for (slot, len) in &each.inbound {
            let there = Slot {
                rank,
                key: slot.key,
            };
            assert_eq!(schedules[slot.rank].outbound.get(&there), Some(len));
            slots.insert(
                (rank, *slot),
                [vec![Value::new(); *len], vec![Value::new(); *len]],
            );
        }
        for slot in each.outbound.keys() {
            let there = Slot {
                rank,
                key: slot.key,
            };
            assert!(schedules[slot.rank].inbound.contains_key(&there));
        }
    }
    for (number, rank) in all.iter_mut().enumerate() {
        enter(number, rank, &mut pairs);
    }
    let mut order: Vec<_> = (0..ranks).collect();
    loop {
        let mut moved = false;
        random.shuffle(&mut order);
        for rank in &order {
            moved |= advance(*rank, &mut all[*rank], &mut pairs, &mut slots, random);
        }
        if all.iter().all(|rank| rank.current().is_none()) {
            break;
        }
        assert!(moved, "the ranks wait for each other");
    }
    all.into_iter().map(|rank| rank.buffers).collect()
}

/// Begins a stage: posts to all origins.
fn enter(number: usize, rank: &mut Rank, pairs: &mut BTreeMap<(usize, usize), Pair>) {
    let Some(stage) = rank.current() else { return };
    let sent = stage
        .sends
        .iter()
        .map(|send| (send.to.rank, false))
        .collect();
    let received: BTreeMap<_, _> = stage
        .receives
        .iter()
        .map(|(slot, _)| (slot.rank, false))
        .collect();
    let beside = vec![false; stage.beside.len()];
    for origin in received.keys() {
        pairs.entry((*origin, number)).or_default().posts += 1;
    }
    (rank.sent, rank.received, rank.beside) = (sent, received, beside);
}

/// Carries out some of the lanes that can go on.
fn advance(
    number: usize,
    rank: &mut Rank,
    pairs: &mut BTreeMap<(usize, usize), Pair>,
    slots: &mut Slots,
    random: &mut Rng,
) -> bool {
    let Some(stage) = rank.current().cloned() else {
        return false;
    };
    let mut moved = false;
    let targets: Vec<_> = rank
        .sent
        .iter()
        .filter(|(_, over)| !**over)
        .map(|(it, _)| *it)
        .collect();
    for target in targets {
        let pair = pairs.entry((number, target)).or_default();
        // One exposure is given at first.
        if pair.posts < pair.sends || random.once_in(3) {
            moved |= pair.posts >= pair.sends;
            continue;
        }
        let parity = pair.sends % 2;
        pair.sends += 1;
        for send in stage.sends.iter().filter(|send| send.to.rank == target) {
            let there = Slot {
                rank: number,
                key: send.to.key,
            };
            let count = match send.what {
                Sent::Rows { count, size } => size * rows(rank.at(count, NUMBER)),
                Sent::All | Sent::Number(_) => send.count,
            };
            let values = rank.at(send.from, send.count)[..count].to_vec();
            let slot = slots.get_mut(&(target, there)).expect("it was declared");
            slot[parity][..count].clone_from_slice(&values);
        }
        rank.sent.insert(target, true);
        moved = true;
    }
    let origins: Vec<_> = rank
        .received
        .iter()
        .filter(|(_, over)| !**over)
        .map(|(it, _)| *it)
        .collect();
    for origin in origins {
        let pair = pairs.entry((origin, number)).or_default();
        if pair.sends > pair.waits {
            pair.waits += 1;
            rank.received.insert(origin, true);
            moved = true;
        }
    }
    for index in 0..stage.beside.len() {
        if !rank.beside[index] && !random.once_in(3) {
            carry(number, rank, &stage.beside[index], pairs, slots);
            rank.beside[index] = true;
        }
        moved |= !rank.beside[index];
    }
    let over = rank
        .sent
        .values()
        .chain(rank.received.values())
        .chain(&rank.beside)
        .all(|it| *it);
    if over {
        let mut lanes = stage.behind.clone();
        random.shuffle(&mut lanes);
        for lane in lanes {
            carry(number, rank, &lane, pairs, slots);
        }
        rank.stage += 1;
        enter(number, rank, pairs);
        moved = true;
    }
    moved
}

fn carry(
    number: usize,
    rank: &mut Rank,
    lane: &[Local],
    pairs: &BTreeMap<(usize, usize), Pair>,
    slots: &Slots,
) {
    let read = |rank: &mut Rank, from: From, count: usize| match from {
        From::Spot(spot) => rank.at(spot, count).to_vec(),
        From::Slot(slot, first) => {
            let parity = (pairs[&(slot.rank, number)].waits - 1) % 2;
            slots[&(number, slot)][parity][first..][..count].to_vec()
        }
    };
    for one in lane {
        let mut values = read(rank, one.from, one.count);
        if let How::Rows { count, size } = one.how {
            values.truncate(size * rows(&read(rank, count, NUMBER)));
        }
        let to = rank.at(one.to, one.count);
        for (to, value) in to.iter_mut().zip(values) {
            match one.how {
                How::Next => to.extend(value),
                How::Before => {
                    to.splice(0..0, value);
                }
                _ => *to = value,
            }
        }
    }
}

/// The number of rows that a number says.
fn rows(number: &[Value]) -> usize {
    number[0][0].0
}

/// Lanes of a batch touch nothing that others write.
fn check_lanes(schedule: &Schedule) {
    type Span = (Buffer, Range<usize>);
    let span = |spot: Spot, count| -> Span { (spot.buffer, spot.first..spot.first + count) };
    let lane = |moves: &[Local]| -> (Vec<Span>, Vec<Span>) {
        let reads = moves.iter().filter_map(|one| match one.from {
            From::Spot(spot) => Some(span(spot, one.count)),
            From::Slot(..) => None,
        });
        let writes = moves.iter().map(|one| span(one.to, one.count));
        (reads.collect(), writes.collect())
    };
    for stage in &schedule.stages {
        let sends = stage
            .sends
            .iter()
            .map(|send| (vec![span(send.from, send.count)], Vec::new()));
        let first: Vec<_> = sends
            .chain(stage.beside.iter().map(|it| lane(it)))
            .collect();
        let second: Vec<_> = stage.behind.iter().map(|it| lane(it)).collect();
        for lanes in [first, second] {
            for (number, (_, writes)) in lanes.iter().enumerate() {
                let others = lanes
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != number);
                for used in others.flat_map(|(_, (reads, writes))| reads.iter().chain(writes)) {
                    for written in writes {
                        let meets = written.0 == used.0
                            && written.1.start < used.1.end
                            && used.1.start < written.1.end;
                        assert!(!meets, "{written:?} and {used:?} in {stage:?}");
                    }
                }
            }
        }
        // Each slot of a stage is used once.
        let mut to: Vec<_> = stage.sends.iter().map(|send| send.to).collect();
        to.sort_unstable();
        assert!(to.windows(2).all(|pair| pair[0] != pair[1]), "{to:?}");
    }
}

/// What is sent stays as it is until the end of the call: targets may read it at any time.
fn check_sources(schedule: &Schedule) {
    let mut sent: Vec<(Buffer, Range<usize>)> = Vec::new();
    for stage in &schedule.stages {
        let writes = |lanes: &[Vec<Local>], sent: &[(Buffer, Range<usize>)]| {
            for one in lanes.iter().flatten() {
                let to = one.to.first..one.to.first + one.count;
                let meets = |(buffer, range): &(Buffer, Range<usize>)| {
                    *buffer == one.to.buffer && range.start < to.end && to.start < range.end
                };
                assert!(!sent.iter().any(meets), "{one:?} in {schedule:?}");
            }
        };
        writes(&stage.beside, &sent);
        let sends = stage.sends.iter();
        sent.extend(sends.map(|it| (it.from.buffer, it.from.first..it.from.first + it.count)));
        writes(&stage.behind, &sent);
    }
}

/// Nodes of any shape: one, some with ranks that follow each other or not, or one for each rank.
fn nodes(ranks: usize, random: &mut Rng) -> Nodes {
    let some = 1 + random.below(ranks);
    Nodes::new(match random.below(4) {
        0 => vec![0; ranks],
        1 => (0..ranks).map(|rank| rank / some).collect(),
        2 => (0..ranks).map(|_| random.below(some)).collect::<Vec<_>>(),
        _ => {
            let mut node = 0;
            let next = |_| {
                node += usize::from(random.once_in(3));
                node
            };
            (0..ranks).map(next).collect()
        }
    })
}

/// Checks a collective of any kind with random lengths and choices.
fn check(kind: JointKind, ranks: usize, random: &mut Rng) {
    let case = case(kind, ranks, 40, random);
    let size = random.of(&[1, 8]);
    let choice = Choice {
        short: random.of(&[0, 20, 1 << 20]),
        at_once: random.once_in(2),
        pair: random.of(&[0, 20, 1 << 20]),
        piece: random.of(&[1, 24, 1 << 20]),
        few: random.of(&[1, 4, 100]),
        scan: random.of(&[1, 4, 100]),
        along: random.of(&[0, 64, 1000]),
        ..Choice::default()
    };
    let nodes = nodes(ranks, random);
    let schedules: Vec<_> = (0..ranks)
        .map(|rank| {
            let job = Job {
                rank,
                ranks,
                size,
                // Ranks may divide a step into stages differently.
                peers: random.of(&[1, 2, 3, 32]),
                piece: choice.piece(ranks, size, 1),
                nodes: nodes.clone(),
            };
            let made = schedule(&job, &choice, &case.what[rank], case.in_place);
            check_lanes(&made);
            if kind.pulls() {
                check_sources(&made);
            }
            made
        })
        .collect();
    let buffers = |rank: usize| {
        let input = (!case.in_place).then(|| (Buffer::Input, case.input[rank].clone()));
        let output = (Buffer::Output, case.output[rank].clone());
        input.into_iter().chain([output]).collect()
    };
    // If the call repeats, the output of a call in place is the input of the next.
    let calls = if case.in_place { 1 } else { 3 };
    let after = simulate(&schedules, (0..ranks).map(buffers).collect(), calls, random);
    for (rank, after) in after.iter().enumerate() {
        let what = &case.what[rank];
        let of = format!("{what:?}, {choice:?}, rank {rank} of {ranks}, {nodes:?}");
        assert_eq!(after[&Buffer::Output], case.expected[rank], "{of}");
    }
}

/// Checks a counted all-to-all with random numbers of rows.
fn check_counted(ranks: usize, random: &mut Rng) {
    let (row, most) = (random.of(&[1, 3]), random.below(5));
    let (block, counts) = (most * row, matrix(ranks, most, random));
    let number = |count: usize| (0..NUMBER).map(move |_| vec![(count, usize::MAX)]);
    let old = |_| (0..ranks * block).map(|at| vec![(usize::MAX, at)]);
    let kind = JointKind::Counted { row };
    let what = What {
        kind,
        counts: Counts::Equal(block),
        reduction: None,
    };
    let schedules: Vec<_> = (0..ranks)
        .map(|rank| {
            let job = Job {
                rank,
                ranks,
                size: 1,
                peers: random.of(&[1, 2, 3, 32]),
                piece: 1,
                nodes: Nodes::one(ranks),
            };
            let made = schedule(&job, &Choice::default(), &what, false);
            check_lanes(&made);
            made
        })
        .collect();
    let buffers = |rank: usize| {
        BTreeMap::from([
            (Buffer::Input, vector(rank, ranks * block)),
            (Buffer::Output, old(rank).collect()),
            (
                Buffer::Counts,
                counts[rank].iter().copied().flat_map(number).collect(),
            ),
            (Buffer::Received, vec![Value::new(); NUMBER * ranks]),
        ])
    };
    let after = simulate(&schedules, (0..ranks).map(buffers).collect(), 3, random);
    for (rank, after) in after.iter().enumerate() {
        let mut output: Vec<_> = old(rank).collect();
        for (other, counts) in counts.iter().enumerate() {
            let sent = &vector(other, ranks * block)[rank * block..][..counts[rank] * row];
            output[other * block..][..sent.len()].clone_from_slice(sent);
        }
        let of = format!("{counts:?} rows of {row}, rank {rank} of {ranks}");
        assert_eq!(after[&Buffer::Output], output, "{of}");
        let received = counts.iter().flat_map(|counts| number(counts[rank]));
        assert_eq!(
            after[&Buffer::Received],
            received.collect::<Vec<_>>(),
            "{of}"
        );
    }
}

#[test]
fn rows_come_with_their_numbers() {
    let mut random = Rng::new(3);
    for ranks in [1, 2, 3, 5, 8, 34] {
        let rounds = if cfg!(miri) { 1 } else { 60 / ranks };
        (0..rounds).for_each(|_| check_counted(ranks, &mut random));
    }
}

#[test]
fn all_collectives_give_what_the_oracle_says() {
    let mut random = Rng::new(1);
    for ranks in [1, 2, 3, 4, 5, 7, 8, 13] {
        let rounds = if cfg!(miri) { 1 } else { 40 / ranks };
        for _ in 0..rounds {
            let root = random.below(ranks);
            for kind in kinds(root) {
                check(kind, ranks, &mut random);
            }
        }
    }
}

#[test]
fn many_ranks_exchange_in_turns() {
    let mut random = Rng::new(2);
    for ranks in [34] {
        for kind in kinds(random.below(ranks)) {
            check(kind, ranks, &mut random);
        }
    }
}
