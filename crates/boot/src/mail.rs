//! What has come for one rank of a team, until its program takes it.
//!
//! # Model
//!
//! Letters, and what others say in an exchange, come before the outcome of their round. The outcome says whether they
//! count. Descriptors come another way, before or after the letters to which they belong.
//!
//! A peer that knows the outcome of a round may already write letters for the next one. So what comes belongs to the
//! round to which this rank comes next (or has come), or to the one after it.
//!
//! # Failure
//!
//! After the connection to rank 0 is lost, the first round without an outcome fails because of it.

use crate::rounds::{Call, Failure, Kind, Members, Outcome, first_round};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_hal::control::{Handle, Letter, Packet};
use tidegate_hal::ids::TeamId;

/// Descriptors of a letter, or why they did not come.
pub(crate) type Fds = Result<Vec<OwnedFd>, String>;

/// The round of descriptors that nobody will get: all that their sender has sent, in whatever round.
pub(crate) const ALL_ROUNDS: u64 = u64::MAX;

/// A letter whose descriptors may be missing.
#[derive(Debug)]
struct Sealed {
    from: usize,
    bytes: Vec<u8>,
    /// How many descriptors belong to it.
    handles: u8,
    /// The handles of a letter to oneself.
    own: Vec<Handle>,
}

/// What has come in one round.
#[derive(Debug, Default)]
struct Round {
    letters: Vec<Sealed>,
    /// What the ranks say, if the round is an exchange: by the places of the members.
    said: Vec<Option<Vec<u8>>>,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
pub(crate) struct Mail {
    members: Members,
    /// The first round that the program has not taken.
    round: u64,
    /// That round, and perhaps the one after it.
    open: VecDeque<Round>,
    /// The descriptors that have come, by sender and round.
    fds: HashMap<(usize, u64), Fds>,
}

/// What a rank takes at the end of a round.
#[derive(Debug)]
pub(crate) enum Taken {
    /// What all ranks said.
    All(Vec<Vec<u8>>),
    /// The outcome, and the letters if the ranks agree.
    Outcome(Outcome, Vec<Letter>),
}

/// Why a round cannot be taken.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The outcome has not come.
    Outcome,
    /// The descriptors of this rank's letter have not come.
    Fds(usize),
    /// This rank has sent another number of descriptors than it wrote.
    Garbled(usize),
    /// There is an outcome of an exchange, and this rank's bytes have not come.
    Bytes(usize),
}

impl Mail {
    pub(crate) fn new(team: TeamId, members: Members) -> Self {
        Self {
            members,
            round: first_round(team),
            open: VecDeque::new(),
            fds: HashMap::new(),
        }
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// The round to which the program comes next, or has come.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Whether the program's round has an outcome.
    pub(crate) fn is_decided(&self) -> bool {
        self.open
            .front()
            .is_some_and(|round| round.outcome.is_some())
    }

    /// A round to which something may still come.
    fn open(&mut self, round: u64) -> Option<&mut Round> {
        let index = round.checked_sub(self.round).filter(|index| *index <= 1)? as usize;
        while self.open.len() <= index {
            self.open.push_back(Round::default());
        }
        let round = &mut self.open[index];
        round.outcome.is_none().then_some(round)
    }

    /// Notes a letter. `None`: it is out of order.
    pub(crate) fn letter(
        &mut self,
        from: usize,
        round: u64,
        handles: u8,
        bytes: Vec<u8>,
    ) -> Option<()> {
        let own = Vec::new();
        let letter = Sealed {
            from,
            bytes,
            handles,
            own,
        };
        self.open(round)?.letters.push(letter);
        Some(())
    }

    /// Notes a letter of the program to itself.
    pub(crate) fn letter_to_oneself(&mut self, letter: Letter) {
        let Packet { bytes, handles } = letter.packet;
        let letter = Sealed {
            from: letter.rank,
            bytes,
            handles: 0,
            own: handles,
        };
        if let Some(round) = self.open(self.round) {
            round.letters.push(letter);
        }
    }

    /// Notes what a rank says in an exchange. `None`: it is out of order.
    pub(crate) fn said(&mut self, from: usize, round: u64, bytes: Vec<u8>) -> Option<()> {
        let (place, size) = (self.members.place(from)?, self.members.len());
        let said = &mut self.open(round)?.said;
        said.resize(size, None);
        said[place] = Some(bytes);
        Some(())
    }

    /// Notes the outcome of a round. `None`: it is out of order.
    pub(crate) fn decided(&mut self, round: u64, outcome: Outcome) -> Option<()> {
        self.open(round)?.outcome = Some(outcome);
        Some(())
    }

    /// Notes that nothing more will come from the hub.
    pub(crate) fn cut_off(&mut self, reason: &str) {
        let failure = Failure::Lost {
            rank: 0,
            reason: reason.to_owned(),
        };
        let round = self.round + u64::from(self.is_decided());
        self.decided(round, Outcome::Failed(failure));
    }

    /// Notes descriptors. Those of a round that is over, or that can never be, are closed.
    pub(crate) fn fds(&mut self, from: usize, round: u64, fds: Fds) {
        if (self.round..self.round + 2).contains(&round) || round == ALL_ROUNDS {
            self.fds.insert((from, round), fds);
        }
    }

    /// Closes all descriptors.
    pub(crate) fn clear(&mut self) {
        self.fds.clear();
    }

    /// Takes the program's round, if all of it has come. The next one follows then.
    pub(crate) fn take(&mut self, call: &Call) -> Result<Taken, Missing> {
        let Some(Round { outcome, .. }) = self.open.front() else {
            return Err(Missing::Outcome);
        };
        let agreed = match outcome {
            None => return Err(Missing::Outcome),
            Some(outcome) => matches!(outcome, Outcome::Agreed { .. }),
        };
        let is_exchange = call.kind == Kind::Exchange;
        if let Some(missing) = self.missing(is_exchange).filter(|_| agreed) {
            return Err(missing);
        }
        let Some(Round {
            outcome: Some(outcome),
            letters,
            said,
        }) = self.open.pop_front()
        else {
            return Err(Missing::Outcome);
        };
        let taken = match (agreed, is_exchange) {
            (true, true) => Taken::All(said.into_iter().flatten().collect()),
            (true, false) => {
                let letters = letters.into_iter().map(|letter| self.unsealed(letter));
                let mut letters: Vec<_> = letters.collect();
                letters.sort_by_key(|letter| letter.rank);
                Taken::Outcome(outcome, letters)
            }
            (false, _) => Taken::Outcome(outcome, Vec::new()),
        };
        self.round += 1;
        let next = self.round;
        self.fds.retain(|(_, round), _| *round >= next);
        Ok(taken)
    }

    /// What the ranks have sent, and has not come yet.
    fn missing(&self, is_exchange: bool) -> Option<Missing> {
        let round = self.open.front()?;
        if is_exchange {
            let has_come = |place: usize| matches!(round.said.get(place), Some(Some(_)));
            let place = (0..self.members.len()).find(|place| !has_come(*place))?;
            return Some(Missing::Bytes(self.members.rank(place)));
        }
        let with_fds = round.letters.iter().filter(|letter| letter.handles > 0);
        with_fds
            .filter_map(|letter| match self.fds_of(letter.from) {
                None => Some(Missing::Fds(letter.from)),
                Some(Ok(fds)) if fds.len() != usize::from(letter.handles) => {
                    Some(Missing::Garbled(letter.from))
                }
                Some(_) => None,
            })
            .next()
    }

    /// What has come of the descriptors of a rank, in the program's round.
    fn fds_of(&self, from: usize) -> Option<&Fds> {
        let own = self.fds.get(&(from, self.round));
        own.or_else(|| self.fds.get(&(from, ALL_ROUNDS)))
    }

    /// The letter with its handles, which have come.
    fn unsealed(&mut self, letter: Sealed) -> Letter {
        let lost = |why: &String| vec![Handle::Lost(why.clone()); usize::from(letter.handles)];
        let handles = match self.fds.remove(&(letter.from, self.round)) {
            _ if letter.handles == 0 => letter.own,
            Some(Ok(fds)) => fds.into_iter().map(|fd| Handle::Fd(Arc::new(fd))).collect(),
            Some(Err(why)) => lost(&why),
            None => match self.fds.get(&(letter.from, ALL_ROUNDS)) {
                Some(Err(why)) => lost(why),
                _ => Vec::new(),
            },
        };
        let bytes = letter.bytes;
        Letter {
            rank: letter.from,
            packet: Packet { bytes, handles },
        }
    }
}
