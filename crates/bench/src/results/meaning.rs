//! The meaning of the words of a table, for a terminal and for a page.

use super::{Row, baseline};
use crate::faces::params::Variant;

/// A word and its explanation.
pub(crate) type Meaning = (String, String);

/// The meaning of a share in a benchmark.
pub(crate) fn share(benchmark: &str) -> &'static str {
    match benchmark {
        "pair" => {
            "one epoch of two ranks, with messages of the size in the row's name. both: both ranks put at once. \
             ping: they put by turns, and the time is one way. -graph: recorded and replayed"
        }
        "exchange" => {
            "one exchange of messages with all neighbours, without kernels. The rank with most neighbours gives the GB/s"
        }
        _ => {
            "one halo exchange with its kernels: pack the block's surface, exchange it with all neighbours, unpack"
        }
    }
}

/// The variants among the rows, each in one sentence; of Faces and of its exchange alone.
pub(crate) fn variants(rows: &[Row]) -> Vec<Meaning> {
    let all = Variant::ALL.into_iter().chain(Variant::MPI);
    let there = |variant: &Variant| rows.iter().any(|row| row.variant == variant.name());
    all.filter(there)
        .map(|variant| (variant.name().to_owned(), variant.meaning()))
        .collect()
}

/// The columns of the table of these rows, which are medians of so many rounds.
pub(crate) fn columns(rows: &[Row], rounds: &str) -> Vec<Meaning> {
    let alone = rows.iter().all(Row::is_ours);
    let times = match alone {
        true => ("avg, min, max us", "average, fastest and slowest rank"),
        false => (
            "us, min, max",
            "the slowest rank, with its best and worst round",
        ),
    };
    let compare = if alone { "; compare max" } else { "" };
    let mut all = vec![
        (
            times.0,
            format!("time of a share: {}, median of {rounds}{compare}", times.1),
        ),
        (
            "enqueue",
            format!(
                "us to enqueue a share, of the rank that takes longest{}",
                waiting(rows)
            ),
        ),
        (
            "cpu",
            "us of the processor for a share, all threads, of the rank that takes most".into(),
        ),
        (
            "launches",
            "kernels, batches and graphs that a rank enqueues for a share".into(),
        ),
        (
            "verified",
            "ranks whose results were right in every round, of all ranks".into(),
        ),
    ];
    let figure = match baseline(rows) {
        _ if !alone => Some((
            "/ ours",
            "divided by the best row of tidegate that did the same: above 1 is better for tidegate",
        )),
        Some(_) => Some((
            "vs rma",
            "rma's max divided by this row's: above 1 is faster than rma",
        )),
        None if rows.is_empty() => None,
        None => Some((
            "GB/s",
            "bytes that a rank sends in a share, at the pace of the slowest rank",
        )),
    };
    let last = all.len() - 1;
    all.splice(
        last..last,
        figure.map(|(word, meaning)| (word, meaning.to_owned())),
    );
    let all = all.into_iter();
    all.map(|(word, meaning)| (word.to_owned(), meaning))
        .collect()
}

/// Why the column `enqueue` misleads for some variants; empty if none of them is among the rows.
fn waiting(rows: &[Row]) -> String {
    let there =
        |variant: &Variant| rows.is_empty() || rows.iter().any(|row| row.variant == variant.name());
    let all = Variant::ALL.into_iter().chain(Variant::MPI);
    let names: Vec<_> = all
        .filter(|v| v.host_waits() && there(v))
        .map(Variant::name)
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            ". For {} that is no cost of enqueueing: the host waits in every share, and the time includes it",
            names.join(", ")
        ),
    }
}

/// `1 round`, `5 rounds`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// How many rounds the rows have.
pub(crate) fn rounds(rows: &[Row]) -> String {
    counted(rows.first().map_or(0, |row| row.rounds), "round")
}

/// The fewest rounds whose median drops the one round that was disturbed.
const ROUNDS: usize = 3;

/// That the times are no measurement, if there are too few rounds.
pub(crate) fn few(rows: &[Row]) -> Option<String> {
    let few = rows.iter().any(|row| row.rounds < ROUNDS && !row.failed);
    few.then(|| {
        format!(
            "{} cannot show whether something disturbed the run: these times are a first look, and no measurement. \
             Use --rounds {ROUNDS} or more",
            rounds(rows)
        )
    })
}

/// How ranks share the processors, if there are more ranks than processors.
pub(crate) fn scheduling(ranks: usize, processors: usize) -> Option<String> {
    (ranks > processors).then(|| {
        format!(
            "{} on {}: ranks take turns, so times include scheduling; compare ratios, and expect other times with a \
             processor for each rank",
            counted(ranks, "rank"),
            counted(processors, "processor"),
        )
    })
}

/// The meaning of the words of the table, and a note if ranks share processors: lines to follow the table.
pub fn legend(rows: &[Row], processors: usize) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let mut lines = vec![(
        "a share".to_owned(),
        share(&row.setting.benchmark).to_owned(),
    )];
    lines.extend(variants(rows));
    lines.extend(columns(rows, &rounds(rows)));
    let mut text = lines_of(&lines);
    for note in [few(rows), scheduling(row.setting.ranks, processors)] {
        text.extend(note.map(|note| format!("{note}\n")));
    }
    text
}

/// The meaning of all words of Faces' table, for the help of the command line.
pub fn help() -> String {
    let mut lines = vec![("a share".to_owned(), share("faces").to_owned())];
    lines.extend(columns(&[], "all rounds"));
    lines_of(&lines)
}

fn lines_of(all: &[Meaning]) -> String {
    let lines = all
        .iter()
        .map(|(word, meaning)| format!("{word}: {meaning}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::table::table;
    use crate::results::tests::rows;

    #[test]
    fn ranks_that_share_processors_are_mentioned() {
        let rows = rows();
        assert!(legend(&rows, 2).contains("\n4 ranks on 2 processors: "));
        let enough = legend(&rows, 4);
        assert!(enough.starts_with("a share: "), "{enough}");
        assert!(!enough.contains("processors"), "{enough}");
        assert!(enough.contains("median of 3 rounds"), "{enough}");
        assert!(!enough.contains("no measurement"), "{enough}");
        assert_eq!(legend(&[], 1), "");
    }

    #[test]
    fn few_rounds_are_mentioned() {
        let mut rows = rows();
        for row in &mut rows {
            row.rounds = 1;
        }
        let text = legend(&rows, 4);
        assert!(text.contains("\n1 round cannot show"), "{text}");
    }

    #[test]
    fn waits_of_the_host_are_mentioned() {
        let rows = rows();
        assert!(legend(&rows, 4).contains(". For rma, p2p that is no cost"));
        assert!(!legend(&rows[..2], 4).contains("that is no cost"));
    }

    /// Each column and each variant has its line, and none is of another benchmark.
    #[test]
    fn everything_in_the_table_is_explained() {
        for (benchmark, says, not) in [
            ("pair", "ping: they put by turns", "halo"),
            ("exchange", "without kernels", "ping"),
            ("faces", "with its kernels", "GB/s"),
        ] {
            let mut rows = rows();
            if benchmark != "faces" {
                rows.truncate(2);
            }
            for row in &mut rows {
                row.setting.benchmark = benchmark.to_owned();
            }
            let (text, table) = (legend(&rows, 4), table(&rows));
            assert!(text.contains(says) && !text.contains(not), "{text}");
            let head = table.lines().next().expect("it has a head").to_owned();
            for word in head.split_whitespace().skip(2) {
                assert!(text.contains(word), "{benchmark}: {word} in {text}");
            }
            for row in &rows {
                assert!(text.contains(&format!("\n{}: ", row.variant)), "{text}");
            }
        }
        assert!(help().contains("\nverified: "));
    }
}
