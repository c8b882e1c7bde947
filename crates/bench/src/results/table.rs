//! The rows of this library as a table.

use super::{Row, baseline};
use crate::table::Table;
use std::fmt::Write as _;

/// A time with the digits that matter: single messages take a few microseconds.
pub(crate) fn time(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 9.995 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// `4/4`: how many ranks were right; and whether the row failed.
pub(super) fn verified(row: &Row) -> String {
    let failed = if row.failed { " FAILED" } else { "" };
    format!("{}/{}{failed}", row.verified, row.setting.ranks)
}

/// A line for each failed row, with its reason.
pub(super) fn failures(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.failed) {
        let reason = row.failure.as_deref().unwrap_or("for an unknown reason");
        _ = writeln!(text, "FAILED {}: {reason}", row.name());
    }
    text
}

/// The rows as a table: variant, ranks, microseconds a share (average, fastest and slowest rank; to enqueue it; of the
/// processor), launches, and how many ranks were verified. Before the last column stands how many times as long `rma`
/// took; or, if that was not run, how much a rank sends in a second.
pub(crate) fn cells(rows: &[Row]) -> Table {
    let base = baseline(rows);
    let last = if base.is_some() { "vs rma" } else { "GB/s" };
    let head = [
        "variant",
        "ranks",
        "avg us",
        "min us",
        "max us",
        "enqueue us",
        "cpu us",
        "launches",
        last,
        "verified",
    ];
    let mut table = Table::new(head, &[0, 9]);
    for row in rows {
        let figure = match base {
            Some(base) => base.ratio_to(row),
            None => row.gb_per_s(),
        };
        table.row([
            row.variant.clone(),
            row.setting.ranks.to_string(),
            time(row.us_avg),
            time(row.us_min),
            time(row.us_max),
            time(row.enqueue_us),
            time(row.cpu_us),
            row.launches.map_or("-".into(), |v| format!("{v:.1}")),
            figure.map_or("-".into(), |v| format!("{v:.2}")),
            verified(row),
        ]);
    }
    table
}

/// The table for a terminal of about 100 columns, with the device, and the reasons of failed rows.
pub fn table(rows: &[Row]) -> String {
    let mut text = cells(rows).text();
    if let Some(row) = rows.first() {
        let (device, transport) = (&row.setting.device, &row.setting.transport);
        _ = writeln!(text, "device: {device}, {transport}");
    }
    text + &failures(rows)
}

/// How many times as long as the stream-triggered rows the rows over MPI took; empty if there are none.
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
        let failed = vec![RankSample::failed(2, "timed out")];
        rows.push(Row::new("st strided", setting(4), &[failed]));
        let expected = "\
variant     ranks  avg us  min us  max us  enqueue us  cpu us  launches  vs rma  verified
-------------------------------------------------------------------------------------------
st              4    62.5    61.0    64.0        16.0   128.0       3.0    1.31  4/4
st-graph        4    53.5    52.0    55.0        13.8   110.0       3.0    1.53  4/4
rma             4    82.5    81.0    84.0        21.0   168.0       3.0    1.00  4/4
p2p             4    98.5    97.0   100.0        25.0   200.0       3.0    0.84  4/4
st strided      4       -       -       -           -       -         -       -  0/4 FAILED
device: host, mapped
FAILED st strided: rank 0: did not report
";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn works_without_a_baseline() {
        // 4608 bytes in 64 us.
        let text = table(&rows()[..1]);
        assert!(
            text.contains("GB/s") && text.contains("0.07  4/4"),
            "{text}"
        );
        assert!(table(&[]).contains("variant"));
    }
}
