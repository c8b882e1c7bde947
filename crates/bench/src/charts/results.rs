//! The file that `scripts/gpu.sh` leaves.

use crate::faces::timeline::Span;
use crate::results::Row;
use crate::results::files::{self, FileError};
use serde::Deserialize;
use std::path::Path;

/// The results of a machine.
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
    /// The measured row.
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

impl Results {
    /// Reads the file in a folder.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn read(dir: &Path) -> Result<Results, FileError> {
        files::read_json(&dir.join(RESULTS))
    }

    /// Adds the results of another run. The machine is that of the run on most GPUs; the date has all days.
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
