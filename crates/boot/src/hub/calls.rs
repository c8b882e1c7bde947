//! Collective calls: what the hub passes on, and what it decides.

use super::Hub;
use super::gathered::Gathered;
use crate::hop::To;
use crate::rounds::{Call, Came, Kind, Members, OutOfOrder, Outcome, Vote, team_of};
use crate::tally::Tally;
use crate::teams::{Ended, Founded};
use crate::wire::{Message, Said};
use tidegate_hal::ids::TeamId;

impl Hub {
    /// Handles what a rank says about its collective call.
    pub(super) fn hear_call(&mut self, from: usize, message: Message) -> Result<(), OutOfOrder> {
        let rank = from as u32;
        match message {
            Message::Letter {
                rank: to,
                round,
                handles,
                lost,
                bytes,
            } => {
                let to = to as usize;
                // Descriptors do not go to other nodes, whatever the sender says of them.
                let near = self.nodes.get(to) == self.nodes.get(from);
                let handles = if near { handles } else { 0 };
                let passes = self.teams.of(from, round)?.letter(from, round, to)?;
                if passes && self.is_here(to) {
                    let letter = Message::Letter {
                        rank,
                        round,
                        handles,
                        lost,
                        bytes,
                    };
                    self.send_at_leisure(to, letter);
                }
            }
            Message::Confer { round, label, vote } => {
                let call = Call::new(Kind::Confer, label);
                let rounds = self.teams.of(from, round)?;
                let members = rounds.members().clone();
                if let Came::Counted(outcome) = rounds.come(from, round, call, *vote)? {
                    self.tell_outcome(&members, round, outcome);
                }
            }
            Message::Exchange {
                round,
                label,
                bytes,
            } => {
                let call = Call::new(Kind::Exchange, label);
                let rounds = self.teams.of(from, round)?;
                let members = rounds.members().clone();
                if let Came::Counted(outcome) = rounds.come(from, round, call, Vote::default())? {
                    let team = team_of(round).unwrap_or(TeamId::WORLD);
                    let gathered = self.gathered.entry(team).or_default();
                    if gathered.has_much(bytes.len()) {
                        self.tell_gathered(&members, team, round);
                    }
                    let gathered = self.gathered.entry(team).or_default();
                    gathered.add(Said { rank, bytes });
                    self.tell_outcome(&members, round, outcome);
                }
            }
            Message::Found { founders } => {
                for founded in self.teams.ask(from, founders)? {
                    self.tell_founded(founded);
                }
            }
            Message::Withdrawn { team: None, reason } => self.ends_calls(from, &reason),
            Message::Withdrawn {
                team: Some(team),
                reason,
            } => {
                let ended = self.teams.withdraw(from, team, &reason);
                self.tell_ended(ended);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles what ranks say together about a call of all ranks.
    pub(super) fn hear_votes(&mut self, round: u64, tally: Tally) -> Result<(), OutOfOrder> {
        let rounds = self.teams.of(0, round)?;
        let members = rounds.members().clone();
        if let Came::Counted(outcome) = rounds.come_together(round, tally)? {
            self.tell_outcome(&members, round, outcome);
        }
        Ok(())
    }

    /// Notes that a rank comes to no collective call any more.
    pub(super) fn ends_calls(&mut self, rank: usize, reason: &str) {
        let (ended, founded) = self.teams.end(rank, reason);
        self.tell_ended(ended);
        for founded in founded {
            self.tell_founded(founded);
        }
    }

    fn tell_ended(&mut self, ended: impl IntoIterator<Item = Ended>) {
        for (members, round, outcome) in ended {
            self.tell_outcome(&members, round, Some(outcome));
        }
    }

    fn tell_founded(&mut self, (ranks, team): Founded) {
        let ranks = ranks.into_iter().map(|rank| rank as u32).collect();
        self.send(To::Ranks(ranks), Message::Founded { team });
    }

    fn tell_outcome(&mut self, members: &Members, round: u64, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            return;
        };
        if let Some(team) = team_of(round) {
            self.tell_gathered(members, team, round);
        }
        self.tell(members, None, Message::Decided { round, outcome });
    }

    /// Tells the members what was gathered in an exchange.
    fn tell_gathered(&mut self, members: &Members, team: TeamId, round: u64) {
        let Some(said) = self.gathered.remove(&team).map(Gathered::take) else {
            return;
        };
        // A rank knows what it says itself. That matters if it is long, and then it is alone.
        let except = match &said[..] {
            [] => return,
            [one] => Some(one.rank),
            _ => None,
        };
        self.tell(members, except, Message::Said { round, said });
    }

    /// Sends a message to these ranks, `except` for one.
    fn tell(&mut self, members: &Members, except: Option<u32>, message: Message) {
        let to = match (members, except) {
            (Members::First(_), None) => To::All,
            (Members::First(_), Some(rank)) => To::Others(rank),
            (Members::Some(_), _) => {
                let here = members.iter().filter(|rank| self.is_here(*rank));
                let here = here.map(|rank| rank as u32);
                To::Ranks(here.filter(|rank| Some(*rank) != except).collect())
            }
        };
        self.send(to, message);
    }
}
