//! Proving that recorded steps can be replayed: [`Graph::verify`](crate::Graph::verify).
//!
//! # Model
//!
//! Every rank tells all others what it has recorded: the waits and adds of its batches, and the order of its streams
//! (`record.rs`). Each rank then makes the same check of the same numbers (`check.rs`), so all come to the same verdict.
//! What the check relies on stands in the guide, `tidegate::guide::verify`.

mod check;
mod record;
mod verdict;

use check::check;
pub(crate) use record::{Act, Before, Item, NotPut, Op, Record, Work};
pub use verdict::{CycleWait, Doubt, Flaw, Proof, RankCall, Unbalanced, Unput, Verdict};

use crate::error::{Error, Result};
pub use crate::observe::Operation;

/// The verdict on what all ranks have told, in the order of the ranks.
pub(crate) fn verdict(all: &[Vec<u8>]) -> Result<Verdict> {
    let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(Error::other);
    let all = all.iter().map(read).collect::<Result<Vec<Record>>>()?;
    Ok(check(&all))
}
