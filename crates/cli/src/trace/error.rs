//! Why there is no trace.

use std::io;
use std::path::PathBuf;

use tidegate_core::observe::ReadError;

#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("the folder of the trace, {}: {_1}", _0.display())]
    Folder(PathBuf, io::Error),
    #[error(
        "{}: no rank has written events there; do the ranks join a job, with TIDEGATE_TRACE set to it?",
        _0.display()
    )]
    Empty(PathBuf),
    /// The file, the number of the event, and what is wrong with it.
    #[error("{}: event {_1} is none that a rank can have written: {_2}", _0.display())]
    Broken(PathBuf, usize, &'static str),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("writing {}: {_1}", _0.display())]
    Write(PathBuf, io::Error),
}
