//! Names for what the ranks of a job have in common.
//!
//! A window is known by its team and by its number among the windows of that team. All ranks of a team open its windows
//! in the same order, so they agree on the numbers without communication. No window of another team has the same id.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A team of ranks: the [world](TeamId::WORLD), or some of its ranks. At any time, no two teams of a job have the same
/// number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TeamId(u32);

impl TeamId {
    /// All ranks of the job.
    pub const WORLD: Self = TeamId(0);

    /// The greatest number of a team. It leaves room for other fields in the words by which devices name a wait.
    pub const MOST: u32 = (1 << 24) - 2;

    /// The team with this number; `None` if it is greater than [`TeamId::MOST`].
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MOST {
            Some(TeamId(number))
        } else {
            None
        }
    }

    /// The number of the team.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TeamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TeamId::WORLD => f.write_str("the world"),
            TeamId(number) => write!(f, "team {number}"),
        }
    }
}

impl fmt::Debug for TeamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A window of the job, or a collective. It is the same on all ranks of the team. Messages show it as its
/// number, in the order in which the team opens windows.
///
/// ```
/// use tidegate_hal::ids::{TeamId, WindowId};
/// let window = WindowId { team: TeamId::WORLD, sequence: 7 };
/// assert_eq!(window.to_string(), "number 7");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WindowId {
    /// The team whose ranks have opened the window.
    pub team: TeamId,
    /// How many windows the team began to open before this one.
    pub sequence: u32,
}

impl WindowId {
    /// The first window of a team.
    pub const fn first(team: TeamId) -> Self {
        WindowId { team, sequence: 0 }
    }

    /// The window that the team opens after this one.
    ///
    /// # Panics
    ///
    /// If there is none: a team opens no more than 2^32 windows.
    #[must_use]
    pub fn next(self) -> Self {
        let sequence = self.sequence.checked_add(1);
        WindowId {
            sequence: sequence.expect("a team opens no more than 2^32 windows"),
            ..self
        }
    }

    /// The one before it, if it is not the first.
    pub fn before(self) -> Option<Self> {
        let sequence = self.sequence.checked_sub(1)?;
        Some(WindowId { sequence, ..self })
    }
}

impl fmt::Display for WindowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {}", self.sequence)?;
        match self.team {
            TeamId::WORLD => Ok(()),
            team => write!(f, " of {team}"),
        }
    }
}

impl fmt::Debug for WindowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_two_teams_are_never_one() {
        let teams = [0, 1, TeamId::MOST].map(|number| TeamId::new(number).unwrap());
        assert_eq!(TeamId::new(TeamId::MOST + 1), None);
        let windows = teams.map(|team| WindowId::first(team).next());
        assert_eq!(
            windows.map(|id| id.to_string()),
            [
                "number 1",
                "number 1 of team 1",
                "number 1 of team 16777214"
            ]
        );
        for (index, one) in windows.iter().enumerate() {
            let same = windows.iter().filter(|other| *other == one);
            assert_eq!(same.count(), 1);
            // They are in the order of teams, and within a team in the order of its windows.
            assert!(windows[..index].iter().all(|earlier| earlier < one));
            assert_eq!(one.before(), Some(WindowId::first(one.team)));
            assert!(one.before() < Some(*one) && one.before().unwrap().before().is_none());
        }
    }
}
