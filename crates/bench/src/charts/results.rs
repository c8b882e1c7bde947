//! What `scripts/gpu.sh` leaves.

use crate::faces::timeline::Span;
use crate::results::Row;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};

/// What was measured on a machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Results {
    /// The name that the driver gives the GPUs.
    pub machine: String,
    /// How many there are.
    pub gpus: usize,
    /// The version of their driver.
    pub driver: String,
    /// The day on which the script ran.
    pub date: String,
    /// All rows that the steps of the script have measured.
    pub rows: Vec<Entry>,
    /// The timelines that the script has recorded; none if it is an older one.
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

/// A timeline that the script has recorded.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded {
    /// On how many GPUs.
    pub gpus: usize,
    /// Everything that took a while, on all ranks.
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
        /// What was tried: `read` or `write`.
        what: &'static str,
        /// The file that was to be read or written.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file that holds something else.
    #[error("{} is not what scripts/gpu.sh writes: {error}", path.display())]
    Content {
        /// The file that holds something else.
        path: PathBuf,
        /// Where, and what was expected there.
        error: serde_json::Error,
    },
    /// The command line named no folder of results.
    #[error("no folder with a {RESULTS} was named")]
    Nothing,
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
    pub(super) fn place(&self, gpus: usize) -> String {
        let (machine, driver, date) = (&self.machine, &self.driver, &self.date);
        format!("{gpus} x {machine}, driver {driver}, {date}")
    }
}
