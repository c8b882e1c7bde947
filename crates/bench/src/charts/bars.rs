//! Bars: a band for each way to do the same, with a bar on the stream and one in a graph.

use super::pick::{form, good, least, with_others};
use super::results::{Entry, Results};
use crate::svg::{Axis, Ink, Side, Svg, cut, short};

const WIDTH: i32 = 900;
const LEFT: i32 = 400;
const RIGHT: i32 = WIDTH - 70;
const TOP: i32 = 82;
const BAND: i32 = 34;

/// One band of the picture: a library or a variant with its two bars.
struct Band {
    name: String,
    ours: bool,
    /// On the stream, and in a graph.
    times: [Option<f64>; 2],
}

/// Draws the exchange alone; `None` if there are no rows of it.
pub(super) fn exchange(results: &Results) -> Option<String> {
    let title = "The exchange alone, with the messages of Faces";
    picture(results, &good(results, "exchange", false), title)
}

/// Draws whole shares, with the compute kernel or without; `None` if there are no rows of them.
pub(super) fn share(results: &Results, compute: bool) -> Option<String> {
    let title = match compute {
        true => "A whole share (pack, exchange, unpack) with the compute kernel beside it",
        false => "A whole share: pack, exchange, unpack",
    };
    picture(results, &good(results, "faces", compute), title)
}

/// The rows on the most ranks, the fastest way first. Of ours, those of the run that also measured others, if there is
/// one; of others' launch shapes the best.
fn picture(results: &Results, entries: &[&Entry], title: &str) -> Option<String> {
    let ranks = entries.iter().map(|entry| entry.row.setting.ranks).max()?;
    let (together, alone): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().partition(|entry| with_others(entry));
    let rows = together.iter().chain(&alone).map(|entry| &entry.row);
    let mut bands: Vec<Band> = Vec::new();
    for row in rows.filter(|row| row.setting.ranks == ranks) {
        let (name, graph) = form(row);
        let place = bands.iter().position(|band| band.name == name);
        let place = place.unwrap_or_else(|| {
            bands.push(Band {
                name,
                ours: row.is_ours(),
                times: [None; 2],
            });
            bands.len() - 1
        });
        let time = &mut bands[place].times[usize::from(graph)];
        if time.is_none() || !row.is_ours() {
            *time = least(time.iter().copied().chain(row.us_max));
        }
    }
    let best = |band: &Band| least(band.times.into_iter().flatten()).unwrap_or(f64::INFINITY);
    bands.sort_by(|a, b| best(a).total_cmp(&best(b)));
    let all = || bands.iter().flat_map(|band| band.times).flatten();
    // A very slow row would leave no room for the others: its bar is cut.
    let end = all().reduce(f64::max)?.min(least(all())? * 12.0);
    if end <= 0.0 {
        return None;
    }
    let axis = Axis::linear((0.0, end), "microseconds, slowest rank", (LEFT, RIGHT));
    let bottom = TOP + BAND * bands.len() as i32;
    let mut svg = Svg::alone(WIDTH, bottom + 44, title, &results.place(ranks));
    let mut x = 16;
    for (name, series, graph) in [
        ("tidegate, on the stream", 0, false),
        ("in a graph", 0, true),
        ("others", 2, false),
        ("in a graph", 2, true),
    ] {
        one(&mut svg, (x, x + 22), 64, series, graph);
        svg.label(name, (x + 28, 64), 11, Ink::Text, Side::Left);
        x += 44 + 8 * name.len() as i32;
    }
    let names: Vec<_> = (bands.iter())
        .map(|band| {
            (
                cut(&band.name, 56),
                if band.ours { Ink::Text } else { Ink::Faint },
            )
        })
        .collect();
    svg.bands((&axis, TOP, BAND), &names, |svg, k, y| {
        let band = &bands[k];
        let series = if band.ours { 0 } else { 2 };
        for (graph, time) in [false, true].into_iter().zip(band.times) {
            let Some(time) = time else { continue };
            let (y, to) = (y - 7 + 14 * i32::from(graph), axis.at(time.min(end)));
            one(svg, (LEFT, to), y, series, graph);
            let (label, at, side) = match time > end {
                true => (format!("{}  (bar cut)", short(time)), to - 6, Side::Right),
                false => (short(time), to + 6, Side::Left),
            };
            svg.label(&label, (at, y), 11, Ink::Text, side);
        }
    });
    svg.line((LEFT, TOP), (LEFT, bottom), Ink::Faint);
    Some(svg.finish())
}

/// A bar: filled for a graph, otherwise lighter, with an edge.
fn one(svg: &mut Svg, (from, to): (i32, i32), y: i32, series: usize, graph: bool) {
    let opacity = if graph { 1.0 } else { 0.45 };
    svg.shade(
        (from, y - 6),
        (to, y + 6),
        Ink::Series(series),
        opacity,
        !graph,
    );
}
