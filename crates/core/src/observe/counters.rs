//! Counters of a rank, in the text format of Prometheus.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_hal::ids::WindowId;
use tidegate_hal::stamps::Leg;

use super::Observer;
use super::event::{Event, Operation, Part, RecordedStep};
use super::known::Known;
use crate::ground::lock;

/// The least time between two writes of a file.
const PERIOD: Duration = Duration::from_secs(1);
/// How many pairs of window and peer have counters of their own. The others share one.
const PAIRS: usize = 1000;
/// What stands for a window and a peer that have no counters of their own.
const OTHERS: &str = "(others)";

/// Counts what a rank does, and writes the counts in the text format of Prometheus, version 0.0.4. Make one for each
/// rank: events of several ranks would be mixed.
///
/// With the variable `TIDEGATE_METRICS`, each rank of a job writes them to a file about every second, for the textfile
/// collector of `node_exporter`. `tidegate::guide::observe` lists all counters.
///
/// A thousand pairs of a window's name and a peer have counters of their own. All others are counted together, as window
/// `(others)`. So the number of lines has a limit, whatever the program does.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tidegate::host::prelude::*;
/// use tidegate::observe::Counters;
/// use tidegate::WorldOptions;
///
/// let counters = Arc::new(Counters::new());
/// World::local_with(1, |_| WorldOptions::new().observer(counters.clone()), |world| {
///     stream!(let s = world.stream().unwrap());
///     let mut x = Region::<f64>::zeroed(&world, 1).unwrap().on(&s).unwrap();
///     s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x).unwrap();
///     s.synchronize().unwrap();
/// });
/// assert!(counters.render().contains("\ntidegate_kernels_total{rank=\"0\"} 1\n"));
/// ```
#[derive(Debug, Default)]
pub struct Counters {
    folder: Option<PathBuf>,
    counted: Mutex<Counted>,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Counted {
    known: Known,
    pairs: BTreeMap<Pair, Epochs>,
    kernels: u64,
    replays: u64,
    /// Of each stream, how many stamps it has dropped.
    dropped: HashMap<u32, u64>,
    failures: u64,
    revoked: BTreeSet<WindowId>,
    ended: BTreeSet<u32>,
    left: bool,
}

/// A window, by its name, and a peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    window: Arc<str>,
    /// `None` for all that have no counters of their own.
    peer: Option<u32>,
}

/// What has happened between this rank and a peer by a window.
#[derive(Clone, Copy, Debug, Default)]
struct Epochs {
    as_origin: u64,
    as_target: u64,
    bytes: u64,
    /// For each of [`OPERATIONS`] how many waits, and how many nanoseconds.
    waits: [(u64, u64); OPERATIONS.len()],
}

/// What a stream can wait for, as a label.
const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Post, "post"),
    (Operation::Complete, "complete"),
    (Operation::Arrive, "arrive"),
    (Operation::Read, "read"),
    (Operation::Pull, "pull"),
];

#[derive(Debug, Default)]
struct Written {
    last: Option<Instant>,
    /// It could not write, which it has said.
    failed: bool,
}

impl Counters {
    /// Makes counters that write no file. The program takes the text when it likes, by [`Counters::render`].
    pub fn new() -> Self {
        Counters::default()
    }

    /// Makes counters that write to a file in a folder about every second: `tidegate-rank-0.prom`, and so on. The file
    /// is replaced as a whole, so a reader never sees a part. After the end of the rank, the file stays.
    ///
    /// # Errors
    ///
    /// If there is no such folder, and it cannot be made.
    pub fn written_to(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Counters {
            folder: Some(folder),
            ..Counters::default()
        })
    }

    /// The counts, in the text format. An HTTP server returns it as `text/plain; version=0.0.4`.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // A string takes all that is written.
        let _ = lock(&self.counted).render(&mut text);
        text
    }

    fn write(&self, folder: &Path, written: &mut Written) -> io::Result<()> {
        let Some(rank) = lock(&self.counted).known.joined().map(|joined| joined.rank) else {
            return Ok(());
        };
        written.last = Some(Instant::now());
        // The collector reads files whose names end in `.prom` only.
        let new = folder.join(format!("tidegate-rank-{rank}.new"));
        fs::write(&new, self.render())?;
        fs::rename(new, folder.join(format!("tidegate-rank-{rank}.prom")))
    }
}

impl Observer for Counters {
    fn event(&self, event: &Event) {
        lock(&self.counted).count(event);
    }

    fn flush(&self) {
        let Some(folder) = &self.folder else { return };
        let mut written = lock(&self.written);
        let due = written.last.is_none_or(|last| last.elapsed() >= PERIOD);
        if written.failed || !due && !lock(&self.counted).left {
            return;
        }
        if let Err(error) = self.write(folder, &mut written) {
            written.failed = true;
            let folder = folder.display();
            let text = format!("no more counters are written to {folder}: {error}");
            tidegate_hal::say!(text, io::stderr());
        }
    }
}

impl Counted {
    fn count(&mut self, event: &Event) {
        self.known.learn(event);
        match event {
            Event::Launched { .. } => self.kernels += 1,
            Event::Replayed {
                recording, times, ..
            } => {
                self.replays += times;
                let recorded = self.known.recording(*recording);
                let steps = recorded.map_or(&[][..], |recorded| &recorded.steps);
                let kernels = steps.iter();
                let kernels = kernels.filter(|(_, step)| matches!(step, RecordedStep::Kernel(_)));
                self.kernels += times * kernels.count() as u64;
            }
            Event::Leg { leg, .. } => self.leg(leg),
            Event::Dropped { stream, stamps } => {
                self.dropped.insert(*stream, *stamps);
            }
            Event::Failed { .. } => self.failures += 1,
            Event::Revoked { window, .. } => {
                self.revoked.insert(*window);
            }
            Event::Gone { rank, .. } => {
                self.ended.insert(*rank);
            }
            Event::Left { .. } => self.left = true,
            _ => {}
        }
    }

    fn leg(&mut self, leg: &Leg) {
        let Counted { known, pairs, .. } = self;
        let Some(part) = known.part(leg) else { return };
        let Part { awaits, bytes, .. } = part;
        if let Some(awaits) = awaits {
            let pair = of(pairs, known, awaits.window, awaits.peer);
            pair.as_target += u64::from(awaits.operation == Operation::Complete);
            let at = OPERATIONS
                .iter()
                .position(|(operation, _)| *operation == awaits.operation);
            if let Some(at) = at {
                let (waits, spent) = &mut pair.waits[at];
                *waits += 1;
                *spent += leg.satisfied.saturating_sub(leg.begun);
            }
        }
        if let Some(tells) = part.completes() {
            let pair = of(pairs, known, tells.window, tells.peer);
            pair.as_origin += 1;
            pair.bytes += bytes;
        }
    }

    fn render(&self, text: &mut String) -> fmt::Result {
        let joined = self.known.joined().cloned().unwrap_or_default();
        let rank = joined.rank;
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, Number)]| {
            writeln!(text, "# HELP {name} {help}")?;
            writeln!(text, "# TYPE {name} {kind}")?;
            for (labels, value) in samples {
                writeln!(text, "{name}{{rank=\"{rank}\"{labels}}} {value}")?;
            }
            Ok::<_, fmt::Error>(())
        };
        let about = format!(
            ",ranks=\"{}\",node=\"{}\",host=\"{}\",device=\"{}\"",
            joined.ranks,
            joined.node,
            Escaped(&joined.host),
            Escaped(&joined.device)
        );
        family(
            "tidegate_rank_info",
            "gauge",
            "What a rank is.",
            &[(about, Number::Count(1))],
        )?;
        let mut one = |name: &str, kind: &str, help: &str, count: u64| {
            family(name, kind, help, &[(String::new(), Number::Count(count))])
        };
        one(
            "tidegate_running",
            "gauge",
            "1, and 0 after the rank has left its job.",
            u64::from(!self.left),
        )?;
        let counter = "counter";
        one(
            "tidegate_kernels_total",
            counter,
            "Kernels that the program has enqueued, replays included.",
            self.kernels,
        )?;
        one(
            "tidegate_replays_total",
            counter,
            "Replays of recordings that the program has enqueued.",
            self.replays,
        )?;
        one(
            "tidegate_dropped_stamps_total",
            counter,
            "Stamps that streams have dropped. What they would have told is counted nowhere.",
            self.dropped.values().sum(),
        )?;
        one(
            "tidegate_failures_total",
            counter,
            "Streams that have failed.",
            self.failures,
        )?;
        one(
            "tidegate_revocations_total",
            counter,
            "Windows that were revoked.",
            self.revoked.len() as u64,
        )?;
        one(
            "tidegate_ended_peers_total",
            counter,
            "Other ranks that have left the job, or are lost.",
            self.ended.len() as u64,
        )?;
        let epochs = self.pairs.iter().flat_map(|(pair, epochs)| {
            [("origin", epochs.as_origin), ("target", epochs.as_target)]
                .map(|(side, count)| (format!("{pair},side=\"{side}\""), Number::Count(count)))
        });
        family(
            "tidegate_epochs_total",
            counter,
            "Epochs with a peer that have ended.",
            &epochs.collect::<Vec<_>>(),
        )?;
        let bytes = self.pairs.iter();
        let bytes = bytes.map(|(pair, epochs)| (pair.to_string(), Number::Count(epochs.bytes)));
        family(
            "tidegate_moved_bytes_total",
            counter,
            "Bytes that puts, gets and accumulates of this rank have moved.",
            &bytes.collect::<Vec<_>>(),
        )?;
        let waits = |number: fn((u64, u64)) -> Number| {
            let all = self.pairs.iter().flat_map(move |(pair, epochs)| {
                let each = OPERATIONS.iter().zip(epochs.waits);
                let some = each.filter(|(_, (waits, _))| *waits != 0);
                some.map(move |((_, name), wait)| (format!("{pair},for=\"{name}\""), number(wait)))
            });
            all.collect::<Vec<_>>()
        };
        family(
            "tidegate_waits_total",
            counter,
            "Waits of streams for a peer that have ended.",
            &waits(|(waits, _)| Number::Count(waits)),
        )?;
        family(
            "tidegate_wait_seconds_total",
            counter,
            "How long these waits have lasted.",
            &waits(|(_, spent)| Number::Nanoseconds(spent)),
        )
    }
}

/// The counters of a window and a peer.
fn of<'a>(
    pairs: &'a mut BTreeMap<Pair, Epochs>,
    known: &Known,
    window: Option<WindowId>,
    peer: u32,
) -> &'a mut Epochs {
    let name = window.and_then(|window| known.window(window));
    let pair = Pair {
        window: name.cloned().unwrap_or_default(),
        peer: Some(peer),
    };
    let pair = match pairs.len() < PAIRS || pairs.contains_key(&pair) {
        true => pair,
        false => Pair {
            window: OTHERS.into(),
            peer: None,
        },
    };
    pairs.entry(pair).or_default()
}

/// As labels, behind another one.
impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ",window=\"{}\",peer=\"", Escaped(&self.window))?;
        match self.peer {
            Some(peer) => write!(f, "{peer}\""),
            None => write!(f, "{OTHERS}\""),
        }
    }
}

/// A value of a label, as the format wants it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A value.
enum Number {
    Count(u64),
    /// Written as seconds.
    Nanoseconds(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Count(count) => count.fmt(f),
            Number::Nanoseconds(spent) => {
                const SECOND: u64 = 1_000_000_000;
                write!(f, "{}.{:09}", spent / SECOND, spent % SECOND)
            }
        }
    }
}
