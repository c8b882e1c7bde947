//! Streams that end early.

use std::collections::HashMap;
use std::ops::Range;

use tidegate_hal::batch::{
    Action, Awaited, Batch, Landed, Landing, Move, Op, POISON, QUANTUM, Scalar, Step, Tag, Wait,
};
use tidegate_hal::memory::Ptr;

use super::super::{FAULT_WAIT, MAX_BLOCKED, RawFault, Sizes};
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::protocol::{FILL, Form, Job};
use super::steps::{WINDOW, add, linear, wait, window};
use crate::lower::random::Rng;
use crate::place::look_step;

pub(super) const FAULT_ABORTED: u32 = 2;
const EPOCHS: u64 = 8;

/// Memory that a failed rank must not change any more: the edges to which it puts, with the data at the time of the
/// failure.
type Frozen = Vec<(usize, Vec<u64>)>;

fn frozen(job: &Job, rank: usize) -> Frozen {
    let mine = job.edges.iter().enumerate();
    mine.filter(|(_, edge)| edge.origin == rank)
        .map(|(index, edge)| (index, edge.written()))
        .collect()
}

/// Runs a job in which something happens at a random time. Every stream must come to its end.
fn disturbed(
    machine: &mut Machine,
    form: Form,
    seed: u64,
    mut disturb: impl FnMut(&Job, &mut Rng),
) -> Result<Job, String> {
    let rng = &mut Rng::new(seed ^ 0xfa11);
    let job = Job::new(machine, rng, form);
    let mut streams = job.streams(EPOCHS);
    let ranks = streams.len();
    let time = rng.of(&[0, 500, 5_000, 50_000, 200_000]);
    streams.push((vec![Do::Delay(time), Do::Call(0)], 1));
    // When each rank was seen to have failed, and what it had put by then.
    let mut failures: HashMap<usize, (u64, Frozen)> = HashMap::new();
    let mut wrong = Vec::new();
    let mut observe = job.observer();
    let outcome = machine.run(seed, &streams, &[], &mut |event| {
        let done = match event {
            Event::Called { stream, .. } if stream == ranks => {
                disturb(&job, rng);
                Ok(())
            }
            // A failed rank must not send any more, so this data must not arrive.
            Event::Called {
                stream,
                value: FILL,
                time,
            } => {
                job.fill(stream, time);
                Ok(())
            }
            Event::Called { stream, time, .. } => {
                if job.ranks[stream].home.failed() {
                    let now = || (time, frozen(&job, stream));
                    failures.entry(stream).or_insert_with(now);
                    Ok(())
                } else {
                    job.look(stream, time)
                }
            }
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
    drop(observe);
    job.check_strikes()
        .map_err(|why| format!("seed {seed}: {why}"))?;
    for (rank, (time, before)) in failures {
        if frozen(&job, rank) != before {
            return Err(format!("seed {seed}: rank {rank} moved after its failure"));
        }
        // Its later batches have poisoned every word that they should have added to.
        if time + 1 == EPOCHS {
            continue;
        }
        for edge in &job.edges {
            let words = [
                (edge.origin == rank, edge.done.0),
                (edge.target == rank, edge.exposed.0),
            ];
            for (mine, word) in words {
                if mine && value(word) & POISON == 0 {
                    return Err(format!("seed {seed}: rank {rank} left a word unpoisoned"));
                }
            }
        }
    }
    // Nothing may poison an operand.
    for edge in &job.edges {
        if (value(edge.done.1) | value(edge.exposed.1)) & POISON != 0 {
            return Err(format!("seed {seed}: an operand is poisoned"));
        }
    }
    Ok(job)
}

/// Whether a fault names a wait of the rank that has failed, with its epoch.
fn names_its_wait(job: &Job, rank: usize, fault: &RawFault) -> bool {
    let of = |tag: Tag| fault.tag == tag.into();
    // The word is poisoned. A later add to it still counts, perhaps in the block that advances the operand.
    let failed = |(word, operand): (Ptr, Ptr)| {
        let epochs = value(operand) / QUANTUM;
        value(word) & POISON != 0 && (fault.epoch == epochs || fault.epoch + 1 == epochs)
    };
    fault.kind == FAULT_WAIT
        && (Tag::from(fault.tag).window == window(30)
            || job.edges.iter().any(|edge| {
                (edge.origin == rank && of(edge.tag(Awaited::Exposure)) && failed(edge.exposed))
                    || (edge.target == rank
                        && of(edge.tag(Awaited::Completion))
                        && failed(edge.done))
            }))
}

/// A word is poisoned. The stream that waits for it fails, and then the streams that wait for that one.
pub(super) fn check_poison(
    machine: &mut Machine,
    form: Form,
    seeds: Range<u64>,
) -> Result<(), String> {
    let mut failures = 0;
    for seed in seeds {
        let job = disturbed(machine, form, seed, |job, rng| {
            if !job.edges.is_empty() {
                let edge = &job.edges[rng.below(job.edges.len())];
                // Only the GPU writes the words that it rings.
                let done = edge.rung.map_or(edge.done.0, |_| edge.exposed.0);
                let word = rng.of(&[edge.exposed.0, done]);
                change(word, |value| value | POISON);
            }
        })?;
        for (index, rank) in job.ranks.iter().enumerate() {
            if rank.home.failed() {
                failures += 1;
                let fault = rank.home.fault()?;
                if !names_its_wait(&job, index, &fault) {
                    return Err(format!("seed {seed}: rank {index} names {fault:?}"));
                }
            }
        }
    }
    if failures < 20 {
        return Err(format!("only {failures} streams have failed"));
    }
    Ok(())
}

/// The host ends a stream. The stream fails as aborted, and its peers fail by poison.
pub(super) fn check_abort(
    machine: &mut Machine,
    form: Form,
    seeds: Range<u64>,
) -> Result<(), String> {
    let mut failures = 0;
    for seed in seeds {
        let mut which = 0;
        let job = disturbed(machine, form, seed, |job, rng| {
            which = rng.below(job.ranks.len());
            job.ranks[which].home.stop();
        })?;
        for (index, rank) in job.ranks.iter().enumerate() {
            if rank.home.failed() {
                failures += 1;
                let fault = rank.home.fault()?;
                // It may have seen a peer's failure before its own end.
                let aborted = index == which && fault.kind == FAULT_ABORTED;
                if !aborted && (index == which || !names_its_wait(&job, index, &fault)) {
                    return Err(format!("seed {seed}: rank {index} names {fault:?}"));
                }
            }
        }
    }
    if failures < 20 {
        return Err(format!("only {failures} streams have failed"));
    }
    Ok(())
}

fn launched(steps: Vec<Vec<Step>>, sizes: Sizes, home: &Home, follow: &[&Home]) -> Launched {
    // SAFETY: the words lie in arenas that outlive the runs.
    let batch = unsafe { Batch::new(steps, Vec::new()) };
    let mut states = [0; 2];
    for (state, home) in states.iter_mut().zip(follow) {
        *state = home.address();
    }
    Launched::new(&batch, 16, sizes, true, home, states).expect("there are blocks enough")
}

/// A put of eight bytes that land, and a wait for as many.
struct Lands {
    put: Step,
    exposed: Step,
    signal: Step,
    waited: Step,
    /// The landing of the put. A stream that has failed sends nothing to it.
    landing: Ptr,
    done: (Ptr, Ptr),
    slot: Ptr,
    out: Ptr,
}

impl Lands {
    /// `come` says that the exposure has come, and that the awaited bytes have landed.
    fn new(arena: &mut Arena, bell: Ptr, come: bool) -> Self {
        let mut place = |with: [u64; 2]| {
            let at = Ptr(arena.take(16, 0, true));
            for (index, with) in with.into_iter().enumerate() {
                change(at.byte_add(8 * index), |_| with);
            }
            at
        };
        let tags = if come { 1 << 32 } else { 0 };
        let [src, landing, slot, from] =
            [[7; 2], [0; 2], [0; 2], [tags | 7, tags | 8]].map(&mut place);
        let of = |base| Landing { base, flip: 0 };
        let (exposure, done, out) = (
            (arena.word(0), arena.word(0)),
            (arena.word(0), arena.word(0)),
            arena.word(0),
        );
        change(exposure.0, |_| if come { QUANTUM } else { 0 });
        let put = Step::Move(Move {
            action: Action::Copy,
            size: 8,
            count: 1,
            src: linear(src),
            dst: linear(slot.byte_add(8)),
            parity: Ptr::NULL,
            early: true,
            landing: Some(of(landing)),
            buffers: 2,
        });
        let Step::Wait(plain) = wait(done.0, done.1, QUANTUM, 8) else {
            unreachable!("it is a wait");
        };
        Lands {
            put,
            exposed: wait(exposure.0, exposure.1, QUANTUM, 7),
            signal: add(out, bell),
            waited: Step::Wait(Wait {
                landed: Some(Landed {
                    from: of(from),
                    slot,
                    flip: 0,
                    bytes: 8,
                }),
                ..plain
            }),
            landing,
            done,
            slot,
            out,
        }
    }

    fn lanes(&self) -> Vec<Vec<Step>> {
        let put = vec![self.exposed, self.put, self.signal];
        vec![put, vec![self.waited]]
    }

    /// Checks that the lanes have left only poison.
    fn check(&self, come: bool) -> Result<(), String> {
        let words = [
            self.landing,
            self.landing.byte_add(8),
            self.slot,
            self.done.0,
            self.done.1,
        ];
        let found = words.map(value);
        match (found, value(self.out)) {
            ([0, 0, 0, 0, 0], POISON) => Ok(()),
            (found, out) => Err(format!(
                "bytes that could land ({come}): {found:x?}, and their signal is {out:#x}"
            )),
        }
    }
}

/// A stream that follows another fails with the other's fault, whether it starts after the failure or waits during it.
pub(super) fn check_follow(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 16, rng);
        let bell = arena.word(0);
        let mut words = || (arena.word(0), arena.word(0));
        let (first, second, out) = (words(), words(), words());
        let (a, b, idle) = (Home::new(), Home::new(), Home::new());
        // A stream that starts after the failure must not go on, even if its own words have come.
        let after = rng.once_in(2);
        if after && rng.once_in(2) {
            change(second.0, |_| QUANTUM);
        }
        let one = launched(
            vec![vec![wait(first.0, first.1, QUANTUM, 5)]],
            machine.sizes,
            &a,
            &[],
        );
        let first_add = add(out.0, bell);
        let mut lane = vec![wait(second.0, second.1, QUANTUM, 6), first_add];
        // The lane has a short form, or not.
        if rng.once_in(2) {
            lane.push(add(out.1, Ptr::NULL));
        }
        let post = arena.word(0);
        let mut posts = vec![add(post, bell)];
        if rng.once_in(2) {
            posts.push(add(arena.word(0), Ptr::NULL));
        }
        // A lane that reduces. A failed stream may leave only the value that it replaces.
        let (sum, terms) = (arena.word(5), [arena.word(7), arena.word(8)]);
        let reduces = [(Op::Replace, terms[0]), (Op::Sum, terms[1])].map(|(op, src)| {
            Step::Move(Move {
                action: Action::Fold {
                    op,
                    scalar: Scalar::U64,
                    before: false,
                },
                size: 8,
                count: 1,
                src: linear(src),
                dst: linear(sum),
                parity: Ptr::NULL,
                early: false,
                landing: None,
                buffers: 2,
            })
        });
        // Two lanes whose bytes land: one puts, and one waits for bytes that have landed, if anything may have come.
        let come = value(second.0) != 0;
        let lands = Lands::new(&mut arena, bell, come);
        let follow: &[&Home] = if rng.once_in(2) { &[&a] } else { &[&idle, &a] };
        let lanes = [vec![lane, posts], lands.lanes()].concat();
        let sums = launched(vec![reduces.to_vec()], machine.sizes, &b, follow);
        let two = launched(lanes, machine.sizes, &b, follow);
        // The first batch may fail for all that come behind it.
        let mut both = vec![Do::Launch(&two)];
        if rng.once_in(2) {
            both.insert(0, Do::Launch(&sums));
        }
        // The reason why the followed stream ends.
        let by_host = rng.once_in(4);
        let streams = if after {
            vec![
                ([vec![Do::Launch(&one)], both].concat(), 1),
                (vec![Do::Delay(3000), Do::Call(0)], 1),
            ]
        } else {
            vec![
                (vec![Do::Launch(&one)], 1),
                (both, 1),
                (vec![Do::Delay(3000), Do::Call(0)], 1),
            ]
        };
        machine.run(seed, &streams, &[], &mut |event| {
            if let Event::Called { .. } = event {
                if by_host {
                    a.stop();
                } else {
                    change(first.0, |value| value | POISON);
                }
            }
        })?;
        let (a, b) = (a.fault()?, b.fault()?);
        let kind = if by_host { FAULT_ABORTED } else { FAULT_WAIT };
        let fields = |f: &RawFault| (f.kind, f.tag, f.epoch);
        if a.kind != kind || fields(&a) != fields(&b) {
            return Err(format!("seed {seed}: {a:?}, and who follows {b:?}"));
        }
        if (value(out.0), value(out.1)) != (POISON, 0) {
            let (bell, own) = (value(out.0), value(out.1));
            return Err(format!("seed {seed}: adds became {bell:#x} and {own:#x}"));
        }
        lands
            .check(come)
            .map_err(|why| format!("seed {seed}: {why}"))?;
        // A lane that waits for nothing may have run before the failure.
        if value(sum) != 5 && (after || value(sum) != 15) {
            return Err(format!("seed {seed}: a sum became {}", value(sum)));
        }
        if value(post) != POISON && (after || value(post) != QUANTUM) {
            return Err(format!("seed {seed}: a post became {:#x}", value(post)));
        }
    }
    Ok(())
}

/// A batch that only looks comes before one that follows no stream. That one fails with the fault that was seen.
pub(super) fn check_look(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 16, rng);
        let bell = arena.word(0);
        let (word, operand, out) = (arena.word(0), arena.word(0), arena.word(0));
        let (a, b, idle) = (Home::new(), Home::new(), Home::new());
        let waits = vec![vec![wait(word, operand, QUANTUM, 5)]];
        let one = launched(waits, machine.sizes, &a, &[]);
        let at = arena.word(0);
        let follow: &[&Home] = if rng.once_in(2) { &[&a] } else { &[&idle, &a] };
        let look = launched(vec![vec![look_step(at)]], machine.sizes, &b, follow);
        let two = launched(vec![vec![add(out, bell)]], machine.sizes, &b, &[]);
        let fails = rng.once_in(2);
        let streams = [
            (
                vec![Do::Launch(&one), Do::Launch(&look), Do::Launch(&two)],
                1,
            ),
            (vec![Do::Delay(3000), Do::Call(0)], 1),
        ];
        machine.run(seed, &streams, &[], &mut |event| {
            if let Event::Called { .. } = event {
                change(word, |value| value + if fails { POISON } else { QUANTUM });
            }
        })?;
        let expected = if fails { POISON } else { QUANTUM };
        if b.failed() != fails || value(out) != expected || value(at) != 0 {
            return Err(format!("seed {seed}: an add became {:#x}", value(out)));
        }
    }
    Ok(())
}

/// Two waits of a batch share a place for reports. The second is reported when the first is over.
pub(super) fn check_reports_by_turns(
    machine: &mut Machine,
    seeds: Range<u64>,
) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 18, rng);
        let words = [(); 2].map(|()| (arena.word(0), arena.word(0)));
        let first = wait(words[0].0, words[0].1, QUANTUM, 0);
        // The words of the waits between them have come.
        let between =
            (1..MAX_BLOCKED).map(|_| wait(arena.word(QUANTUM), arena.word(0), QUANTUM, 7));
        let mut lane: Vec<_> = between.collect();
        lane.push(wait(words[1].0, words[1].1, QUANTUM, 1));
        let home = Home::new();
        let batch = launched(vec![vec![first], lane], machine.sizes, &home, &[]);
        let reports = || {
            let blocked = home.mirror().blocked;
            let active = blocked.iter().filter(|report| report.active != 0);
            active.map(|report| report.tag.peer).collect::<Vec<_>>()
        };
        let mut told = Vec::new();
        let streams = [
            (vec![Do::Launch(&batch)], 1),
            (vec![Do::Delay(4000), Do::Call(0)], 200),
        ];
        machine.run(seed, &streams, &[], &mut |event| {
            if let Event::Called { time, .. } = event {
                let next = reports().into_iter().find(|peer| !told.contains(peer));
                told.extend(next);
                let over = |index| told.contains(&(index as u32)) || time == 199;
                for (index, (word, _)) in words.iter().enumerate() {
                    if over(index) {
                        change(*word, |_| QUANTUM);
                    }
                }
            }
        })?;
        told.sort_unstable();
        if told != [0, 1] || !reports().is_empty() {
            return Err(format!("seed {seed}: {told:?} of two waits were reported"));
        }
    }
    Ok(())
}

/// A wait that takes long is reported, with its epoch, until it is over.
pub(super) fn check_reports(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 18, rng);
        let bell = arena.word(0);
        let from = rng.below(5) as u64 * QUANTUM;
        let quantum = rng.of(&[QUANTUM, 0]);
        // A ticket is of the epoch that has already advanced its operand.
        let (at, epoch) = match quantum {
            0 => (from + QUANTUM, from / QUANTUM),
            _ => (from, from / QUANTUM),
        };
        let (word, operand, out) = (arena.word(from), arena.word(at), arena.word(0));
        let mut lane = vec![wait(word, operand, quantum, 5)];
        // A lane that only waits is another kind than a lane that goes on.
        let only = rng.once_in(4);
        let count = if only { 0 } else { rng.of(&[0, 4, 400]) };
        if count > 0 {
            let mut side = |written| linear(Ptr(arena.take(8 * count, 0, written)));
            let (src, dst, early) = (side(false), side(true), rng.once_in(2));
            // With the parity of another wait, the lane goes step by step.
            let by_steps = !early && rng.once_in(2);
            lane.push(Step::Move(Move {
                action: Action::Copy,
                size: 8,
                count,
                src,
                dst,
                parity: if by_steps { arena.word(0) } else { Ptr::NULL },
                early,
                landing: None,
                buffers: 2,
            }));
        }
        if !only {
            lane.push(add(out, bell));
        }
        let home = Home::new();
        let batch = launched(vec![lane], machine.sizes, &home, &[]);
        let active = |home: &Home| -> Vec<_> {
            let blocked = home.mirror().blocked;
            let active = blocked.iter().filter(|report| report.active != 0);
            active.map(|r| (Tag::from(r.tag), r.epoch)).collect()
        };
        let mut reported = Vec::new();
        let poisoned = rng.once_in(3);
        let streams = [
            (vec![Do::Launch(&batch)], 1),
            (vec![Do::Delay(4000), Do::Call(0)], 40),
        ];
        machine.run(seed, &streams, &[], &mut |event| {
            if let Event::Called { time, .. } = event {
                reported.extend(active(&home));
                if !reported.is_empty() || time == 39 {
                    let end = if poisoned { POISON } else { QUANTUM };
                    change(
                        word,
                        |value| if value == from { value + end } else { value },
                    );
                }
            }
        })?;
        let tag = Tag {
            window: WINDOW,
            peer: 5,
            awaited: Awaited::Event,
        };
        let report = (tag, epoch);
        if reported.first() != Some(&report) {
            return Err(format!(
                "seed {seed}: reported {reported:?}, not {report:?}"
            ));
        }
        let left = active(&home);
        if !left.is_empty() || MAX_BLOCKED != home.mirror().blocked.len() {
            return Err(format!("seed {seed}: {left:?} is still reported"));
        }
        let end = match (only, poisoned) {
            (true, _) => 0,
            (_, true) => POISON,
            (_, false) => QUANTUM,
        };
        if home.failed() != poisoned || value(out) != end {
            return Err(format!("seed {seed}: the wait ended as it should not"));
        }
    }
    Ok(())
}
