//! The summary of a trace, for the terminal.

use std::io::{self, Write};

use super::job::Job;
use super::rank::{Rank, Time, total};
use super::tables::{Count, Part, Tables, reason};
use crate::info::table::{self, bytes};

/// How many rows a table has at most.
const ROWS: usize = 6;

/// A time, as people say it.
pub(super) fn time(time: Time) -> String {
    match time {
        10_000_000_000.. => format!("{:.1} s", time as f64 / 1e9),
        1_000_000_000.. => format!("{:.2} s", time as f64 / 1e9),
        10_000_000.. => format!("{:.1} ms", time as f64 / 1e6),
        1_000_000.. => format!("{:.2} ms", time as f64 / 1e6),
        10_000.. => format!("{:.1} us", time as f64 / 1e3),
        _ => format!("{:.2} us", time as f64 / 1e3),
    }
}

/// A number of things. The plural has an s.
pub(super) fn counted(number: usize, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

/// A part of a whole.
pub(super) fn share(part: Time, whole: Time) -> String {
    format!("{:.0}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// The first lines: what was traced, and what is missing.
pub(super) fn head(job: &Job, tables: &Tables) -> Vec<String> {
    let mut windows: Vec<_> = job
        .ranks
        .iter()
        .flat_map(|rank| rank.windows.keys())
        .collect();
    windows.sort();
    windows.dedup();
    let sum = tables.bytes.values().copied().fold(0, u64::saturating_add);
    let mut lines = vec![format!(
        "{} on {}, {}: {}, {}, {}",
        counted(job.size, "rank"),
        counted(job.hosts.len(), "host"),
        time(job.ended),
        counted(windows.len(), "window"),
        counted(tables.epochs, "epoch"),
        bytes(sum)
    )];
    let missing = job.missing();
    if !missing.is_empty() {
        lines.push(format!(
            "There are no files of {}: waits for these ranks have no cause here.",
            ranks(&missing)
        ));
    }
    let cut = job.ranks.iter().filter(|rank| rank.left.is_none());
    let cut: Vec<_> = cut.map(|rank| rank.joined.rank).collect();
    if !cut.is_empty() {
        lines.push(format!("The files of {} end early.", ranks(&cut)));
    }
    if let Some((at, why)) = failure(job) {
        lines.push(format!("First failure, at {}: {why}", time(at)));
    }
    lines
}

/// What failed first.
fn failure(job: &Job) -> Option<(Time, String)> {
    let of = |rank: &Rank| {
        let number = rank.joined.rank;
        let own = rank
            .failures
            .iter()
            .map(move |(at, why)| (*at, format!("rank {number}: {why}")));
        // A rank that has left is gone, too.
        let died = |gone: &&(Time, u32, String)| {
            let there = job.index(gone.1).map(|index| &job.ranks[index]);
            there.is_none_or(|rank| rank.left.is_none())
        };
        let gone = rank
            .gone
            .iter()
            .filter(died)
            .map(|(at, _, why)| (*at, why.clone()));
        own.chain(gone).collect::<Vec<_>>()
    };
    job.ranks.iter().flat_map(of).min()
}

/// `rank 3`, or `ranks 0, 2, 5 and 12 others`.
fn ranks(numbers: &[u32]) -> String {
    let shown: Vec<_> = numbers.iter().take(4).map(u32::to_string).collect();
    match numbers.len() {
        1 => format!("rank {}", numbers[0]),
        2..=4 => format!("ranks {}", shown.join(", ")),
        more => format!("ranks {} and {} others", shown.join(", "), more - 4),
    }
}

/// Which rank is late.
pub(super) fn late(job: &Job, tables: &Tables) -> String {
    match &tables.late {
        Some(cause) => format!(
            "Late: rank {}. Others waited {} for it at {}, while {}.",
            job.number(cause.step.rank),
            time(cause.longest),
            time(cause.step.begun),
            reason(job, cause)
        ),
        None => match tables.causes.first() {
            Some(cause) => format!(
                "Late: no rank stands out. The longest wait for work of another rank took {}.",
                time(cause.longest)
            ),
            None => "Late: no rank.".to_owned(),
        },
    }
}

/// Waits of a kind.
pub(super) fn count(count: &Count, which: &str) -> String {
    format!(
        "{} of {} {which} came late, and were waited for {}",
        count.late,
        count.all,
        time(count.time)
    )
}

/// Where a part of the critical path was.
pub(super) fn places(part: &Part) -> String {
    let most = part.of_rank.iter().max_by_key(|(_, time)| **time);
    match most {
        Some((rank, _)) if part.of_rank.len() == 1 => format!("rank {rank}"),
        Some((rank, most)) => format!(
            "{}, most on rank {rank} ({})",
            counted(part.of_rank.len(), "rank"),
            share(*most, part.time)
        ),
        None => String::new(),
    }
}

/// How much communication was hidden.
pub(super) fn hidden(tables: &Tables) -> String {
    let overlap = &tables.overlap;
    let all = total([overlap.hidden, overlap.stalled]);
    format!(
        "{}{} ({}) behind kernels, while {} stalled streams (sums over the ranks)",
        if overlap.inferred { "at most " } else { "" },
        time(overlap.hidden),
        share(overlap.hidden, all),
        time(overlap.stalled)
    )
}

/// The bound of the clocks.
pub(super) fn clocks(job: &Job) -> String {
    let device = job.ranks.iter().map(|rank| rank.clock_error).max();
    let device = match device {
        Some(error) if error > 0 => {
            format!("; times of GPUs may be off by {}", time(error as Time))
        }
        _ => String::new(),
    };
    let hosts = match (job.clock_error, job.contradiction) {
        (None, _) => "one host, one clock".to_owned(),
        (Some(_), Some(gap)) => format!(
            "the bounds between hosts contradict each other by {}, so a clock was set during the run",
            time(gap)
        ),
        (Some(error), None) => format!("between hosts, times may be off by {}", time(error)),
    };
    let unknown = match job.unknown_hosts {
        0 => String::new(),
        some => format!("; nothing bounds the clock of {}", counted(some, "host")),
    };
    hosts + &unknown + &device
}

/// Stamps that are missing.
pub(super) fn dropped(job: &Job) -> String {
    let of = |rank: &Rank| {
        let dropped = rank.streams.iter().map(|stream| stream.dropped);
        dropped.fold(0, u64::saturating_add)
    };
    let sum = job.ranks.iter().map(of).fold(0, u64::saturating_add);
    let some = job.ranks.iter().filter(|rank| of(rank) > 0);
    match sum {
        0 => "none".to_owned(),
        sum => format!(
            "{sum}, on {}; the figures lack them",
            counted(some.count(), "rank")
        ),
    }
}

/// Writes the summary.
pub(super) fn write(job: &Job, tables: &Tables, out: &mut impl Write) -> io::Result<()> {
    for line in head(job, tables) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}", late(job, tables))?;

    writeln!(
        out,
        "\nWho waited for whom (share of the waiting rank's time):"
    )?;
    let row = |waits: &super::tables::Waits| {
        let rank = &job.ranks[waits.rank];
        [
            format!("rank {} for rank {}", rank.joined.rank, waits.peer),
            time(waits.time),
            share(waits.time, rank.ended() - rank.begun),
            counted(waits.count, "wait"),
            waits.place.clone(),
            waits.site.clone(),
        ]
    };
    let rows: Vec<_> = tables.waits.iter().take(ROWS).map(row).collect();
    table::write(&rows, "  ", out)?;
    if let Some(rest) = tables.waits.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let sum = total(rest.iter().map(|waits| waits.time));
        writeln!(
            out,
            "  ({} more: {})",
            counted(rest.len(), "pair"),
            time(sum)
        )?;
    }

    let length = total(tables.path.iter().map(|part| part.time));
    writeln!(out, "\nCritical path ({}):", time(length))?;
    let row = |part: &Part| {
        [
            share(part.time, length),
            time(part.time),
            part.what.clone(),
            places(part),
        ]
    };
    let rows: Vec<_> = tables.path.iter().take(ROWS).map(row).collect();
    table::write(&rows, "  ", out)?;
    if let Some(rest) = tables.path.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let sum = total(rest.iter().map(|part| part.time));
        writeln!(
            out,
            "  ({} more: {})",
            counted(rest.len(), "part"),
            share(sum, length)
        )?;
    }

    writeln!(out)?;
    table::write(&rest(job, tables), "  ", out)
}

/// What needs no table.
pub(super) fn rest(job: &Job, tables: &Tables) -> Vec<[String; 2]> {
    let mut rows = vec![
        ["posts".to_owned(), count(&tables.late_posts, "exposures")],
        ["puts".to_owned(), count(&tables.late_puts, "puts")],
        ["hidden".to_owned(), hidden(tables)],
    ];
    let mut pairs: Vec<_> = tables.bytes.iter().collect();
    pairs.sort_by_key(|(pair, sum)| (std::cmp::Reverse(**sum), **pair));
    let shown = pairs.iter().take(3);
    let shown = shown.map(|((from, to), sum)| format!("{from} to {to}: {}", bytes(**sum)));
    let mut shown: Vec<_> = shown.collect();
    if pairs.len() > 3 {
        shown.push(format!("{} more", counted(pairs.len() - 3, "pair")));
    }
    if !shown.is_empty() {
        rows.push(["bytes".to_owned(), shown.join("; ")]);
    }
    rows.push(["clocks".to_owned(), clocks(job)]);
    rows.push(["dropped".to_owned(), dropped(job)]);
    rows
}
