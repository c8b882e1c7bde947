//! Puts from inside kernels of GPUs, as NVSHMEM's performance tests measure them: `cargo bench --bench inside`.
//!
//! Two ranks, as threads, on two GPUs if there are two. A thread, a warp or a block puts 8 B to 4 MiB, again and again in
//! one launch. Columns: what is measured, by which scope, bytes, microseconds (the median of the rounds), GB/s (10^9
//! bytes), and the multiprocessors that take part. All that comes is compared with what was sent.
//!
//! - *put, quiet*: one unit puts, and waits until the bytes have left
//! - *put after put*: all units of the blocks put their parts, and wait once at the end
//! - *p*: each thread puts words, one after the other
//! - *epoch, one way*: a kernel puts and completes the target, whose stream waits, and then does the same; replayed from
//!   a recording. No kernel waits for a peer, so this contains launches.
//! - *owned, one way*: the same in one kernel of each rank, which owns the halves of the window: it puts, completes,
//!   and waits for the answer
//!
//! `cargo bench --bench inside -- 8,4096` measures only these sizes. The variable `ROUNDS` is how often each is measured.

use std::time::Instant;

use tidegate::cuda::prelude::*;
use tidegate::kernel::Grid;

tidegate::kernel! {
    /// Kernels that put.
    ///
    /// # Safety
    ///
    /// The module is `bench.cu`, whose kernels keep the contract of `tidegate.cuh`.
    unsafe struct Kernels {
        fn puts = "bench_puts"(out: OutSlots<u64>, to: Out<u64>, x: &[u64], unit: u32, turns: u64, quiet: u32);
        fn values = "bench_values"(out: OutSlots<u64>, to: Out<u64>, x: &[u64], turns: u64);
        fn pass = "bench_pass"(out: LastSlots<u64>, to: Out<u64>, x: &[u64]);
        fn owned = "bench_owned"(inbox: KernelInbox<u64>, outbox: KernelOutbox<u64>, from: In<u64>, to: Out<u64>, x: &[u64], turns: u64, theirs: u64, errors: &mut [u64], second: u32);
        fn gather = "bench_gather"(slots: Slots<u64>, to: &mut [u64]);
    }
}

/// Threads of a block.
const BLOCK: u32 = 512;
const SIZES: [usize; 8] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];
const SCOPES: [&str; 3] = ["thread", "warp", "block"];

/// What is measured.
#[derive(Clone, Copy)]
enum What {
    /// The scope, and how many threads there are.
    Latency(u32),
    /// The scope, and how many blocks there are.
    Bandwidth(u32, u32),
    /// How many blocks there are.
    Values(u32),
}

/// How often a launch puts: so often that the launch counts for little.
fn turns(what: What, bytes: usize) -> u64 {
    let turns = ((64 << 20) / bytes).clamp(16, 8000) as u64;
    match what {
        // A thread alone is slow.
        What::Latency(0) => turns.min(if bytes <= 4096 { 8000 } else { 16 }),
        _ => turns,
    }
}

fn grid(blocks: u32, threads: u32) -> Grid {
    Grid {
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        shared: 0,
    }
}

struct Rank<'k> {
    kernels: &'k Kernels<Gpu>,
    rank: usize,
    rounds: usize,
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn row(what: &str, scope: &str, bytes: usize, us: f64, blocks: u32) {
    let gbps = bytes as f64 / us * 1e-3;
    println!("{what:<18} {scope:<7} {bytes:>8} {us:>11.3} {gbps:>9.2} {blocks:>4}");
}

impl Rank<'_> {
    fn launch<'s>(
        &self,
        s: &Stream<'s>,
        opened: &mut Opened<'s, u64>,
        to: Out<u64>,
        x: &Region<u64, On<'s>>,
        (what, turns): (What, u64),
    ) -> Result<()> {
        let k = self.kernels;
        match what {
            What::Latency(unit) => {
                let threads = [1, 32, BLOCK][unit as usize];
                let over = k.puts.over(grid(1, threads));
                s.launch(over, (opened.slots(), to, x, unit, turns, 1u32))
            }
            What::Bandwidth(unit, blocks) => {
                let over = k.puts.over(grid(blocks, BLOCK));
                s.launch(over, (opened.slots(), to, x, unit, turns, 0u32))
            }
            What::Values(blocks) => {
                let over = k.values.over(grid(blocks, BLOCK));
                s.launch(over, (opened.slots(), to, x, turns))
            }
        }
    }
}

/// The words that a rank sends in a round.
fn words(rank: usize, round: usize, count: usize) -> Vec<u64> {
    let first = (1 + rank + 2 * round) as u64 * 0x9e37_79b9_7f4a_7c15;
    (0..count as u64)
        .map(|i| first ^ i.rotate_left(17))
        .collect()
}

/// All measurements of one size.
fn size(r: &Rank<'_>, world: &World, bytes: usize) -> Result<()> {
    let mut all: Vec<_> = (0..3).map(What::Latency).collect();
    for blocks in [1, 8, 32] {
        all.extend((0..3).map(|unit| What::Bandwidth(unit, blocks)));
        all.push(What::Values(blocks));
    }
    for what in all {
        let us = measure(r, world, what, bytes)?;
        if r.rank == 0 {
            match what {
                What::Latency(unit) => row("put, quiet", SCOPES[unit as usize], bytes, us, 1),
                What::Bandwidth(unit, blocks) => {
                    row("put after put", SCOPES[unit as usize], bytes, us, blocks);
                }
                What::Values(blocks) => row("p", "thread", bytes, us, blocks),
            }
        }
    }
    let us = pass(world, r, bytes)?;
    if r.rank == 0 {
        row("epoch, one way", "block", bytes, us, 1);
    }
    for (threads, scope) in [1, 32, BLOCK].into_iter().zip(SCOPES) {
        let us = owned(r, world, threads, bytes)?;
        if r.rank == 0 {
            row("owned, one way", scope, bytes, us, 1);
        }
    }
    Ok(())
}

/// Rank 0 puts, and rank 1 compares. Returns the microseconds of a turn.
fn measure(r: &Rank<'_>, world: &World, what: What, bytes: usize) -> Result<f64> {
    stream!(let s = world.stream()?);
    let (count, peer) = (bytes / 8, 1 - r.rank);
    let mut window = SlotWindow::<u64>::new("inside");
    window.slot_from(peer, 0, count);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut times = Vec::new();
    let turns = turns(what, bytes);
    for round in 0..=r.rounds {
        let x = Region::from_slice(world, &words(r.rank, round, count))?.on(&s)?;
        let exposed = inbox.post(&s)?;
        let mut opened = outbox.open(&s)?;
        s.synchronize()?;
        if r.rank == 0 {
            let begin = Instant::now();
            r.launch(&s, &mut opened, to, &x, (what, turns))?;
            s.synchronize()?;
            times.push(begin.elapsed().as_secs_f64() * 1e6 / turns as f64);
        }
        outbox = opened.complete(&s)?;
        inbox = exposed.wait(&s)?;
        if r.rank == 1 {
            compare(r, &s, &inbox, &words(0, round, count))?;
        }
        world.all_gather("round", Vec::new())?;
    }
    // The first round is slower.
    Ok(if r.rank == 0 {
        median(times.split_off(1))
    } else {
        0.0
    })
}

/// One kernel of each rank makes all epochs, and looks at the last word of each. Returns the microseconds of one way.
fn owned(r: &Rank<'_>, world: &World, threads: u32, bytes: usize) -> Result<f64> {
    stream!(let s = world.stream()?);
    let (count, peer) = (bytes / 8, 1 - r.rank);
    let mut window = SlotWindow::<u64>::new("owned").for_kernels();
    let from = window.slot_from(peer, 0, count);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut times = Vec::new();
    let turns = turns(What::Latency(threads / 32), bytes);
    for round in 0..=r.rounds {
        let x = Region::from_slice(world, &words(r.rank, round, count))?.on(&s)?;
        let mut errors = Region::zeroed(world, 1)?.on(&s)?;
        let mut theirs = words(peer, round, count);
        let last = theirs.last_mut().expect("there is a word");
        s.synchronize()?;
        world.all_gather("round", Vec::new())?;
        let begin = Instant::now();
        let over = r.kernels.owned.over(grid(1, threads));
        let (lent, outlet, second) = (inbox.lend(), outbox.lend(), r.rank as u32);
        let arguments = (
            lent,
            outlet,
            from,
            to,
            &x,
            turns,
            *last,
            &mut errors,
            second,
        );
        s.launch(over, arguments)?;
        s.synchronize()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6 / (2 * turns) as f64);
        assert!(errors.to_vec(&s)? == [0], "another turn's word has come");
        *last = last.wrapping_add(turns - 1);
        compare(r, &s, &inbox, &theirs)?;
    }
    Ok(median(times.split_off(1)))
}

/// What has come must be these words.
fn compare<'s>(r: &Rank<'_>, s: &Stream<'s>, inbox: &Inbox<'s, u64>, words: &[u64]) -> Result<()> {
    let mut seen = Region::zeroed(s.world(), words.len())?.on(s)?;
    let over = r.kernels.gather.threads(words.len(), 256);
    s.launch(over, (inbox.view(), &mut seen))?;
    assert!(seen.to_vec(s)? == words, "other words have come");
    Ok(())
}

#[derive(Carry)]
struct Halves<'s> {
    x: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
}

/// An epoch of both ranks, one after the other.
fn turn<'s>(r: &Rank<'_>, s: &Stream<'s>, to: Out<u64>, mut h: Halves<'s>) -> Result<Halves<'s>> {
    let put = |outbox: Outbox<'s, u64>| -> Result<_> {
        let opened = outbox.open(s)?;
        let over = r.kernels.pass.over(grid(1, BLOCK));
        s.launch(over, (opened.last(1 - r.rank)?, to, &h.x))?;
        opened.complete(s)
    };
    let exposed = h.inbox.post(s)?;
    if r.rank == 0 {
        h.outbox = put(h.outbox)?;
        h.inbox = exposed.wait(s)?;
    } else {
        h.inbox = exposed.wait(s)?;
        h.outbox = put(h.outbox)?;
    }
    Ok(h)
}

/// Returns the microseconds of an epoch, one way.
fn pass(world: &World, r: &Rank<'_>, bytes: usize) -> Result<f64> {
    const TURNS: usize = 20;
    stream!(let s = world.stream()?);
    let (count, peer) = (bytes / 8, 1 - r.rank);
    let mut window = SlotWindow::<u64>::new("pass");
    window.slot_from(peer, 0, count);
    let to = window.slot_to(peer, 0);
    let (inbox, outbox) = window.open(&s)?;
    let x = Region::from_slice(world, &words(r.rank, 0, count))?.on(&s)?;
    let mut h = turn(r, &s, to, Halves { x, inbox, outbox })?;
    let (graph, back) = s.capture(h, |s, h| (0..TURNS).try_fold(h, |h, _| turn(r, s, to, h)))?;
    h = back;
    let mut times = Vec::new();
    let replays = if bytes > 1 << 18 { 5 } else { 50 };
    for _ in 0..=r.rounds {
        s.synchronize()?;
        world.all_gather("begin", Vec::new())?;
        let begin = Instant::now();
        h = graph.replay(&s, h, replays)?;
        s.synchronize()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6 / (2 * TURNS * replays) as f64);
    }
    compare(r, &s, &h.inbox, &words(peer, 0, count))?;
    Ok(median(times.split_off(1)))
}

fn rank(world: World) -> Result<()> {
    let module = Module::load(&world, tidegate_kernels::BENCH)?;
    // SAFETY: the module is `bench.cu`.
    let kernels = unsafe { Kernels::bind(&module) }?;
    world.all_gather("loaded", Vec::new())?;
    let sizes: Vec<usize> = match std::env::args().skip(1).find(|arg| !arg.starts_with("--")) {
        Some(chosen) => chosen
            .split(',')
            .filter_map(|size| size.parse().ok())
            .collect(),
        None => SIZES.to_vec(),
    };
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    let r = Rank {
        kernels: &kernels,
        rank: world.rank(),
        rounds: rounds.unwrap_or(7),
    };
    sizes.iter().try_for_each(|bytes| size(&r, &world, *bytes))
}

fn main() -> Result<()> {
    println!("what               scope      bytes          us      GB/s  SMs");
    World::local(2, rank).into_iter().collect()
}
