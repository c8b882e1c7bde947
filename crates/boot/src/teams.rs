//! The teams of a job: which ranks make one, and their rounds.
//!
//! # Model
//!
//! Like [`Rounds`], this decides and sends nothing. Its owner tells it in one order which ranks ask for teams, come to
//! calls and end, and passes on what it answers. A team begins when all of its ranks have asked for it. It ends when
//! all of its ranks have given it up, or have ended; then nothing is left of it.
//!
//! A rank asks for one team at a time. So if two ranks ask for different teams and each needs the other, neither team
//! can ever begin, and both fail. The same holds for a longer *cycle*: each team has a rank that asks for the next one.
//! A rank may ask for a team whose ranks are busy with another one: it waits.
//!
//! # Failure
//!
//! All ranks of a team that fails must hear of it, also those that have not asked yet. So the last teams that failed
//! are kept until these ranks have asked for them, or for another team. A rank hears of a cycle once, whichever of its
//! teams it asks for. If threads of the ranks make two teams in different orders, there are two cycles, and each rank
//! hears of one in each thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_hal::ids::TeamId;

use crate::rounds::{Failure, Founders, Members, OutOfOrder, Outcome, Rounds, team_of};

/// How many failed teams are kept for ranks that have not asked yet.
const MOST_FAILED: usize = 64;

/// What ranks hear about the team for which they have asked.
pub(crate) type Founded = (Vec<usize>, Result<TeamId, Failure>);

/// The end of a round: the members, its number, and the outcome.
pub(crate) type Ended = (Members, u64, Outcome);

#[derive(Debug)]
pub(crate) struct Teams {
    rounds: BTreeMap<TeamId, Rounds>,
    /// The number of the last team that began.
    last: TeamId,
    /// Teams for which some ranks have asked, by a number of this table.
    asked: BTreeMap<u64, Asked>,
    /// For which of them a rank has asked.
    of_rank: BTreeMap<usize, u64>,
    next: u64,
    failed: VecDeque<Failed>,
    /// The number of cycles that have been found.
    cycles: u64,
    /// The ranks that have ended, and why.
    ended: BTreeMap<usize, String>,
}

#[derive(Debug)]
struct Asked {
    founders: Arc<Founders>,
    members: Members,
    /// How many ranks have asked.
    come: usize,
}

/// A team that failed, and the ranks that have still to hear of it.
#[derive(Debug)]
struct Failed {
    /// The number of the cycle in which it was.
    cycle: u64,
    founders: Arc<Founders>,
    failure: Failure,
    unheard: BTreeSet<usize>,
    /// The ranks that asked for it, and have heard.
    heard: BTreeSet<usize>,
}

impl Teams {
    pub(crate) fn new(size: usize) -> Self {
        let world = Rounds::new(TeamId::WORLD, Members::First(size));
        Self {
            rounds: BTreeMap::from([(TeamId::WORLD, world)]),
            last: TeamId::WORLD,
            asked: BTreeMap::new(),
            of_rank: BTreeMap::new(),
            next: 0,
            failed: VecDeque::new(),
            cycles: 0,
            ended: BTreeMap::new(),
        }
    }

    /// The rounds of the team to which a round belongs, for what `rank` says about it.
    pub(crate) fn of(&mut self, rank: usize, round: u64) -> Result<&mut Rounds, OutOfOrder> {
        let team = team_of(round).and_then(|team| self.rounds.get_mut(&team));
        team.ok_or(OutOfOrder { rank, round })
    }

    pub(crate) fn rounds(&self, team: TeamId) -> Option<&Rounds> {
        self.rounds.get(&team)
    }

    /// Notes that `rank` asks for a team. Returns what ranks hear because of it, this one perhaps among them.
    ///
    /// # Errors
    ///
    /// No correct rank asks for a team without itself, or with a rank that the job does not have.
    pub(crate) fn ask(
        &mut self,
        rank: usize,
        founders: Founders,
    ) -> Result<Vec<Founded>, OutOfOrder> {
        let members = Members::new(&founders.ranks);
        let size = self.rounds[&TeamId::WORLD].members().len();
        let wrong = || OutOfOrder { rank, round: 0 };
        let is_team = members.are_of(size) && members.place(rank).is_some();
        if !is_team || self.of_rank.contains_key(&rank) {
            return Err(wrong());
        }
        if self.ended.contains_key(&rank) {
            return Ok(Vec::new());
        }
        if let Some(failure) = self.heard(rank, &founders) {
            return Ok(vec![(vec![rank], Err(failure))]);
        }
        if let Some((gone, reason)) = members
            .iter()
            .find_map(|rank| self.ended.get_key_value(&rank))
        {
            return Ok(vec![(vec![rank], Err(lost(*gone, reason)))]);
        }
        let open = (self.asked.iter()).find(|(_, asked)| *asked.founders == founders);
        let key = match open {
            Some((key, _)) => *key,
            None => {
                let key = self.next;
                self.next += 1;
                let (founders, come) = (Arc::new(founders), 0);
                let asked = Asked {
                    founders,
                    members,
                    come,
                };
                self.asked.insert(key, asked);
                key
            }
        };
        self.of_rank.insert(rank, key);
        let asked = self.asked.get_mut(&key).expect("it was found or inserted");
        asked.come += 1;
        if asked.come == asked.members.len() {
            return Ok(vec![self.begin(key)]);
        }
        Ok(match self.cycle(rank, key) {
            None => Vec::new(),
            Some(cycle) => self.break_up(&cycle),
        })
    }

    /// The shortest cycle of teams that `rank` closes by asking for the team `key`. Each comes with a rank that asks
    /// for it, and is needed by the team before it.
    fn cycle(&self, rank: usize, key: u64) -> Option<Vec<(usize, u64)>> {
        // For each team that was found: who asks for it, and the team that needs this rank.
        let mut found = BTreeMap::from([(key, (rank, key))]);
        let mut next = VecDeque::from([key]);
        while let Some(at) = next.pop_front() {
            for other in self.asked[&at].members.iter() {
                let Some(theirs) = self.of_rank.get(&other) else {
                    continue;
                };
                if found.contains_key(theirs) {
                    continue;
                }
                found.insert(*theirs, (other, at));
                next.push_back(*theirs);
                if self.asked[theirs].members.place(rank).is_none() {
                    continue;
                }
                let mut cycle = vec![];
                let mut team = *theirs;
                while team != key {
                    let (asks, before) = found[&team];
                    cycle.push((asks, team));
                    team = before;
                }
                cycle.push((rank, key));
                cycle.reverse();
                return Some(cycle);
            }
        }
        None
    }

    /// Ends teams that can never begin. Each rank that has asked for one hears which rank makes which other team.
    fn break_up(&mut self, cycle: &[(usize, u64)]) -> Vec<Founded> {
        let sides: Vec<_> = (cycle.iter())
            .map(|(rank, key)| (*rank as u32, Founders::clone(&self.asked[key].founders)))
            .collect();
        let ends: Vec<_> = cycle.iter().map(|(_, key)| self.fail(*key)).collect();
        let told: BTreeSet<_> = ends.iter().flat_map(|(_, told)| told).copied().collect();
        self.cycles += 1;
        let mut all = Vec::new();
        for (at, (asked, ranks)) in ends.into_iter().enumerate() {
            let this = sides[at].clone();
            let pair = match sides.get(at + 1) {
                Some(next) => [this, next.clone()],
                None => [sides[0].clone(), this],
            };
            let failure = Failure::Teams(Box::new(pair));
            let members = asked.members.iter();
            let unheard: BTreeSet<_> = members.filter(|rank| !told.contains(rank)).collect();
            if !unheard.is_empty() {
                if self.failed.len() == MOST_FAILED {
                    self.failed.pop_front();
                }
                self.failed.push_back(Failed {
                    cycle: self.cycles,
                    founders: asked.founders,
                    failure: failure.clone(),
                    unheard,
                    heard: ranks.iter().copied().collect(),
                });
            }
            all.push((ranks, Err(failure)));
        }
        all
    }

    /// Begins a team for which all have asked.
    fn begin(&mut self, key: u64) -> Founded {
        let Asked { members, .. } = self.asked.remove(&key).expect("the caller has seen it");
        let ranks: Vec<_> = members.iter().collect();
        for rank in &ranks {
            self.of_rank.remove(rank);
        }
        let Some(team) = self.free() else {
            return (
                ranks,
                Err(lost(0, "the job has as many teams as it can have")),
            );
        };
        self.last = team;
        self.rounds.insert(team, Rounds::new(team, members));
        (ranks, Ok(team))
    }

    /// The next number that no team has. Numbers come back as late as possible, since ranks may still remember windows
    /// of a team that has ended.
    fn free(&self) -> Option<TeamId> {
        let numbers = self.last.number() + 1..=TeamId::MOST;
        let mut teams = numbers
            .chain(1..=self.last.number())
            .filter_map(TeamId::new);
        teams.find(|team| !self.rounds.contains_key(team))
    }

    /// Ends the wait for a team that cannot begin. Returns the ranks that have asked for it.
    fn fail(&mut self, key: u64) -> (Asked, Vec<usize>) {
        let asked = self.asked.remove(&key).expect("the caller has seen it");
        let told = asked.members.iter();
        let told = told.filter(|rank| self.of_rank.get(rank) == Some(&key));
        let told: Vec<_> = told.collect();
        for rank in &told {
            self.of_rank.remove(rank);
        }
        (asked, told)
    }

    /// Notes that a rank ends. Returns how open rounds end because of it, and what ranks hear about their teams.
    pub(crate) fn end(&mut self, rank: usize, reason: &str) -> (Vec<Ended>, Vec<Founded>) {
        self.ended.entry(rank).or_insert_with(|| reason.to_owned());
        let teams: Vec<_> = self.rounds.keys().copied().collect();
        let ends = teams.into_iter();
        let ends = ends.filter_map(|team| self.withdraw(rank, team, reason));
        let ends = ends.collect();
        self.heard_all(rank);
        self.of_rank.remove(&rank);
        let keys = self.asked.iter();
        let keys = keys.filter(|(_, asked)| asked.members.place(rank).is_some());
        let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
        let failure = lost(rank, reason);
        let founded = keys.into_iter().map(|key| {
            let (_, told) = self.fail(key);
            (told, Err(failure.clone()))
        });
        (ends, founded.collect())
    }

    /// Notes that a rank comes to no call of a team any more. Returns the end of the open round, if that decides it.
    pub(crate) fn withdraw(&mut self, rank: usize, team: TeamId, reason: &str) -> Option<Ended> {
        let rounds = self.rounds.get_mut(&team)?;
        let outcome = rounds.end(rank, reason);
        let ended = outcome.map(|outcome| (rounds.members().clone(), rounds.round(), outcome));
        if rounds.is_over() && team != TeamId::WORLD {
            self.rounds.remove(&team);
        }
        ended
    }

    /// The failure of a team for which a rank asks too late, if it has not heard of it.
    fn heard(&mut self, rank: usize, founders: &Founders) -> Option<Failure> {
        let is =
            |failed: &&mut Failed| *failed.founders == *founders && failed.unheard.contains(&rank);
        let Some(failed) = self.failed.iter_mut().find(is) else {
            self.heard_all(rank);
            // A rank that has asked for this team, and heard, makes a new attempt.
            let again =
                |failed: &Failed| *failed.founders == *founders && failed.heard.contains(&rank);
            self.failed.retain(|failed| !again(failed));
            return None;
        };
        failed.heard.insert(rank);
        let (cycle, failure) = (failed.cycle, failed.failure.clone());
        self.failed.retain_mut(|failed| {
            if failed.cycle == cycle {
                failed.unheard.remove(&rank);
            }
            !failed.unheard.is_empty()
        });
        Some(failure)
    }

    /// Notes that a rank has not to hear of any failed team.
    fn heard_all(&mut self, rank: usize) {
        self.failed.retain_mut(|failed| {
            failed.unheard.remove(&rank);
            !failed.unheard.is_empty()
        });
    }
}

fn lost(rank: usize, reason: &str) -> Failure {
    Failure::Lost {
        rank: rank as u32,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;
