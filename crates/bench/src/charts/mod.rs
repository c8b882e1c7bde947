//! Pictures of what `scripts/gpu.sh` has measured, for documents.
//!
//! # Model
//!
//! [`Results`] is the `results.json` that the script leaves: the machine, all rows with the step that they are of, and
//! timelines. Several can be [joined](Results::join), since a machine may be lent for a part of the steps only.
//! [`draw`] makes the [`Chart`]s, each an SVG on white that stands alone, with the machine and the date in it:
//!
//! | file | shows |
//! |---|---|
//! | `exchange.svg` | the exchange alone, ours and others, on the stream and in a graph |
//! | `share.svg`, `share-compute.svg` | whole shares likewise |
//! | `growth-exchange.svg`, `growth-share.svg` | both by the number of GPUs |
//! | `neighbours.svg` | small messages to 1 to 26 neighbours |
//! | `pair-latency.svg`, `pair-bandwidth.svg` | two GPUs, by the size of a message |
//! | `timeline.svg` | what rank 0 does when, stream-triggered and host-synchronised |
//!
//! Failed rows are in no picture.
//!
//! # Failures
//!
//! [`ChartsError`] for a file that cannot be read or written. A picture whose rows are missing is not drawn, and
//! [`Missing`] says which rows those are.

mod bars;
pub(crate) mod between;
mod gantt;
mod lines;
mod pick;

use crate::faces::timeline::Span;
use crate::results::Row;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};

/// What was measured on a machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Results {
    /// The GPUs' name.
    pub machine: String,
    /// How many there are.
    pub gpus: usize,
    /// The version of their driver.
    pub driver: String,
    /// The day.
    pub date: String,
    /// What was measured.
    pub rows: Vec<Entry>,
    /// What happened when.
    #[serde(default)]
    pub timelines: Vec<Recorded>,
}

/// A row, and where it comes from.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// The step of the script.
    pub step: String,
    /// What came of it.
    #[serde(flatten)]
    pub row: Row,
}

/// A timeline.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded {
    /// On how many GPUs.
    pub gpus: usize,
    /// What it holds.
    pub spans: Vec<Span>,
}

/// The name of the file in the script's folder.
pub const RESULTS: &str = "results.json";

/// Why there are no charts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChartsError {
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
    /// A file that holds something else.
    #[error("{} is not what scripts/gpu.sh writes: {error}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Where, and what was expected there.
        error: serde_json::Error,
    },
    /// No folder.
    #[error("no folder with a {RESULTS} was named")]
    Nothing,
}

/// A picture that cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{chart} is not drawn: it needs {needs}")]
pub struct Missing {
    /// The name of its file.
    pub chart: &'static str,
    /// The rows that are not there, and the step that makes them.
    pub needs: &'static str,
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// The name of its file.
    pub name: &'static str,
    /// Its content.
    pub svg: String,
}

impl Results {
    /// Reads the file in a folder.
    ///
    /// # Errors
    ///
    /// [`ChartsError`].
    pub fn read(dir: &Path) -> Result<Results, ChartsError> {
        let path = dir.join(RESULTS);
        let text = std::fs::read_to_string(&path).map_err(|error| ChartsError::File {
            what: "read",
            path: path.clone(),
            error,
        })?;
        serde_json::from_str(&text).map_err(|error| ChartsError::Content { path, error })
    }

    /// Adds what another run has measured; machine and date are those of the run on most GPUs, with all days.
    pub fn join(self, other: Results) -> Results {
        let (mut most, less) = match self.gpus >= other.gpus {
            true => (self, other),
            false => (other, self),
        };
        if !most.date.contains(&less.date) {
            most.date = format!("{}, {}", most.date, less.date);
        }
        most.rows.extend(less.rows);
        most.timelines.extend(less.timelines);
        most
    }

    /// Where and when, for a picture.
    fn place(&self, gpus: usize) -> String {
        let (machine, driver, date) = (&self.machine, &self.driver, &self.date);
        format!("{gpus} x {machine}, driver {driver}, {date}")
    }
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

#[cfg(test)]
mod tests;
