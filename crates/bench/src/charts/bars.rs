//! Bars: a band for each way to do the same, with a bar on the stream and one in a graph.

use super::pick::{form, good, least, with_others};
use super::results::{Entry, Results};
use crate::draw::{Area, Axis, Drawn, Ink, cut, finish, line, short, text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 900;
const LEFT: i32 = 400;
const RIGHT: i32 = 70;
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
    let rows = good(results, "exchange", false);
    picture(
        results,
        &rows,
        "The exchange alone, with the messages of Faces",
    )
}

/// Draws whole shares, with the compute kernel or without; `None` if there are no rows of them.
pub(super) fn share(results: &Results, compute: bool) -> Option<String> {
    let title = match compute {
        true => "A whole share (pack, exchange, unpack) with the compute kernel beside it",
        false => "A whole share: pack, exchange, unpack",
    };
    picture(results, &good(results, "faces", compute), title)
}

/// The rows on the most ranks, the fastest way first. Of ours, those of the run that others were measured in, where
/// there is one; of others' launch shapes the best.
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
    // What is very slow would leave no room for the others: its bar is cut.
    let end = all().reduce(f64::max)?.min(least(all())? * 12.0);
    if end <= 0.0 {
        return None;
    }
    let axis = Axis::new(
        0.0,
        end,
        "microseconds, slowest rank",
        (LEFT, WIDTH - RIGHT),
    );
    let bottom = TOP + BAND * bands.len() as i32;
    finish((WIDTH, bottom + 44), |area| {
        text(area, title, (16, 20), 19, Ink::Text, HPos::Left)?;
        text(
            area,
            &results.place(ranks),
            (16, 42),
            14,
            Ink::Faint,
            HPos::Left,
        )?;
        let key = [
            ("tidegate, on the stream", 0, false),
            ("in a graph", 0, true),
            ("others", 2, false),
            ("in a graph", 2, true),
        ];
        let mut x = 16;
        for (name, series, graph) in key {
            one(area, (x, x + 22), 64, series, graph)?;
            text(area, name, (x + 28, 64), 14, Ink::Text, HPos::Left)?;
            x += 44 + 8 * name.len() as i32;
        }
        axis.draw(area, TOP, bottom)?;
        for (k, band) in bands.iter().enumerate() {
            let y = TOP + BAND * k as i32 + BAND / 2;
            let ink = if band.ours { Ink::Text } else { Ink::Faint };
            text(
                area,
                &cut(&band.name, 56),
                (LEFT - 10, y),
                14,
                ink,
                HPos::Right,
            )?;
            let series = if band.ours { 0 } else { 2 };
            for (graph, time) in [false, true].into_iter().zip(band.times) {
                let Some(time) = time else { continue };
                let y = y - 7 + 14 * i32::from(graph);
                let to = axis.at(time.min(end));
                one(area, (LEFT, to), y, series, graph)?;
                let more = if time > end { "  (bar cut)" } else { "" };
                let label = format!("{}{more}", short(time));
                match more.is_empty() {
                    true => text(area, &label, (to + 6, y), 13, Ink::Text, HPos::Left)?,
                    false => text(area, &label, (to - 6, y), 13, Ink::Text, HPos::Right)?,
                }
            }
        }
        line(area, (LEFT, TOP), (LEFT, bottom), Ink::Faint)
    })
}

/// A bar; one of a graph is filled, the other is lighter, with an edge.
fn one(area: &Area<'_>, (from, to): (i32, i32), y: i32, series: usize, graph: bool) -> Drawn {
    let place = [(from, y - 6), (to, y + 6)];
    let colour = Ink::Series(series).code();
    match graph {
        true => area.draw(&Rectangle::new(place, colour.filled())),
        false => {
            area.draw(&Rectangle::new(place, colour.mix(0.45).filled()))?;
            area.draw(&Rectangle::new(place, colour))
        }
    }
}
