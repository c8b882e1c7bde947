//! Jobs, and cells of them.

use crate::results::Row;
use crate::results::stats::median;
use serde::Serialize;

/// [`Step::what`] of the throttling table.
pub(super) const THROTTLING: &str = "throttling";

/// [`Step::what`] of whole shares.
const SHARE: &str = "share";

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
    /// The command line that was run.
    pub command: String,
    /// The rows that it left.
    pub rows: Vec<Row>,
}

impl Step {
    /// A line of the steps, without its rows.
    pub(super) fn parse(line: &str) -> Option<Step> {
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

/// A cell: the same job, in all passes.
pub(crate) struct Cell<'a> {
    pub(super) steps: Vec<&'a Step>,
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
pub(super) fn right(row: &Row) -> Option<f64> {
    let all = !row.failed && row.verified == row.setting.ranks;
    row.us_max.filter(|us| all && *us > 0.0)
}

/// How many nodes, and how many ranks each has: of `4x2` four and two.
pub(crate) fn split(nodes: &str) -> Option<(u32, u32)> {
    let (count, each) = nodes.split_once('x')?;
    Some((count.parse().ok()?, each.parse().ok()?))
}

/// Whether a cell has whole shares, without compute or delay.
pub(crate) fn plain(cell: &Cell<'_>) -> bool {
    cell.what() == SHARE
}
