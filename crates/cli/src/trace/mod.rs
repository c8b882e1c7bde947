//! `tidegate trace`: what the ranks of a job did when, and which of them waited for which.
//!
//! # Model
//!
//! With `TIDEGATE_TRACE`, each rank writes its events to a file. After the job, the files become a [`Job`](job::Job): the
//! work of each stream with its times, all by one clock, and for each wait the signal that ended it. The summary, the
//! file for ui.perfetto.dev and the page are views of that job.
//!
//! # Failure
//!
//! A rank that dies leaves a file that ends early. What it wrote is shown, and the summary names the rank. The same
//! holds for files that are missing, and for stamps that were dropped, or whose times say nothing because nobody could
//! compare the clocks. Only a file that cannot be read, or that no rank can have written, is an error.

mod args;
mod check;
mod chrome;
mod clocks;
mod error;
mod folder;
mod job;
mod json;
mod late;
mod page;
mod rank;
mod reader;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub(super) use args::{TraceArgs, traced};
