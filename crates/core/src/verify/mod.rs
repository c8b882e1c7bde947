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

use std::sync::Arc;

use check::check;
pub(crate) use record::{Act, Before, Item, NotPut, Op, Record, Work};
pub use verdict::{CycleWait, Doubt, Flaw, Proof, RankCall, Unbalanced, Unput, Verdict};

use crate::error::{Error, Result, TeamError};
pub use crate::observe::Operation;

/// The verdict on what the ranks of a team have told, which are some of `size` ranks of the job.
///
/// # Errors
///
/// If a recording belongs to another world, or waits for a rank outside the team. All ranks of the team find the same.
pub(crate) fn verdict(
    (team_name, size): (&Arc<str>, usize),
    told: impl Iterator<Item = (usize, Vec<u8>)>,
) -> Result<Verdict> {
    let mut all: Vec<_> = (0..size).map(|_| Record::default()).collect();
    let mut team = vec![false; size];
    for (rank, bytes) in told {
        all[rank] = postcard::from_bytes(&bytes).map_err(Error::other)?;
        team[rank] = true;
    }
    if let Some(rank) = all.iter().position(|record| record.elsewhere) {
        let team = team_name.clone();
        return Err(TeamError::OtherWorld { rank, team }.into());
    }
    for (rank, record) in all.iter().enumerate() {
        let mut ops = record.batches.iter().flatten().flatten();
        if let Some(op) = ops.find(|op| !team.get(op.peer as usize).is_some_and(|is| *is)) {
            let outside = op.peer as usize;
            return Err(TeamError::Outside { rank, outside }.into());
        }
    }
    Ok(check(&all))
}
