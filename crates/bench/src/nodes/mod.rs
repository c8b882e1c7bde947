//! The tables between nodes that `scripts/nodes.sh` measures.
//!
//! # Model
//!
//! The script measures *cells* (some nodes, a provider, and what is done there), each by a job of its own, in *passes*:
//! all cells in turn, and again. So a disturbance hits all alike. It leaves `steps.tsv` with a line a job, and the rows
//! of each in `steps/NAME.json`. [`Measured::read`] takes both. A time is the median of the passes; a ratio is the
//! median of the ratios within each job, since what is compared there was measured side by side. [`Measured::table`] is
//! for a terminal or a document, [`Measured::to_json`] has everything, and [`Measured::charts`] the pictures.
//!
//! # Failure
//!
//! [`NodesError`] for files that cannot be read or written, or hold something else. A cell that was not run, a job that
//! failed or left no rows, and a row that was not verified are [problems](Measured::problems); no figure is taken from
//! a job with a row that was not verified, in that row.

mod table;

use crate::charts::{self, Chart, between};
use crate::results::Row;
use crate::results::stats::median;
use crate::throttling;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// What a cell of the throttling table does.
const THROTTLING: &str = "throttling";
/// What a cell does that has whole shares.
const SHARE: &str = "share";

/// Why nothing can be said of a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
    /// A file that cannot be read or written.
    #[error("cannot {what} {}: {error}", path.display())]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line of the steps that is none.
    #[error("{}, line {line} is no step", path.display())]
    Step {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// Rows that are none.
    #[error("{} has no rows: {error}", path.display())]
    Rows {
        /// Which.
        path: PathBuf,
        /// What was expected.
        error: serde_json::Error,
    },
}

impl NodesError {
    fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NodesError {
        let path = path.to_owned();
        move |error| NodesError::File { what, path, error }
    }
}

/// A job, or one that was to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The name of its files.
    pub name: String,
    /// The nodes: `4x2` are four of two ranks.
    pub nodes: String,
    /// The provider of libfabric.
    pub provider: String,
    /// `share`, `compute`, `delay …` or `throttling`.
    pub what: String,
    /// `ok`, `not run` or `FAILED (…)`.
    pub status: String,
    /// How long it took, in seconds.
    pub seconds: u64,
    /// In which pass, from 1.
    pub pass: u32,
    /// What was run.
    pub command: String,
    /// What came of it.
    pub rows: Vec<Row>,
}

/// What was measured, and where.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The machine, the day, and what else is to be known: names and values.
    pub about: Vec<(String, String)>,
    /// All jobs.
    pub steps: Vec<Step>,
}

/// A cell: the same job, in all passes.
pub(crate) struct Cell<'a> {
    steps: Vec<&'a Step>,
}

impl<'a> Cell<'a> {
    pub(crate) fn nodes(&self) -> &'a str {
        &self.steps[0].nodes
    }

    pub(crate) fn provider(&self) -> &'a str {
        &self.steps[0].provider
    }

    pub(crate) fn what(&self) -> &'a str {
        &self.steps[0].what
    }

    /// How many jobs have left rows.
    pub(crate) fn passes(&self) -> usize {
        let left = self.steps.iter().filter(|step| !step.rows.is_empty());
        left.count()
    }

    fn rows(&self, variant: &'a str) -> impl Iterator<Item = &'a Row> {
        let all = self.steps.iter().flat_map(|step| &step.rows);
        all.filter(move |row| row.variant == variant)
    }

    /// A share of the slowest rank, in microseconds; nothing unless every pass was right.
    pub(crate) fn us(&self, variant: &'a str) -> Option<f64> {
        let times: Option<Vec<f64>> = self.rows(variant).map(right).collect();
        median(&mut times?)
    }

    /// How many times as long a variant takes as another, job by job.
    pub(crate) fn ratio(&self, variant: &str, base: &str) -> Option<f64> {
        let find = |step: &'a Step, name: &str| step.rows.iter().find(|row| row.variant == name);
        let ratios = self.steps.iter().filter_map(|step| {
            let (row, base) = (find(step, variant)?, find(step, base)?);
            Some(right(row)? / right(base)?)
        });
        median(&mut ratios.collect::<Vec<_>>())
    }

    /// Whether there are rows, no job failed, and all were right on every rank in every pass.
    pub(crate) fn verified(&self) -> bool {
        let mut all = self.steps.iter().flat_map(|step| &step.rows).peekable();
        let ended = self.steps.iter().all(|step| step.status == "ok");
        ended && all.peek().is_some() && all.all(|row| right(row).is_some())
    }

    /// Whether any of its jobs was started.
    pub(crate) fn was_run(&self) -> bool {
        self.steps.iter().any(|step| step.status != "not run")
    }
}

/// The time of a row, if it was verified on every rank.
fn right(row: &Row) -> Option<f64> {
    let all = !row.failed && row.verified == row.setting.ranks;
    row.us_max.filter(|us| all && *us > 0.0)
}

impl Measured {
    /// What the script has left in a folder.
    ///
    /// # Errors
    ///
    /// [`NodesError`].
    pub fn read(dir: &Path, about: Vec<(String, String)>) -> Result<Measured, NodesError> {
        let path = dir.join("steps.tsv");
        let text = std::fs::read_to_string(&path).map_err(NodesError::file("read", &path))?;
        let mut steps = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = || NodesError::Step {
                path: path.clone(),
                line: index + 1,
            };
            let mut step = Step::parse(line).ok_or_else(wrong)?;
            let path = dir.join("steps").join(format!("{}.json", step.name));
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    step.rows = serde_json::from_str(&text)
                        .map_err(|error| NodesError::Rows { path, error })?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(NodesError::file("read", &path)(error)),
            }
            steps.push(step);
        }
        Ok(Measured { about, steps })
    }

    /// The cells, in the order of the first pass; what is delayed comes last.
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

    /// Everything that is not as it should be, a line each; empty if all was run and verified.
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

    /// For a terminal or a document: a line a cell, then the throttling table, then what went wrong.
    pub fn table(&self) -> String {
        let mut text = table::table(&self.cells());
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
        let cells: Vec<_> = self.cells().iter().map(table::Line::of).collect();
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

    /// The pictures that there are figures for.
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

    /// Writes `results.json` into `dir`, and the pictures into `to`; what was written.
    ///
    /// # Errors
    ///
    /// [`NodesError::File`].
    pub fn write(&self, dir: &Path, to: &Path) -> Result<Vec<PathBuf>, NodesError> {
        std::fs::create_dir_all(to).map_err(NodesError::file("write", to))?;
        let mut files = vec![(dir.join(charts::RESULTS), self.to_json())];
        for chart in self.charts() {
            files.push((to.join(chart.name), chart.svg));
        }
        for (path, text) in &files {
            std::fs::write(path, text).map_err(NodesError::file("write", path))?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }
}

impl Step {
    /// A line of the steps, without its rows.
    fn parse(line: &str) -> Option<Step> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, nodes, provider, what, status, seconds, pass, command] = fields[..] else {
            return None;
        };
        Some(Step {
            name: name.into(),
            nodes: nodes.into(),
            provider: provider.into(),
            what: what.into(),
            status: status.into(),
            seconds: seconds.parse().ok()?,
            pass: pass.parse().ok()?,
            command: command.into(),
            rows: Vec::new(),
        })
    }
}

/// How many nodes, and how many ranks each has: of `4x2` four and two.
pub(crate) fn split(nodes: &str) -> Option<(u32, u32)> {
    let (count, each) = nodes.split_once('x')?;
    Some((count.parse().ok()?, each.parse().ok()?))
}

/// Whether a cell has whole shares, with nothing beside them.
pub(crate) fn plain(cell: &Cell<'_>) -> bool {
    cell.what() == SHARE
}

#[cfg(test)]
mod tests;
