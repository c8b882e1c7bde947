//! A timeline: a panel for each variant, a lane for the host and for each stream.

use super::pick::least;
use super::results::Results;
use crate::faces::params::Variant;
use crate::faces::timeline::{Lane, Span};
use crate::svg::{Axis, Ink, Side, Svg, short};

const WIDTH: i32 = 1100;
const LEFT: i32 = 130;
const RIGHT: i32 = WIDTH - 30;
const TOP: i32 = 84;
const LANE: i32 = 30;
/// Between two panels, with the name of the next.
const GAP: i32 = 34;

/// The variants that are drawn: two that the stream triggers, and one that the host synchronises.
const SHOWN: [Variant; 3] = [Variant::St, Variant::StGraph, Variant::Rma];
/// The kinds of spans, with their colours.
const WHAT: [(&str, usize); 6] = [
    ("pack", 0),
    ("exchange", 2),
    ("unpack", 1),
    ("compute", 4),
    ("launch", 3),
    ("wait", 5),
];
const LANES: [(Lane, &str); 3] = [
    (Lane::Host, "host"),
    (Lane::Stream, "stream"),
    (Lane::Compute, "2nd stream"),
];

/// Rank 0 of the timeline on the most GPUs. All panels have one scale, and begin with their first span.
pub(super) fn timeline(results: &Results) -> Option<String> {
    let recorded = results
        .timelines
        .iter()
        .max_by_key(|recorded| recorded.gpus)?;
    let panels: Vec<(Variant, Vec<&Span>)> = SHOWN
        .into_iter()
        .map(|variant| {
            let mine = |span: &&Span| span.rank == 0 && span.variant == variant;
            (variant, recorded.spans.iter().filter(mine).collect())
        })
        .filter(|(_, spans): &(_, Vec<_>)| !spans.is_empty())
        .collect();
    let begin = |spans: &[&Span]| least(spans.iter().map(|span| span.begin_us));
    let end = |spans: &[&Span]| spans.iter().map(|span| span.end_us).reduce(f64::max);
    let lengths = panels
        .iter()
        .map(|(_, spans)| Some(end(spans)? - begin(spans)?));
    let length = lengths
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .reduce(f64::max)?;
    if length <= 0.0 {
        return None;
    }
    let shares = 1 + panels
        .iter()
        .flat_map(|(_, spans)| spans)
        .map(|span| span.share)
        .max()?;
    let axis = Axis::linear((0.0, length), "microseconds", (LEFT, RIGHT));
    let height = LANE * LANES.len() as i32;
    let bottom = TOP + (height + GAP) * panels.len() as i32 - GAP + 8;
    let title = format!(
        "{shares} shares with the compute kernel, rank 0: what happens when (events between operations slow it down)"
    );
    let place = results.place(recorded.gpus);
    let mut svg = Svg::alone(WIDTH, bottom + 44, &title, &place);
    let mut x = RIGHT;
    for (what, series) in WHAT.into_iter().rev() {
        x -= 14 + 9 * what.len() as i32;
        svg.label(what, (x, 42), 11, Ink::Text, Side::Left);
        x -= 18;
        svg.rect((x, 36), (x + 13, 48), Ink::Series(series));
    }
    axis.draw(&mut svg, TOP, bottom);
    for (k, (variant, spans)) in panels.iter().enumerate() {
        let top = TOP + (height + GAP) * k as i32;
        let (Some(from), Some(to)) = (begin(spans), end(spans)) else {
            continue;
        };
        let name = format!("{variant}: {} us", short(to - from));
        svg.label(&name, (LEFT, top - 10), 12, Ink::Text, Side::Left);
        for (lane, name) in LANES {
            let y = top + LANE * lane as i32 + LANE / 2;
            svg.label(name, (LEFT - 12, y), 11, Ink::Faint, Side::Right);
            svg.line((LEFT, y + LANE / 2), (RIGHT, y + LANE / 2), Ink::Grid);
            for span in spans.iter().filter(|span| span.lane == lane) {
                let found = WHAT.iter().find(|(what, _)| *what == span.what);
                let series = found.map_or(5, |(_, series)| *series);
                let (a, b) = (axis.at(span.begin_us - from), axis.at(span.end_us - from));
                // A short span is a pixel wide, and neighbours of one kind stay apart.
                svg.rect((a, y - 10), (b.max(a + 1), y + 10), Ink::Series(series));
                svg.line((a, y - 10), (a, y + 10), Ink::Paper);
            }
        }
    }
    Some(svg.finish())
}
