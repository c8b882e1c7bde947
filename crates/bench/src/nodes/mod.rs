//! The tables between nodes that `scripts/nodes.sh` measures.
//!
//! # Model
//!
//! The script measures *cells* (a number of nodes, a provider, and a benchmark), each by a job of its own, in *passes*: all
//! cells in turn, and again. So a disturbance hits all alike. It leaves `steps.tsv` with a line a job, and the rows of
//! each job in `steps/NAME.json`. [`Measured::read`] reads both. A time is the median of the passes. A ratio is the
//! median of the ratios within each job, because a job measures both of its sides by turns. [`Measured::table`] is for a
//! terminal or a document, [`Measured::to_json`] has everything, and [`Measured::charts`] the pictures.
//!
//! # Failure
//!
//! [`FileError`](crate::results::files::FileError) for files that cannot be read or written, or hold something else. A cell that was not run, a job that
//! failed or left no rows, and a row that was not verified are [problems](Measured::problems); no figure is taken from
//! a job with a row that was not verified, in that row.

mod cell;
mod measured;
#[cfg(test)]
mod tests;

pub use cell::Step;
pub(crate) use cell::{Cell, plain, split};
pub use measured::Measured;
