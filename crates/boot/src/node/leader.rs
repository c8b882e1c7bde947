//! The leader's part: what it gets from the members of its node, and passes on.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tidegate_hal::tell;

use super::{Node, NodeRole, NodeToken};
use crate::door::{Arrived, Parcel, Porch};
use crate::mail::ALL_ROUNDS;
use crate::wire::Message;

/// With fewer free numbers, descriptors do not wait for others that can be passed on with them.
const LITTLE_ROOM: u64 = 512;

impl Node {
    /// Passes on all parcels that have come from the members.
    pub(crate) fn drain(&mut self) {
        if let NodeRole::Leader { members, .. } = &self.role {
            (0..members.len()).for_each(|index| self.receive_from_member(index));
        }
    }

    /// The tokens of members and guests of which something can be read; those of guests in ascending order.
    pub(crate) fn readable(&self) -> impl Iterator<Item = NodeToken> {
        let (mut all, mut guests) = (Vec::new(), Vec::new());
        if let NodeRole::Leader { porch, members } = &self.role {
            all = members.readable();
            guests = porch.as_ref().map_or_else(Vec::new, Porch::readable);
        }
        let all = all.into_iter().map(NodeToken::Member);
        all.chain(guests.into_iter().map(NodeToken::Guest))
    }

    pub(super) fn hear_guest(&mut self, index: usize) {
        let NodeRole::Leader { porch, members } = &mut self.role else {
            return;
        };
        let Some(open) = porch.as_mut().filter(|porch| index < porch.guests.len()) else {
            return;
        };
        if let Some(Some((rank, passage))) = open.hear(index)
            && let Err(error) = members.let_in(rank, passage)
        {
            return self.fail("cannot watch a rank of this node", &error);
        }
        if members.have_all_come() {
            *porch = None;
            self.to_hub.push(Message::Ready);
        }
    }

    pub(super) fn receive_from_member(&mut self, index: usize) {
        let NodeRole::Leader { members, .. } = &mut self.role else {
            return;
        };
        let from = members.rank(index);
        while let Some(passage) = members.passage(index) {
            let arrived = match passage.receive() {
                Ok(None) => return,
                Ok(Some(arrived)) if arrived.from == from => arrived,
                Ok(Some(_)) => {
                    tell(|| {
                        tracing::warn!(rank = from, "a parcel names another rank as its sender")
                    });
                    return self.close(index);
                }
                Err(error) => {
                    tell(
                        || tracing::debug!(rank = from, %error, "the passage to a rank of this node ended"),
                    );
                    if error.kind() == ErrorKind::UnexpectedEof {
                        return members.close(index);
                    }
                    return self.close(index);
                }
            };
            if let Err(reason) = &arrived.fds {
                let round = arrived.round;
                tell(|| {
                    tracing::warn!(
                        rank = from,
                        round,
                        reason,
                        "descriptors of a rank of this node did not come"
                    )
                });
            }
            if arrived.to == self.me {
                self.arrived.push(arrived);
                continue;
            }
            // If they did not arrive here, the receiver is told so.
            let fds = arrived.fds.ok();
            let is_short = fds.as_ref().is_some_and(|fds| is_short(fds));
            members.pass_on(Parcel {
                from,
                to: arrived.to,
                round: arrived.round,
                count: arrived.count,
                fds: fds.map(|fds| fds.into_iter().map(Arc::new).collect()),
            });
            if is_short {
                // A rank that takes nothing any more is found by the next attempt.
                let _ = members.flush();
            }
        }
    }

    /// Ends the passage of a member that is out of order. The others must not wait for what it has sent.
    fn close(&mut self, index: usize) {
        let NodeRole::Leader { members, .. } = &mut self.role else {
            return;
        };
        let from = members.rank(index);
        members.close(index);
        for other in 0..members.len() {
            members.pass_on(Parcel {
                from,
                to: members.rank(other),
                round: ALL_ROUNDS,
                count: 0,
                fds: None,
            });
        }
        self.arrived.push(Arrived {
            from,
            to: self.me,
            round: ALL_ROUNDS,
            count: 0,
            fds: Err(format!("the connection to rank {from} of this node broke")),
        });
    }
}

/// Whether this process has little room for descriptors, so that it should pass these on before it takes others. The
/// kernel gives the lowest free numbers.
fn is_short(fds: &[OwnedFd]) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    fds.iter()
        .any(|fd| (fd.as_raw_fd() as u64).saturating_add(LITTLE_ROOM) >= limit)
}
