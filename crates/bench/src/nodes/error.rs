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
        /// `read` or `write`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line of the steps that is none.
    #[error("{}, line {line} is no step", path.display())]
    Step {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// Rows that are none.
    #[error("{} has no rows: {error}", path.display())]
    Rows {
        /// Which.
        path: PathBuf,
        /// What was expected.
        error: serde_json::Error,
    },
}

impl NodesError {
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NodesError {
        let path = path.to_owned();
        move |error| NodesError::File { what, path, error }
    }
}
