//! Ranks that exchange epochs.
//!
//! # Model
//!
//! Ranks are streams of one run. Each launches the same few programs in every epoch, with the same arguments: posts,
//! completes (which carry the data) and waits, as three batches or joined to one, and sometimes a barrier. An [`Edge`]
//! is the data that one rank puts to another. A rank fills its sources before its batches, and checks its slots after
//! them.
//!
//! An observer is called after every add, before any thread goes on. When a word says that an epoch is complete, all
//! data of the epoch must be there, however many blocks have added their parts. If a lane rings in parts, between the
//! pieces of its copy, the word must announce each piece, and the piece must be there. Behind some words there is a
//! register. It must be stored to once for each ring of the word, and after it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Landing, Move, Op, POISON, QUANTUM, Scalar, Shape, Side, Step,
    Store, Tag, Wait,
};
use tidegate_hal::memory::Ptr;

use super::super::apart::{Crossover, Errand, Words, take_apart};
use super::super::parts::parts;
use super::edge::{Edge, STRIKE};
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::window;
use crate::lower::random::Rng;

/// A rank's actions in an epoch, by number.
pub(super) const FILL: u64 = 0;
pub(super) const LOOK: u64 = 1;
/// The action of a courier that was told to go.
pub(super) const CARRY: u64 = 2;
/// How batches are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// One launch after the other. Gates are left out, because they move nothing.
    Parts,
    /// With couriers, which are streams of their own.
    Apart,
}

/// A courier: the launch that stands for its wait, and its copies.
pub(super) struct Courier {
    pub(super) rank: usize,
    pub(super) home: Home,
    pub(super) words: Words,
    waits: Launched,
    errands: Vec<Errand>,
    /// The number of its edge.
    pub(super) edge: usize,
}

impl Courier {
    /// Makes the courier's copies, and says that it is back.
    pub(super) fn carry(&self) {
        for errand in &self.errands {
            let (src, dst) = (errand.src as *const u8, errand.dst as *mut u8);
            // SAFETY: the move that it replaces is between two live pieces, and nothing else happens between two
            // primitives.
            unsafe { std::ptr::copy_nonoverlapping(src, dst, errand.bytes as usize) };
        }
        change(self.words.back, |value| value + QUANTUM);
    }
}

/// A rank's programs.
pub(super) struct Rank {
    pub(super) home: Home,
    pub(super) launches: Vec<Launched>,
}

/// Ranks, and the data that they put to each other.
pub(super) struct Job {
    pub(super) ranks: Vec<Rank>,
    pub(super) edges: Vec<Edge>,
    barrier: Vec<(Ptr, Ptr)>,
    counters: Vec<Ptr>,
    pub(super) couriers: Vec<Courier>,
    _bell: Box<u64>,
    _arena: Arena,
}

impl Job {
    pub(super) fn new(machine: &Machine, rng: &mut Rng, form: Form) -> Self {
        // A generator of its own, so that other choices do not depend on it.
        let mut rings = rng.clone();
        let mut takes = Rng::new(rng.clone().next());
        let mut arena = Arena::new(8 << 20, rng);
        let bell = Box::new(0u64);
        let bell_ptr = Ptr(std::ptr::from_ref(&*bell).cast_mut().cast());
        let ranks = rng.within(1..=4);
        // If all targets have two buffers, ranks may post one epoch ahead: the buffer that a rank reads is not the one
        // that is written.
        let ahead = rng.once_in(3);
        let counters: Vec<_> = (0..ranks).map(|_| arena.word(0)).collect();
        let one = arena.word(1);
        let mut edges = Vec::new();
        for origin in 0..ranks {
            for (target, &counter) in counters.iter().enumerate() {
                if rng.once_in(4) {
                    continue;
                }
                let count = match rng.below(4) {
                    0 => rng.within(1..=4),
                    1 => rng.within(1..=40),
                    2 => rng.within(1..=160),
                    _ => rng.within(1..=machine.sizes.threads * 12),
                };
                // As short as lanes can be.
                let plain = rng.once_in(2);
                let stride = match plain {
                    true => rings.of(&[1, 1, 1, 2]),
                    false => rng.of(&[1, 1, 1, 2]),
                };
                let beyond = 16 * rng.below(3);
                let bytes = 8 * count * stride;
                let flip = if ahead || rng.once_in(3) {
                    let flip = bytes + 8 * rng.below(4);
                    if plain {
                        flip.next_multiple_of(16)
                    } else {
                        flip
                    }
                } else {
                    0
                };
                let (rung, struck) = (rings.once_in(4), rings.once_in(3));
                let lands = plain && stride == 1 && !rung && count <= 160 && rings.once_in(2);
                let landing = lands.then(|| {
                    let room = Landing::room(8 * count);
                    let flip = if flip == 0 { 0 } else { room + 64 };
                    let base = Ptr(arena.take(room + flip, 0, true));
                    for word in 0..(room + flip) / 8 {
                        change(base.byte_add(8 * word), |_| 0);
                    }
                    Landing { base, flip }
                });
                // Couriers have copies that put.
                let takes = form != Form::Apart && stride == 1 && takes.once_in(2);
                let taken =
                    takes.then(|| Ptr(arena.take(8 * count, if plain { beyond } else { 8 }, true)));
                let gap = match landing {
                    None => rings.of(&[1, 1, 3]),
                    Some(_) => 1,
                };
                let mut parts = Vec::new();
                if rung && plain && count > 1 && !rings.once_in(3) {
                    parts.extend((0..rings.within(1..=5)).map(|_| rings.within(1..=count - 1)));
                    parts.sort_unstable();
                    parts.dedup();
                }
                let mut any = || if plain { beyond } else { 8 * rng.below(4) };
                let posted = if ahead { QUANTUM } else { 0 };
                edges.push(Edge {
                    origin,
                    target,
                    exposed: (arena.word(posted), arena.word(0)),
                    done: (arena.word(0), arena.word(0)),
                    rung: rung.then(|| arena.word(0)),
                    // A lane whose bytes land ends with its add.
                    struck: (struck && landing.is_none()).then(|| arena.word(0)),
                    strikes: Cell::new(0),
                    parts,
                    parts_seen: Cell::new(0),
                    src: Ptr(arena.take(8 * count * gap, any(), false)),
                    gap,
                    dst: Ptr(arena.take(bytes + flip, any(), true)),
                    count,
                    stride,
                    flip,
                    taken,
                    landing,
                    plain: rings.once_in(4),
                    counter: (!plain).then_some(counter),
                });
            }
        }
        let rounds = if rng.once_in(2) {
            ranks.next_power_of_two().trailing_zeros() as usize
        } else {
            0
        };
        let barrier: Vec<_> = (0..ranks * rounds)
            .map(|_| (arena.word(0), arena.word(0)))
            .collect();
        let mut couriers = Vec::new();
        let made = (0..ranks)
            .map(|rank| {
                let post = edges.iter().filter(|edge| edge.target == rank).map(|edge| {
                    vec![Step::Add(Add {
                        tag: None,
                        word: edge.exposed.0,
                        value: QUANTUM,
                        bell: bell_ptr,
                        turn: None,
                    })]
                });
                let post: Vec<_> = post.collect();
                let wait_landed = |words: (Ptr, Ptr), tag, landed| {
                    Step::Wait(Wait {
                        word: words.0,
                        operand: words.1,
                        quantum: QUANTUM,
                        tag,
                        landed,
                        ring: None,
                    })
                };
                let wait = |words, tag| wait_landed(words, tag, None);
                let mut complete = Vec::new();
                for edge in edges.iter().filter(|edge| edge.origin == rank) {
                    let mut lane = vec![wait(edge.exposed, edge.tag(Awaited::Exposure))];
                    lane.extend(edge.moves(bell_ptr, rng));
                    let side = |base| Side {
                        base,
                        flip: 0,
                        shape: Shape::Linear,
                    };
                    lane.extend(edge.counter.map(|counter| {
                        Step::Move(Move {
                            action: Action::Accumulate {
                                op: Op::Sum,
                                scalar: Scalar::U64,
                                atomic: true,
                            },
                            size: 8,
                            count: 1,
                            src: side(one),
                            dst: side(counter),
                            parity: Ptr::NULL,
                            early: true,
                            landing: None,
                            buffers: 2,
                        })
                    }));
                    let done = [Step::Flush, edge.ring(edge.parts.len(), bell_ptr)];
                    let strike = edge
                        .struck
                        .map(|to| Step::Store(Store { to, value: STRIKE }));
                    match edge.rung {
                        Some(_) => lane.extend(done.into_iter().chain(strike)),
                        None => lane.extend(strike.into_iter().chain(done)),
                    }
                    complete.push(lane);
                }
                let arrive = edges.iter().filter(|edge| edge.target == rank);
                let arrive: Vec<_> = arrive
                    .map(|edge| {
                        let tag = edge.tag(Awaited::Completion);
                        let wait = wait_landed(edge.done, tag, edge.landed());
                        [wait].into_iter().chain(edge.take()).collect()
                    })
                    .collect();
                let mut steps = Vec::new();
                for round in 0..rounds {
                    let to = (rank + (1 << round)) % ranks;
                    steps.push(Step::Add(Add {
                        tag: None,
                        word: barrier[to * rounds + round].0,
                        value: QUANTUM,
                        bell: bell_ptr,
                        turn: None,
                    }));
                    let tag = Tag {
                        window: window(30),
                        peer: ((rank + ranks - (1 << round)) % ranks) as u32,
                        awaited: Awaited::Barrier,
                    };
                    steps.push(wait(barrier[rank * rounds + round], tag));
                }
                // SAFETY: everything lies in the arena, which outlives the run. The moves are ordered by epochs, or are
                // atomic.
                let batch =
                    |lanes: Vec<Vec<Step>>| Arc::new(unsafe { Batch::new(lanes, Vec::new()) });
                let (post, complete, arrive) = (batch(post), batch(complete), batch(arrive));
                let mut batches = if rng.once_in(2) {
                    // SAFETY: as above.
                    vec![Arc::new(unsafe {
                        Batch::join(&[&post, &complete, &arrive])
                    })]
                } else {
                    vec![post, complete, arrive]
                };
                if rounds > 0 {
                    batches.push(batch(vec![steps]));
                }
                let home = Home::new();
                let quota = rng.of(&[3, 8, 16, 32]);
                let plain = |lanes| batch(lanes);
                let batches: Vec<_> = batches
                    .into_iter()
                    .flat_map(|batch| match form {
                        Form::Whole => vec![batch],
                        Form::Parts => {
                            let parts = parts(&batch).into_iter();
                            parts.map(|part| plain(part.lanes)).collect()
                        }
                        Form::Apart => {
                            let words: Vec<_> = (0..2)
                                .map(|_| Words {
                                    go: arena.word(0),
                                    back: arena.word(0),
                                    operand: arena.word(0),
                                })
                                .collect();
                            let apart =
                                take_apart(&batch, Crossover::everywhere(64), &|_| false, &words);
                            for (words, errands) in words.into_iter().zip(apart.errands) {
                                let home = Home::new();
                                let told = plain(vec![vec![wait(
                                    (words.go, arena.word(0)),
                                    Tag {
                                        window: window(40),
                                        peer: 0,
                                        awaited: Awaited::Event,
                                    },
                                )]]);
                                let waits =
                                    Launched::new(&told, 1, machine.sizes, false, &home, [0; 2]);
                                let to = |edge: &Edge| edge.dst.0.addr() as u64;
                                couriers.push(Courier {
                                    rank,
                                    home,
                                    words,
                                    waits: waits.expect("one lane has a block"),
                                    edge: edges
                                        .iter()
                                        .position(|edge| to(edge) == errands[0].dst)
                                        .expect("a lane of one copy begins where an edge does"),
                                    errands,
                                });
                            }
                            vec![plain(apart.lanes)]
                        }
                    })
                    .collect();
                let launches = batches
                    .iter()
                    .map(|batch| {
                        let next = !rng.once_in(3);
                        let count = |word| {
                            let mut edges = edges.iter().filter(|edge| edge.done.0 == word);
                            let rung = edges.next().and_then(|edge| edge.rung);
                            rung.map_or(0, |count| count.0.addr() as u64)
                        };
                        let sizes = machine.sizes;
                        let launched =
                            Launched::counting(batch, quota, sizes, next, &home, [0; 2], count);
                        launched.expect("there are blocks for a few lanes")
                    })
                    .collect();
                Rank { home, launches }
            })
            .collect();
        Job {
            ranks: made,
            edges,
            barrier,
            counters,
            couriers,
            _bell: bell,
            _arena: arena,
        }
    }

    /// The ranks' actions, `epochs` times.
    pub(super) fn streams(&self, epochs: u64) -> Vec<(Vec<Do<'_>>, u64)> {
        self.ranks
            .iter()
            .map(|rank| {
                let mut list = vec![Do::Call(FILL)];
                list.extend(rank.launches.iter().map(Do::Launch));
                list.push(Do::Call(LOOK));
                (list, epochs)
            })
            .collect()
    }

    /// The couriers' actions, `epochs` times.
    pub(super) fn couriers(&self, epochs: u64) -> Vec<(Vec<Do<'_>>, u64)> {
        let each = self.couriers.iter();
        each.map(|courier| (vec![Do::Launch(&courier.waits), Do::Call(CARRY)], epochs))
            .collect()
    }

    pub(super) fn fill(&self, rank: usize, epoch: u64) {
        let mine = self.edges.iter().filter(|edge| edge.origin == rank);
        mine.for_each(|edge| edge.fill(epoch));
    }

    /// Checks what a rank must find after an epoch.
    pub(super) fn look(&self, rank: usize, epoch: u64) -> Result<(), String> {
        let now = (epoch + 1) * QUANTUM;
        for edge in &self.edges {
            if edge.target == rank {
                edge.check(epoch)?;
                edge.check_taken(epoch)?;
            }
            let operands = [
                (edge.target == rank, edge.done.1),
                (edge.origin == rank, edge.exposed.1),
            ];
            for (mine, operand) in operands {
                if mine && value(operand) != now {
                    let operand = value(operand);
                    return Err(format!("epoch {epoch}: an operand is {operand:#x}"));
                }
            }
        }
        Ok(())
    }

    /// Checks, at the end, that every register was stored to as often as its word was rung.
    pub(super) fn check_strikes(&self) -> Result<(), String> {
        for edge in &self.edges {
            let rung = (value(edge.done.0) & !POISON) / QUANTUM;
            if edge.struck.is_some() && edge.strikes.get() != rung {
                let strikes = edge.strikes.get();
                return Err(format!("{strikes} strikes for {rung} rings"));
            }
        }
        Ok(())
    }

    /// An observer of adds. It returns an error if a word is ahead of its data, or a register is ahead of its word.
    pub(super) fn observer(&self) -> impl FnMut(u64) -> Result<(), String> + '_ {
        let mut words: HashMap<u64, (&Edge, u64, u64)> = self
            .edges
            .iter()
            // For data that lands, the target adds to the word when it has copied the data to the slot, perhaps after
            // the next data has landed.
            .filter(|edge| edge.landing.is_none() || edge.plain)
            .map(|edge| (edge.done.0.0.addr() as u64, (edge, 0, 0)))
            .collect();
        let registers: HashMap<u64, &Edge> = self
            .edges
            .iter()
            .filter_map(|edge| Some((edge.struck?.0.addr() as u64, edge)))
            .collect();
        move |word| {
            if let Some(edge) = registers.get(&word) {
                return edge.check_strike();
            }
            let Some((edge, before, seen)) = words.get_mut(&word) else {
                return Ok(());
            };
            let done = value(edge.done.0);
            let epochs = (done & !POISON) / QUANTUM;
            let rung = std::mem::replace(before, done & !POISON);
            let is_part = done & POISON == 0 && !done.is_multiple_of(QUANTUM);
            if edge.rung.is_some() && is_part && done != rung {
                let Some(end) = edge.parts.get((done % QUANTUM) as usize - 1) else {
                    return Err(format!("a word of the host is {done:#x}"));
                };
                edge.parts_seen.set(edge.parts_seen.get() + 1);
                edge.check_first(epochs, *end)?;
            }
            if epochs == *seen {
                return Ok(());
            }
            *seen = epochs;
            let last = epochs.checked_sub(1);
            edge.check(last.ok_or_else(|| format!("a word has gone back to {done:#x}"))?)
        }
    }
}

/// Runs epochs of random jobs.
pub(super) fn check(
    machine: &mut Machine,
    form: Form,
    seeds: Range<u64>,
    epochs: u64,
) -> Result<(), String> {
    let (many, mut carried, mut strikes, mut in_parts) = (seeds.end - seeds.start, 0, 0, 0);
    let mut settled = 0;
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0xe90c);
        let job = Job::new(machine, rng, form);
        let ranks = job.ranks.len();
        let ahead = job.edges.iter().map(|edge| value(edge.exposed.0)).max();
        let ahead = ahead.unwrap_or(0);
        let mut wrong = Vec::new();
        let mut observe = job.observer();
        let mut streams = job.streams(epochs);
        streams.extend(job.couriers(epochs));
        let outcome = machine.run(seed, &streams, &[], &mut |event| {
            let done = match event {
                Event::Called {
                    stream,
                    value: CARRY,
                    ..
                } => {
                    job.couriers[stream - ranks].carry();
                    carried += 1;
                    Ok(())
                }
                Event::Called {
                    stream,
                    value: FILL,
                    time,
                } => {
                    job.fill(stream, time);
                    Ok(())
                }
                Event::Called { stream, time, .. } => job.look(stream, time),
                Event::Added(word) => observe(word),
            };
            if let Err(why) = done
                && wrong.len() < 3
            {
                wrong.push(why);
            }
        });
        if !wrong.is_empty() {
            return Err(format!("seed {seed}: {wrong:?}"));
        }
        outcome?;
        settled += machine.settled();
        job.check_strikes()
            .map_err(|why| format!("seed {seed}: {why}"))?;
        strikes += job.edges.iter().map(|edge| edge.strikes.get()).sum::<u64>();
        if job.ranks.iter().any(|rank| rank.home.failed()) {
            return Err(format!("seed {seed}: a stream has failed"));
        }
        let end = epochs * QUANTUM;
        for edge in &job.edges {
            let (exposed, done) = (value(edge.exposed.0), value(edge.done.0));
            if (exposed, done) != (end + ahead, end) {
                return Err(format!("seed {seed}: words are {exposed:#x} and {done:#x}"));
            }
            let (seen, parts) = (edge.parts_seen.get(), edge.parts.len() as u64 * epochs);
            if seen != parts {
                return Err(format!("seed {seed}: {seen} of {parts} parts were rung"));
            }
            in_parts += u64::from(parts > 0);
        }
        for (word, operand) in &job.barrier {
            if (value(*word), value(*operand)) != (end, end) {
                return Err(format!(
                    "seed {seed}: a barrier's word is {:#x}",
                    value(*word)
                ));
            }
        }
        for (rank, counter) in job.counters.iter().enumerate() {
            let origins = job.edges.iter();
            let origins = origins.filter(|edge| edge.target == rank && edge.counter.is_some());
            let origins = origins.count();
            if value(*counter) != origins as u64 * epochs {
                return Err(format!("seed {seed}: a counter is {}", value(*counter)));
            }
        }
    }
    // A test without stores to registers shows nothing about them; but a few jobs may have none.
    if many > 20 && strikes < many * epochs / 4 {
        return Err(format!("there were only {strikes} strikes"));
    }
    // Rings that are all whole show nothing about parts.
    if many >= 60 && in_parts < 6 {
        return Err(format!("only {in_parts} lanes have rung in parts"));
    }
    // Promises that are never seen show nothing.
    if many >= 60 && settled < many * epochs / 4 {
        return Err(format!("{settled} looks came behind a promise"));
    }
    // Couriers that are never sent show nothing.
    if form == Form::Apart && carried < many * epochs / 4 {
        return Err(format!("couriers went only {carried} times"));
    }
    Ok(())
}
