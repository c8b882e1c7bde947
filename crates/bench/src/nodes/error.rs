//! Why nothing can be said of a folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why nothing can be said of a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
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
    /// A line of the steps that is none.
    #[error("{}, line {line} is no step", path.display())]
    Step {
        /// The file that has the steps.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// Rows that are none.
    #[error("{} has no rows: {error}", path.display())]
    Rows {
        /// The file that should have rows.
        path: PathBuf,
        /// Where the file is wrong, and what was expected there.
        error: serde_json::Error,
    },
}

impl NodesError {
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NodesError {
        let path = path.to_owned();
        move |error| NodesError::File { what, path, error }
    }
}
