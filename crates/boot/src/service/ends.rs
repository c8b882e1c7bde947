//! How a rank's part in the job ends: in good order, by a failure, or since rank 0 cannot be heard any more.

use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use tidegate_hal::lock;
use tidegate_hal::tell;

use super::{Above, Ending, LAST_WORDS, LAST_WORDS_TO_ORPHANS, Service};
use crate::hop::Hop;
use crate::hub::HOLD;
use crate::link::Link;
use crate::shared::RankPhase;
use crate::wire::Message;

impl Service {
    /// Whether this is rank 0, and ranks look for another parent.
    fn has_orphans(&self) -> bool {
        matches!(&self.above, Above::Hub(hub) if hub.has_orphans())
    }

    /// Ends all connections of rank 0, after everything was sent.
    pub(super) fn hang_up(&mut self) {
        let waits = |link: &Link<TcpStream>| link.wants_write();
        if self.is_hung_up || self.has_orphans() || self.children.values().any(waits) {
            return;
        }
        self.is_hung_up = true;
        for link in self.children.values() {
            // This shuts down and does not close: if data that the other side sent is unread, closing would discard our
            // last messages.
            let _ = link.stream().shutdown(Shutdown::Write);
        }
    }

    /// Sends this rank's last message, once everything that others need from it has been sent.
    pub(super) fn last_words(&mut self) {
        let in_good_order = match &self.ending {
            Some(Ending::Wanted(message)) => matches!(message, Message::Leave),
            _ => return,
        };
        if in_good_order && !self.node.is_flushed() {
            return;
        }
        let since = Instant::now();
        let said = self.ending.replace(Ending::Said {
            since,
            in_good_order,
        });
        if let Some(Ending::Wanted(message)) = said {
            self.node.say(message);
        }
    }

    /// When this rank has said that it failed, if it has.
    pub(super) fn failed_at(&self) -> Option<Instant> {
        match self.ending {
            Some(Ending::Said {
                since,
                in_good_order: false,
            }) => Some(since),
            _ => None,
        }
    }

    /// Whether this rank has said that it leaves in good order.
    fn has_left(&self) -> bool {
        matches!(
            self.ending,
            Some(Ending::Said {
                in_good_order: true,
                ..
            })
        )
    }

    /// Until when this rank waits for an answer, after it has said that it failed.
    pub(super) fn patient_until(&self, since: Instant) -> Option<Instant> {
        since.checked_add(match self.above {
            Above::Hub(_) if self.has_orphans() => LAST_WORDS_TO_ORPHANS.min(self.silence),
            Above::Hub(_) => LAST_WORDS,
            _ => self.silence,
        })
    }

    /// Until when a rank that leaves waits for those below it. `None`: rank 0 has not acknowledged that it leaves.
    pub(super) fn sees_off_until(&self) -> Option<Instant> {
        self.bye.map(|since| since + HOLD)
    }

    pub(super) fn is_finished(&mut self) -> bool {
        let state = lock(&self.shared.state);
        if state.abandoned {
            return true;
        }
        let failed = matches!(state.phase, RankPhase::Failed(_));
        drop(state);
        let is_over = |until: Option<Instant>| until.is_some_and(|until| Instant::now() >= until);
        let is_flushed = || self.children.values().all(|link| !link.wants_write());
        if let Some(since) = self.failed_at() {
            let is_done = match self.above {
                Above::Hub(_) => self.is_hung_up && self.children.is_empty(),
                Above::Nothing => true,
                _ => self.bye.is_some(),
            };
            return is_done || is_over(self.patient_until(since));
        }
        if !self.has_left() {
            return failed && is_flushed();
        }
        match &self.above {
            // Rank 0 serves the control plane of the others until the last of them has ended.
            Above::Hub(hub) => hub.is_deserted() && self.children.is_empty(),
            Above::Nothing => is_flushed(),
            _ if self.ends_at.is_some() => !self.branch.has_children() || is_over(self.ends_at),
            _ => !self.branch.has_children() && is_over(self.sees_off_until()),
        }
    }

    /// Ends this rank's part, once those below it have ended theirs, or after a while.
    pub(super) fn see_off(&mut self) {
        let is_late = self
            .sees_off_until()
            .is_some_and(|until| Instant::now() >= until);
        let waits = self.has_left() && self.me() != 0 && self.branch.has_children();
        if self.bye.is_some() && (is_late || !waits) {
            self.shared.left();
        }
    }

    /// Rank 0 has given this rank up.
    pub(super) fn given_up(&mut self, reason: &str) {
        if self.has_left() {
            // The acknowledgement was lost on its way.
            self.bye = Some(Instant::now());
            self.shared.left();
            return self.step_aside();
        }
        self.shared.is_given_up();
        self.cut_off(&format!("it gave this rank up: {reason}"));
    }

    /// Leaves the tree. The ranks below look for other parents themselves.
    pub(super) fn step_aside(&mut self) {
        self.above = Above::Nothing;
        self.children.clear();
        self.guests.clear();
    }

    /// Notes that this rank cannot take part any more. All knowledge of the others is lost.
    pub(super) fn cut_off(&mut self, reason: &str) {
        if self.is_rank_0() {
            tell(|| tracing::error!(reason, "rank 0 contradicts itself"));
            return;
        }
        if matches!(self.above, Above::Nothing) {
            return;
        }
        self.step_aside();
        if self.bye.is_some() {
            return;
        }
        self.hears_nothing(reason);
    }

    pub(super) fn hears_nothing(&mut self, reason: &str) {
        self.branch.lose_parent();
        self.node.forget(0);
        self.deliver_parcels();
        self.shared.cut_off(reason);
    }

    /// Notes that rank 0 is lost, and tells those below. They close the connections: if this rank did, they might not
    /// hear of it.
    pub(super) fn rank_0_lost(&mut self, reason: &str) {
        let cut = Hop::Cut {
            reason: reason.to_owned(),
        };
        let children: Vec<_> = self.children.keys().copied().collect();
        for child in children {
            // Rank 0's last messages may have come together with its end, and they say why it ended.
            self.send_waiting(child);
            self.send_down(child, &cut);
        }
        self.above = Above::Nothing;
        self.guests.clear();
        if self.bye.is_none() {
            self.hears_nothing(reason);
        }
    }
}
