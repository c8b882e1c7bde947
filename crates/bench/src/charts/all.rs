//! All pictures of a machine's results.

use super::results::{ChartsError, Results};
use super::{bars, gantt, lines};
use crate::results::Row;
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

/// Shares by the number of trigger slots, a line a policy: of what `--throttling` has measured, which is no part of the
/// script. Nothing, if there are not two budgets.
pub fn throttling(rows: &[Row], variant: &str, place: &str) -> Option<String> {
    lines::throttling(rows, variant, place)
}

/// All pictures that there are rows for, and those that there are none for.
pub fn draw(results: &Results) -> (Vec<Chart>, Vec<Missing>) {
    type Make = fn(&Results) -> Option<String>;
    let all: [(&'static str, &'static str, Make); 9] = [
        (
            "exchange.svg",
            "rows of the exchange alone: the steps exchange-N or peers-exchange",
            |r| bars::exchange(r),
        ),
        (
            "share.svg",
            "rows of whole shares: the steps share-N or peers-share",
            |r| bars::share(r, false),
        ),
        (
            "share-compute.svg",
            "rows of shares with compute: the steps compute-N or peers-compute",
            |r| bars::share(r, true),
        ),
        (
            "growth-exchange.svg",
            "the exchange on two numbers of GPUs or more: the steps exchange-N",
            |r| lines::growth(r, "exchange"),
        ),
        (
            "growth-share.svg",
            "shares on two numbers of GPUs or more: the steps share-N",
            |r| lines::growth(r, "faces"),
        ),
        (
            "neighbours.svg",
            "exchanges with two numbers of neighbours or more: the steps neighbours-K",
            |r| lines::neighbours(r),
        ),
        (
            "pair-latency.svg",
            "messages of two sizes or more between two GPUs: the steps pair or peers-pair",
            |r| lines::pair(r, false),
        ),
        (
            "pair-bandwidth.svg",
            "messages of two sizes or more between two GPUs: the steps pair or peers-pair",
            |r| lines::pair(r, true),
        ),
        (
            "timeline.svg",
            "a timeline of rank 0: the step timeline",
            |r| gantt::timeline(r),
        ),
    ];
    let (mut charts, mut missing) = (Vec::new(), Vec::new());
    for (name, needs, make) in all {
        match make(results) {
            Some(svg) => charts.push(Chart { name, svg }),
            None => missing.push(Missing { chart: name, needs }),
        }
    }
    (charts, missing)
}

/// Reads the results of all folders, and writes the pictures into `to`; what was written, and what not.
///
/// # Errors
///
/// [`ChartsError`].
pub fn run(from: &[PathBuf], to: &Path) -> Result<(Vec<PathBuf>, Vec<Missing>), ChartsError> {
    let mut results = None;
    for dir in from {
        let read = Results::read(dir)?;
        results = Some(match results {
            None => read,
            Some(other) => Results::join(other, read),
        });
    }
    let (charts, missing) = draw(&results.ok_or(ChartsError::Nothing)?);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| ChartsError::File {
            what: "write",
            path,
            error,
        }
    };
    std::fs::create_dir_all(to).map_err(failed(to))?;
    let mut written = Vec::new();
    for chart in charts {
        let path = to.join(chart.name);
        std::fs::write(&path, chart.svg).map_err(failed(&path))?;
        written.push(path);
    }
    Ok((written, missing))
}
