//! The same exchange by other libraries, in the same run.
//!
//! # Model
//!
//! A [`Peer`] is a program that does what Faces does (the exchange, whole shares, or a pair) with another library;
//! `crates/bench/peers` has their sources, and says what each of them measures. [`Peers::find`] looks for the programs
//! that were asked for before a rank is started, and builds them if they are missing and their sources are not.
//! [`Peers::run`] runs them one after the other once all ranks have ended, so that the GPUs are free, and makes
//! [`Row`]s of what they print.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | which programs are run with which options: the command line of Faces, in their words |
//! | `place` | where they are, and how they are built |
//! | `process` | a program with a limit to its time |
//! | `lines` | their rows |
//!
//! Each library is run in its best form: with the environment, and in as many calls, as that takes. A library whose
//! failure ends its program is called once for each form, so that one failure does not take the others along.
//!
//! # Failures
//!
//! [`PeersError`], before anything is run, where neither programs nor sources are found. Everything later is a failed
//! row: a peer that could not be built, one that ends with an error, takes too long, prints nothing, or gets wrong
//! data.

mod calls;
mod lines;
mod place;
mod process;

pub use place::Peers;

use crate::cli::FacesArgs;
use crate::results::{Row, Setting};
use clap::ValueEnum;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Another library, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// NVSHMEM: on-stream operations, and kernels that communicate.
    Nvshmem,
    /// NCCL: grouped sends and receives, and its device interface.
    Nccl,
    /// MPI: host-synchronised sends and receives, and active RMA.
    Mpi,
    /// No library: a host-synchronised exchange at its best.
    Hostrma,
    /// No library: what a launch, a flag and a byte cost.
    Floor,
}

impl Peer {
    /// Its name, which is its program's too.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Nvshmem => "nvshmem",
            Peer::Nccl => "nccl",
            Peer::Mpi => "mpi",
            Peer::Hostrma => "hostrma",
            Peer::Floor => "floor",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why no peer can be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// Neither a program nor what it is built from.
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
    #[error("{what} {}: {error}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// With which.
        path: PathBuf,
        /// What came of it.
        error: io::Error,
    },
    /// A line of `mpi.env` that is no `NAME=VALUE`.
    #[error("{}:{line}: `{text}` is not NAME=VALUE", path.display())]
    Environment {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
}

fn list<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    items.join(", ")
}

impl Peers {
    /// Runs all that was asked for, one program after the other; a row for everything that was measured, and for everything
    /// that was not. `ours` is what our rows have in common; `note` is told how far things have come.
    pub fn run(&self, args: &FacesArgs, ours: &Setting, note: &mut dyn FnMut(&str)) -> Vec<Row> {
        let begin = Instant::now();
        let limit = Duration::from_secs(args.peers_limit);
        let mut rows = Vec::new();
        for call in calls::calls(args) {
            let failed = |why: String| lines::failed(&call, args, ours, why);
            if let Some(why) = self.missing(call.peer) {
                // Once a peer is enough.
                if !rows.iter().any(|row: &Row| row.who == call.peer.name()) {
                    note(&format!("{}: {why}", call.peer));
                    rows.push(failed(why.to_owned()));
                }
                continue;
            }
            if begin.elapsed().as_secs() >= args.peers_budget {
                note(&format!("{}: no time left", call.label));
                rows.push(failed(format!(
                    "not run: the {} seconds of --peers-budget are over",
                    args.peers_budget
                )));
                continue;
            }
            let ended = self
                .command(&call, args)
                .map_err(|error| error.to_string())
                .and_then(|command| {
                    process::run(command, limit, &self.logs(), &call.label)
                        .map_err(|error| format!("could not be started: {error}"))
                });
            match ended {
                Err(why) => {
                    note(&format!("{}: {why}", call.label));
                    rows.push(failed(why));
                }
                Ok(ended) => {
                    let found = lines::rows(&call, args, ours, &ended);
                    note(&format!(
                        "{}: {}, {:.0} s, {} rows",
                        call.label,
                        ended.how,
                        ended.took.as_secs_f64(),
                        found.len()
                    ));
                    rows.extend(found);
                }
            }
        }
        rows
    }

    fn logs(&self) -> PathBuf {
        self.dir().join("logs")
    }

    fn program(&self, peer: Peer) -> PathBuf {
        program(self.dir(), peer)
    }
}

fn program(dir: &Path, peer: Peer) -> PathBuf {
    dir.join(peer.name())
}

#[cfg(test)]
mod tests;
