//! Why a team was not made or used.

use std::sync::Arc;

use tidegate_hal::control::Group;

/// A team was not made, or something cannot be done with it. Ranks are named by their numbers in the job.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::TeamError;
///
/// # tidegate::doc::ranks(2, |world| {
/// let error = world.team("twice", &[0, 1, 1]).unwrap_err();
/// assert!(matches!(error, Error::Team(TeamError::Twice { rank: 1, .. })));
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// Ranks make different teams at the same time, and each of the teams needs the other rank. All ranks of both teams
    /// get this error. The lists must have the same ranks in the same order, and the teams the same name. Or more teams
    /// wait for each other in a cycle: each needs a rank that makes the next one.
    #[error("ranks make different teams: this one makes {mine}, rank {rank} makes {theirs}")]
    Differ {
        /// The other rank.
        rank: usize,
        /// The name and the ranks of this rank's team.
        mine: Box<Group>,
        /// Those of the other rank's team.
        theirs: Box<Group>,
    },
    /// The list of ranks names one twice.
    #[error("team `{team}` cannot be made: the list names rank {rank} twice")]
    Twice {
        /// The name of the team.
        team: Arc<str>,
        /// The rank.
        rank: usize,
    },
    /// The list of ranks lacks the rank that makes the team.
    #[error("team `{team}` cannot be made by rank {rank}, which is not in the list")]
    NotListed {
        /// The name of the team.
        team: Arc<str>,
        /// This rank.
        rank: usize,
    },
    /// Ranks split a team by different names.
    #[error("ranks {lowest} and {rank} split a team by different names: `{first}` and `{other}`")]
    Names {
        /// Rank 0, or the lowest rank of the team.
        lowest: usize,
        /// The name that this one gives.
        first: String,
        /// The lowest rank that gives another name.
        rank: usize,
        /// That name.
        other: String,
    },
    /// The stream belongs to another world than the team.
    #[error(
        "the stream of rank {rank} belongs to another world than {}",
        titled(team)
    )]
    OtherWorld {
        /// The rank, by its number in the team's job.
        rank: usize,
        /// The name of the team, which is empty for all ranks of a job.
        team: Arc<str>,
    },
    /// A recording that a team verifies has a window with a rank outside the team.
    #[error(
        "the recording of rank {rank} waits for rank {outside}, which is not in the team that verifies it"
    )]
    Outside {
        /// The rank of the team.
        rank: usize,
        /// The rank outside.
        outside: usize,
    },
    /// The transport allocates memory for peers by calls of all ranks of the job, as MPI's windows do. So only all
    /// ranks together can open a window. All ranks of the team get this error.
    #[error(
        "team `{team}` cannot open anything over windows of MPI, which all ranks of the job allocate together"
    )]
    Transport {
        /// The name of the team.
        team: Arc<str>,
    },
}

/// A team in a sentence.
fn titled(team: &str) -> String {
    match team {
        "" => "the team of all ranks".to_owned(),
        team => format!("team `{team}`"),
    }
}
