//! Which rows belong together.

use super::results::{Entry, Results};
use crate::results::Row;
use crate::results::comparison::family;

/// The name of a row in pictures, without `graph`; and whether it was in a graph.
pub(super) fn form(row: &Row) -> (String, bool) {
    if row.is_ours() {
        let graph = row.variant.contains("-graph");
        let mut name = row.variant.replace("-graph", "");
        if row.setting.buffers == "single" {
            name += ", one buffer";
        }
        return (format!("tidegate {name}"), graph);
    }
    let name = family(&row.variant);
    let is_graph = |part: &&str| *part == "graph" || part.starts_with("graph of ");
    let (graphs, parts): (Vec<&str>, Vec<&str>) = name.split(", ").partition(is_graph);
    let name = format!("{}: {}", row.who, parts.join(", "));
    (name, !graphs.is_empty())
}

/// Rows that are right, of one benchmark, with one setting of compute; of several sizes of blocks, those of the size
/// that most rows are of.
pub(super) fn good<'a>(results: &'a Results, benchmark: &str, compute: bool) -> Vec<&'a Entry> {
    let pair = benchmark == "pair";
    let fits = |entry: &&Entry| {
        let (row, setting) = (&entry.row, &entry.row.setting);
        let blocks = pair || setting.elements != "-";
        let right = !row.failed && row.us_max.is_some();
        right && blocks && setting.benchmark == benchmark && setting.compute == compute
    };
    let mut all: Vec<&Entry> = results.rows.iter().filter(fits).collect();
    let size = |entry: &Entry| {
        let setting = &entry.row.setting;
        (setting.elements.clone(), setting.points)
    };
    let count = |one: &Entry| all.iter().filter(|other| size(other) == size(one)).count();
    // The first of those that are equal.
    let usual = all.iter().rev().max_by_key(|entry| count(entry));
    if let Some(usual) = usual.map(|entry| size(entry)) {
        all.retain(|entry| size(entry) == usual);
    }
    all
}

/// Whether a row comes from a run in which others were measured too.
pub(super) fn with_others(entry: &Entry) -> bool {
    entry.step.starts_with("peers-")
}

/// The least of some times.
pub(super) fn least(times: impl Iterator<Item = f64>) -> Option<f64> {
    times.reduce(f64::min)
}
