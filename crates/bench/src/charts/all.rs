//! All pictures of a machine's results.

use super::results::Results;
use super::{bars, gantt, lines};
use crate::results::Row;
use crate::results::files::{self, FileError};
use std::path::{Path, PathBuf};

/// A picture that cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{chart} is not drawn: it needs {needs}")]
pub struct Missing {
    /// The name of its file.
    pub chart: &'static str,
    /// The rows that are not there, and the step that makes them.
    pub needs: &'static str,
}

/// A chart as a file: its name, and the picture in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// The name of its file.
    pub name: &'static str,
    /// The picture, as the text of an SVG file.
    pub svg: String,
}

/// Shares by the number of trigger slots, a line a policy, from rows of `--throttling`, which the script does not run.
/// `None` if there are not two budgets.
pub fn throttling(rows: &[Row], variant: &str, place: &str) -> Option<String> {
    lines::throttling(rows, variant, place)
}

/// All pictures that there are rows for, and those that there are none for.
pub fn draw(results: &Results) -> (Vec<Chart>, Vec<Missing>) {
    let exchange = "rows of the exchange alone: the steps exchange-N or peers-exchange";
    let pair = "messages of two sizes or more between two GPUs: the steps pair or peers-pair";
    let all = [
        ("exchange.svg", exchange, bars::exchange(results)),
        (
            "share.svg",
            "rows of whole shares: the steps share-N or peers-share",
            bars::share(results, false),
        ),
        (
            "share-compute.svg",
            "rows of shares with compute: the steps compute-N or peers-compute",
            bars::share(results, true),
        ),
        (
            "growth-exchange.svg",
            "the exchange on two numbers of GPUs or more: the steps exchange-N",
            lines::growth(results, "exchange"),
        ),
        (
            "growth-share.svg",
            "shares on two numbers of GPUs or more: the steps share-N",
            lines::growth(results, "faces"),
        ),
        (
            "neighbours.svg",
            "exchanges with two numbers of neighbours or more: the steps neighbours-K",
            lines::neighbours(results),
        ),
        ("pair-latency.svg", pair, lines::pair(results, false)),
        ("pair-bandwidth.svg", pair, lines::pair(results, true)),
        (
            "timeline.svg",
            "a timeline of rank 0: the step timeline",
            gantt::timeline(results),
        ),
    ];
    let (mut charts, mut missing) = (Vec::new(), Vec::new());
    for (name, needs, svg) in all {
        match svg {
            Some(svg) => charts.push(Chart { name, svg }),
            None => missing.push(Missing { chart: name, needs }),
        }
    }
    (charts, missing)
}

/// Reads the results of all folders, and writes the pictures into `to`. Returns the files, and the missing pictures.
///
/// # Errors
///
/// [`FileError`].
pub fn run(from: &[PathBuf], to: &Path) -> Result<(Vec<PathBuf>, Vec<Missing>), FileError> {
    let all: Result<Vec<Results>, FileError> = from.iter().map(|dir| Results::read(dir)).collect();
    let results = all?.into_iter().reduce(Results::join);
    let (charts, missing) = draw(&results.ok_or(FileError::Nothing)?);
    let mut written = Vec::new();
    for chart in charts {
        written.push(to.join(chart.name));
        files::write(&to.join(chart.name), &chart.svg)?;
    }
    Ok((written, missing))
}
