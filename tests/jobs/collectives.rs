//! Collectives of processes, one of which is killed in the middle.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tidegate::Choice;
use tidegate::host::prelude::*;

use crate::processes::{self, error, longest_survival, ready};

/// How soon after a rank's death the others must have ended. It takes milliseconds; the margin is for machines that are
/// busy with other tests.
const SOON: Duration = Duration::from_secs(120);

/// The roles: a collective, and whether its vectors are so long that it goes in pieces or chunks.
const KINDS: [&str; 12] = [
    "barrier",
    "broadcast",
    "reduce",
    "all-reduce",
    "gather",
    "scatter",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "counted",
    "scan",
    "exclusive",
];
const SHORT: usize = 3;
const LONG: usize = 5000;
/// Targets read the data from the memory of origins.
const LONGEST: usize = 50_000;

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| {
        let (kind, len) = role.split_once(' ').expect("a kind and a length");
        forever(&world, kind, len.parse().expect("a length"))
    });
}

/// Calls one collective until it fails.
fn forever(world: &World, kind: &str, len: usize) -> Result<()> {
    stream!(let s = world.stream()?);
    let s = &s;
    let on = |len| Region::<f64, _>::zeroed(world, len)?.on(s);
    let ranks = world.size();
    let (one, all) = (on(len)?, on(ranks * len)?);
    let (mut y, mut wide) = (on(len)?, on(ranks * len)?);
    let mut nothing = on(0)?;
    let name = "lost";
    let is_root = world.rank() == 0;
    // Short scans go to all higher ranks, as on GPUs. Long ones go from rank to rank in any case.
    let direct = Choice {
        scan: ranks,
        ..Choice::on(s)
    };
    let mut call: Box<dyn FnMut() -> Result<()> + '_> = match kind {
        "barrier" => {
            let mut it = Barrier::open(s, name)?;
            Box::new(move || it.enqueue(s))
        }
        "broadcast" => {
            let mut it = Broadcast::open(s, name, 0, len)?;
            Box::new(move || it.enqueue(s, &mut y))
        }
        "reduce" => {
            let mut it = Reduce::open(s, name, 0, len, Op::Sum)?;
            Box::new(move || it.enqueue(s, &mut y))
        }
        "all-reduce" => {
            let mut it = AllReduce::open(s, name, len, Op::Sum)?;
            Box::new(move || it.enqueue(s, &mut y))
        }
        "gather" => {
            let mut it = Gather::open(s, name, 0, len)?;
            Box::new(move || it.enqueue(s, &one, if is_root { &mut wide } else { &mut nothing }))
        }
        "scatter" => {
            let mut it = Scatter::open(s, name, 0, len)?;
            Box::new(move || it.enqueue(s, if is_root { &all } else { &nothing }, &mut y))
        }
        "all-gather" => {
            let mut it = AllGather::open(s, name, len)?;
            Box::new(move || it.enqueue(s, &one, &mut wide))
        }
        "reduce-scatter" => {
            let mut it = ReduceScatter::open(s, name, len, Op::Sum)?;
            Box::new(move || it.enqueue(s, &all, &mut y))
        }
        "all-to-all" => {
            let mut it = AllToAll::open(s, name, len)?;
            Box::new(move || it.enqueue(s, &all, &mut wide))
        }
        "counted" => {
            let numbers = |count| Region::from_slice(world, &vec![count; ranks])?.on(s);
            let (counts, mut received) = (numbers(len as u64)?, numbers(0)?);
            let mut it = CountedAllToAll::open(s, name, len, 1)?;
            Box::new(move || it.enqueue(s, &all, &counts, &mut wide, &mut received))
        }
        "scan" => {
            let mut it = Scan::open_with(s, name, len, Op::Sum, direct)?;
            Box::new(move || it.enqueue(s, &mut y))
        }
        "exclusive" => {
            let mut it = Scan::open_exclusive_with(s, name, len, Op::Sum, direct)?;
            Box::new(move || it.enqueue(s, &mut y))
        }
        other => panic!("there is no collective {other}"),
    };
    ready(world);
    loop {
        for _ in 0..8 {
            call()?;
        }
        s.synchronize()?;
    }
}

/// The others end soon, with an error that names the dead rank. Each kind loses one rank with short vectors, another one
/// with long vectors, and one with vectors that are longer still.
#[test]
fn a_rank_that_was_killed_in_any_collective_is_named_by_all_others() {
    const RANKS: usize = 4;
    for (number, kind) in KINDS.into_iter().enumerate() {
        for (turn, len) in [SHORT, LONG, LONGEST].into_iter().enumerate() {
            let victim = (number + 2 * turn) % RANKS;
            let job = processes::start("collectives::a_rank", &format!("{kind} {len}"), RANKS);
            job.wait_ready();
            std::thread::sleep(Duration::from_millis(5));
            job.kill(victim);
            let outcome = job.finish();
            assert_eq!(outcome.ranks[victim].status.signal(), Some(9));
            for rank in (0..RANKS).filter(|rank| *rank != victim) {
                let error = error(&outcome.ranks[rank]);
                let cause = format!(": rank {victim} is lost (");
                let is_named = error.contains("window `lost`") && error.contains(&cause);
                assert!(is_named, "{kind} of {len}: {error}");
            }
            assert!(longest_survival(&outcome, victim) < SOON, "{kind} of {len}");
        }
    }
}
