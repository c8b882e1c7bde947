//! A model that runs jobs of a few ranks in every possible order.
//!
//! # Model
//!
//! A [`Job`] has a list of [`Item`]s for each stream: kernels (lanes of steps, any of which may go on at any time),
//! gates, and copies of couriers. [`Job::ends`] tries *every* order in which the streams can take their steps. It
//! returns the final values of the words, and the ranks that are left waiting. The steps are those that the lowering
//! makes of real batches, and the values of gates are those of [`Operands`].
//!
//! Every form of a batch must end as the whole batch does: in jobs that hang and in those that do not, and also if a
//! word is poisoned.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Move, POISON, QUANTUM, Shape, Side, Step, Tag, Wait,
};
use tidegate_hal::memory::Ptr;

use super::apart::{Crossover, Words, take_apart};
use super::operands::{self, Operands};
use super::parts::{Part, parts};
use super::random::Rng;

pub(super) fn ptr(address: u64) -> Ptr {
    Ptr(std::ptr::without_provenance_mut(address as usize))
}

pub(super) fn wait(word: u64) -> Step {
    Step::Wait(Wait {
        word: ptr(word),
        operand: ptr(word + 8),
        quantum: QUANTUM,
        tag: Tag {
            window: None,
            peer: 3,
            awaited: Awaited::Exposure,
        },
        landed: None,
        ring: None,
    })
}

pub(super) fn add(word: u64) -> Step {
    Step::Add(Add {
        tag: None,
        word: ptr(word),
        value: QUANTUM,
        bell: ptr(64),
        turn: None,
    })
}

pub(super) fn copy(bytes: usize) -> Move {
    let side = |base| Side {
        base: ptr(base),
        flip: 0,
        shape: Shape::Linear,
    };
    Move {
        action: Action::Copy,
        size: 8,
        count: bytes / 8,
        src: side(0x10_0000),
        dst: side(0x90_0000),
        parity: Ptr::NULL,
        early: true,
        landing: None,
        buffers: 2,
    }
}

pub(super) fn put(bytes: usize) -> Step {
    Step::Move(copy(bytes))
}

const LARGE: usize = 1 << 20;

pub(super) fn batch(lanes: Vec<Vec<Step>>) -> Batch {
    // SAFETY: nothing here carries the batch out.
    unsafe { Batch::new(lanes, Vec::new()) }
}

/// An item of a stream.
#[derive(Clone, Debug)]
enum Item {
    Kernel(Vec<Vec<Step>>),
    /// Waits until the words have these values.
    Gate(Vec<(u64, u64)>),
    /// The copies of a courier, and then a write of the errands that it is back from.
    Copy(u64, u64),
}

/// The progress of a stream: its item, and the next step of each lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct At {
    item: usize,
    lanes: Vec<usize>,
    failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    words: BTreeMap<u64, u64>,
    streams: Vec<At>,
}

/// All possible ends: the ranks that are left waiting, and the values of the words.
type Ends = BTreeSet<(Vec<usize>, Vec<(u64, u64)>)>;

struct Job {
    streams: Vec<Vec<Item>>,
    first: BTreeMap<u64, u64>,
}

pub(super) fn address(ptr: Ptr) -> u64 {
    ptr.0.addr() as u64
}

impl State {
    fn word(&self, at: u64) -> u64 {
        self.words.get(&at).copied().unwrap_or(0)
    }
}

impl Job {
    /// Takes one step of one lane (or passes a gate, or makes the copies). Returns false if it cannot.
    fn step(&self, state: &mut State, stream: usize, lane: usize) -> bool {
        let at = state.streams[stream].clone();
        let Some(item) = self.streams[stream].get(at.item) else {
            return false;
        };
        let lanes = match item {
            Item::Gate(bars) => {
                let open =
                    |(word, value): &(u64, u64)| state.word(*word).wrapping_sub(*value) as i64 >= 0;
                if lane != 0 || !bars.iter().all(open) {
                    return false;
                }
                state.streams[stream].item += 1;
                return true;
            }
            Item::Copy(back, value) => {
                if lane != 0 {
                    return false;
                }
                state.words.insert(*back, *value);
                state.streams[stream].item += 1;
                return true;
            }
            Item::Kernel(lanes) => lanes,
        };
        let done = at.lanes.get(lane).copied().unwrap_or(0);
        let Some(step) = lanes.get(lane).and_then(|steps| steps.get(done)) else {
            return false;
        };
        match step {
            Step::Add(add) if at.failed && add.bell.is_null() => {}
            Step::Add(add) if at.failed => {
                *state.words.entry(address(add.word)).or_default() |= POISON;
            }
            Step::Add(add) => *state.words.entry(address(add.word)).or_default() += add.value,
            Step::Wait(wait) if !at.failed => {
                let (word, from) = (state.word(address(wait.word)), address(wait.operand));
                let reached = ((word & !POISON) - state.word(from)) as i64 >= wait.quantum as i64;
                if reached {
                    *state.words.entry(from).or_default() += wait.quantum;
                } else if word & POISON != 0 {
                    state.streams[stream].failed = true;
                } else {
                    return false;
                }
            }
            _ => {}
        }
        let at = &mut state.streams[stream];
        at.lanes.resize(lanes.len(), 0);
        at.lanes[lane] += 1;
        if at
            .lanes
            .iter()
            .zip(lanes)
            .all(|(at, steps)| *at == steps.len())
        {
            (at.item, at.lanes) = (at.item + 1, Vec::new());
        }
        true
    }

    /// The host opens the gates of failed streams if nothing else can happen.
    fn open_gates(&self, state: &mut State) -> bool {
        let mut opened = false;
        for (at, items) in state.streams.clone().iter().zip(&self.streams) {
            if let (true, Some(Item::Gate(bars))) = (at.failed, items.get(at.item)) {
                for (word, _) in bars {
                    opened |= state.word(*word) & POISON == 0;
                    *state.words.entry(*word).or_default() |= POISON;
                }
            }
        }
        opened
    }

    /// Every way in which the job can end: which of the first `ranks` streams are left waiting, and the values of all
    /// words except couriers'.
    fn ends(&self, ranks: usize) -> Ends {
        let first = State {
            words: self.first.clone(),
            streams: vec![At::default(); self.streams.len()],
        };
        let (mut seen, mut next, mut ends) =
            (HashSet::from([first.clone()]), vec![first], BTreeSet::new());
        while let Some(state) = next.pop() {
            let mut stuck = true;
            for stream in 0..self.streams.len() {
                for lane in 0..8 {
                    let mut after = state.clone();
                    if self.step(&mut after, stream, lane) {
                        stuck = false;
                        if seen.insert(after.clone()) {
                            next.push(after);
                        }
                    }
                }
            }
            let mut after = state.clone();
            if stuck && self.open_gates(&mut after) {
                stuck = false;
                next.push(after);
            }
            assert!(seen.len() < 2_000_000, "the job is too large for this");
            if stuck {
                let left = |rank: &usize| state.streams[*rank].item < self.streams[*rank].len();
                let left: Vec<_> = (0..ranks).filter(left).collect();
                // In a job that hangs, a wait that came may be behind one that did not. Its operand is of no interest
                // to any other stream. A word whose gate was opened is poisoned, while the wait of the whole batch
                // looked at its stream instead; but the stream that waits for the word has failed in both cases.
                let theirs =
                    |word: u64| word < COURIERS && (left.is_empty() || word.is_multiple_of(16));
                let words = state.words.iter().filter(|(word, _)| theirs(**word));
                let words = words
                    .map(|(word, value)| (*word, value & !POISON))
                    .collect();
                ends.insert((left.clone(), words));
            }
        }
        ends
    }
}

/// Words from here on are couriers'.
pub(super) const COURIERS: u64 = 0x8000_0000;

/// The batches that each rank submits, in order.
type Program = Vec<Vec<Vec<Vec<Step>>>>;

/// The job with whole batches.
fn whole(program: &Program) -> Vec<Vec<Item>> {
    let stream = |batches: &Vec<Vec<Vec<Step>>>| {
        batches
            .iter()
            .map(|lanes| Item::Kernel(lanes.clone()))
            .collect()
    };
    program.iter().map(stream).collect()
}

/// The job with batches in parts, as `split` makes them.
fn in_parts(program: &Program, split: impl Fn(&Batch) -> Vec<Part>) -> Vec<Vec<Item>> {
    let stream = |batches: &Vec<Vec<Vec<Step>>>| {
        let mut operands = Operands::default();
        operands.allocated(0, COURIERS, true);
        let mut items = Vec::new();
        for lanes in batches {
            for part in split(&batch(lanes.clone())) {
                let bars = part.gate.iter().map(|wait| {
                    let (value, _) = operands.awaited(wait).expect("the memory is known");
                    (address(wait.word), value)
                });
                let bars: Vec<_> = bars.collect();
                if !bars.is_empty() {
                    items.push(Item::Gate(bars));
                }
                operands.advance(&operands::advance(part.lanes.iter().map(Vec::as_slice)), 1);
                items.push(Item::Kernel(part.lanes));
            }
        }
        items
    };
    program.iter().map(stream).collect()
}

/// The job with two couriers for each rank. Their streams come after those of the ranks.
fn with_couriers(program: &Program) -> Vec<Vec<Item>> {
    let (mut streams, mut couriers) = (Vec::new(), Vec::new());
    for (rank, batches) in program.iter().enumerate() {
        let words: Vec<_> = (0..2)
            .map(|courier| COURIERS + 0x100 * (2 * rank as u64 + courier))
            .map(|at| Words {
                go: ptr(at),
                back: ptr(at + 16),
                operand: ptr(at + 24),
            })
            .collect();
        let (mut items, mut mine, mut sent) = (Vec::new(), vec![Vec::new(); 2], [0; 2]);
        for lanes in batches {
            let apart = take_apart(
                &batch(lanes.clone()),
                Crossover::everywhere(LARGE as u64),
                &|_| false,
                &words,
            );
            for (courier, _) in apart.errands.iter().enumerate() {
                sent[courier] += QUANTUM;
                let words = words[courier];
                mine[courier].push(Item::Gate(vec![(address(words.go), sent[courier])]));
                mine[courier].push(Item::Copy(address(words.back), sent[courier]));
            }
            items.push(Item::Kernel(apart.lanes));
        }
        streams.push(items);
        couriers.append(&mut mine);
    }
    streams.append(&mut couriers);
    streams
}

fn ends(streams: Vec<Vec<Item>>, ranks: usize, first: &BTreeMap<u64, u64>) -> Ends {
    let first = first.clone();
    Job { streams, first }.ends(ranks)
}

fn exposed(origin: u64, target: u64) -> u64 {
    0x1000 * (origin + 1) + 0x40 * target
}
fn done(origin: u64, target: u64) -> u64 {
    0x1000 * (target + 1) + 0x400 + 0x40 * origin
}
fn post(me: u64, origin: u64) -> Vec<Step> {
    vec![add(exposed(origin, me))]
}
fn complete(me: u64, target: u64, bytes: usize) -> Vec<Step> {
    vec![
        wait(exposed(me, target)),
        put(bytes),
        Step::Flush,
        add(done(me, target)),
    ]
}
fn hear(me: u64, origin: u64) -> Vec<Step> {
    vec![wait(done(origin, me))]
}

/// A ring of `ranks` ranks (two are a pair) that exchange in each of `epochs` epochs, with one batch for each epoch.
fn ring(ranks: u64, bytes: usize, epochs: usize) -> Program {
    let of = |me: u64| {
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        vec![
            vec![
                post(me, before),
                complete(me, next, bytes),
                hear(me, before)
            ];
            epochs
        ]
    };
    (0..ranks).map(of).collect()
}

/// A puts to B and C in one epoch; C tells B when it has heard of A, and only then B posts to A.
fn triangle(bytes: usize) -> Program {
    vec![
        vec![vec![complete(0, 1, bytes), complete(0, 2, bytes)]],
        vec![
            vec![post(1, 2)],
            vec![hear(1, 2)],
            vec![post(1, 0)],
            vec![hear(1, 0)],
        ],
        vec![vec![post(2, 0)], vec![hear(2, 0)], vec![complete(2, 1, 8)]],
    ]
}

fn nothing_is_left(ends: &Ends) -> bool {
    ends.len() == 1 && ends.iter().all(|(left, _)| left.is_empty())
}

#[test]
fn jobs_that_exchange_end_in_every_form() {
    let none = BTreeMap::new();
    for program in [
        ring(2, LARGE, 2),
        ring(3, LARGE, 1),
        ring(3, 8, 1),
        triangle(LARGE),
    ] {
        let ranks = program.len();
        let plain = ends(whole(&program), ranks, &none);
        assert!(nothing_is_left(&plain), "{plain:?}");
        assert_eq!(ends(in_parts(&program, parts), ranks, &none), plain);
        assert_eq!(ends(with_couriers(&program), ranks, &none), plain);
    }
}

/// The waits, then the copies, then the rest, one after the other on one stream. The library does not do this, since it
/// hangs.
fn phases(whole: &Batch) -> Vec<Part> {
    let lanes = whole.lanes().iter().map(|lane| whole.steps(*lane).to_vec());
    let (mut first, mut second) = (Part::default(), Part::default());
    for lane in lanes {
        match lane[..] {
            [wait @ Step::Wait(_), Step::Move(_), ref rest @ ..] => {
                first.lanes.push(vec![wait]);
                second.lanes.push(rest.to_vec());
            }
            [Step::Wait(_)] => second.lanes.push(lane),
            _ => first.lanes.push(lane),
        }
    }
    vec![first, second]
}

/// One gate in front of several lanes that wait and then do something. The library does not do this either.
fn one_gate(whole: &Batch) -> Vec<Part> {
    let mut parts = parts(whole);
    for part in &mut parts {
        let waits = part.lanes.iter().flatten().filter_map(|step| match step {
            Step::Wait(wait) => Some(*wait),
            _ => None,
        });
        part.gate = waits.collect();
    }
    parts
}

/// The jobs above would not show that lanes wait for each other; this job does.
#[test]
fn what_makes_lanes_wait_for_each_other_hangs() {
    let (none, program) = (BTreeMap::new(), triangle(LARGE));
    assert!(nothing_is_left(&ends(whole(&program), 3, &none)));
    for wrong in [phases, one_gate] {
        assert!(nothing_is_left(&ends(
            in_parts(&ring(3, LARGE, 1), wrong),
            3,
            &none
        )));
        for (left, _) in ends(in_parts(&program, wrong), 3, &none) {
            assert_eq!(left, [0, 1, 2]);
        }
    }
}

/// Posts, completes, waits and a barrier in any order, joined to batches at random. Most such jobs hang, and must hang
/// in every form.
fn random(rng: &mut Rng) -> Program {
    let ranks = 2 + rng.below(2) as u64;
    let mut program: Vec<Vec<Vec<Step>>> = vec![Vec::new(); ranks as usize];
    for _ in 0..2 + rng.below(3) {
        let origin = rng.below(ranks as usize) as u64;
        let target = (origin + 1 + rng.below(ranks as usize - 1) as u64) % ranks;
        let bytes = if rng.below(2) == 0 { LARGE } else { 8 };
        let (there, here) = (target as usize, origin as usize);
        let at = rng.below(program[there].len() + 1);
        program[there].insert(at, post(target, origin));
        let later = at + 1 + rng.below(program[there].len() - at);
        program[there].insert(later, hear(target, origin));
        let at = rng.below(program[here].len() + 1);
        program[here].insert(at, complete(origin, target, bytes));
    }
    if rng.below(4) == 0 {
        for rank in 0..ranks {
            let next = (rank + 1) % ranks;
            let word = |rank: u64| 0x1000 * (rank + 1) + 0x800;
            let lane = vec![
                add(word(next)),
                wait(word(rank)),
                add(word(next) + 64),
                wait(word(rank) + 64),
            ];
            let at = rng.below(program[rank as usize].len() + 1);
            program[rank as usize].insert(at, lane);
        }
    }
    let join = |lanes: Vec<Vec<Step>>, rng: &mut Rng| {
        let mut batches: Vec<Vec<Vec<Step>>> = Vec::new();
        for lane in lanes {
            match batches.last_mut() {
                Some(last) if rng.below(2) == 0 && last.len() < 4 => last.push(lane),
                _ => batches.push(vec![lane]),
            }
        }
        batches
    };
    program.into_iter().map(|lanes| join(lanes, rng)).collect()
}

#[test]
fn random_jobs_end_alike_in_every_form() {
    let (mut hung, mut over, mut poisoned) = (0, 0, 0);
    for seed in 0..60 {
        let rng = &mut Rng::new(seed);
        let program = random(rng);
        let ranks = program.len();
        let mut first = BTreeMap::new();
        if seed % 3 == 0 {
            let origin = rng.below(ranks) as u64;
            let word = [exposed, done][rng.below(2)](origin, (origin + 1) % ranks as u64);
            first.insert(word, POISON);
        }
        let plain = ends(whole(&program), ranks, &first);
        let left: BTreeSet<_> = plain.iter().map(|(left, _)| left.clone()).collect();
        // The order decides nothing, unless a word is poisoned whose add still comes. Then a stream fails if it looks
        // before the add, and goes on if it looks afterwards, perhaps to a wait that never ends.
        assert!(
            left.len() == 1 || !first.is_empty(),
            "seed {seed}: {plain:?}"
        );
        let left_in = |streams| -> BTreeSet<_> {
            let all = ends(streams, ranks, &first);
            // Without poison, the words have the same values, too.
            assert!(
                !first.is_empty() || all == plain,
                "seed {seed}: {all:?}, not {plain:?}"
            );
            all.into_iter().map(|(left, _)| left).collect()
        };
        assert_eq!(left_in(in_parts(&program, parts)), left, "seed {seed}");
        assert_eq!(left_in(with_couriers(&program)), left, "seed {seed}");
        match left.iter().all(Vec::is_empty) {
            true if first.is_empty() => over += 1,
            true => poisoned += 1,
            false => hung += 1,
        }
    }
    assert!(
        hung > 2 && over > 20 && poisoned > 10,
        "{hung} hang, {over} end, {poisoned} with poison"
    );
}
