//! The report on the terminal.

use super::figures::{Figures, Way, gbs, spread, us};
use super::finding::Finding;
use super::judge::Routes;
use crate::info::table;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// All that a report tells.
#[derive(Clone, Default)]
pub(super) struct Report {
    pub(super) findings: Vec<Finding>,
    /// The node of each rank.
    pub(super) nodes: Vec<usize>,
    pub(super) hosts: Vec<String>,
    pub(super) devices: Vec<String>,
    pub(super) routes: Option<Arc<Routes>>,
    pub(super) figures: Option<Arc<Figures>>,
}

/// The most ranks of which each pair is shown.
const MOST: usize = 16;
/// How many of the worst pairs are named.
const WORST: usize = 5;

impl Report {
    /// Whether something is wrong.
    pub(super) fn has_failed(&self) -> bool {
        self.findings.iter().any(|finding| !finding.is_note())
    }

    /// The first line.
    pub(super) fn head(&self) -> String {
        let different = |of: &[String]| of.iter().collect::<BTreeSet<_>>().len();
        let nodes = self.nodes.iter().collect::<BTreeSet<_>>().len();
        let count = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let devices = match (different(&self.devices), self.devices.first()) {
            (1, Some(device)) => format!(", {device}"),
            (0, _) | (_, None) => String::new(),
            _ if self.devices.iter().all(|device| device.starts_with("GPU ")) => ", GPUs".into(),
            _ => ", several kinds of devices".to_owned(),
        };
        match self.nodes.len() {
            0 => "tidegate doctor: a rank without its job".to_owned(),
            size => format!(
                "tidegate doctor: {} on {}, {}{devices}",
                count(size, "rank"),
                count(nodes, "node"),
                count(different(&self.hosts), "host"),
            ),
        }
    }

    /// The sum of the findings, in words.
    pub(super) fn verdict(&self) -> String {
        let notes = self
            .findings
            .iter()
            .filter(|finding| finding.is_note())
            .count();
        match self.findings.len() - notes {
            0 => "Nothing is wrong.".to_owned(),
            1 => "1 thing is wrong:".to_owned(),
            wrong => format!("{wrong} things are wrong:"),
        }
    }

    /// The findings, notes last.
    pub(super) fn ordered(&self) -> Vec<&Finding> {
        let (notes, wrong): (Vec<_>, Vec<_>) =
            self.findings.iter().partition(|finding| finding.is_note());
        wrong.into_iter().chain(notes).collect()
    }

    /// Lines that say how far the figures are to be trusted.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.figures.is_none() && !self.nodes.is_empty() {
            remarks.push("the pairs were not measured".to_owned());
        }
        if let Some(figures) = &self.figures
            && figures.measured() < figures.expected
        {
            remarks.push(format!(
                "{} of {} pairs were measured within the time: --seconds gives more",
                figures.measured(),
                figures.expected
            ));
        }
        for (host, ranks) in self.routes.iter().flat_map(|routes| &routes.crowded) {
            let count = ranks.iter().count();
            remarks.push(format!(
                "{count} ranks share fewer processors on {host}: their figures depend on the scheduler, and are not judged"
            ));
        }
        remarks
    }

    /// For each route: its ways.
    pub(super) fn by_route(&self) -> Vec<(String, Vec<Way>)> {
        let (Some(figures), Some(routes)) = (&self.figures, &self.routes) else {
            return Vec::new();
        };
        let name = |from, to| routes.name(from, to).unwrap_or_default();
        figures.by_route(name).into_iter().collect()
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        use io::Write as _;
        writeln!(out, "{}\n\n{}", self.head(), self.verdict())?;
        for finding in self.ordered() {
            let kind = if finding.is_note() { "note: " } else { "" };
            writeln!(out, "  - {kind}{}", finding.what())?;
            writeln!(out, "    do: {}", finding.advice())?;
        }
        if let Some(figures) = self
            .figures
            .as_ref()
            .filter(|figures| figures.measured() > 0)
        {
            match figures.size <= MOST {
                true => matrices(figures, out)?,
                false => self.folded(out)?,
            }
        }
        for remark in self.remarks() {
            writeln!(out, "  ({remark})")?;
        }
        Ok(())
    }

    /// A line for each route, and the worst ways.
    fn folded(&self, out: &mut Vec<u8>) -> io::Result<()> {
        use io::Write as _;
        let routes = self.by_route();
        let heads = [
            "route",
            "ways",
            "us: least",
            "median",
            "most",
            "GB/s: least",
            "median",
            "most",
        ];
        let mut rows = vec![heads.map(str::to_owned)];
        for (route, ways) in &routes {
            let [least, median, most] = spread(ways.iter().map(|way| way.1)).map(us);
            let [lowest, middle, highest] = spread(ways.iter().map(|way| way.2)).map(gbs);
            let count = ways.len().to_string();
            rows.push([
                route.clone(),
                count,
                least,
                median,
                most,
                lowest,
                middle,
                highest,
            ]);
        }
        writeln!(out, "\nOne way, 8 bytes in us, and 1 MiB in GB/s:")?;
        table::write(&rows, "  ", out)?;
        for (route, ways) in &routes {
            let (by_latency, by_bandwidth) = worst(ways);
            let latencies = by_latency.iter();
            let latencies =
                latencies.map(|((a, b), time, _)| format!("{a} - {b}: {} us", us(*time)));
            let rates = by_bandwidth.iter();
            let rates = rates.map(|((a, b), _, rate)| format!("{a} to {b}: {} GB/s", gbs(*rate)));
            let latencies = latencies.collect::<Vec<_>>().join(", ");
            let rates = rates.collect::<Vec<_>>().join(", ");
            writeln!(out, "\nThe slowest by {route}:\n  {latencies}\n  {rates}")?;
        }
        Ok(())
    }
}

/// The ways with the greatest latencies, and those with the lowest bandwidths.
pub(super) fn worst(ways: &[Way]) -> (Vec<Way>, Vec<Way>) {
    // The latency of both ways of a pair is one figure.
    let mut by_latency: Vec<_> = ways
        .iter()
        .filter(|((from, to), ..)| from < to)
        .copied()
        .collect();
    by_latency.sort_by(|a, b| b.1.total_cmp(&a.1));
    by_latency.truncate(WORST);
    let mut by_bandwidth = ways.to_vec();
    by_bandwidth.sort_by(|a, b| a.2.total_cmp(&b.2));
    by_bandwidth.truncate(WORST);
    (by_latency, by_bandwidth)
}

/// The figures of each pair.
fn matrices(figures: &Figures, out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    let mut matrix = |head: &str, cell: &dyn Fn((f64, f64)) -> String| -> io::Result<()> {
        writeln!(out, "\n{head}")?;
        let row = |from: usize| {
            let cells = (0..figures.size).map(|to| match figures.between(from, to) {
                _ if from == to => "-".to_owned(),
                Some(figure) => cell(figure),
                None => ".".to_owned(),
            });
            cells.collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = (0..figures.size).map(row).collect();
        let width = rows
            .iter()
            .flatten()
            .map(String::len)
            .max()
            .unwrap_or(0)
            .max(4);
        let line = |cells: Vec<String>| {
            let cells = cells.iter().map(|cell| format!("  {cell:>width$}"));
            cells.collect::<String>()
        };
        let ranks = (0..figures.size).map(|rank| rank.to_string());
        writeln!(out, "  from\\to{}", line(ranks.collect()))?;
        for (rank, cells) in rows.into_iter().enumerate() {
            writeln!(out, "  {rank:>7}{}", line(cells))?;
        }
        Ok(())
    };
    matrix(
        "One way, a put of 8 bytes and its signal, in us:",
        &|figure| us(figure.0),
    )?;
    matrix("Puts of 1 MiB, in GB/s:", &|figure| gbs(figure.1))
}

#[cfg(test)]
mod tests;
