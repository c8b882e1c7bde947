//! The figures of a trace, which the summary and the page both show.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::observe::{Operation, WindowId};

use super::job::Job;
use super::late::{self, Cause};
use super::rank::{Done, Rank, Time, Work, short, total};
use super::walk::{Kind, Step, Walk};

/// The figures.
pub(super) struct Tables {
    pub(super) waits: Vec<Waits>,
    /// How long origins waited for exposures, and targets for puts.
    pub(super) late_posts: Count,
    pub(super) late_puts: Count,
    pub(super) causes: Vec<Cause>,
    pub(super) late: Option<Cause>,
    pub(super) path: Vec<Part>,
    pub(super) overlap: Overlap,
    /// Bytes by pair of ranks, from and to.
    pub(super) bytes: BTreeMap<(u32, u32), u64>,
    /// How many epochs have ended at a target.
    pub(super) epochs: usize,
}

/// The waits of one rank for another.
pub(super) struct Waits {
    pub(super) rank: usize,
    pub(super) peer: u32,
    pub(super) time: Time,
    pub(super) count: usize,
    /// Where it waited longest: what for, and the line of the program.
    pub(super) place: String,
    pub(super) site: String,
}

/// How many waits there were, how many found no signal yet, and how long these took.
#[derive(Default)]
pub(super) struct Count {
    pub(super) all: usize,
    pub(super) late: usize,
    pub(super) time: Time,
}

/// A part of the critical path.
pub(super) struct Part {
    pub(super) what: String,
    pub(super) time: Time,
    /// How much of it was on each rank.
    pub(super) of_rank: BTreeMap<u32, Time>,
}

/// How much of the communication was behind kernels.
#[derive(Default)]
pub(super) struct Overlap {
    /// Epochs were open, and a kernel ran.
    pub(super) hidden: Time,
    /// The stream waited.
    pub(super) stalled: Time,
    /// Whether the times of kernels are inferred.
    pub(super) inferred: bool,
}

impl Tables {
    pub(super) fn of(job: &Job) -> Self {
        let causes = late::causes(job);
        let mut late_posts = Count::default();
        let mut late_puts = Count::default();
        let mut bytes = BTreeMap::new();
        for (at, batch, leg) in job.legs() {
            let part = Rank::part(batch, leg);
            let rank = job.number(at.rank);
            if let Some(awaits) = part.awaits {
                match awaits.operation {
                    Operation::Post => late_posts.add(job, leg),
                    Operation::Complete => late_puts.add(job, leg),
                    _ => {}
                }
            }
            if part.bytes > 0 {
                let told = part.tells.first().map(|tells| tells.peer);
                let peer = told.or(part.awaits.map(|awaits| awaits.peer));
                let sum: &mut u64 = bytes.entry((rank, peer.unwrap_or(rank))).or_default();
                *sum = sum.saturating_add(part.bytes);
            }
        }
        Tables {
            waits: waits(job),
            epochs: late_puts.all,
            late_posts,
            late_puts,
            late: late::late(job, &causes),
            causes,
            path: path(job),
            overlap: overlap(job),
            bytes,
        }
    }
}

impl Count {
    fn add(&mut self, job: &Job, leg: &Done) {
        self.all += 1;
        // Without its signal, nobody knows what it waited for.
        let told = leg.signal.map(|at| job.leg(at).1.ended);
        if told.is_some_and(|told| told > leg.begun) {
            self.late += 1;
            self.time = total([self.time, leg.waited()]);
        }
    }
}

/// What a leg waits for, in words.
pub(super) fn awaited(operation: Operation) -> &'static str {
    match operation {
        Operation::Post => "exposure",
        Operation::Complete => "put",
        Operation::Arrive => "arrival",
        Operation::Read => "the NIC",
        Operation::Pull => "read",
        _ => "signal",
    }
}

fn waits(job: &Job) -> Vec<Waits> {
    type Places = HashMap<(Option<WindowId>, Operation, String), Time>;
    let mut pairs: BTreeMap<(usize, u32), (Time, usize, Places)> = BTreeMap::new();
    for (at, batch, leg) in job.legs() {
        let Some(awaits) = Rank::part(batch, leg).awaits else {
            continue;
        };
        if leg.waited() == 0 || awaits.operation == Operation::Read {
            continue;
        }
        let (time, count, places) = pairs.entry((at.rank, awaits.peer)).or_default();
        *time = total([*time, leg.waited()]);
        *count += 1;
        let place = (awaits.window, awaits.operation, batch.site.to_string());
        let there = places.entry(place).or_default();
        *there = total([*there, leg.waited()]);
    }
    let row = |((rank, peer), (time, count, places)): ((usize, u32), (Time, usize, Places))| {
        let longest = places
            .into_iter()
            .max_by_key(|(place, time)| (*time, place.2.clone()));
        let ((window, operation, site), _) = longest?;
        let place = match (operation, job.window(rank, window)) {
            (Operation::Arrive, name) => name,
            (operation, name) => format!("{} of {name}", awaited(operation)),
        };
        Some(Waits {
            rank,
            peer,
            time,
            count,
            place,
            site,
        })
    };
    let mut rows: Vec<_> = pairs.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| -row.time);
    rows
}

/// What a part of a step is, in words, in which the rank could have run.
const LOST: &str = "other threads had the processor";

/// What a step of a way is, in words.
pub(super) fn named(job: &Job, step: &Step) -> String {
    worded(job, step).trim_end().to_owned()
}

fn worded(job: &Job, step: &Step) -> String {
    let item = &job.ranks[step.rank].streams[step.stream].items[step.item];
    let window = |leg: usize| {
        let Work::Batch(batch, legs) = &item.work else {
            return String::new();
        };
        let part = Rank::part(batch, &legs[leg]);
        let tells = part.tells.first().map(|tells| tells.window);
        let window = part.awaits.map(|awaits| awaits.window).or(tells);
        job.window(step.rank, window.flatten())
    };
    match step.kind {
        Kind::Kernel => format!("kernel {}", item.work.name()),
        Kind::Move(leg) => match (item.work.name(), window(leg)) {
            // The name of a barrier has the word already.
            (call, window) if window.starts_with(&call) => window,
            (call, window) => format!("{call} {window}"),
        },
        Kind::Wake(_) => "signals on their way".to_owned(),
        Kind::Wait(_) => "waits for what is not in the trace".to_owned(),
        Kind::Return => "programs that return from synchronize".to_owned(),
        Kind::Program => "nothing enqueued".to_owned(),
        Kind::Start => "streams that begin their work".to_owned(),
    }
}

/// The critical path: the way back from the work that ended last.
fn path(job: &Job) -> Vec<Part> {
    let Some((last, _)) = job.items().max_by_key(|(_, item)| item.ended) else {
        return Vec::new();
    };
    let mut parts: HashMap<String, Part> = HashMap::new();
    for step in Walk::from_item(job, last) {
        let long = step.ended - step.begun;
        let lost = (LOST.to_owned(), step.lost);
        for (what, time) in [(named(job, &step), long - step.lost), lost] {
            if time > 0 {
                let part = parts.entry(what.clone()).or_insert(Part {
                    what,
                    time: 0,
                    of_rank: BTreeMap::new(),
                });
                part.time = total([part.time, time]);
                let there = part.of_rank.entry(job.number(step.rank)).or_default();
                *there = total([*there, time]);
            }
        }
    }
    let mut parts: Vec<_> = parts.into_values().collect();
    parts.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.what.cmp(&b.what)));
    parts
}

fn overlap(job: &Job) -> Overlap {
    let mut sum = Overlap::default();
    for rank in &job.ranks {
        sum.inferred |= rank.infers_kernels();
        let items = rank.streams.iter().flat_map(|stream| &stream.items);
        let mut items: Vec<_> = items.collect();
        items.sort_by_key(|item| item.begun);
        let (mut open, mut kernels, mut stalls) = (Vec::new(), Vec::new(), Vec::new());
        // When the rank last told its peers something about a window.
        let mut told: HashMap<Option<WindowId>, Time> = HashMap::new();
        for item in items {
            let Work::Batch(batch, legs) = &item.work else {
                kernels.push((item.begun, item.ended));
                continue;
            };
            for leg in legs {
                let part = Rank::part(batch, leg);
                if let Some(awaits) = part.awaits {
                    stalls.push((leg.begun, leg.satisfied));
                    if awaits.operation == Operation::Complete {
                        open.extend(told.get(&awaits.window).map(|told| (*told, leg.begun)));
                    }
                }
            }
            for leg in legs {
                for tells in &Rank::part(batch, leg).tells {
                    told.insert(tells.window, leg.ended);
                }
            }
        }
        let (open, kernels) = (union(open), union(kernels));
        sum.hidden = total([sum.hidden, both(&open, &kernels)]);
        sum.stalled = total([sum.stalled, length(&union(stalls))]);
    }
    sum
}

type Spans = Vec<(Time, Time)>;

/// Spans in order, and apart from each other.
fn union(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut joined: Spans = Vec::new();
    for (begun, ended) in spans {
        match joined.last_mut() {
            Some(last) if begun <= last.1 => last.1 = last.1.max(ended),
            _ if begun < ended => joined.push((begun, ended)),
            _ => {}
        }
    }
    joined
}

fn length(spans: &Spans) -> Time {
    spans.iter().map(|(begun, ended)| ended - begun).sum()
}

/// How long two unions overlap.
fn both(one: &Spans, other: &Spans) -> Time {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        sum += (a.1.min(b.1) - a.0.max(b.0)).max(0);
        if a.1 < b.1 { i += 1 } else { j += 1 }
    }
    sum
}

/// What a late rank did, in words.
pub(super) fn reason(job: &Job, cause: &Cause) -> String {
    let step = &cause.step;
    let item = &job.ranks[step.rank].streams[step.stream].items[step.item];
    match (&item.work, step.kind) {
        (Work::Kernel(name), Kind::Kernel) => {
            format!("its kernel {} ran ({})", short(name), item.site)
        }
        (_, Kind::Kernel) => format!("{} ran ({}), at most", item.work.name(), item.site),
        _ => format!(
            "its program had enqueued nothing; {} was the next ({})",
            item.work.name(),
            item.site
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_and_compared() {
        let one = union(vec![(5, 9), (0, 3), (2, 4), (7, 7)]);
        assert_eq!(one, [(0, 4), (5, 9)]);
        assert_eq!(length(&one), 8);
        assert_eq!(both(&one, &union(vec![(3, 6), (8, 20)])), 1 + 1 + 1);
    }
}
