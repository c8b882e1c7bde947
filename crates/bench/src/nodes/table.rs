//! A line a cell.

use super::cell::{Cell, THROTTLING};
use serde::Serialize;
use std::fmt::Write as _;

/// The columns with times.
const VARIANTS: [&str; 5] = ["st", "st-graph", "st-separate", "rma", "p2p"];
/// The columns with ratios.
const RATIOS: [(&str, &str); 5] = [
    ("rma", "st"),
    ("p2p", "st"),
    ("rma", "st-graph"),
    ("p2p", "st-graph"),
    ("st-separate", "st"),
];

/// What is said of a cell.
#[derive(Debug, Serialize)]
pub(super) struct CellLine<'a> {
    nodes: &'a str,
    provider: &'a str,
    what: &'a str,
    passes: usize,
    /// Microseconds a share of the slowest rank, by variant.
    us: Vec<(&'static str, Option<f64>)>,
    /// `rma / st` and so on.
    ratios: Vec<(String, Option<f64>)>,
    verified: bool,
}

impl<'a> CellLine<'a> {
    pub(super) fn of(cell: &Cell<'a>) -> CellLine<'a> {
        let ratio = |(one, base)| (format!("{one} / {base}"), cell.ratio(one, base));
        CellLine {
            nodes: cell.nodes(),
            provider: cell.provider(),
            what: cell.what(),
            passes: cell.passes(),
            us: VARIANTS.map(|name| (name, cell.us(name))).into(),
            ratios: RATIOS.map(ratio).into(),
            verified: cell.verified(),
        }
    }
}

/// The cells with whole shares, as a table that documents take, too.
pub(super) fn table(cells: &[Cell<'_>]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let names = ["nodes x ranks", "provider", "what", "passes"].map(str::to_owned);
    let variants = VARIANTS.map(str::to_owned);
    let ratios = RATIOS.map(|(one, base)| format!("{one} / {base}"));
    let head = names.into_iter().chain(variants).chain(ratios);
    lines.push(head.chain(["verified".to_owned()]).collect());
    for cell in cells.iter().filter(|cell| cell.what() != THROTTLING) {
        let line = CellLine::of(cell);
        let none = || "-".to_owned();
        let mut row: Vec<String> = [line.nodes, line.provider, line.what]
            .map(str::to_owned)
            .into();
        row.push(line.passes.to_string());
        row.extend((line.us.iter()).map(|(_, us)| us.map_or_else(none, time)));
        let ratio = |ratio: f64| format!("{ratio:.2}");
        row.extend((line.ratios.iter()).map(|(_, of)| of.map_or_else(none, ratio)));
        row.push(match (cell.was_run(), line.verified) {
            (false, _) => "NOT RUN".into(),
            (true, true) => "yes".into(),
            (true, false) => "NO".into(),
        });
        lines.push(row);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            _ = write!(text, "| {cell:<width$} ");
        }
        text += "|\n";
        if index == 0 {
            text += &widths
                .iter()
                .map(|width| format!("|{:-<1$}", "", width + 2))
                .collect::<String>();
            text += "|\n";
        }
    }
    text += "us a share of the slowest rank; median of the passes, ratios within each job\n";
    text
}

/// Microseconds, with two or three digits that matter.
fn time(us: f64) -> String {
    match us {
        ..10.0 => format!("{us:.2}"),
        ..100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}
