//! The table on the terminal.

use super::{Row, Setting, baseline};
use std::fmt::Write;

const COLUMNS: usize = 10;
const LAST: usize = COLUMNS - 1;

/// The rows as a table, for a terminal of about 90 columns: variant, ranks, microseconds per share
/// (average, fastest and slowest rank; to enqueue it; of the processor), launches per share, the slowest
/// rank as a multiple of that of `rma` (or, where that was not run, what a rank sends in a second), and how
/// many ranks were verified. A failed row ends with `FAILED`,
/// and its reason follows below the table.
pub fn table(rows: &[Row]) -> String {
    let base = baseline(rows);
    let last = if base.is_some() { "x rma" } else { "GB/s" };
    let mut lines = vec![
        ["", "", "us per share", "", "", "", "", "", "", ""].map(str::to_owned),
        [
            "variant", "ranks", "avg", "min", "max", "enqueue", "cpu", "launches", last, "verified",
        ]
        .map(str::to_owned),
    ];
    let number = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.1}"));
    // Times of single messages are a few microseconds.
    let time = |v: Option<f64>| match v {
        Some(v) if v < 9.995 => format!("{v:.2}"),
        v => number(v),
    };
    for row in rows {
        let ratio = base.and_then(|b| row.ratio_to(b));
        let verified = format!("{}/{}", row.verified, row.setting.ranks);
        lines.push([
            row.variant.clone(),
            row.setting.ranks.to_string(),
            time(row.us_avg),
            time(row.us_min),
            time(row.us_max),
            time(row.enqueue_us),
            time(row.cpu_us),
            number(row.launches),
            ratio
                .or_else(|| row.gb_per_s().filter(|_| base.is_none()))
                .map_or("-".to_owned(), |r| format!("{r:.2}")),
            if row.failed {
                format!("{verified} FAILED")
            } else {
                verified
            },
        ]);
    }
    let width = |c: usize| {
        lines
            .iter()
            .map(|l| l[c].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(|c| {
        if c == 2 {
            width(3).max(width(4)).max(6)
        } else {
            width(c)
        }
    });
    let mut text = String::new();
    for (k, line) in lines.iter().enumerate() {
        let mut out = format!("{:<w$}", line[0], w = widths[0]);
        for c in 1..COLUMNS {
            // The heading of the group stands above its three columns.
            match (k, c) {
                (0, 2) => {
                    let w = widths[2] + widths[3] + widths[4] + 4;
                    _ = write!(out, "  {:^w$}", line[2]);
                }
                (0, 3 | 4) => {}
                (_, LAST) => _ = write!(out, "  {}", line[c]),
                _ => _ = write!(out, "  {:>w$}", line[c], w = widths[c]),
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
        if k == 1 {
            let rule: usize = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
            text.push_str(&"-".repeat(rule));
            text.push('\n');
        }
    }
    if let Some(row) = rows.first() {
        let Setting {
            device, transport, ..
        } = &row.setting;
        _ = writeln!(text, "device: {device}, {transport}");
    }
    if base.is_some_and(|b| !b.failed) && rows.len() > 1 {
        text.push_str("max is the slowest rank; x rma is max as a multiple of that of rma: below 1 is faster\n");
    }
    for row in rows.iter().filter(|r| r.failed) {
        let reason = row.failure.as_deref().unwrap_or("for an unknown reason");
        _ = writeln!(text, "FAILED {}: {reason}", row.variant);
    }
    text
}

/// What the columns of the table are: lines, whose first says of how many rounds they are the medians.
pub fn meaning(rounds: &str) -> String {
    let share = "a share is one halo exchange with its kernels; st: epochs enqueued on the stream, st-graph: the same, captured; \
                 rma, p2p: the host waits";
    format!("{share}\n{}", columns(rounds))
}

/// As [`meaning`], of the rows of a benchmark that leaves the kernels out: an exchange, or messages of two ranks.
fn meaning_of(benchmark: &str, rounds: &str) -> String {
    let (share, speed) = match benchmark {
        "pair" => (
            "two ranks, messages of the size in the row's name; a share is an epoch: both: both ranks put at once, ping: they \
             put by turns, and it is one way; -graph: captured",
            "GB/s: what a rank sends in a share (all puts of --puts), at the pace of the slowest\n",
        ),
        "exchange" => (
            "a share is one exchange of messages, without kernels; st: epochs enqueued on the stream, st-graph: the same, \
             captured",
            "GB/s: what the rank with most neighbours sends in a share, at the pace of the slowest\n",
        ),
        _ => return meaning(rounds),
    };
    format!("{share}\n{}{speed}", columns(rounds))
}

/// What the columns are that all tables have.
fn columns(rounds: &str) -> String {
    format!(
        "each figure is for one share, and the median of {rounds}; avg, min, max: average, fastest and slowest of the ranks\n\
         of the rank that has most: enqueue: time to enqueue it; cpu: processor time, all threads; launches: kernels, batches, graphs\n\
         verified: the ranks whose results were right in every round, of all ranks\n"
    )
}

/// What the words of the table mean, and whether the ranks had a processor each: lines to follow it.
pub fn legend(rows: &[Row], processors: usize) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let rounds = match row.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let mut text = meaning_of(&row.setting.benchmark, &rounds);
    let ranks = row.setting.ranks;
    if ranks > processors {
        _ = writeln!(
            text,
            "{ranks} ranks on {processors} processors: times show scheduling, too"
        );
    }
    text
}

/// How many times as long as the stream-triggered rows those over MPI took; empty if there are none.
pub fn against_mpi(rows: &[Row]) -> String {
    let mut text = String::new();
    let ours = ["st", "st-graph"];
    for theirs in rows.iter().filter(|row| row.variant.starts_with("mpi-")) {
        for ours in rows.iter().filter(|row| ours.contains(&&*row.variant)) {
            if let Some(ratio) = theirs.ratio_to(ours) {
                _ = writeln!(
                    text,
                    "{} / {}: {ratio:.2} ({})",
                    theirs.variant, ours.variant, theirs.setting.transport
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RankSample;
    use crate::results::tests::{rows, setting};

    #[test]
    fn looks_like_this() {
        let mut rows = rows();
        rows.push(Row::new(
            "st strided",
            setting(4),
            &[vec![RankSample::failed(2, "timed out")]],
        ));
        let text = table(&rows);
        println!("{text}");
        let expected = "                      us per share
variant     ranks     avg   min    max  enqueue    cpu  launches  x rma  verified
-----------------------------------------------------------------------------------
st              4    62.5  61.0   64.0     16.0  128.0       3.0   0.76  4/4
st-graph        4    53.5  52.0   55.0     13.8  110.0       3.0   0.65  4/4
rma             4    82.5  81.0   84.0     21.0  168.0       3.0   1.00  4/4
p2p             4    98.5  97.0  100.0     25.0  200.0       3.0   1.19  4/4
st strided      4       -     -      -        -      -         -      -  0/4 FAILED
device: host, mapped
max is the slowest rank; x rma is max as a multiple of that of rma: below 1 is faster
FAILED st strided: rank 0: did not report
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_legend_says_when_ranks_share_processors() {
        let rows = rows();
        assert!(
            legend(&rows, 2).ends_with("\n4 ranks on 2 processors: times show scheduling, too\n")
        );
        let enough = legend(&rows, 4);
        assert!(
            enough.starts_with("a share is ") && !enough.contains("processors"),
            "{enough}"
        );
        let rounds = rows[0].rounds;
        assert!(
            enough.contains(&format!("the median of {rounds} round")),
            "{enough}"
        );
        assert_eq!(enough.lines().count(), 4, "{enough}");
        assert_eq!(legend(&[], 1), "");
    }

    #[test]
    fn the_legend_is_that_of_what_was_measured() {
        let of = |benchmark: &str| {
            let mut row = rows().remove(0);
            row.setting.benchmark = benchmark.to_owned();
            let rows = [row];
            // Each column has its line.
            let (text, table) = (legend(&rows, 4), table(&rows));
            let heads = table.lines().nth(1).expect("it has a heading").to_owned();
            let known = ["variant", "ranks"];
            let heads = heads
                .split_whitespace()
                .filter(|head| !known.contains(head));
            for head in heads.filter(|head| benchmark != "faces" || *head != "GB/s") {
                assert!(text.contains(head), "{benchmark}: {head} in {text}");
            }
            text
        };
        let pair = of("pair");
        assert!(
            pair.contains("ping: they put by turns") && !pair.contains("halo"),
            "{pair}"
        );
        let exchange = of("exchange");
        assert!(
            exchange.contains("without kernels") && !exchange.contains("ping"),
            "{exchange}"
        );
        assert!(of("faces").contains("with its kernels"));
    }

    #[test]
    fn works_without_a_baseline() {
        let text = table(&rows()[..1]);
        // 4608 bytes in 64 us.
        assert!(text.contains("0.07  4/4"), "{text}");
        assert!(text.contains("4/4") && !text.contains("below 1"), "{text}");
        assert!(table(&[]).contains("variant"));
    }
}
