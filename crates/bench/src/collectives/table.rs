//! The tables: all rows of a collective, and the ratios of all.

use super::args::{By, NUMBER};
use super::kind::Kind;
use crate::results::stats::median;
use crate::table::Table;

/// The times of one way, and of one size.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) by: By,
    /// The transport of this library's ways, or the other library.
    pub(super) over: String,
    pub(super) ranks: usize,
    pub(super) count: usize,
    pub(super) calls: u64,
    /// Microseconds of a call on the slowest rank, one for each round.
    pub(super) us: Vec<f64>,
    /// The blocks of the widest kernel of a call, on the rank with the most; `None` where there are no such kernels, or
    /// where nobody can tell.
    pub(super) blocks: Option<usize>,
    /// The most bytes that a rank sends in a call, if they are known.
    pub(super) sent: Option<u64>,
}

/// What a rank has measured in a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// How long all calls of the round took, together.
    pub(super) seconds: f64,
    pub(super) blocks: Option<usize>,
}

impl Row {
    fn median(&self) -> f64 {
        median(&mut self.us.clone()).expect("there is a round")
    }

    fn least(&self) -> f64 {
        self.us.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// GB in a second, as nccl-tests has them: by the algorithm, and on the bus.
    fn bandwidths(&self) -> [f64; 2] {
        let (bytes, factor) = self.kind.bytes(self.ranks, self.count * NUMBER);
        let bandwidth = bytes as f64 / self.median() / 1e3;
        [bandwidth, bandwidth * factor]
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let [algbw, busbw] = self.bandwidths();
        serde_json::json!({
            "collective": self.kind.name(), "way": self.by.name(), "over": self.over, "ranks": self.ranks,
            "bytes": self.count * NUMBER, "calls": self.calls, "us": self.median(), "least": self.least(),
            "rounds": self.us, "algbw": algbw, "busbw": busbw, "sent": self.sent, "blocks": self.blocks,
        })
    }
}

/// The best time of the other libraries for the same, by a measure.
///
/// Recorded calls are compared with recorded calls, if the others have such.
fn theirs(rows: &[Row], ours: &Row, measure: fn(&Row) -> f64) -> Option<f64> {
    let others = rows.iter().filter(|row| !row.by.is_ours());
    let same = others.filter(|row| row.kind == ours.kind && row.count == ours.count);
    let alike = |row: &&Row| row.by.is_graph() == ours.by.is_graph();
    let best = |least: Option<f64>, row: &Row| {
        let time = measure(row);
        Some(least.map_or(time, |least| least.min(time)))
    };
    let found = same.clone().filter(alike).fold(None, best);
    found.or_else(|| same.fold(None, best))
}

fn ratio(rows: &[Row], ours: &Row, measure: fn(&Row) -> f64) -> Option<f64> {
    let ours_is = measure(ours);
    ours.by
        .is_ours()
        .then(|| theirs(rows, ours, measure))?
        .map(|theirs| theirs / ours_is)
}

/// All rows of one collective, under a head.
pub(super) fn block(kind: Kind, device: &str, rows: &[Row]) -> String {
    let ranks = rows.first().map_or(0, |row| row.ranks);
    let mut table = Table::new(
        [
            "size",
            "way",
            "over",
            "us",
            "least",
            "algbw",
            "busbw",
            "sent",
            "blocks",
            "theirs / ours",
        ],
        &[1, 2],
    );
    for row in rows.iter().filter(|row| row.kind == kind) {
        let [algbw, busbw] = row.bandwidths();
        table.row([
            (row.count * NUMBER).to_string(),
            row.by.name(),
            row.over.clone(),
            format!("{:.2}", row.median()),
            format!("{:.2}", row.least()),
            format!("{algbw:.2}"),
            format!("{busbw:.2}"),
            row.sent.map_or("-".into(), |bytes| bytes.to_string()),
            row.blocks.map_or("-".into(), |blocks| blocks.to_string()),
            ratio(rows, row, Row::median).map_or(String::new(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    format!(
        "# {}: {ranks} ranks, {device}; bytes, us of the slowest rank, GB/s\n{}\n",
        kind.name(),
        table.text()
    )
}

/// The size as people say it.
fn size(bytes: usize) -> String {
    match bytes {
        0 => "-".into(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Times and ratios of all collectives, in one table. A cell is our time and, by medians and by least times, theirs /
/// ours.
pub(super) fn ratios(rows: &[Row]) -> String {
    let mut table = Table::new(
        [
            "collective",
            "size",
            "way",
            "over",
            "us",
            "theirs",
            "theirs / ours",
            "by least",
        ],
        &[0, 2, 3],
    );
    for row in rows.iter().filter(|row| row.by.is_ours()) {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        table.row([
            row.kind.name(),
            size(row.count * NUMBER),
            row.by.name(),
            row.over.clone(),
            number(Some(row.median())),
            number(theirs(rows, row, Row::median)),
            number(ratio(rows, row, Row::median)),
            number(ratio(rows, row, Row::least)),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_recorded_calls_if_both_have_them() {
        let row = |by, us: [f64; 3]| Row {
            kind: Kind::AllReduce,
            by,
            over: "x".into(),
            ranks: 4,
            count: 256,
            calls: 10,
            us: us.to_vec(),
            blocks: Some(3),
            sent: Some(1536),
        };
        let mut rows = vec![
            row(By::St, [2.0, 4.0, 3.0]),
            row(By::StGraph, [2.0, 1.0, 1.5]),
            row(By::Mpi, [6.0, 5.0, 9.0]),
        ];
        let of = |rows: &[Row], at: usize| {
            let both = [Row::median, Row::least].map(|by| ratio(rows, &rows[at], by));
            both.map(Option::unwrap)
        };
        assert_eq!((of(&rows, 0), of(&rows, 1)), ([2.0, 2.5], [4.0, 5.0]));
        assert_eq!(ratio(&rows, &rows[2], Row::least), None);
        rows.push(row(By::NcclGraph, [3.0; 3]));
        assert_eq!((of(&rows, 0), of(&rows, 1)), ([2.0, 2.5], [2.0, 3.0]));
        assert_eq!(rows[0].bandwidths(), [1.024 / 3.0, 1.024 / 3.0 * 1.5]);
        let text = block(Kind::AllReduce, "host", &rows);
        let line = text.lines().find(|line| line.contains("1024  st "));
        let cells: Vec<_> = line.unwrap().split_whitespace().collect();
        // Size, way, over, us, least, both bandwidths, bytes sent, blocks, ratio.
        let expected = [
            "1024", "st", "x", "3.00", "2.00", "0.34", "0.51", "1536", "3", "2.00",
        ];
        assert_eq!(cells, expected);
        assert_eq!(rows[0].json()["blocks"], 3);
        assert_eq!(ratios(&rows).lines().count(), 4);
        assert_eq!(
            [8, 4096, 3 << 20, 0].map(size),
            ["8 B", "4 KiB", "3 MiB", "-"]
        );
    }
}
