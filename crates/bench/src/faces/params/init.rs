//! Where the initial values come from.

use super::error::ParamsError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where the initial values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
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

impl FromStr for Init {
    type Err = ParamsError;
    fn from_str(text: &str) -> Result<Self, ParamsError> {
        match text {
            "same" => Ok(Init::Same),
            "global" => Ok(Init::Global),
            _ => Err(ParamsError::Syntax {
                text: text.into(),
                expected: "`same` or `global`",
            }),
        }
    }
}
