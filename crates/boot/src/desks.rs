//! What has come for one rank, for each of its teams.
//!
//! # Model
//!
//! A team has a desk from when the rank hears that the team has begun, which comes before all letters of the team. Only
//! descriptors may come earlier, since they come another way. So if the rank has asked for a team, descriptors of teams
//! that it does not know are kept until it hears.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_hal::ids::TeamId;

use crate::mail::{ALL_ROUNDS, Fds, Mail};
use crate::rounds::{Failure, Founders, Members, team_of};

#[derive(Debug)]
pub(crate) struct Desks {
    desks: BTreeMap<TeamId, Desk>,
    founding: Founding,
    /// Descriptors of teams that this rank does not know yet: their sender, their round, and they themselves.
    early: Vec<(usize, u64, Fds)>,
    /// Why nothing more will come from the hub.
    cut_off: Option<String>,
}

/// The team that this rank makes.
#[derive(Debug)]
enum Founding {
    None,
    Asked(Founders),
    Answered(Result<TeamId, Failure>),
}

/// One team's part of what comes.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) mail: Mail,
    /// Why no collective call of the team is possible any more.
    pub(crate) no_calls: Option<String>,
    /// Held for a whole collective call, so that calls of one rank are matched in order.
    pub(crate) calls: Arc<Mutex<()>>,
}

impl Desk {
    fn new(team: TeamId, members: Members) -> Self {
        Self {
            mail: Mail::new(team, members),
            no_calls: None,
            calls: Arc::default(),
        }
    }
}

impl Desks {
    pub(crate) fn new(size: usize) -> Self {
        let world = Desk::new(TeamId::WORLD, Members::First(size));
        Self {
            desks: BTreeMap::from([(TeamId::WORLD, world)]),
            founding: Founding::None,
            early: Vec::new(),
            cut_off: None,
        }
    }

    pub(crate) fn get(&self, team: TeamId) -> Option<&Desk> {
        self.desks.get(&team)
    }

    pub(crate) fn get_mut(&mut self, team: TeamId) -> Option<&mut Desk> {
        self.desks.get_mut(&team)
    }

    /// The desk for what comes in a round. `None` if this rank has given the team up, and if its calls there have
    /// failed: it need not follow the others then.
    pub(crate) fn of(&mut self, round: u64) -> Option<&mut Desk> {
        let desk = self.desks.get_mut(&team_of(round)?)?;
        desk.no_calls.is_none().then_some(desk)
    }

    /// Notes descriptors. Those of which nobody will ask are closed.
    pub(crate) fn fds(&mut self, from: usize, round: u64, fds: Fds) {
        if let (ALL_ROUNDS, Err(reason)) = (round, &fds) {
            for desk in self.desks.values_mut() {
                desk.mail.fds(from, round, Err(reason.clone()));
            }
        } else if let Some(desk) = self.of(round) {
            desk.mail.fds(from, round, fds);
        } else if matches!(self.founding, Founding::Asked(_)) {
            self.early.push((from, round, fds));
        }
    }

    /// Notes that this rank asks for a team. If the hub cannot answer any more, the answer is there at once.
    pub(crate) fn ask(&mut self, founders: Founders) {
        self.founding = Founding::Asked(founders);
        self.answer_without_hub();
    }

    /// Notes the answer. `None`: this rank has not asked.
    pub(crate) fn founded(&mut self, answer: Result<TeamId, Failure>) -> Option<()> {
        let Founding::Asked(founders) = &self.founding else {
            return None;
        };
        if let Ok(team) = answer {
            let members = Members::new(&founders.ranks);
            self.desks.insert(team, Desk::new(team, members));
        }
        self.founding = Founding::Answered(answer);
        for (from, round, fds) in std::mem::take(&mut self.early) {
            self.fds(from, round, fds);
        }
        Some(())
    }

    /// Takes the answer, if it has come.
    pub(crate) fn answer(&mut self) -> Option<Result<TeamId, Failure>> {
        match std::mem::replace(&mut self.founding, Founding::None) {
            Founding::Answered(answer) => Some(answer),
            other => {
                self.founding = other;
                None
            }
        }
    }

    /// Whether the program waits for something that has come.
    pub(crate) fn has_news(&self) -> bool {
        matches!(self.founding, Founding::Answered(_))
            || self.desks.values().any(|desk| desk.mail.is_decided())
    }

    /// Ends this rank's part in a team. Returns whether it had one.
    pub(crate) fn dissolve(&mut self, team: TeamId) -> bool {
        self.desks.remove(&team).is_some()
    }

    /// Notes that nothing more will come from the hub.
    pub(crate) fn cut_off(&mut self, reason: &str) {
        for desk in self.desks.values_mut() {
            desk.mail.cut_off(reason);
        }
        self.cut_off.get_or_insert_with(|| reason.to_owned());
        self.answer_without_hub();
    }

    fn answer_without_hub(&mut self) {
        if let (Founding::Asked(_), Some(reason)) = (&self.founding, &self.cut_off) {
            let reason = reason.clone();
            self.founding = Founding::Answered(Err(Failure::Lost { rank: 0, reason }));
            self.early.clear();
        }
    }

    /// Closes all descriptors.
    pub(crate) fn clear(&mut self) {
        self.early.clear();
        self.desks.values_mut().for_each(|desk| desk.mail.clear());
    }
}
