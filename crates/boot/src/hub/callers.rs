//! Callers of the hub, until they have proved that they are ranks of the job.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tidegate_hal::limits::WithLimit;
use tidegate_hal::tell;

use super::{Hub, HubPhase, MAX_CALLERS, YOUNG};
use crate::handshake::{Answer, Caller, Refusal};
use crate::link::Link;

impl Hub {
    pub(super) fn accept(&mut self, now: Instant) {
        (self.accept_after, self.not_accepted) = (None, None);
        loop {
            if self.crowded_until(now).is_some() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, from)) => match Caller::greet(stream, from, now) {
                    Ok(caller) => {
                        if self.callers.len() >= MAX_CALLERS {
                            // The oldest caller has had enough time; a rank of the job needs milliseconds.
                            let oldest = self.callers.remove(0);
                            tell(
                                || tracing::warn!(from = %oldest.from, "sent a caller away to make room for others"),
                            );
                        }
                        self.callers.push(caller);
                    }
                    Err(reason) => tell(|| tracing::warn!(%from, %reason, "refused a caller")),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    tell(
                        || tracing::warn!(error = %WithLimit(&error), "cannot accept callers for a moment"),
                    );
                    self.accept_after = Some(now + Duration::from_millis(200));
                    self.not_accepted = Some(error);
                    return;
                }
            }
        }
    }

    pub(super) fn hear_caller(&mut self, index: usize) {
        let from = self.callers[index].from;
        let refusal = match self.callers[index].advance() {
            Ok(false) => return,
            Ok(true) => match self.callers.remove(index).check(&self.key, self.size) {
                Ok(proved) => {
                    let rank = proved.session.rank;
                    if let Some(answer) = proved.other_generation(self.generation) {
                        tell(
                            || tracing::debug!(%from, rank, ?answer, "a rank of another generation"),
                        );
                        return proved.refuse(answer);
                    }
                    let free = self.phase == HubPhase::Gathering
                        && (1..self.size).contains(&rank)
                        && self.links[rank].is_none()
                        && !self.gone[rank];
                    if free {
                        match proved.accept() {
                            Ok((stream, session)) => {
                                let limit = (2 * self.size + 64) << 20;
                                let link =
                                    Link::new(stream, session.to_rank, session.to_hub, limit);
                                match self.link(rank, link) {
                                    Ok(()) => return,
                                    Err(error) => Refusal::Io(error.into()),
                                }
                            }
                            Err(refusal) => refusal,
                        }
                    } else {
                        proved.refuse(Answer::Taken);
                        Refusal::Taken(rank)
                    }
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => {
                self.callers.remove(index);
                refusal
            }
        };
        tell(|| tracing::warn!(%from, reason = %refusal, "refused a caller"));
    }

    /// Until when no caller can be accepted, because there is no room, and none that may be sent away.
    pub(super) fn crowded_until(&self, now: Instant) -> Option<Instant> {
        let oldest = self.callers.iter().map(|c| c.since).min();
        let until = oldest.filter(|_| self.callers.len() >= MAX_CALLERS)? + YOUNG;
        (now < until).then_some(until)
    }
}
