//! Where the initial values come from.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the initial values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Init {
    /// From the element's place in its own block: the same values on every rank, as in the
    /// published runs.
    #[default]
    Same,
    /// From the element's place in the whole domain: every rank has values of its own, so that a
    /// message that went to the wrong rank is seen.
    Global,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Init::Same => "same",
            Init::Global => "global",
        })
    }
}
