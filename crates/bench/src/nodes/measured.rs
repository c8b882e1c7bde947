//! All jobs of a run of the script, and its tables and pictures.

use super::cell::{Cell, Step, THROTTLING, right};
use crate::charts::{self, Chart, between};
use crate::results::Row;
use crate::results::files::{self, FileError};
use crate::results::stats::median;
use crate::table::Table;
use crate::throttling;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// All jobs of a run of the script.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The machine, the day, and more: names and values.
    pub about: Vec<(String, String)>,
    /// All jobs that the script has run, in their order.
    pub steps: Vec<Step>,
}

impl Measured {
    /// Reads the folder that the script has left.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn read(dir: &Path, about: Vec<(String, String)>) -> Result<Measured, FileError> {
        let path = dir.join("steps.tsv");
        let mut steps = Vec::new();
        for (index, line) in files::read(&path)?.lines().enumerate() {
            let wrong = || FileError::Step {
                path: path.clone(),
                line: index + 1,
            };
            let mut step = Step::parse(line).ok_or_else(wrong)?;
            let path = dir.join("steps").join(format!("{}.json", step.name));
            if path.exists() {
                step.rows = files::read_json(&path)?;
            }
            steps.push(step);
        }
        Ok(Measured { about, steps })
    }

    /// The cells, in the order of the first pass; cells with a delay come last.
    pub(crate) fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for step in &self.steps {
            let same = |cell: &&mut Cell<'_>| {
                let key = (cell.nodes(), cell.provider(), cell.what());
                key == (&step.nodes, &step.provider, &step.what)
            };
            match cells.iter_mut().find(same) {
                Some(cell) => cell.steps.push(step),
                None => cells.push(Cell { steps: vec![step] }),
            }
        }
        cells.sort_by_key(|cell| cell.what().starts_with("delay"));
        cells
    }

    /// The problems, a line each; empty if all was run and verified.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.steps.is_empty() {
            problems.push("nothing was run".to_owned());
        }
        for step in &self.steps {
            let name = &step.name;
            match step.status.as_str() {
                "ok" if step.rows.is_empty() => {
                    problems.push(format!("FAILED: {name}: it left no rows"));
                }
                "ok" => {}
                "not run" => problems.push(format!("NOT RUN: {name}")),
                status => problems.push(format!("{status}: {name}: {}", step.command)),
            }
            for row in step.rows.iter().filter(|row| right(row).is_none()) {
                let why = row.failure.as_deref().unwrap_or("it has no time");
                problems.push(format!("NOT VERIFIED: {name}: {}: {why}", row.variant));
            }
        }
        problems
    }

    /// The rows of the throttling table: of each the median of its passes.
    fn throttled(&self) -> Vec<Row> {
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        let steps = self.steps.iter().filter(|step| step.what == THROTTLING);
        for row in steps.flat_map(|step| &step.rows) {
            let same = |group: &&mut Vec<&Row>| {
                group[0].variant == row.variant && group[0].setting == row.setting
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        let joined = groups.into_iter().map(|group| {
            let times: Option<Vec<f64>> = group.iter().map(|row| right(row)).collect();
            let bad = group.iter().find(|row| right(row).is_none());
            let us_max = times.and_then(|mut times| median(&mut times));
            Row {
                us_max,
                rounds: group.iter().map(|row| row.rounds).sum(),
                failed: us_max.is_none(),
                failure: bad.and_then(|row| row.failure.clone()),
                ..group[0].clone()
            }
        });
        joined.collect()
    }

    /// For a terminal or a document: a line a cell, then the throttling table, then the problems.
    pub fn table(&self) -> String {
        let variants = VARIANTS.into_iter();
        let head = ["nodes x ranks", "provider", "what", "passes"].into_iter();
        let head = head.chain(variants).chain(RATIOS.map(|(name, ..)| name));
        let mut table = Table::new(head.chain(["verified"]).collect::<Vec<_>>(), &[0, 1, 2, 14]);
        let cells = self.cells();
        for cell in cells.iter().filter(|cell| cell.what() != THROTTLING) {
            let line = CellLine::of(cell);
            let mut row = [line.nodes, line.provider, line.what]
                .map(str::to_owned)
                .to_vec();
            row.push(line.passes.to_string());
            row.extend(line.us.iter().map(|(_, us)| us.map_or("-".into(), time)));
            let ratio = |ratio: f64| format!("{ratio:.2}");
            row.extend(
                line.ratios
                    .iter()
                    .map(|(_, of)| of.map_or("-".into(), ratio)),
            );
            let verified = if line.verified { "yes" } else { "NO" };
            row.push(if cell.was_run() { verified } else { "NOT RUN" }.into());
            table.row(row);
        }
        let mut text = table.markdown();
        text += "us a share of the slowest rank; median of the passes, ratios within each job\n";
        let throttled = self.throttled();
        if !throttled.is_empty() {
            text += &format!("\n{}", throttling::table(&throttled));
        }
        for problem in self.problems() {
            text += &format!("{problem}\n");
        }
        text
    }

    /// All of it, as JSON.
    pub fn to_json(&self) -> String {
        let cells: Vec<_> = self.cells().iter().map(CellLine::of).collect();
        let about: serde_json::Map<_, _> = (self.about.iter())
            .map(|(name, value)| (name.clone(), value.clone().into()))
            .collect();
        let all = serde_json::json!({
            "about": about,
            "cells": cells,
            "throttling": self.throttled(),
            "problems": self.problems(),
            "steps": self.steps,
        });
        format!("{all}\n")
    }

    /// The pictures for which there are figures.
    pub fn charts(&self) -> Vec<Chart> {
        let of = |name: &str| {
            let value = self.about.iter().find(|(other, _)| other == name);
            value.map_or("unknown", |(_, value)| value.as_str())
        };
        let place = format!("{}, {}", of("processor"), of("date"));
        let (cells, throttled) = (self.cells(), self.throttled());
        let all = [
            ("nodes-growth.svg", between::growth(&cells, &place)),
            ("nodes-merged.svg", between::merged(&cells, &place)),
            (
                "nodes-throttling.svg",
                charts::throttling(&throttled, "st", &place),
            ),
        ];
        let drawn = all.into_iter();
        drawn
            .filter_map(|(name, svg)| Some(Chart { name, svg: svg? }))
            .collect()
    }

    /// Writes `results.json` into `dir`, and the pictures into `to`; returns the paths.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn write(&self, dir: &Path, to: &Path) -> Result<Vec<PathBuf>, FileError> {
        let mut all = vec![(dir.join(charts::RESULTS), self.to_json())];
        all.extend(
            self.charts()
                .into_iter()
                .map(|chart| (to.join(chart.name), chart.svg)),
        );
        for (path, text) in &all {
            files::write(path, text)?;
        }
        Ok(all.into_iter().map(|(path, _)| path).collect())
    }
}

/// The columns with times.
const VARIANTS: [&str; 5] = ["st", "st-graph", "st-separate", "rma", "p2p"];
/// The columns with ratios: name, and of which variant to which.
const RATIOS: [(&str, &str, &str); 5] = [
    ("rma / st", "rma", "st"),
    ("p2p / st", "p2p", "st"),
    ("rma / st-graph", "rma", "st-graph"),
    ("p2p / st-graph", "p2p", "st-graph"),
    ("st-separate / st", "st-separate", "st"),
];

/// The figures of a cell.
#[derive(Debug, Serialize)]
struct CellLine<'a> {
    nodes: &'a str,
    provider: &'a str,
    what: &'a str,
    passes: usize,
    /// Microseconds a share of the slowest rank, by variant.
    us: [(&'static str, Option<f64>); 5],
    /// `rma / st` and so on.
    ratios: [(&'static str, Option<f64>); 5],
    verified: bool,
}

impl<'a> CellLine<'a> {
    fn of(cell: &Cell<'a>) -> CellLine<'a> {
        CellLine {
            nodes: cell.nodes(),
            provider: cell.provider(),
            what: cell.what(),
            passes: cell.passes(),
            us: VARIANTS.map(|name| (name, cell.us(name))),
            ratios: RATIOS.map(|(name, one, base)| (name, cell.ratio(one, base))),
            verified: cell.verified(),
        }
    }
}

/// Microseconds, with three digits that matter.
fn time(us: f64) -> String {
    match us {
        ..10.0 => format!("{us:.2}"),
        ..100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}
