//! What happens when: a panel for each variant, a lane for each of its lines of work.

use super::pick::least;
use super::results::Results;
use crate::draw::{Axis, Ink, finish, line, short, text};
use crate::faces::params::Variant;
use crate::faces::timeline::{Lane, Span};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 1100;
const LEFT: i32 = 130;
const RIGHT: i32 = 30;
const TOP: i32 = 84;
const LANE: i32 = 30;
/// Between two panels, with the name of the next.
const GAP: i32 = 34;

/// The variants that are drawn: two that the stream triggers, and one that the host synchronises.
const SHOWN: [Variant; 3] = [Variant::St, Variant::StGraph, Variant::Rma];
/// What there is, with its colour.
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
    let axis = Axis::new(0.0, length, "microseconds", (LEFT, WIDTH - RIGHT));
    let height = LANE * LANES.len() as i32;
    let bottom = TOP + (height + GAP) * panels.len() as i32 - GAP + 8;
    finish((WIDTH, bottom + 44), |area| {
        let title = format!(
            "{shares} shares with the compute kernel, rank 0: what happens when (events between operations slow it down)"
        );
        text(area, &title, (16, 20), 18, Ink::Text, HPos::Left)?;
        text(
            area,
            &results.place(recorded.gpus),
            (16, 40),
            14,
            Ink::Faint,
            HPos::Left,
        )?;
        let mut x = WIDTH - RIGHT;
        for (what, series) in WHAT.into_iter().rev() {
            x -= 14 + 9 * what.len() as i32;
            text(area, what, (x, 40), 14, Ink::Text, HPos::Left)?;
            x -= 18;
            let key = [(x, 34), (x + 13, 46)];
            area.draw(&Rectangle::new(key, Ink::Series(series).code().filled()))?;
        }
        axis.draw(area, TOP, bottom)?;
        for (k, (variant, spans)) in panels.iter().enumerate() {
            let top = TOP + (height + GAP) * k as i32;
            let (Some(from), Some(to)) = (begin(spans), end(spans)) else {
                continue;
            };
            let name = format!("{variant}: {} us", short(to - from));
            text(area, &name, (LEFT, top - 10), 15, Ink::Text, HPos::Left)?;
            for (lane, name) in LANES {
                let y = top + LANE * lane as i32 + LANE / 2;
                text(area, name, (LEFT - 12, y), 14, Ink::Faint, HPos::Right)?;
                line(
                    area,
                    (LEFT, y + LANE / 2),
                    (WIDTH - RIGHT, y + LANE / 2),
                    Ink::Grid,
                )?;
                for span in spans.iter().filter(|span| span.lane == lane) {
                    let found = WHAT.iter().find(|(what, _)| *what == span.what);
                    let series = found.map_or(5, |(_, series)| *series);
                    let (a, b) = (axis.at(span.begin_us - from), axis.at(span.end_us - from));
                    // However short: it is there.
                    let place = [(a, y - 10), (b.max(a + 1), y + 10)];
                    let colour = Ink::Series(series).code();
                    area.draw(&Rectangle::new(place, colour.filled()))?;
                    area.draw(&Rectangle::new(place, Ink::Paper.code()))?;
                }
            }
        }
        Ok(())
    })
}
