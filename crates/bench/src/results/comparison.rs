//! Rows of this library and of others, side by side.
//!
//! # Model
//!
//! [`comparison`] is one table of all rows, fastest first (for messages between two ranks: by size, then fastest
//! first). Each is divided by the *fastest row of this library* that did the same. Other libraries' programs try their
//! kernels in several launch shapes; of those only the best one is shown ([`shown`]).
//!
//! # Failures
//!
//! Failed rows stand last, with their reason below the table; none is left out.

use super::table::{failures, verified};
use super::{Row, meaning};
use crate::table::Table;
use std::cmp::Ordering;
use std::fmt::Write as _;

/// The fastest of our rows that did the same as `row`; `None` if there is none, or if the row is of something else (the
/// cost of a launch, say).
pub fn rival<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let same = |ours: &&Row| {
        let sized = ours.setting.benchmark == "pair";
        let (ours, theirs) = (&ours.setting, &row.setting);
        match sized {
            true => ours.bytes == theirs.bytes,
            false => ours.benchmark == theirs.benchmark && ours.compute == theirs.compute,
        }
    };
    rows.iter()
        .filter(|row| row.is_ours() && !row.failed && row.us_max.is_some())
        .filter(same)
        .min_by(|a, b| by_time(a, b))
}

/// The rows that are shown: all of ours, and the fastest right one of each family of another library's (rows whose names
/// differ only in numbers of blocks and threads); failed ones last.
pub fn shown(rows: &[Row]) -> Vec<&Row> {
    let mut chosen: Vec<&Row> = Vec::new();
    for row in rows {
        let family = |other: &&mut &Row| {
            !row.is_ours()
                && !row.failed
                && !other.failed
                && other.who == row.who
                && other.setting == row.setting
                && family(&other.variant) == family(&row.variant)
        };
        match chosen.iter_mut().find(family) {
            Some(other) if by_time(row, other) == Ordering::Less => *other = row,
            Some(_) => {}
            None => chosen.push(row),
        }
    }
    // Between two ranks, the cost of bytes stands beside messages of that size.
    let sized = rows.iter().any(|row| row.setting.benchmark == "pair");
    let size = |row: &Row| if sized { row.setting.bytes } else { 0 };
    let apart = |row: &Row| row.setting.benchmark == "floor" && size(row) == 0;
    // The sort is stable: equal rows stay in the order in which they ran.
    chosen.sort_by(|a, b| {
        let key = |row: &Row| (row.failed, apart(row), size(row));
        key(a).cmp(&key(b)).then(by_time(a, b))
    });
    chosen
}

fn by_time(a: &Row, b: &Row) -> Ordering {
    let time = |row: &Row| row.us_max.unwrap_or(f64::INFINITY);
    time(a).total_cmp(&time(b))
}

/// A name without its launch shape: `device, 8 blocks of 512, graph` is `device, graph`.
pub(crate) fn family(name: &str) -> String {
    let is_shape = |part: &&str| {
        let words: Vec<&str> = part.split(' ').collect();
        matches!(words[..], [_, "blocks", "of", _])
    };
    let parts = name.split(", ").filter(|part| !is_shape(part));
    parts.collect::<Vec<_>>().join(", ")
}

/// All rows as one table: the library, the row, the slowest rank's time (the median of the rounds, the best and the worst
/// round), to enqueue it, the processor's, launches, the time divided by our best row's, and how many ranks were right.
pub(crate) fn cells(rows: &[Row], shown: &[&Row]) -> Table {
    let head = [
        "who", "row", "us", "min", "max", "enqueue", "cpu", "launches", "/ ours", "verified",
    ];
    let mut table = Table::new(head, &[0, 1, 9]);
    for row in shown {
        let ratio = rival(rows, row).and_then(|ours| row.ratio_to(ours));
        let mut name = row.variant.clone();
        if row.setting.compute {
            name += ", compute";
        }
        let sized = ["pair", "floor"].contains(&row.setting.benchmark.as_str());
        if !row.is_ours() && sized && row.setting.bytes > 0 {
            name = format!("{name}, {} B", row.setting.bytes);
        }
        let two = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let number = |value: Option<f64>| match value {
            Some(value) if value >= 99.995 => format!("{value:.1}"),
            value => two(value),
        };
        table.row([
            row.who.clone(),
            name,
            number(row.us_max),
            number(row.us_least),
            number(row.us_most),
            number(row.enqueue_us),
            number(row.cpu_us),
            two(row.launches),
            two(ratio),
            verified(row),
        ]);
    }
    table
}

/// The table for a terminal.
pub fn comparison(rows: &[Row]) -> String {
    let shown = shown(rows);
    let mut text = cells(rows, &shown).text();
    for (word, meaning) in meaning::columns(rows, &meaning::rounds(rows)) {
        _ = writeln!(text, "{word}: {meaning}");
    }
    let hidden = rows.len() - shown.len();
    if hidden > 0 {
        _ = writeln!(
            text,
            "left out: {} of rows above",
            meaning::counted(hidden, "slower launch shape")
        );
    }
    text + &failures(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{rows as ours, setting};

    fn theirs(who: &str, variant: &str, us: Option<f64>) -> Row {
        Row {
            who: who.into(),
            us_max: us,
            us_least: us.map(|us| us - 1.0),
            us_most: us.map(|us| us + 1.0),
            failed: us.is_none(),
            failure: us.is_none().then(|| "exit code 3".to_owned()),
            verified: 4 * usize::from(us.is_some()),
            ..Row::new(variant, setting(4), &[])
        }
    }

    #[test]
    fn looks_like_this() {
        let mut rows = ours();
        rows.truncate(2);
        rows.push(theirs("nccl", "device, 8 blocks of 512, graph", Some(60.5)));
        rows.push(theirs(
            "nccl",
            "device, 16 blocks of 512, graph",
            Some(44.0),
        ));
        rows.push(theirs("nccl", "device, 16 blocks of 512", Some(110.0)));
        rows.push(theirs("mpi", "(mpi-share)", None));
        let text = comparison(&rows);
        let expected = "\
who       row                                 us    min    max  enqueue    cpu  launches  / ours  verified
------------------------------------------------------------------------------------------------------------
nccl      device, 16 blocks of 512, graph  44.00  43.00  45.00        -      -         -    0.80  4/4
tidegate  st-graph                         55.00  49.50  82.50    13.75  110.0      3.00    1.00  4/4
tidegate  st                               64.00  57.60  96.00    16.00  128.0      3.00    1.16  4/4
nccl      device, 16 blocks of 512         110.0  109.0  111.0        -      -         -    2.00  4/4
mpi       (mpi-share)                          -      -      -        -      -         -       -  0/4 FAILED
us, min, max: time of a share: the slowest rank, with its best and worst round, median of 3 rounds
enqueue: us to enqueue a share, of the rank that takes longest
cpu: us of the processor for a share, all threads, of the rank that takes most
launches: kernels, batches and graphs that a rank enqueues for a share
/ ours: divided by the best row of tidegate that did the same: above 1 is better for tidegate
verified: ranks whose results were right in every round, of all ranks
left out: 1 slower launch shape of rows above
FAILED mpi: (mpi-share): exit code 3
";
        assert_eq!(text, expected);
    }

    #[test]
    fn ratios_are_to_what_did_the_same() {
        let mut rows = ours();
        let mut floor = theirs("floor", "launch after launch", Some(4.6));
        floor.setting.benchmark = "floor".into();
        assert!(rival(&rows, &floor).is_none());
        let mut compute = theirs("nccl", "send/recv", Some(30.0));
        compute.setting.compute = true;
        assert!(rival(&rows, &compute).is_none());
        for (row, bytes) in rows.iter_mut().zip([8, 8, 64, 64]) {
            row.setting.benchmark = "pair".into();
            row.setting.bytes = bytes;
        }
        let mut pair = theirs("nccl", "one way", Some(30.0));
        pair.setting.benchmark = "pair".into();
        for (bytes, best) in [(8, Some("st-graph")), (64, Some("rma")), (512, None)] {
            pair.setting.bytes = bytes;
            let found = rival(&rows, &pair).map(|row| row.variant.as_str());
            assert_eq!(found, best);
        }
        // No row is compared with a failed one.
        rows[1].failed = true;
        pair.setting.bytes = 8;
        assert_eq!(rival(&rows, &pair).unwrap().variant, "st");
    }

    #[test]
    fn sizes_stand_together() {
        let sized = |mut row: Row, benchmark: &str, bytes| {
            (row.setting.benchmark, row.setting.bytes) = (benchmark.into(), bytes);
            row
        };
        let [st, graph, ..]: [Row; 4] = ours().try_into().unwrap();
        let rows = [
            sized(theirs("floor", "launch", Some(1.0)), "floor", 0),
            sized(st, "pair", 64),
            sized(graph, "pair", 8),
            sized(theirs("floor", "copy", Some(2.0)), "floor", 64),
        ];
        let order: Vec<_> = shown(&rows).iter().map(|row| &*row.variant).collect();
        assert_eq!(order, ["st-graph", "copy", "st", "launch"]);
    }

    #[test]
    fn families() {
        assert_eq!(
            family("device: stores, exposure, 32 blocks of 1024, graph of 20"),
            "device: stores, exposure, graph of 20"
        );
        assert_eq!(family("send/recv, 32 channels"), "send/recv, 32 channels");
    }
}
