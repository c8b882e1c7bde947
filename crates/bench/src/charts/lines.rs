//! Lines: times over something that grows.

use super::pick::{form, good, with_others};
use super::results::Results;
use crate::results::Row;
use crate::svg::{Axis, Ink, SERIES, Scale, Side, Svg, cut};
use std::collections::BTreeMap;

const WIDTH: i32 = 900;
const HEIGHT: i32 = 480;
const LEFT: i32 = 70;
/// The names are right of this.
const RIGHT: i32 = 590;
const TOP: i32 = 66;
const BOTTOM: i32 = 420;

/// The frame of a picture.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) place: String,
    pub(super) x: (&'a str, Scale),
    pub(super) y: (&'a str, Scale),
    /// The ticks of x, with their names; else each value that there is.
    pub(super) ticks: Option<Vec<(f64, String)>>,
}

/// Rows by the number of GPUs; the best row of every other library.
pub(super) fn growth(results: &Results, benchmark: &str) -> Option<String> {
    let mut series = Lines::default();
    let mut entries = good(results, benchmark, false);
    // If there are runs of ours alone, our lines are of those.
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
    series.plot(&Plot {
        title,
        place: results.place(results.gpus),
        x: ("GPUs", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: None,
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
    series.plot(&Plot {
        title: &format!(
            "The exchange of {} with so many neighbours",
            size(bytes as f64)
        ),
        place: results.place(ranks),
        x: ("neighbours", Scale::Linear),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: None,
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
    let setting = &rows.first()?.setting;
    series.plot(&Plot {
        title: &format!(
            "{variant}: a share of {} ranks with few trigger slots",
            setting.ranks
        ),
        place: format!("{}; {place}", setting.transport),
        x: ("trigger slots of a node's NIC", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Linear),
        ticks: None,
    })
}

/// What a job of so many ranks costs, as `benches/growth.rs` measures it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// The ranks of the job.
    pub ranks: usize,
    /// How long joining takes, in milliseconds.
    pub join: f64,
    /// How long opening a window takes, in milliseconds.
    pub window: f64,
}

/// Joining and opening a window, by the number of ranks. `None` if there are not two numbers.
pub fn large_jobs(jobs: &[Growth], place: &str) -> Option<String> {
    let mut series = Lines::default();
    for job in jobs {
        let x = job.ranks as f64;
        series.add("the whole job joins".into(), x, Some(job.join));
        let name = "a window of two neighbours opens";
        series.add(name.into(), x, Some(job.window));
    }
    series.plot(&Plot {
        title: "Joining a job and opening a window, by the number of ranks",
        place: place.to_owned(),
        x: ("ranks", Scale::Log),
        y: ("milliseconds", Scale::Log),
        ticks: None,
    })
}

/// Two GPUs: the time of a message, or its bandwidth.
pub(super) fn pair(results: &Results, bandwidth: bool) -> Option<String> {
    let mut series = Lines::default();
    let floors = results
        .rows
        .iter()
        .map(|entry| &entry.row)
        .filter(|row| row.setting.benchmark == "floor" && row.setting.bytes > 0 && !row.failed);
    let pairs = good(results, "pair", false);
    let pairs = pairs.into_iter().map(|entry| &entry.row);
    // One message at a time: many puts an epoch are another benchmark.
    let single = pairs.filter(|row| !row.is_ours() || row.setting.messages <= 1);
    // Puts one after the other give a bandwidth, and no latency.
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
    let (first, last) = (sizes.first()?, sizes.last()?);
    let powers = (0..40).map(|k| f64::from(k).exp2()).step_by(4);
    let inside = powers.filter(|x| (first / 2.0..=last * 2.0).contains(x));
    let (title, y) = match bandwidth {
        true => ("Two GPUs: bandwidth by the size of a message", "GB/s"),
        false => (
            "Two GPUs: the time of a message by its size",
            "microseconds",
        ),
    };
    series.plot(&Plot {
        title,
        place: results.place(2),
        x: ("size of a message", Scale::Log),
        y: (y, Scale::Log),
        ticks: Some(inside.map(|x| (x, size(x))).collect()),
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
pub(super) struct Lines(Vec<(String, BTreeMap<u64, f64>)>);

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

    fn positions(&self) -> Vec<f64> {
        let lines = self.0.iter().flat_map(|(_, line)| line.keys().copied());
        let mut all: Vec<u64> = lines.collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|x| x as f64).collect()
    }

    /// The picture; `None` if the lines do not have two positions.
    pub(super) fn plot(&self, plot: &Plot<'_>) -> Option<String> {
        let positions = self.positions();
        let (first, last) = (*positions.first()?, *positions.last()?);
        if positions.len() < 2 {
            return None;
        }
        let heights = || self.0.iter().flat_map(|(_, line)| line.values().copied());
        let (low, high) = (heights().reduce(f64::min)?, heights().reduce(f64::max)?);
        let range = |scale, low: f64, high: f64| match scale {
            Scale::Linear => (0.0, high * 1.08),
            Scale::Log => (low / 1.25, high * 1.25),
        };
        let x = Axis {
            scale: plot.x.1,
            values: range(plot.x.1, first, last),
            places: (LEFT, RIGHT),
            unit: plot.x.0,
        };
        let y = Axis {
            scale: plot.y.1,
            values: range(plot.y.1, low, high),
            places: (BOTTOM, TOP),
            unit: plot.y.0,
        };
        let mut svg = Svg::alone(WIDTH, HEIGHT, plot.title, &plot.place);
        for (value, label) in y.ticks() {
            let height = y.at(value);
            svg.line((LEFT, height), (RIGHT, height), Ink::Grid);
            svg.label(&label, (LEFT - 8, height), 11, Ink::Faint, Side::Right);
        }
        svg.label(y.unit, (16, TOP - 8), 11, Ink::Faint, Side::Left);
        let all = || positions.iter().map(|x| (*x, x.to_string())).collect();
        x.draw_at(
            &mut svg,
            &plot.ticks.clone().unwrap_or_else(all),
            TOP,
            BOTTOM,
        );
        svg.path(
            &[(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)],
            Ink::Faint,
            1,
        );
        for (k, (name, line)) in self.0.iter().enumerate() {
            let ink = Ink::Series(k);
            let places: Vec<_> = (line.iter())
                .map(|(at, value)| (x.at(*at as f64), y.at(*value)))
                .collect();
            let key = (RIGHT + 22, TOP + 12 + 24 * k as i32);
            svg.path(&places, ink, 2);
            svg.path(&[(key.0 - 12, key.1), (key.0 + 12, key.1)], ink, 2);
            for place in places.into_iter().chain([key]) {
                // Where colours repeat, marks are hollow.
                svg.dot(place, ink, k < SERIES);
            }
            svg.label(
                &cut(name, 40),
                (key.0 + 18, key.1),
                11,
                Ink::Text,
                Side::Left,
            );
        }
        Some(svg.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [8.0, 4096.0, 268_435_456.0].map(size),
            ["8 B", "4 KiB", "256 MiB"]
        );
    }
}
