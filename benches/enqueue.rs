//! The cost of one epoch with 26 neighbours for the thread that enqueues it: post, start, 26 puts, complete, wait.
//!
//! Run as a benchmark it prints times, which depend on the machine. Instructions do not, and callgrind counts them:
//!
//! ```text
//! cargo bench --bench enqueue -- --count
//! ```
//!
//! This runs the program under valgrind, once with 1000 epochs and once with 500. The difference, divided by 500, is the
//! number of instructions an epoch. It fails if there are more than the table of [`COUNTS`] allows.
//!
//! With `one` or `one-inline` before the number, the epoch has one put of 8 B, of a rank to itself. Nothing ever waits, so
//! the count is the same each time. On an inline stream the calling thread also does the work of a stream's thread, in the
//! same calls. With `observed`, an observer gets all events. `callgrind_annotate --inclusive=yes` shows the phases.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate::observe::{Event, Observer};

/// A block in three dimensions has as many neighbours.
const NEIGHBOURS: usize = 26;
/// Elements of a put: few, since the stream's thread moves them.
const LEN: usize = 4;
/// Epochs for which the queue has room at one time.
const BURST: usize = 50;

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>);

/// The epoch that is measured. Never inlined, so that callgrind finds it.
#[inline(never)]
fn epoch<'s>(
    s: &Stream<'s>,
    (inbox, outbox): Halves<'s>,
    to: &[Out<u64>],
    src: &Memory<'s>,
) -> Result<Halves<'s>> {
    let exposed = inbox.post(s)?;
    let mut epoch = outbox.start();
    for to in to {
        epoch.put(src, *to)?;
    }
    let outbox = epoch.complete(s)?;
    Ok((exposed.wait(s)?, outbox))
}

type Memory<'s> = Region<u64, On<'s>>;

/// The neighbours' epochs, each with the measured rank alone.
fn answer<'s>(
    s: &Stream<'s>,
    (inbox, outbox): Halves<'s>,
    to: &[Out<u64>],
    src: &Memory<'s>,
) -> Result<Halves<'s>> {
    let exposed = inbox.post(s)?;
    let mut epoch = outbox.start();
    epoch.put(src, to[0])?;
    let outbox = epoch.complete(s)?;
    Ok((exposed.wait(s)?, outbox))
}

fn run(world: &World, epochs: usize) -> Result<Duration> {
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("enqueue");
    let neighbours = match world.rank() {
        0 => 1..NEIGHBOURS + 1,
        _ => 0..1,
    };
    let mut to = Vec::new();
    for rank in neighbours {
        window.slot_from(rank, 0, LEN);
        to.push(window.slot_to(rank, 0));
    }
    let mut halves = window.open(&s)?;
    let src = Region::zeroed(world, LEN)?.on(&s)?;
    let mut spent = Duration::ZERO;
    for _ in 0..epochs.div_ceil(BURST) {
        let begin = Instant::now();
        for _ in 0..BURST {
            halves = match world.rank() {
                0 => epoch(&s, black_box(halves), black_box(&to), black_box(&src))?,
                _ => answer(&s, halves, &to, &src)?,
            };
        }
        spent += begin.elapsed();
        s.synchronize()?;
    }
    Ok(spent)
}

/// One put of 8 B, phase by phase. Never inlined, so that callgrind finds them.
mod one {
    use super::*;

    #[inline(never)]
    fn post<'s>(s: &Stream<'s>, inbox: Inbox<'s, u64>) -> Result<Exposed<'s, u64>> {
        inbox.post(s)
    }

    #[inline(never)]
    fn put<'s, 'b>(
        outbox: Outbox<'s, u64>,
        to: Out<u64>,
        src: &'b Memory<'s>,
    ) -> Result<Access<'s, 'b, u64>> {
        let mut epoch = outbox.start();
        epoch.put(src, to)?;
        Ok(epoch)
    }

    #[inline(never)]
    fn complete<'s>(s: &Stream<'s>, epoch: Access<'s, '_, u64>) -> Result<Outbox<'s, u64>> {
        epoch.complete(s)
    }

    #[inline(never)]
    fn wait<'s>(s: &Stream<'s>, exposed: Exposed<'s, u64>) -> Result<Inbox<'s, u64>> {
        exposed.wait(s)
    }

    #[inline(never)]
    fn epoch<'s>(
        s: &Stream<'s>,
        halves: Halves<'s>,
        to: Out<u64>,
        src: &Memory<'s>,
    ) -> Result<Halves<'s>> {
        let exposed = post(s, halves.0)?;
        let epoch = put(halves.1, to, src)?;
        let outbox = complete(s, epoch)?;
        Ok((wait(s, exposed)?, outbox))
    }

    /// Runs so many epochs, and returns the time to enqueue all of them.
    pub(super) fn run(world: &World, inline: bool, epochs: usize) -> Result<Duration> {
        stream!(let s = if inline { world.inline_stream()? } else { world.stream()? });
        let mut window = SlotWindow::new("one");
        let from = window.slot_from(0, 0, 1);
        let to = window.slot_to(0, 0);
        let mut halves = window.open(&s)?;
        let src = Region::from_slice(world, &[7u64])?.on(&s)?;
        let mut spent = Duration::ZERO;
        for _ in 0..epochs.div_ceil(BURST) {
            let begin = Instant::now();
            for _ in 0..BURST {
                halves = epoch(&s, black_box(halves), to, black_box(&src))?;
            }
            spent += begin.elapsed();
            s.synchronize()?;
        }
        assert_eq!(halves.0.read(&s)?.slot(from), [7]);
        Ok(spent)
    }
}

/// Gets all events, and does nothing with them.
struct Nothing;

impl Observer for Nothing {
    fn event(&self, _: &Event) {}
}

/// What `--count` counts: the arguments, the function, and the most instructions. These are a little more than was
/// measured: how the compiler splits a crate changes the numbers by some percent.
const COUNTS: &[(&str, &str, u64)] = &[
    ("", "enqueue::epoch*", 4_060),
    ("one", ONE, 2_230),
    ("one-inline", ONE, 3_700),
    ("one observed", ONE, 3_800),
    ("one-inline observed", ONE, 6_300),
];

const ONE: &str = "enqueue::one::epoch*";

/// Counts instructions, and says whether there are too many of any.
fn count() -> Result<()> {
    let program = std::env::current_exe().map_err(Error::other)?;
    let collected = |arguments: &str, function: &str, epochs: usize| -> Result<u64> {
        let mut valgrind = Command::new("valgrind");
        let options = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
        valgrind
            .args(options)
            .arg(format!("--toggle-collect={function}"));
        let run = valgrind.arg(&program).args(arguments.split_whitespace());
        let run = run.arg(epochs.to_string()).output().map_err(Error::other)?;
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let number = said.split("Collected :").nth(1);
        let number = number.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number
            .filter(|_| run.status.success())
            .ok_or_else(|| Error::other(said))
    };
    let mut too_many = false;
    for (arguments, function, most) in COUNTS {
        let [many, few] = [1000, 500].map(|epochs| collected(arguments, function, epochs));
        let each = many?.saturating_sub(few?) / 500;
        println!("{each:>6} instructions of {most:>6}: {arguments}");
        too_many |= each > *most || each == 0;
    }
    match too_many {
        true => Err(Error::other("there are too many instructions, or none")),
        false => Ok(()),
    }
}

fn main() -> Result<()> {
    let says = |what: &str| std::env::args().any(|arg| arg == what);
    if says("--count") {
        return count();
    }
    let options = |_| match says("observed") {
        true => WorldOptions::new().observer(Arc::new(Nothing)),
        false => WorldOptions::new(),
    };
    if says("one") || says("one-inline") {
        let epochs = std::env::args().find_map(|arg| arg.parse().ok());
        let epochs: usize = epochs.unwrap_or(20_000);
        let spent = World::local_with(1, options, |world| {
            one::run(&world, says("one-inline"), epochs)
        });
        let spent = spent.into_iter().next().expect("there is a rank 0")?;
        let all = epochs.div_ceil(BURST) * BURST;
        println!(
            "one put of 8 B, {all} epochs: {:.0} ns each",
            spent.as_nanos() as f64 / all as f64
        );
        return Ok(());
    }
    // Cargo passes flags of its own.
    let epochs = std::env::args().find_map(|arg| arg.parse().ok());
    let epochs: usize = epochs.unwrap_or(20_000);
    let spent = World::local_with(NEIGHBOURS + 1, options, |world| run(&world, epochs));
    let epochs = epochs.div_ceil(BURST) * BURST;
    let first = spent.into_iter().next().expect("there is a rank 0")?;
    println!(
        "{NEIGHBOURS} neighbours, {epochs} epochs: {:.0} ns to enqueue one (post, start, puts, complete, wait)",
        first.as_nanos() as f64 / epochs as f64
    );
    Ok(())
}
