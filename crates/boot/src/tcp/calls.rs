//! The collective calls of a rank.

use super::Member;
use crate::local::{
    DROPPED, check_label, check_proposal, check_size, dissolved, failed_before, founders,
};
use crate::mail::{Mail, Missing, Taken};
use crate::rounds::{Call, Kind, Members, Outcome, Vote};
use crate::shared::{Outgoing, RankState, ServiceRequest};
use crate::wire::Message;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_hal::control::{ControlError, Decision, Handle, Letter, Proposal};
use tidegate_hal::ids::TeamId;
use tidegate_hal::lock;

impl Member {
    pub(super) fn exchange(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        self.process.check()?;
        check_size(label, bytes.len(), 0)?;
        let call = Call::new(Kind::Exchange, label);
        let taken = self.call(team, call, |mail, _, label| {
            let round = mail.round();
            mail.said(self.shared.rank, round, bytes.clone());
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
        team: TeamId,
        label: &str,
        mut proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        self.process.check()?;
        let members = self.members(team)?;
        check_proposal(label, &proposal, &members)?;
        let vote = Vote::take(&mut proposal);
        let call = Call::new(Kind::Confer, label);
        let taken = self.call(team, call.clone(), |mail, requests, label| {
            let round = mail.round();
            for letter in proposal.letters {
                self.write(mail, requests, letter)?;
            }
            let vote = Box::new(vote);
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
    fn write(
        &self,
        mail: &mut Mail,
        requests: &mut VecDeque<ServiceRequest>,
        letter: Letter,
    ) -> Result<(), ControlError> {
        let (to, me) = (letter.rank, self.shared.rank);
        let round = mail.round();
        if to == me {
            mail.letter_to_oneself(letter);
            return Ok(());
        }
        let fds = letter.packet.handles.into_iter().map(descriptor);
        let mut fds = fds.collect::<Result<Vec<_>, _>>()?;
        if self.nodes[to] != self.nodes[me] {
            fds.clear();
        }
        let bytes = letter.packet.bytes;
        requests.push_back(ServiceRequest::Write(Outgoing {
            to,
            round,
            bytes,
            fds,
        }));
        Ok(())
    }

    /// The ranks of a team.
    fn members(&self, team: TeamId) -> Result<Members, ControlError> {
        let state = lock(&self.shared.state);
        let desk = state.desks.get(team).ok_or_else(dissolved)?;
        Ok(desk.mail.members().clone())
    }

    /// Makes a team.
    pub(super) fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError> {
        self.process.check()?;
        let founders = founders(self.shared.rank, self.shared.size, name, ranks)?;
        let _one_at_a_time = lock(&self.founds);
        let mut state = lock(&self.shared.state);
        if let Some(reason) = &state.no_calls {
            return Err(ControlError::Closed(reason.clone()));
        }
        state.desks.ask(founders.clone());
        let message = Message::Found {
            founders: founders.clone(),
        };
        state.requests.push_back(ServiceRequest::Say(message));
        self.wake();
        loop {
            if let Some(answer) = state.desks.answer() {
                return answer.map_err(|failure| failure.founding_error(&founders));
            }
            if let Some(reason) = &state.no_calls {
                return Err(ControlError::Closed(reason.clone()));
            }
            state = self.wait(state);
        }
    }

    /// Ends this rank's part in a team.
    pub(super) fn dissolve(&self, team: TeamId) {
        if team == TeamId::WORLD || !self.process.is_this() {
            return;
        }
        let mut state = lock(&self.shared.state);
        if state.desks.dissolve(team) && state.no_message.is_none() {
            let message = Message::Withdrawn {
                team: Some(team),
                reason: DROPPED.into(),
            };
            state.requests.push_back(ServiceRequest::Say(message));
            self.wake();
        }
    }

    /// Takes part in one round. `say` sends the letters, and makes the message that this rank has come.
    fn call(
        &self,
        team: TeamId,
        call: Call,
        say: impl FnOnce(
            &mut Mail,
            &mut VecDeque<ServiceRequest>,
            String,
        ) -> Result<Message, ControlError>,
    ) -> Result<Taken, ControlError> {
        check_label(&call.label)?;
        let calls = {
            let state = lock(&self.shared.state);
            let desk = state.desks.get(team).ok_or_else(dissolved)?;
            Arc::clone(&desk.calls)
        };
        let _one_at_a_time = lock(&calls);
        let mut state = lock(&self.shared.state);
        let state_now = &mut *state;
        let desk = state_now.desks.get_mut(team).ok_or_else(dissolved)?;
        if let Some(reason) = state_now.no_calls.as_ref().or(desk.no_calls.as_ref()) {
            return Err(ControlError::Closed(reason.clone()));
        }
        // The round may have failed already. Then the hub wants to hear nothing more.
        if !desk.mail.is_decided() {
            let message = say(&mut desk.mail, &mut state_now.requests, call.label.clone());
            // The others come to this call, and must not wait in it for a rank that cannot take part.
            let message = message.inspect_err(|error| self.withdraw(&mut state, team, error))?;
            state.requests.push_back(ServiceRequest::Say(message));
            self.wake();
        }
        let result = loop {
            if let Some(result) = self.outcome(&mut state, team, &call) {
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
                self.withdraw(&mut state, team, error);
            }
        }
        result
    }

    /// Withdraws from all collective calls of a team, and tells the others.
    fn withdraw(&self, state: &mut RankState, team: TeamId, error: &ControlError) {
        let Some(desk) = state.desks.get_mut(team) else {
            return;
        };
        desk.mail.clear();
        if state.no_calls.is_none() && desk.no_calls.is_none() {
            let reason = failed_before(error);
            desk.no_calls = Some(reason.clone());
            let team = Some(team);
            let message = Message::Withdrawn { team, reason };
            state.requests.push_back(ServiceRequest::Say(message));
            self.wake();
        }
    }

    /// The result of the round, if it has ended.
    fn outcome(
        &self,
        state: &mut RankState,
        team: TeamId,
        call: &Call,
    ) -> Option<Result<Taken, ControlError>> {
        let Some(desk) = state.desks.get_mut(team) else {
            return Some(Err(dissolved()));
        };
        match desk.mail.take(call) {
            Ok(Taken::Outcome(Outcome::Failed(failure), _)) => Some(Err(failure.error(call))),
            Ok(taken) => Some(Ok(taken)),
            Err(Missing::Outcome) => None,
            Err(Missing::Fds(rank)) => {
                // What a rank had sent was taken before its end was noted, so nothing of it comes any more.
                state.gone[rank].then(|| {
                    Err(ControlError::PeerLost {
                        rank,
                        label: call.label.clone(),
                        reason: "it ended before it had passed on its descriptors".into(),
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
