//! Counters on rank 0 that all ranks add to. Work is handed out by fetch-and-add, and a prize goes to the rank whose
//! compare-and-swap comes first.
//!
//! Each access epoch needs a matching post of its target (active target), so a rank cannot ask rank 0 for more work at
//! any time. Instead, work is handed out in *rounds*, as many as there are blocks of tasks, on all ranks. In each round
//! rank 0 posts once, and every rank opens one epoch. It is not specified which rank gets which tasks, and it may
//! differ from run to run. The program checks that each task is handed out once.
//!
//! Run it with `cargo run --example atomic`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/atomic`.

use tidegate::host::prelude::*;

/// How many tasks a rank takes at a time.
const BLOCK: u64 = 5;
/// The number of rounds.
const ROUNDS: u64 = 20;

/// The elements of rank 0's memory: the next task, the winner of the prize (rank + 1), the number of tasks that were
/// done, and the sum of their numbers.
const NEXT: usize = 0;
const PRIZE: usize = 1;
const DONE: usize = 2;

/// The values that a rank adds or compares with, in one region. Operations use slices of it.
const TAKE: usize = 0;
const NOBODY: usize = 1;
const MYSELF: usize = 2;

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank() as u64, world.size() as u64);
    stream!(let s = world.stream()?);

    // All ranks access rank 0's memory, including rank 0. Nobody accesses the memory of the others.
    let len = if rank == 0 { 4 } else { 0 };
    let mut window = AtomicWindow::<u64>::new("counters", len);
    let counters = window.target(0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let constants = Region::from_slice(&world, &[BLOCK, 0, rank + 1])?.on(&s)?;
    // The results: the first task of this round, and the winner before.
    let mut old = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
    let mut holder = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
    let mut done = Region::<u64>::zeroed(&world, 2)?.on(&s)?;
    let mut wins = Region::<u64>::zeroed(&world, 1)?.on(&s)?;

    for _ in 0..ROUNDS {
        let exposed = inbox.post(&s)?; // on rank 0, to all; on the others, to nobody
        let mut epoch = outbox.start();
        let take = constants.slice(TAKE..TAKE + 1)?;
        epoch.fetch_and_op(take, &mut old, counters.at(NEXT), Op::Sum)?;
        let (nobody, myself) = (
            constants.slice(NOBODY..NOBODY + 1)?,
            constants.slice(MYSELF..MYSELF + 1)?,
        );
        epoch.compare_and_swap(nobody, myself, &mut holder, counters.at(PRIZE))?;
        outbox = epoch.complete(&s)?; // `old` and `holder` are written when the stream is past this
        inbox = exposed.wait(&s)?;

        let work = |old: &[u64], holder: &[u64], done: &mut [u64], wins: &mut [u64]| {
            for task in old[0]..old[0] + BLOCK {
                done[0] += 1;
                done[1] += task;
            }
            wins[0] += u64::from(holder[0] == 0);
        };
        s.launch(work, (&old, &holder, &mut done, &mut wins))?;
    }

    // A last round adds up what was done.
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.accumulate(&done, counters.at(DONE), Op::Sum)?;
    drop(epoch.complete(&s)?); // there is no other round
    let mut inbox = exposed.wait(&s)?;

    let wins = wins.into_host(&s)?[0];
    if rank == 0 {
        let tasks = ROUNDS * size * BLOCK;
        let [next, winner, done, sum] = *inbox.host_mut(&s)? else {
            unreachable!("there are four counters")
        };
        assert_eq!((next, done), (tasks, tasks), "each task is dealt and done");
        assert_eq!(sum, tasks * (tasks - 1) / 2, "… once");
        assert!((1..=size).contains(&winner));
    }
    let prize = match wins {
        0 => "no prize",
        1 => "the prize",
        _ => panic!("there is one prize"),
    };
    println!("rank {rank} of {size}: {ROUNDS} rounds of {BLOCK} tasks, {prize}");
    Ok(())
}
