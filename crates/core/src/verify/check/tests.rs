//! The check against an exploration of all schedules.

use std::collections::{BTreeMap, HashSet};

use tidegate_hal::ids::{TeamId, WindowId};

use super::super::record::{Act, Before, Item, Op, Record, Work};
use super::*;
use crate::observe::{EpochCall, Operation};
use crate::random::Rng;

fn window(number: u32) -> WindowId {
    (0..number).fold(WindowId::first(TeamId::WORLD), |id, _| id.next())
}

/// The calls of one rank, as they come on its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Post(u32),
    Complete(u32),
    Wait(u32),
    Expose(u32),
    Exchange(u32),
    /// From this stream to the other.
    HandOff(u32),
}

/// A window of a random step.
struct Win {
    /// Who puts to whom: origin, target.
    edges: Vec<(u32, u32)>,
    /// How many exposures origins have at first.
    early: u64,
    /// Whether inboxes are exposed when the recording begins.
    open: bool,
    /// On which stream each rank has its inbox, and its outbox.
    homes: Vec<[u32; 2]>,
}

impl Win {
    fn origins(&self, rank: u32) -> Vec<u32> {
        let edges = self.edges.iter().filter(|(_, target)| *target == rank);
        edges.map(|(origin, _)| *origin).collect()
    }

    fn targets(&self, rank: u32) -> Vec<u32> {
        let edges = self.edges.iter().filter(|(origin, _)| *origin == rank);
        edges.map(|(_, target)| *target).collect()
    }
}

/// A random step of two or three ranks, with the calls of each.
struct Step {
    windows: Vec<Win>,
    calls: Vec<Vec<Call>>,
    /// An origin that has waited once too often before the first replay: window, origin, target.
    behind: Option<(usize, u32, u32)>,
}

impl Step {
    fn random(rng: &mut Rng) -> Self {
        // Three ranks have one window and one epoch, since the number of schedules grows fast.
        let ranks = 2 + rng.below(4) as u32 / 3;
        let small = ranks == 3;
        let count = if small { 1 } else { 1 + rng.below(2) };
        let mut windows: Vec<Win> = Vec::new();
        for _ in 0..count {
            // Most ranks put to each other, as neighbours do.
            let mut edges = vec![(0, 1)];
            if rng.below(8) > 0 {
                edges.push((1, 0));
            }
            if small {
                edges.push((2, rng.below(3) as u32));
            }
            let early = rng.below(4) as u64 / 3;
            let mut home = |_| [rng.below(8) as u32 / 7, rng.below(8) as u32 / 7];
            windows.push(Win {
                edges,
                early,
                open: false,
                homes: (0..ranks).map(&mut home).collect(),
            });
        }
        for win in &mut windows {
            win.open = rng.below(8) == 0;
        }
        let epochs = if small || count == 2 {
            1
        } else {
            1 + rng.below(2)
        };
        let careful = rng.below(6) == 0;
        let calls = (0..ranks).map(|rank| script(rng, &windows, rank, epochs, careful));
        let mut calls: Vec<_> = calls.collect();
        if rng.below(8) == 0 {
            // One rank completes once less often.
            let rank = rng.below(calls.len());
            if let Some(at) = calls[rank]
                .iter()
                .position(|call| matches!(call, Call::Complete(_)))
            {
                calls[rank].remove(at);
            }
        }
        let behind = (rng.below(20) == 0).then(|| {
            let (origin, target) = windows[0].edges[0];
            (0, origin, target)
        });
        Step {
            windows,
            calls,
            behind,
        }
    }

    fn records(&self) -> Vec<Record> {
        let ranks = self.calls.iter().enumerate();
        ranks
            .map(|(rank, calls)| self.record(rank as u32, calls))
            .collect()
    }

    fn record(&self, rank: u32, calls: &[Call]) -> Record {
        let mut record = Record {
            streams: vec!["s".into(), "t".into()],
            sites: vec!["src/main.rs:1:1".into()],
            ..Record::default()
        };
        for (number, win) in (0..).zip(&self.windows) {
            record.windows.push((window(number), format!("w{number}")));
            let open = u64::from(win.open);
            for origin in win.origins(rank) {
                record.before.push(Before {
                    window: number,
                    peer: origin,
                    given: Operation::Post,
                    count: 3 + open + win.early,
                    waited: Some(3),
                });
            }
            for target in win.targets(rank) {
                let behind = self.behind == Some((number as usize, rank, target));
                record.before.push(Before {
                    window: number,
                    peer: target,
                    given: Operation::Complete,
                    count: if behind { 4 + open + win.early } else { 3 },
                    waited: None,
                });
            }
        }
        for (number, call) in (0..).zip(calls) {
            self.items(rank, *call, number, &mut record);
        }
        record
    }

    /// The work of one call.
    fn items(&self, rank: u32, call: Call, number: u64, record: &mut Record) {
        let post = |w: u32| {
            let origins = self.windows[w as usize].origins(rank).into_iter();
            origins.map(move |peer| vec![op(Act::Add, w, peer, Operation::Post)])
        };
        let wait = |w: u32| {
            let origins = self.windows[w as usize].origins(rank).into_iter();
            origins.map(move |peer| vec![op(Act::Wait, w, peer, Operation::Complete)])
        };
        let complete = |w: u32| {
            let targets = self.windows[w as usize].targets(rank).into_iter();
            targets.map(move |peer| {
                let wait = op(Act::Wait, w, peer, Operation::Post);
                vec![wait, op(Act::Add, w, peer, Operation::Complete)]
            })
        };
        let home = |w: u32, half: usize| self.windows[w as usize].homes[rank as usize][half];
        let (stream, lanes): (u32, Vec<_>) = match call {
            Call::Post(w) => (home(w, 0), post(w).collect()),
            Call::Wait(w) => (home(w, 0), wait(w).collect()),
            Call::Expose(w) => (home(w, 0), post(w).chain(wait(w)).collect()),
            Call::Complete(w) => (home(w, 1), complete(w).collect()),
            Call::Exchange(w) => {
                let lanes = post(w).chain(complete(w)).chain(wait(w));
                (home(w, 0), lanes.collect())
            }
            Call::HandOff(from) => {
                let items = [
                    (from, Work::Signal(number)),
                    (1 - from, Work::Await(number)),
                ];
                let items = items.map(|(stream, work)| Item { stream, work });
                return record.items.extend(items);
            }
        };
        let (call, site) = (EpochCall::Post, 0);
        record.batches.push(lanes);
        let batch = record.batches.len() as u32 - 1;
        let work = Work::Batch { call, site, batch };
        record.items.push(Item { stream, work });
    }
}

fn op(act: Act, window: u32, peer: u32, awaited: Operation) -> Op {
    Op {
        act,
        window,
        peer,
        awaited,
    }
}

/// The calls of a rank: those of each half in the order that its tokens allow. A careful program posts before it
/// completes, and waits last.
fn script(rng: &mut Rng, windows: &[Win], rank: u32, epochs: usize, careful: bool) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..epochs {
        let mut round: Vec<Call> = Vec::new();
        for (w, win) in (0..).zip(windows) {
            let one_stream = win.homes[rank as usize][0] == win.homes[rank as usize][1];
            let three = if win.open {
                [Call::Wait(w), Call::Post(w), Call::Complete(w)]
            } else {
                [Call::Post(w), Call::Complete(w), Call::Wait(w)]
            };
            match rng.below(8) {
                0 if !win.open && one_stream => round.push(Call::Exchange(w)),
                1 if !win.open => round.extend([Call::Complete(w), Call::Expose(w)]),
                _ => round.extend(three),
            }
        }
        if careful && windows.len() > 1 && rng.below(2) == 0 {
            // All posts, then all completes, then all waits.
            round.sort_by_key(|call| match call {
                Call::Post(_) => 0,
                Call::Complete(_) => 1,
                _ => 2,
            });
        }
        if !careful {
            rng.shuffle(&mut round);
            // A half's own calls keep their order.
            for (w, win) in (0..).zip(windows) {
                let of = |call: &Call| matches!(call, Call::Post(x) | Call::Wait(x) if *x == w);
                let places: Vec<_> = (0..round.len()).filter(|at| of(&round[*at])).collect();
                if let [first, last] = places[..]
                    && matches!(round[first], Call::Wait(_)) != win.open
                {
                    round.swap(first, last);
                }
            }
        }
        if rng.below(6) == 0 {
            round.insert(rng.below(round.len()), Call::HandOff(rng.below(2) as u32));
        }
        calls.extend(round);
    }
    calls
}

/// How far a stream has come: the number of items that it has passed, and how far each lane of its current batch is.
type At = (u8, [u8; 6]);

/// The work of one stream, for the exploration.
struct Strand<'a> {
    rank: u32,
    record: &'a Record,
    work: Vec<&'a Work>,
    /// What the first so many items change in each word.
    sums: Vec<Vec<i8>>,
}

/// All words, with what is in them before the first replay.
#[derive(Default)]
struct Words {
    numbers: BTreeMap<Word, usize>,
    first: Vec<i8>,
}

impl Words {
    fn number(&mut self, op: Op, rank: u32, record: &Record) -> usize {
        let next = self.first.len();
        let number = *self
            .numbers
            .entry(Word::of(op, rank, record))
            .or_insert(next);
        if number == next {
            self.first.push(0);
        }
        number
    }
}

fn change(op: &Op) -> i8 {
    if op.act == Act::Add { 1 } else { -1 }
}

/// Explores every schedule of some replays. Returns whether all of them end.
fn all_end(all: &[Record], replays: usize) -> bool {
    let mut words = Words::default();
    let ranks = || (0..).zip(all);
    for (rank, record) in ranks() {
        for item in &record.items {
            if let Work::Batch { batch, .. } = &item.work {
                for op in record.batches[*batch as usize].iter().flatten() {
                    words.number(*op, rank, record);
                }
            }
        }
        for before in &record.before {
            let mut count = |act, awaited, change: u64| {
                let op = op(act, before.window, before.peer, awaited);
                let number = words.number(op, rank, record);
                words.first[number] += change as i8 * self::change(&op);
            };
            count(Act::Add, before.given, before.count);
            match before.given {
                Operation::Complete => count(Act::Wait, Operation::Post, before.count),
                _ => count(Act::Wait, Operation::Complete, before.waited.unwrap()),
            }
        }
    }
    let mut strands = Vec::new();
    for (rank, record) in ranks() {
        for stream in [0, 1] {
            let items = record.items.iter().filter(|item| item.stream == stream);
            let once: Vec<_> = items.map(|item| &item.work).collect();
            let work = once.repeat(replays);
            let mut sums = vec![vec![0; words.first.len()]];
            for item in &work {
                let mut sum = sums.last().unwrap().clone();
                if let Work::Batch { batch, .. } = item {
                    for op in record.batches[*batch as usize].iter().flatten() {
                        sum[words.number(*op, rank, record)] += change(op);
                    }
                }
                sums.push(sum);
            }
            strands.push(Strand {
                rank,
                record,
                work,
                sums,
            });
        }
    }
    let begin: Vec<At> = vec![(0, [0; 6]); strands.len()];
    let mut seen = HashSet::from([begin.clone()]);
    let mut open = vec![begin];
    while let Some(state) = open.pop() {
        let mut counts = words.first.clone();
        for (strand, (passed, lanes)) in strands.iter().zip(&state) {
            let sums = strand.sums[*passed as usize].iter();
            counts
                .iter_mut()
                .zip(sums)
                .for_each(|(count, sum)| *count += sum);
            if let Some(Work::Batch { batch, .. }) = strand.work.get(*passed as usize) {
                let ops = &strand.record.batches[*batch as usize];
                for (ops, done) in ops.iter().zip(lanes) {
                    for op in &ops[..*done as usize] {
                        counts[words.numbers[&Word::of(*op, strand.rank, strand.record)]] +=
                            change(op);
                    }
                }
            }
        }
        let mut over = true;
        let mut stands = true;
        for (index, strand) in strands.iter().enumerate() {
            let (passed, lanes) = state[index];
            let Some(work) = strand.work.get(passed as usize) else {
                continue;
            };
            over = false;
            let mut go = |at: At| {
                stands = false;
                let mut next = state.clone();
                next[index] = at;
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            };
            let ended = (passed + 1, [0; 6]);
            match work {
                Work::Signal(_) => go(ended),
                Work::Await(number) => {
                    // The hand-off of the same replay, on the rank's other stream.
                    let (other, there) = (&strands[index ^ 1], state[index ^ 1].0 as usize);
                    let is = |work: &&&Work| matches!(work, Work::Signal(it) if it == number);
                    let of = |work: &[&Work]| work.iter().filter(is).count();
                    let is_here = |work: &&&Work| matches!(work, Work::Await(it) if it == number);
                    let before = strand.work[..passed as usize]
                        .iter()
                        .filter(is_here)
                        .count();
                    if of(&other.work[..there]) > before {
                        go(ended);
                    }
                }
                Work::Batch { batch, .. } => {
                    let ops = &strand.record.batches[*batch as usize];
                    if ops
                        .iter()
                        .zip(lanes)
                        .all(|(ops, done)| done as usize == ops.len())
                    {
                        go(ended);
                        continue;
                    }
                    for (lane, ops) in ops.iter().enumerate() {
                        let Some(op) = ops.get(lanes[lane] as usize) else {
                            continue;
                        };
                        let word = words.numbers[&Word::of(*op, strand.rank, strand.record)];
                        if op.act == Act::Add || counts[word] > 0 {
                            let mut lanes = lanes;
                            lanes[lane] += 1;
                            go((passed, lanes));
                        }
                    }
                }
            }
        }
        if stands && !over {
            return false;
        }
    }
    true
}

#[test]
fn the_verdict_on_2000_random_steps_is_that_of_all_their_schedules() {
    let mut counts = [0; 3];
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let step = Step::random(&mut rng);
        let records = step.records();
        let verdict = check(&records);
        let which = match &verdict {
            Verdict::Proved(_) => 0,
            Verdict::Refused(_) => 1,
            Verdict::Unknown(_) => 2,
        };
        counts[which] += 1;
        if which < 2 {
            // A rank that is behind gives its peer two epochs more.
            let ends = all_end(&records, if step.behind.is_some() { 4 } else { 2 });
            assert_eq!(ends, which == 0, "seed {seed}: {verdict}\n{:?}", step.calls);
        }
    }
    let [proved, refused, unknown] = counts;
    println!("{proved} proved, {refused} refused, {unknown} unknown");
    assert!(
        proved >= 600 && refused >= 600 && unknown <= 200,
        "{counts:?}"
    );
}

/// A step of many ranks: each exchanges with its neighbours in a torus, 26 of them as in Faces, and sums over all.
fn torus(side: u32, epochs: usize) -> Vec<Record> {
    let ranks = side * side * side;
    let place = |rank: u32| [rank % side, rank / side % side, rank / side / side];
    let neighbours = |rank: u32| {
        let at = place(rank);
        let mut all = Vec::new();
        for offset in 0..27 {
            let to = [offset % 3, offset / 3 % 3, offset / 9];
            let [x, y, z] = [0, 1, 2].map(|axis| (at[axis] + to[axis] + side - 1) % side);
            all.push(x + side * (y + side * z));
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|other| *other != rank);
        all
    };
    let of = |rank: u32| {
        let mut record = Record {
            streams: vec!["s".into()],
            windows: vec![(window(0), "halo".into())],
            sites: vec!["src/main.rs:1:1".into()],
            ..Record::default()
        };
        for _ in 0..epochs {
            let peers = neighbours(rank);
            let post = peers
                .iter()
                .map(|peer| vec![op(Act::Add, 0, *peer, Operation::Post)]);
            let complete = peers.iter().map(|peer| {
                let wait = op(Act::Wait, 0, *peer, Operation::Post);
                vec![wait, op(Act::Add, 0, *peer, Operation::Complete)]
            });
            let wait = peers
                .iter()
                .map(|peer| vec![op(Act::Wait, 0, *peer, Operation::Complete)]);
            let lanes = post.chain(complete).chain(wait).collect();
            let (call, site) = (EpochCall::Exchange, 0);
            let batch = 0;
            record.batches = vec![lanes];
            let work = Work::Batch { call, site, batch };
            record.items.push(Item { stream: 0, work });
        }
        record
    };
    (0..ranks).map(of).collect()
}

/// About 200 steps for each of 1,000 ranks. Run it in a release build: it prints how long the check takes, and how
/// many bytes the ranks tell each other.
#[test]
#[ignore = "it prints a time: `cargo test --release -p tidegate-core --lib verify -- --ignored --nocapture`"]
fn time_of_a_thousand_ranks() {
    for side in [2, 10] {
        let all = torus(side, 2);
        let bytes: Vec<_> = all
            .iter()
            .map(|record| postcard::to_stdvec(record).unwrap())
            .collect();
        let told = bytes.clone().into_iter().enumerate();
        let begin = std::time::Instant::now();
        let verdict = super::super::verdict((&"".into(), bytes.len()), told).unwrap();
        let took = begin.elapsed();
        let Verdict::Proved(proof) = verdict else {
            panic!("{verdict}");
        };
        let (ranks, gathered) = (all.len(), bytes.iter().map(Vec::len).sum::<usize>());
        println!(
            "{ranks} ranks, {} steps, {gathered} bytes gathered: {took:?}",
            proof.steps
        );
    }
}
