//! Which rows belong together.

use super::Results;
use crate::results::Row;

/// What a row is called in pictures when it does not matter whether it was in a graph; and whether it was.
pub(super) fn form(row: &Row) -> (String, bool) {
    if row.is_ours() {
        let graph = row.variant.contains("-graph");
        let mut name = row.variant.replace("-graph", "");
        if row.setting.buffers == "single" {
            name += ", one buffer";
        }
        return (format!("tidegate {name}"), graph);
    }
    let parts: Vec<&str> = row.variant.split(", ").collect();
    let is_graph = |part: &str| part == "graph" || part.starts_with("graph of ");
    let is_shape = |part: &str| {
        let words: Vec<&str> = part.split(' ').collect();
        matches!(words.as_slice(), [_, "blocks", "of", _])
    };
    let rest = parts
        .iter()
        .filter(|part| !is_graph(part) && !is_shape(part));
    let name = rest.copied().collect::<Vec<_>>().join(", ");
    let graph = parts.iter().any(|part| is_graph(part));
    (format!("{}: {name}", row.who), graph)
}

/// Rows that are right, of one benchmark, with one setting of compute; of several sizes of blocks, those of the size that most rows are of.
pub(super) fn good<'a>(results: &'a Results, benchmark: &str, compute: bool) -> Vec<&'a Row> {
    let pair = benchmark == "pair";
    let fits = |row: &&Row| {
        let setting = &row.setting;
        let blocks = pair || setting.elements != "-";
        let right = !row.failed && row.us_max.is_some();
        right && blocks && setting.benchmark == benchmark && setting.compute == compute
    };
    let rows = results.rows.iter().map(|entry| &entry.row).filter(fits);
    let mut rows: Vec<&Row> = rows.collect();
    let size = |row: &Row| (row.setting.elements.clone(), row.setting.points);
    let count = |one: &Row| rows.iter().filter(|row| size(row) == size(one)).count();
    // The first of those that are equal.
    let usual = rows.iter().rev().max_by_key(|row| count(row));
    if let Some(usual) = usual.map(|row| size(row)) {
        rows.retain(|row| size(row) == usual);
    }
    rows
}

/// The least of some times.
pub(super) fn least(times: impl Iterator<Item = f64>) -> Option<f64> {
    times.reduce(f64::min)
}
