//! Repeated tests with different numbers each time: jobs in which a random rank is killed at a random moment.
//!
//! Every test run does a few of them, and `cargo xtask soak` as many as it is told. `TIDEGATE_SOAK_SEED` repeats a
//! failed run, as far as the machine's timing allows.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tidegate::host::prelude::*;

use crate::counting::alone;
use crate::processes::{self, error, lines, longest_survival};
use crate::ring;

const RANKS: usize = 8;

/// How long ranks may take to meet. If a rank is killed before it has come, it is reported as missing after this time,
/// since nobody knows about it.
const RENDEZVOUS: Duration = Duration::from_secs(5);
/// How much later the last rank may end.
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

/// This is not a test, but the ranks' program.
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
    // For each kind of error: how many there were, and how long after the death the last rank of such a job ended.
    let mut seen: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
    for run in 0..runs {
        let victim = dice.below(RANKS);
        // Starting eight processes takes a part of this, so some die before they have met.
        let moment = Duration::from_micros(dice.below(400_000) as u64);
        let job = processes::start_with("soak::a_rank", "ring", RANKS, &variables);
        std::thread::sleep(moment);
        job.kill(victim);
        // This asserts that nothing is left.
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
