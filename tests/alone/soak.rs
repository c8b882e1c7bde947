//! The same again and again, with other numbers each time: jobs of which a random rank is killed at a random moment,
//! and messages that nobody should have sent.
//!
//! Every test run does it a few times; `cargo xtask soak` as often as it is told. `TIDEGATE_SOAK_SEED` repeats a run that
//! failed, as far as the machine's timing lets it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tidegate::host::prelude::*;
use tidegate_boot::fuzz;

use crate::counting::{Counting, alone};
use crate::processes::{self, error, lines, longest_survival};
use crate::ring;

const RANKS: usize = 8;

/// How long ranks may take to meet. A rank that is killed before it has come is missed after that time, since nobody knows of it.
const RENDEZVOUS: Duration = Duration::from_secs(5);
/// What else may pass until the last rank has ended.
const MARGIN: Duration = Duration::from_secs(120);

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = number("TIDEGATE_SOAK_SEED", RandomState::new().hash_one(0));
        println!("TIDEGATE_SOAK_SEED={seed}");
        Dice(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(value) => value.parse().expect("a number"),
        Err(_) => default,
    }
}

/// Not a test: what the ranks do.
#[test]
fn a_rank() {
    processes::play(|_, world| {
        stream!(let s = world.stream()?);
        let ring = ring::open(&s)?;
        Err(ring::forever(&s, ring))
    });
}

#[test]
fn survivors_of_a_kill_get_their_errors() {
    let _alone = alone();
    let mut dice = Dice::new();
    let runs = number("TIDEGATE_SOAK_RUNS", 4);
    let timeout = RENDEZVOUS.as_secs().to_string();
    let variables = [("TIDEGATE_RENDEZVOUS_TIMEOUT", &*timeout)];
    // By the kind of error: how many, and how long after the death the last rank of such a job had ended.
    let mut seen: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
    for run in 0..runs {
        let victim = dice.below(RANKS);
        // Starting eight processes takes a part of that, so that some die before they have met.
        let moment = Duration::from_micros(dice.below(400_000) as u64);
        let job = processes::start_with("soak::a_rank", "ring", RANKS, &variables);
        std::thread::sleep(moment);
        job.kill(victim);
        // Asserts that nothing is left.
        let outcome = job.finish();
        let context = format!("run {run}, rank {victim} killed after {moment:?}");
        assert_eq!(outcome.ranks[victim].status.signal(), Some(9), "{context}");
        let took = longest_survival(&outcome, victim);
        let mut late = MARGIN;
        for (rank, end) in outcome.ranks.iter().enumerate() {
            if rank == victim {
                continue;
            }
            let error = error(end);
            let kind = lines(end, "kind: ").next().unwrap_or_default();
            match kind {
                "wait" | "revoked" => {
                    let cause = format!(": rank {victim} is lost (");
                    assert!(error.contains(&cause), "{context}: {error}");
                }
                "control" => {}
                "join" => late += RENDEZVOUS,
                _ => panic!("{context}: {error}"),
            }
            let (count, longest) = seen.entry(kind.to_owned()).or_default();
            *count += 1;
            *longest = took.max(*longest);
        }
        assert!(took < late, "{context}: the last rank ended {took:?} later");
    }
    println!(
        "{runs} jobs of {RANKS} ranks, one killed in each; nothing left; the survivors' errors:"
    );
    for (kind, (count, longest)) in seen {
        println!("  {kind}: {count}, the last of a job at most {longest:?} after the death");
    }
}

/// Bytes that may be asked for, in all, while one message of at most [`LONGEST`] bytes is read.
const MOST_BYTES: u64 = 1 << 14;
const LONGEST: usize = 400;

#[test]
fn messages_that_nobody_sent() {
    let _alone = alone();
    let mut dice = Dice::new();
    let messages = number("TIDEGATE_SOAK_MESSAGES", 20_000);
    let (mut genuine, mut most) = (0u64, 0);
    for _ in 0..messages {
        let message = message(&mut dice);
        let (piece, good) = (1 + dice.below(100), dice.below(4));
        Counting::reset();
        Counting::begin();
        genuine += u64::from(fuzz::decode_message(&message));
        let found = fuzz::read_stream(&message, piece, good);
        let believed = fuzz::check_proof(&message) || fuzz::check_guest(&message);
        fuzz::read_launcher(&message);
        Counting::end();
        assert_eq!(found, good, "a frame was believed: {message:?}");
        assert!(!believed, "a proof was believed: {message:?}");
        most = most.max(Counting::bytes());
    }
    println!(
        "{messages} messages, of which {genuine} could be decoded; at most {most} bytes were allocated for one"
    );
    assert!(most <= MOST_BYTES);
}

/// Random bytes, or a genuine message with some bits, bytes or its length changed.
fn message(dice: &mut Dice) -> Vec<u8> {
    if dice.below(4) == 0 {
        let len = dice.below(LONGEST);
        return (0..len).map(|_| dice.roll() as u8).collect();
    }
    let mut message = match dice.below(4) {
        0 => fuzz::sample_launcher(dice.below(2)),
        _ => fuzz::sample_message(dice.below(fuzz::SAMPLES)),
    };
    for _ in 0..dice.below(4) {
        let at = dice.below(message.len().max(1));
        match (dice.below(5), message.get_mut(at)) {
            (0, Some(byte)) => *byte ^= 1 << dice.below(8),
            (1, Some(byte)) => *byte = dice.roll() as u8,
            // Lengths are what a decoder might believe.
            (2, Some(byte)) => *byte = 0xff,
            (3, Some(_)) => message.truncate(at),
            _ => message.extend((0..dice.below(20)).map(|_| dice.roll() as u8)),
        }
    }
    message
}
