//! How teams are made: by all ranks of a team that is split, or by the new team's ranks alone.
//!
//! The control plane begins a team when all of its ranks have asked for it with the same name and list. In a split, the
//! lowest rank of the team that is split hears the colors and keys of all, and tells each rank who its companions are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_hal::control::{ControlError, Decision, Letter, Packet, Proposal};
use tidegate_hal::device::Device;
use tidegate_hal::ids::TeamId;

use super::inner::{Inner, World};
use super::members::Members;
use super::progress::Gathering;
use super::roster::Roster;
use super::team::Team;
use crate::error::{Error, Result, TeamError};
use crate::ground::{lock, shortened};
use crate::observe::{self, now};

impl<D: Device> World<D> {
    /// Divides the ranks into teams: those that give the same color. A rank that gives `None` gets no team. In each
    /// team, ranks are in the order of their keys, and those with equal keys in the order that they had. The call is
    /// collective over all ranks.
    ///
    /// The name stands in errors and reports. The teams of a split have one name, and differ by their ranks. Use
    /// [`Cartesian`](crate::Cartesian) to find colors in a grid.
    ///
    /// # Errors
    ///
    /// - [`TeamError::Names`], on all ranks, if they give different names.
    /// - [`TeamError::Differ`] if ranks make other teams meanwhile, in other threads and another order.
    /// - [`Error::Control`] if a rank has ended, or is in another collective call, or if the name has more than 4096
    ///   bytes (with those of the team that is split); [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(5, |world| {
    /// // Even ranks, the highest one first. Odd ranks take part, and get nothing.
    /// let color = (world.rank() % 2 == 0).then_some(0);
    /// match world.split("even", color, world.size() - world.rank())? {
    ///     Some(team) => assert_eq!(team.ranks(), [4, 2, 0]),
    ///     None => assert_eq!(world.rank() % 2, 1),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn split(
        &self,
        name: &str,
        color: impl Into<Option<usize>>,
        key: usize,
    ) -> Result<Option<Team<D>>> {
        self.everyone().split(name, color, key)
    }

    /// Makes a team of these ranks, in this order. The call is collective over these ranks, and no other rank takes
    /// part. Each of them gives the same name and the same list. A rank makes one team after the other; ranks that make
    /// several teams together make them in the same order.
    ///
    /// # Errors
    ///
    /// - [`TeamError::Differ`], on all ranks of both teams, if ranks give different lists that each contain the other
    ///   rank; and on those of more teams that wait for each other in a cycle.
    /// - [`TeamError::Twice`], [`Error::NoSuchRank`]: the list is not one of a team. A rank that is in it and gave another
    ///   list gets [`TeamError::Differ`].
    /// - [`TeamError::NotListed`]: this rank is not in its own list, and so takes part in no team. A rank that has listed
    ///   this one waits until this one makes another team with it, or ends.
    /// - [`Error::Control`] if a rank of the list has ended, or if the name has more than 4096 bytes (with those of the
    ///   team that this one is made from). A rank that gave another name gets [`TeamError::Differ`].
    /// - [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// if world.rank() != 1 {
    ///     let team = world.team("ends", &[2, 0])?;
    ///     assert_eq!(team.rank(), if world.rank() == 2 { 0 } else { 1 });
    /// }
    /// # Ok(()) });
    /// ```
    pub fn team(&self, name: &str, ranks: &[usize]) -> Result<Team<D>> {
        self.everyone().team(name, ranks)
    }

    /// The team of all ranks, in their order. It has no name. What it opens is what the world opens.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let all = world.everyone();
    /// assert_eq!((all.rank(), all.size()), (world.rank(), 3));
    /// # Ok(()) });
    /// ```
    pub fn everyone(&self) -> Team<D> {
        Team {
            world: self.clone(),
            roster: self.roster().clone(),
        }
    }

    /// Makes the team of the ranks on this rank's node, which map each other's memory. It is called `node`. The call is
    /// collective over these ranks.
    ///
    /// # Errors
    ///
    /// Those of [`World::team`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let node = world.node_team()?;
    /// assert_eq!(node.size(), 3); // threads of one process
    /// # Ok(()) });
    /// ```
    pub fn node_team(&self) -> Result<Team<D>> {
        let node = self.node(self.rank())?;
        let ranks = (0..self.size()).filter(|rank| self.inner.control.node(*rank) == node);
        self.team("node", &ranks.collect::<Vec<_>>())
    }

    /// Makes the team of the lowest ranks of all nodes, one for each. It is called `leaders`. The call is collective
    /// over these ranks; any other rank gets `None` at once.
    ///
    /// # Errors
    ///
    /// Those of [`World::team`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let leaders = world.leaders()?;
    /// assert_eq!(leaders.is_some(), world.rank() == 0); // there is one node
    /// # Ok(()) });
    /// ```
    pub fn leaders(&self) -> Result<Option<Team<D>>> {
        let mut lowest = BTreeMap::new();
        for rank in 0..self.size() {
            lowest.entry(self.inner.control.node(rank)).or_insert(rank);
        }
        let mut ranks: Vec<_> = lowest.into_values().collect();
        ranks.sort_unstable();
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        self.team("leaders", &ranks).map(Some)
    }
}

/// What a rank says to the lowest rank of the team that is split.
#[derive(Serialize, Deserialize)]
struct Choice {
    color: Option<usize>,
    key: usize,
}

impl<D: Device> Team<D> {
    /// [`World::split`], of the ranks of this team.
    ///
    /// # Errors
    ///
    /// Those of [`World::split`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(4, |world| {
    /// let half = world.split("halves", world.rank() / 2, 0)?.unwrap();
    /// let alone = half.split("alone", half.rank(), 0)?.unwrap();
    /// assert_eq!((alone.name(), alone.size()), ("halves/alone", 1));
    /// # Ok(()) });
    /// ```
    pub fn split(
        &self,
        name: &str,
        color: impl Into<Option<usize>>,
        key: usize,
    ) -> Result<Option<Team<D>>> {
        let name = self.roster.named(name);
        let color = color.into();
        let Some(ranks) = self.sorted_by_color(&name, Choice { color, key })? else {
            return Ok(None);
        };
        self.found(name, &ranks).map(Some)
    }

    /// Agrees with the ranks of this team on who comes together. Returns those who come together with this rank, by
    /// their numbers in the job and in the order of the new team. The lowest rank hears all, and answers each.
    fn sorted_by_color(&self, name: &str, choice: Choice) -> Result<Option<Vec<usize>>> {
        const LABEL: &str = "splitting a team";
        let (world, roster) = (&self.world, &*self.roster);
        let (me, lowest) = (world.rank(), roster.members.lowest());
        let agreement = world.agreement(roster, format!("splitting into teams `{name}`"))?;
        let letter = |rank, bytes| Letter {
            rank,
            packet: Packet {
                bytes,
                handles: Vec::new(),
            },
        };
        let encoded = postcard::to_stdvec(&choice).expect("plain data can be encoded");
        let proposal = Proposal {
            header: name.as_bytes().to_vec(),
            alike: name.len(),
            letters: vec![letter(lowest, encoded)],
            ..Proposal::default()
        };
        let letters = match agreement.confer(LABEL, proposal)? {
            Decision::Agreed { letters, .. } => letters,
            Decision::Differs { first, rank, other } => {
                let name = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                let (first, other) = (name(first), name(other));
                return Err(TeamError::Names {
                    lowest,
                    first,
                    rank,
                    other,
                }
                .into());
            }
            Decision::Refused { ranks, .. } => return Err(unreadable(ranks[0])),
        };
        let mut teams: BTreeMap<usize, Vec<(usize, usize, usize)>> = BTreeMap::new();
        for Letter { rank, packet } in letters {
            let Choice { color, key } =
                postcard::from_bytes(&packet.bytes).map_err(|_| unreadable(rank))?;
            let order = roster.members.in_team(rank).unwrap_or(rank);
            if let Some(color) = color {
                teams.entry(color).or_default().push((key, order, rank));
            }
        }
        let mut answers = Vec::new();
        for mut team in teams.into_values() {
            team.sort_unstable();
            let ranks: Vec<_> = team.iter().map(|(.., rank)| *rank).collect();
            let bytes = postcard::to_stdvec(&ranks).expect("plain data can be encoded");
            answers.extend(ranks.iter().map(|rank| letter(*rank, bytes.clone())));
        }
        answers.sort_unstable_by_key(|letter| letter.rank);
        let proposal = Proposal {
            letters: answers,
            ..Proposal::default()
        };
        match agreement.confer(LABEL, proposal)? {
            Decision::Agreed { mut letters, .. } => match (letters.pop(), choice.color) {
                (None, None) => Ok(None),
                (Some(Letter { rank, packet }), Some(_)) => {
                    let ranks: Vec<usize> =
                        postcard::from_bytes(&packet.bytes).map_err(|_| unreadable(rank))?;
                    Ok(Some(ranks))
                }
                _ => Err(unreadable(lowest)),
            },
            _ => Err(unreadable(me)),
        }
    }

    /// [`World::team`], of ranks of this team, by their numbers in it.
    ///
    /// # Errors
    ///
    /// Those of [`World::team`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let turned = world.team("turned", &[2, 1, 0])?;
    /// if turned.rank() < 2 {
    ///     let first = turned.team("first", &[0, 1])?;
    ///     assert_eq!(first.ranks(), [2, 1]);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn team(&self, name: &str, ranks: &[usize]) -> Result<Team<D>> {
        let name = self.roster.named(name);
        if !ranks.contains(&self.rank()) {
            let rank = self.world.rank();
            return Err(TeamError::NotListed { team: name, rank }.into());
        }
        let mut good = Vec::new();
        let mut refused = (name.len() > Packet::MAX_LABEL).then(|| too_long(&name));
        for rank in ranks {
            match self.world_rank(*rank) {
                Ok(rank) if good.contains(&rank) => {
                    let team = name.clone();
                    refused.get_or_insert(TeamError::Twice { team, rank }.into());
                }
                Ok(rank) => good.push(rank),
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        let Some(error) = refused else {
            return self.found(name, &good);
        };
        // The ranks that have given something else must not wait for this one. If all have given this, the team is made,
        // and dropped.
        drop(self.found(another(&name, &error), &good));
        Err(error)
    }

    /// Makes a team of ranks of the job, of which this is one.
    fn found(&self, name: Arc<str>, ranks: &[usize]) -> Result<Team<D>> {
        let inner: &Arc<Inner<D>> = self.world.shared();
        inner.process.check()?;
        let members = Members::new(ranks);
        let gathering = Gathering::making(&name, ranks);
        let what = format!("making the team `{name}`");
        let making = lock(&inner.making);
        {
            let mut progress = lock(&inner.progress);
            progress.begin(gathering, &members, what);
            progress.enter(gathering);
        }
        let founded = inner.control.found(&name, ranks);
        lock(&inner.progress).forget(gathering);
        drop(making);
        let id = founded.map_err(|error| match error {
            ControlError::Teams { rank, mine, theirs } => {
                TeamError::Differ { rank, mine, theirs }.into()
            }
            error => Error::from(error),
        })?;
        let rank = members.in_team(self.world.rank());
        let rank = rank.expect("the callers have checked that this rank is in the list");
        if let Some(observed) = self.world.observed() {
            observed.tell(&observe::Event::TeamMade(observe::TeamMade {
                team: id,
                name: name.clone(),
                ranks: ranks.iter().map(|rank| *rank as u32).collect(),
                at: now(),
            }));
        }
        let weak = Arc::downgrade(inner);
        let over = move |team| {
            if let Some(inner) = weak.upgrade() {
                inner.leave_team(team);
            }
        };
        Ok(Team {
            world: self.world.clone(),
            roster: Roster::new((id, name), members, rank, over),
        })
    }
}

impl<D: Device> Inner<D> {
    /// Ends this rank's part in a team, when nothing of the team is left here.
    fn leave_team(&self, team: TeamId) {
        if !self.process.is_this() {
            return;
        }
        self.control.dissolve(team);
        lock(&self.progress).forget(Gathering::of(team));
        lock(&self.events).windows.end(team);
    }
}

fn too_long(name: &str) -> Error {
    ControlError::TooLarge {
        label: "the name of a team".to_owned(),
        bytes: name.len(),
        most: Packet::MAX_LABEL,
        handles: 0,
    }
    .into()
}

/// The name of a team that is not made, for the ranks that wait for it. It fits in [`Packet::MAX_LABEL`]: otherwise the
/// control plane would refuse it, and the others would not hear of it.
fn another(name: &str, error: &Error) -> Arc<str> {
    let [name, error] = [name, &error.to_string()].map(|text| shortened(text, 1000));
    format!("{name}` that cannot be made ({error}), `{name}").into()
}

/// A rank says what no rank of this version of the library says.
fn unreadable(rank: usize) -> Error {
    ControlError::Mismatch {
        rank,
        mine: "splitting a team".into(),
        theirs: "splitting a team in another way".into(),
    }
    .into()
}
