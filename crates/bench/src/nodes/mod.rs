//! The tables between nodes that `scripts/nodes.sh` measures.
//!
//! # Model
//!
//! The script measures *cells* (some nodes, a provider, and what is done there), each by a job of its own, in *passes*:
//! all cells in turn, and again. So a disturbance hits all alike. It leaves `steps.tsv` with a line a job, and the rows
//! of each in `steps/NAME.json`. [`Measured::read`] takes both. A time is the median of the passes; a ratio is the
//! median of the ratios within each job, since what is compared there was measured side by side. [`Measured::table`] is
//! for a terminal or a document, [`Measured::to_json`] has everything, and [`Measured::charts`] the pictures.
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
