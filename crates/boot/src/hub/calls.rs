//! Collective calls: what the hub passes on, and what it decides.

use super::Hub;
use crate::rounds::{Call, Came, Kind, OutOfOrder, Outcome, Vote};
use crate::wire::Message;

impl Hub {
    /// Handles what a rank says about its collective call.
    pub(super) fn hear_call(&mut self, from: usize, message: Message) -> Result<(), OutOfOrder> {
        let rank = from as u32;
        match message {
            Message::Letter {
                rank: to,
                round,
                handles,
                bytes,
            } => {
                let to = to as usize;
                // Descriptors do not go to other nodes, whatever the sender says of them.
                let near = self.nodes.get(to) == self.nodes.get(from);
                let handles = if near { handles } else { 0 };
                if self.rounds.letter(from, round, to)? && self.is_here(to) {
                    let letter = Message::Letter {
                        rank,
                        round,
                        handles,
                        bytes,
                    };
                    self.send_letter(to, &letter);
                }
            }
            Message::Confer { round, label, vote } => {
                let call = Call::new(Kind::Confer, label);
                if let Came::Counted(outcome) = self.rounds.come(from, round, call, vote)? {
                    self.tell_outcome(round, outcome);
                }
            }
            Message::Exchange {
                round,
                label,
                bytes,
            } => {
                let call = Call::new(Kind::Exchange, label);
                let came = self.rounds.come(from, round, call, Vote::default())?;
                if let Came::Counted(outcome) = came {
                    self.broadcast(from, &Message::Said { rank, round, bytes });
                    self.tell_outcome(round, outcome);
                }
            }
            Message::Withdrawn { reason } => self.ends_calls(from, &reason),
            _ => {}
        }
        Ok(())
    }

    /// Notes that a rank comes to no collective call any more.
    pub(super) fn ends_calls(&mut self, rank: usize, reason: &str) {
        let outcome = self.rounds.end(rank, reason);
        self.tell_outcome(self.rounds.round(), outcome);
    }

    fn tell_outcome(&mut self, round: u64, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.broadcast(usize::MAX, &Message::Decided { round, outcome });
        }
    }
}
