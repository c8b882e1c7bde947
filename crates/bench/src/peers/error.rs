//! Why no peer can be run.

use super::peer::Peer;
use crate::results::files::FileError;
use std::fmt;
use std::path::PathBuf;

/// Why no peer can be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// Neither a program nor its sources.
    #[error(
        "there is no program for {} in {}, and nothing to build it from: {} (--peers-at names the folder of the programs)",
        list(missing.iter()),
        dir.display(),
        list(looked_for.iter().map(|path| format!("no {}", path.display())))
    )]
    NotFound {
        /// Whose programs are missing.
        missing: Vec<Peer>,
        /// Where the programs should be.
        dir: PathBuf,
        /// The build script, wherever it could have been.
        looked_for: Vec<PathBuf>,
    },
    /// A file or folder that is needed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line of `mpi.env` that is no `NAME=VALUE`.
    #[error("{}:{line}: `{text}` is not NAME=VALUE", path.display())]
    Environment {
        /// The file that has the line.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
}

fn list<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    items.join(", ")
}
