//! Lines: times over something that grows.

use super::pick::{form, good, least, with_others};
use super::results::Results;
use crate::draw::{Ink, SERIES, cut, finish, line, short, text};
use crate::results::Row;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::collections::BTreeMap;

const WIDTH: i32 = 900;
const HEIGHT: i32 = 480;
const LEFT: i32 = 70;
/// The names are right of this.
const RIGHT: i32 = 590;
const TOP: i32 = 66;
const BOTTOM: i32 = 420;

/// How a value becomes a place.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// Places are proportional to values, and the axis begins at zero.
    Linear,
    /// Equal ratios of values are equal distances.
    Log,
}

/// A picture to be.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) place: String,
    pub(super) x: (&'a str, Scale),
    pub(super) y: (&'a str, Scale),
    /// The ticks of x, with their names.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) series: Vec<(String, Vec<(f64, f64)>)>,
}

/// Rows by the number of GPUs; the best row of every other library.
pub(super) fn growth(results: &Results, benchmark: &str) -> Option<String> {
    let mut series = Lines::default();
    let mut entries = good(results, benchmark, false);
    // A line of ours is one of runs alike, where there are such.
    entries.sort_by_key(|entry| with_others(entry));
    for entry in entries {
        let row = &entry.row;
        let x = row.setting.ranks as f64;
        if row.is_ours() {
            let (name, graph) = form(row);
            series.add_with(named(&name, graph), x, row.us_max, |first, _| first);
        } else {
            series.add(format!("{}, best form", row.who), x, row.us_max);
        }
    }
    let title = match benchmark {
        "exchange" => "The exchange alone, by the number of GPUs (more neighbours with more GPUs)",
        _ => "A whole share, by the number of GPUs",
    };
    let ticks: Vec<f64> = series.positions();
    if ticks.len() < 2 {
        return None;
    }
    plot(&Plot {
        title,
        place: results.place(results.gpus),
        x: ("GPUs", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: ticks.into_iter().map(|x| (x, x.to_string())).collect(),
        series: series.0.into_iter().map(Lines::sorted).collect(),
    })
}

/// The exchange with more and more neighbours.
pub(super) fn neighbours(results: &Results) -> Option<String> {
    let mut series = Lines::default();
    let mut bytes = 0;
    let mut ranks = 0;
    for entry in &results.rows {
        let (row, setting) = (&entry.row, &entry.row.setting);
        let ring = setting.benchmark == "exchange" && setting.elements == "-" && row.is_ours();
        if row.failed || !ring || setting.messages == 0 {
            continue;
        }
        bytes = setting.bytes / setting.messages as u64;
        ranks = setting.ranks;
        let (name, graph) = form(row);
        series.add(named(&name, graph), setting.messages as f64, row.us_max);
    }
    let ticks = series.positions();
    if ticks.len() < 2 {
        return None;
    }
    plot(&Plot {
        title: &format!(
            "The exchange of {} with so many neighbours",
            size(bytes as f64)
        ),
        place: results.place(ranks),
        x: ("neighbours", Scale::Linear),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: ticks.into_iter().map(|x| (x, x.to_string())).collect(),
        series: series.0.into_iter().map(Lines::sorted).collect(),
    })
}

/// Shares with so many trigger slots.
pub(super) fn throttling(rows: &[Row], variant: &str, place: &str) -> Option<String> {
    let mut series = Lines::default();
    for row in rows
        .iter()
        .filter(|row| row.variant == variant && !row.failed)
    {
        if let (Some(budget), Some(throttle)) = (row.setting.budget, &row.setting.throttle) {
            series.add(throttle.clone(), budget as f64, row.us_max);
        }
    }
    let (ticks, first) = (series.positions(), rows.first()?);
    if ticks.len() < 2 {
        return None;
    }
    let setting = &first.setting;
    plot(&Plot {
        title: &format!(
            "{variant}: a share of {} ranks with few trigger slots",
            setting.ranks
        ),
        place: format!("{}; {place}", setting.transport),
        x: ("trigger slots of a node's NIC", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: ticks.into_iter().map(|x| (x, x.to_string())).collect(),
        series: series.0.into_iter().map(Lines::sorted).collect(),
    })
}

/// Two GPUs: the time of a message, or what comes over in a second.
pub(super) fn pair(results: &Results, bandwidth: bool) -> Option<String> {
    let mut series = Lines::default();
    let floors = results
        .rows
        .iter()
        .map(|entry| &entry.row)
        .filter(|row| row.setting.benchmark == "floor" && row.setting.bytes > 0 && !row.failed);
    let pairs = good(results, "pair", false);
    let pairs = pairs.into_iter().map(|entry| &entry.row);
    // One message at a time: what is put in many is another benchmark.
    let single = pairs.filter(|row| !row.is_ours() || row.setting.messages <= 1);
    // One after the other says how many there are in a second, and not how long one takes.
    let wanted = |row: &&Row| bandwidth || row.is_ours() || !row.variant.contains(" after put");
    for row in single.chain(floors).filter(wanted) {
        let (bytes, Some(us)) = (row.setting.bytes as f64, row.us_max) else {
            continue;
        };
        let name = pair_name(row);
        let value = if bandwidth { bytes / us / 1e3 } else { us };
        series.add_with(
            name,
            bytes,
            Some(value),
            if bandwidth { f64::max } else { f64::min },
        );
    }
    let sizes = series.positions();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return None;
    };
    if sizes.len() < 2 {
        return None;
    }
    let powers = (0..40).map(|k| f64::from(k).exp2()).step_by(4);
    let inside = powers.filter(|x| (first / 2.0..=last * 2.0).contains(x));
    let (title, y) = match bandwidth {
        true => ("Two GPUs: bandwidth by the size of a message", "GB/s"),
        false => (
            "Two GPUs: the time of a message by its size",
            "microseconds",
        ),
    };
    plot(&Plot {
        title,
        place: results.place(2),
        x: ("size of a message", Scale::Log),
        y: (y, Scale::Log),
        ticks: inside.map(|x| (x, size(x))).collect(),
        series: series.0.into_iter().map(Lines::sorted).collect(),
    })
}

/// `ping-graph 8 B` is `tidegate ping, graph`; of another library the best of each kind of calls is a line.
fn pair_name(row: &Row) -> String {
    if row.is_ours() {
        let (name, graph) = form(row);
        let words: Vec<&str> = name.split(' ').collect();
        return named(&words[..words.len().saturating_sub(2)].join(" "), graph);
    }
    let (name, graph) = form(row);
    if row.who == "floor" {
        // The stores of any number of blocks are one line: the best.
        return name.split(", ").next().unwrap_or(&name).to_owned();
    }
    let kinds: Vec<&str> = name.split(": ").collect();
    match kinds[..] {
        [who, kind, _, ..] => named(&format!("{who}, {kind}"), graph),
        [who, ..] => named(who, graph),
        [] => named(&name, graph),
    }
}

fn named(name: &str, graph: bool) -> String {
    match graph {
        true => format!("{name}, graph"),
        false => name.to_owned(),
    }
}

/// `8 B`, `4 KiB`, `256 MiB`.
fn size(bytes: f64) -> String {
    let (unit, name) = match bytes {
        ..1024.0 => (1.0, "B"),
        ..1_048_576.0 => (1024.0, "KiB"),
        _ => (1_048_576.0, "MiB"),
    };
    format!("{} {name}", bytes / unit)
}

/// Series by name, in the order in which they came; of several values at one place the best (or the first).
#[derive(Default)]
pub(super) struct Lines(pub(super) Vec<(String, BTreeMap<u64, f64>)>);

impl Lines {
    pub(super) fn add(&mut self, name: String, x: f64, y: Option<f64>) {
        self.add_with(name, x, y, f64::min);
    }

    fn add_with(&mut self, name: String, x: f64, y: Option<f64>, best: fn(f64, f64) -> f64) {
        let Some(y) = y.filter(|y| y.is_finite() && *y > 0.0) else {
            return;
        };
        let place = self.0.iter().position(|(other, _)| *other == name);
        let place = place.unwrap_or_else(|| {
            self.0.push((name, BTreeMap::new()));
            self.0.len() - 1
        });
        let value = self.0[place].1.entry(x as u64).or_insert(y);
        *value = best(*value, y);
    }

    pub(super) fn positions(&self) -> Vec<f64> {
        let mut all: Vec<u64> = self
            .0
            .iter()
            .flat_map(|(_, line)| line.keys().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|x| x as f64).collect()
    }

    pub(super) fn sorted((name, line): (String, BTreeMap<u64, f64>)) -> (String, Vec<(f64, f64)>) {
        (name, line.into_iter().map(|(x, y)| (x as f64, y)).collect())
    }
}

/// Where a value lies between two others, from 0 to 1.
fn share(scale: Scale, value: f64, (from, to): (f64, f64)) -> f64 {
    match scale {
        Scale::Linear => (value - from) / (to - from),
        Scale::Log => (value / from).ln() / (to / from).ln(),
    }
}

/// Round values from one to another.
fn round_values(scale: Scale, (from, to): (f64, f64)) -> Vec<f64> {
    if scale == Scale::Log {
        // Where there are few powers of ten, with what lies between them.
        let steps: &[f64] = match to / from < 100.0 {
            true => &[1.0, 2.0, 5.0],
            false => &[1.0],
        };
        let first = from.log10().floor() as i32;
        let all = (first..).flat_map(|k| steps.iter().map(move |step| step * 10f64.powi(k)));
        let all = all.take_while(|v| *v <= to * 1.001);
        return all.filter(|v| *v >= from * 0.999).collect();
    }
    let raw = (to - from) / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|f| f * power);
    let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
    (0..)
        .map(|k| f64::from(k) * step)
        .take_while(|v| *v <= to * 1.001)
        .collect()
}

pub(super) fn plot(plot: &Plot<'_>) -> Option<String> {
    let points = || {
        plot.series
            .iter()
            .flat_map(|(_, line)| line.iter().copied())
    };
    let range = |values: &mut dyn Iterator<Item = f64>, scale| -> Option<(f64, f64)> {
        let values: Vec<f64> = values.collect();
        let (low, high) = (
            least(values.iter().copied())?,
            values.into_iter().reduce(f64::max)?,
        );
        Some(match scale {
            Scale::Linear => (0.0, high * 1.08),
            Scale::Log => (low / 1.25, high * 1.25),
        })
    };
    let xs = range(&mut points().map(|(x, _)| x), plot.x.1)?;
    let ys = range(&mut points().map(|(_, y)| y), plot.y.1)?;
    let at_x = |x: f64| LEFT + (share(plot.x.1, x, xs) * f64::from(RIGHT - LEFT)).round() as i32;
    let at_y = |y: f64| BOTTOM - (share(plot.y.1, y, ys) * f64::from(BOTTOM - TOP)).round() as i32;
    finish((WIDTH, HEIGHT), |area| {
        text(area, plot.title, (16, 20), 18, Ink::Text, HPos::Left)?;
        text(area, &plot.place, (16, 40), 14, Ink::Faint, HPos::Left)?;
        for y in round_values(plot.y.1, ys) {
            line(area, (LEFT, at_y(y)), (RIGHT, at_y(y)), Ink::Grid)?;
            let label = if y < 10.0 && y.fract() != 0.0 {
                short(y)
            } else {
                y.to_string()
            };
            text(
                area,
                &label,
                (LEFT - 8, at_y(y)),
                14,
                Ink::Faint,
                HPos::Right,
            )?;
        }
        for (x, label) in &plot.ticks {
            line(area, (at_x(*x), TOP), (at_x(*x), BOTTOM), Ink::Grid)?;
            text(
                area,
                label,
                (at_x(*x), BOTTOM + 14),
                14,
                Ink::Faint,
                HPos::Center,
            )?;
        }
        line(area, (LEFT, BOTTOM), (RIGHT, BOTTOM), Ink::Faint)?;
        line(area, (LEFT, TOP), (LEFT, BOTTOM), Ink::Faint)?;
        text(
            area,
            plot.x.0,
            ((LEFT + RIGHT) / 2, BOTTOM + 38),
            14,
            Ink::Faint,
            HPos::Center,
        )?;
        text(area, plot.y.0, (16, TOP - 8), 14, Ink::Faint, HPos::Left)?;
        for (k, (name, points)) in plot.series.iter().enumerate() {
            let colour = Ink::Series(k).code();
            let places: Vec<(i32, i32)> =
                points.iter().map(|(x, y)| (at_x(*x), at_y(*y))).collect();
            let key = (RIGHT + 22, TOP + 12 + 24 * k as i32);
            area.draw(&PathElement::new(places.clone(), colour.stroke_width(2)))?;
            area.draw(&PathElement::new(
                [(key.0 - 12, key.1), (key.0 + 12, key.1)],
                colour.stroke_width(2),
            ))?;
            for place in places.into_iter().chain([key]) {
                // Where colours come again, marks are hollow.
                match k < SERIES {
                    true => area.draw(&Circle::new(place, 4, colour.filled()))?,
                    false => {
                        area.draw(&Circle::new(place, 4, Ink::Paper.code().filled()))?;
                        area.draw(&Circle::new(place, 4, colour.stroke_width(2)))?;
                    }
                }
            }
            text(
                area,
                &cut(name, 40),
                (key.0 + 18, key.1),
                13,
                Ink::Text,
                HPos::Left,
            )?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_axes_are_round() {
        assert_eq!(round_values(Scale::Log, (3.0, 500.0)), [10.0, 100.0]);
        assert_eq!(
            round_values(Scale::Log, (18.0, 900.0)),
            [20.0, 50.0, 100.0, 200.0, 500.0]
        );
        assert_eq!(
            round_values(Scale::Linear, (0.0, 11.0)),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(share(Scale::Log, 100.0, (1.0, 10_000.0)), 0.5);
        assert_eq!(share(Scale::Linear, 5.0, (0.0, 10.0)), 0.5);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [8.0, 4096.0, 268_435_456.0].map(size),
            ["8 B", "4 KiB", "256 MiB"]
        );
    }
}
