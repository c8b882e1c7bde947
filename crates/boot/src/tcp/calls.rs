//! The collective calls of a rank.

use super::Member;
use crate::local::{check_proposal, check_size, failed_before};
use crate::mail::{Missing, Taken};
use crate::rounds::{Call, Kind, Outcome, Vote};
use crate::shared::{Outgoing, RankState, ServiceRequest};
use crate::wire::{MAX_LABEL, Message};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_hal::control::{ControlError, Decision, Handle, Letter, Proposal};
use tidegate_hal::lock;

impl Member {
    pub(super) fn exchange(
        &self,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        self.process.check()?;
        check_size(label, bytes.len(), 0)?;
        let taken = self.call(Call::new(Kind::Exchange, label), |state, label| {
            let round = state.mail.round();
            state.mail.said(self.shared.rank, round, bytes.clone());
            Ok(Message::Exchange {
                round,
                label,
                bytes,
            })
        })?;
        match taken {
            Taken::All(all) => Ok(all),
            Taken::Outcome(..) => Err(garbled("the end of an exchange")),
        }
    }

    pub(super) fn confer(
        &self,
        label: &str,
        mut proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        self.process.check()?;
        check_proposal(label, &proposal, self.shared.size)?;
        let vote = Vote::take(&mut proposal);
        let call = Call::new(Kind::Confer, label);
        let taken = self.call(call.clone(), |state, label| {
            let round = state.mail.round();
            for letter in proposal.letters {
                self.write(state, round, letter)?;
            }
            Ok(Message::Confer { round, label, vote })
        })?;
        let Taken::Outcome(outcome, came) = taken else {
            return Err(garbled("a decision"));
        };
        let mut decision = outcome.decision(&call)?;
        if let Decision::Agreed { letters, .. } = &mut decision {
            *letters = came;
        }
        Ok(decision)
    }

    /// Sends a letter. Its handles go only to a rank of this node.
    fn write(&self, state: &mut RankState, round: u64, letter: Letter) -> Result<(), ControlError> {
        let (to, me) = (letter.rank, self.shared.rank);
        if to == me {
            state.mail.letter_to_oneself(letter);
            return Ok(());
        }
        let fds = letter.packet.handles.into_iter().map(descriptor);
        let mut fds = fds.collect::<Result<Vec<_>, _>>()?;
        if self.nodes[to] != self.nodes[me] {
            fds.clear();
        }
        let bytes = letter.packet.bytes;
        state.requests.push_back(ServiceRequest::Write(Outgoing {
            to,
            round,
            bytes,
            fds,
        }));
        Ok(())
    }

    /// Takes part in one round. `say` sends the letters, and makes the message that this rank has come.
    fn call(
        &self,
        call: Call,
        say: impl FnOnce(&mut RankState, String) -> Result<Message, ControlError>,
    ) -> Result<Taken, ControlError> {
        if call.label.len() > MAX_LABEL {
            return Err(ControlError::TooLarge {
                label: "the name of a collective call".to_owned(),
                bytes: call.label.len(),
                most: MAX_LABEL,
                handles: 0,
            });
        }
        let _one_at_a_time = lock(&self.calls);
        let mut state = lock(&self.shared.state);
        if let Some(reason) = &state.no_calls {
            return Err(ControlError::Closed(reason.clone()));
        }
        // The round may have failed already. Then the hub wants to hear nothing more.
        if !state.mail.is_decided() {
            // The others come to this call, and must not wait in it for a rank that cannot take part.
            let message = say(&mut state, call.label.clone());
            let message = message.inspect_err(|error| self.withdraw(&mut state, error))?;
            state.requests.push_back(ServiceRequest::Say(message));
            self.wake();
        }
        let result = loop {
            if let Some(result) = self.outcome(&mut state, &call) {
                break result;
            }
            if let Some(reason) = &state.no_calls {
                break Err(ControlError::Closed(reason.clone()));
            }
            state = self.wait(state);
        };
        match &result {
            Ok(_) => self.shared.goes_on(&mut state),
            Err(error) => {
                if let ControlError::PeerLost { rank, reason, .. } = error {
                    let why = format!("rank {rank} did not come ({reason})");
                    self.shared.note(&mut state, *rank, &why);
                }
                // If it is the failure of this rank alone, the others must not wait for it in the next round.
                self.withdraw(&mut state, error);
            }
        }
        result
    }

    /// Withdraws from all collective calls, and tells the others.
    fn withdraw(&self, state: &mut RankState, error: &ControlError) {
        state.mail.clear();
        if state.no_calls.is_none() {
            let reason = failed_before(error);
            let message = Message::Withdrawn {
                reason: reason.clone(),
            };
            state.requests.push_back(ServiceRequest::Say(message));
            state.no_calls = Some(reason);
            self.wake();
        }
    }

    /// The result of the round, if it has ended.
    fn outcome(&self, state: &mut RankState, call: &Call) -> Option<Result<Taken, ControlError>> {
        let me = self.shared.rank;
        match state.mail.take(call) {
            Ok(Taken::Outcome(Outcome::Failed(failure), _)) => Some(Err(failure.error(call))),
            Ok(taken) => Some(Ok(taken)),
            Err(Missing::Outcome) => None,
            Err(Missing::Fds(rank)) => {
                // Descriptors come through the leader, which has all that their rank sent before the leader learns of
                // its end. So they will not come if the rank that passes them on has ended.
                let sender = match state.leader == me {
                    true => rank,
                    false => state.leader,
                };
                state.gone[sender].then(|| {
                    Err(ControlError::PeerLost {
                        rank: sender,
                        label: call.label.clone(),
                        reason: format!(
                            "it ended before it had passed on the descriptors of rank {rank}"
                        ),
                    })
                })
            }
            Err(Missing::Garbled(rank)) => {
                Some(Err(garbled(&format!("the descriptors of rank {rank}"))))
            }
            Err(Missing::Bytes(rank)) => Some(Err(garbled(&format!("the bytes of rank {rank}")))),
        }
    }
}

fn garbled(what: &str) -> ControlError {
    ControlError::Io {
        what: format!("receiving {what}"),
        source: std::io::Error::other("their number is wrong"),
    }
}

fn descriptor(handle: Handle) -> Result<Arc<OwnedFd>, ControlError> {
    let why = match handle {
        Handle::Fd(fd) => return Ok(fd),
        Handle::Key(_) => "a `Handle::Key` needs a control plane that carries it",
        Handle::Local(_) => "a `Handle::Local` is good only within its own process",
        Handle::Lost(_) => "a `Handle::Lost` leads nowhere",
    };
    Err(ControlError::Io {
        what: "passing a handle to another process".into(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidInput, why),
    })
}
