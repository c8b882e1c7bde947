//! The service's sleep, and its timers.

use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tidegate_hal::lock;
use tidegate_hal::tell;

use super::{Ending, Role, START_MARGIN, Service, Token};
use crate::config::unheard;
use crate::error::BootError;
use crate::hub::HubToken;
use crate::ready::Awaited;

impl Service {
    pub(super) fn sleep(&self) -> Vec<(Token, PollFlags)> {
        let mut awaited = Awaited::default();
        self.interest(|token, fd, flags| awaited.add(token, fd, flags));
        let mut ready = awaited.wait(self.next_tick()).unwrap_or_else(|error| {
            tell(|| tracing::error!(%error, "the control plane cannot wait for its sockets"));
            std::thread::sleep(Duration::from_millis(50));
            Vec::new()
        });
        let some = |wanted: fn(&Token) -> bool| ready.iter().any(|(token, _)| wanted(token));
        let mut more = Vec::new();
        if some(|token| matches!(token, Token::Hub(HubToken::Ranks)))
            && let Role::Hub(hub) = &self.role
        {
            more.extend(hub.readable().map(Token::Hub));
        }
        ready.extend(more.into_iter().map(|token| (token, PollFlags::IN)));
        // From the last to the first, since handling one may remove it from its list.
        ready.reverse();
        ready
    }

    /// How many intervals of silence are too many.
    pub(super) fn patience(&self) -> u32 {
        let intervals = self
            .silence
            .as_nanos()
            .div_ceil(self.heartbeat.as_nanos().max(1));
        u32::try_from(intervals).unwrap_or(u32::MAX).max(2)
    }

    pub(super) fn next_tick(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Hub(hub) if hub.has_backlog() => Some(Instant::now()),
            Role::Hub(hub) => {
                let beats = [self.next_beat, self.next_look];
                let beats = beats.into_iter().flatten();
                hub.next_tick().into_iter().chain(beats).min()
            }
            Role::Leaf(leaf) => leaf
                .link
                .as_ref()
                .and_then(|_| leaf.looked.checked_add(self.look_after())),
        };
        let last_words = match &self.ending {
            Some(Ending::Said {
                since,
                in_good_order: false,
            }) => self.patient_until(*since),
            _ => None,
        };
        let start = lock(&self.shared.state)
            .phase
            .is_joining()
            .then(|| self.start_deadline())
            .flatten();
        [role, self.node.next_tick(), last_words, start]
            .into_iter()
            .flatten()
            .min()
    }

    /// After how long the hub's silence is noted. This is a little more than an interval, so that a heartbeat in time
    /// prevents it.
    pub(super) fn look_after(&self) -> Duration {
        self.heartbeat.saturating_add(self.heartbeat / 2)
    }

    /// `None`: this rank waits for the others without a limit.
    pub(super) fn start_deadline(&self) -> Option<Instant> {
        let margin = match self.role {
            Role::Hub(_) => Duration::ZERO,
            Role::Leaf(_) => START_MARGIN,
        };
        self.started
            .checked_add(self.timeout.saturating_add(margin))
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let patience = self.patience();
        let deadline = self.start_deadline();
        let late = deadline.is_some_and(|deadline| now >= deadline)
            && lock(&self.shared.state).phase.is_joining();
        let waited = self.started.elapsed();
        let look_after = self.look_after();
        match &mut self.role {
            Role::Hub(hub) => {
                hub.tick(now);
                if self.next_beat.is_some_and(|at| now >= at) {
                    self.next_beat = now.checked_add(self.heartbeat);
                    hub.beat();
                }
                if self.next_look.is_some_and(|at| now >= at) {
                    self.next_look = now.checked_add(self.heartbeat);
                    hub.look(self.heartbeat, patience);
                }
                if self.ending.is_some() {
                    self.shared.remain(hub.others());
                }
                if late {
                    let missing = hub.missing();
                    let error = match hub.not_accepted.take() {
                        Some(error) => {
                            let what = format!("letting ranks {missing:?} join, for {waited:.1?}");
                            BootError::io(what, error)
                        }
                        None => BootError::MissingRanks { missing, waited },
                    };
                    let reason = if hub.is_gathering() {
                        error.to_string()
                    } else {
                        format!("ranks could not open their doors: {error}")
                    };
                    hub.abort(&reason);
                    self.shared.fail(error);
                }
            }
            Role::Leaf(leaf) => {
                if let Some(link) = &mut leaf.link
                    && now.saturating_duration_since(leaf.looked) >= look_after
                {
                    leaf.looked = now;
                    link.quiet += 1;
                    // Each of these is one and a half intervals.
                    let quiet = link.quiet;
                    if u64::from(quiet) * 3 >= u64::from(patience) * 2 {
                        // The hub may have sent something while this rank could not run.
                        self.hear_hub();
                        if matches!(&self.role, Role::Leaf(leaf) if leaf.is_silent()) {
                            self.hub_lost(&unheard(look_after.saturating_mul(quiet)));
                        }
                    }
                }
                if late {
                    let reason = format!("rank 0 did not start the job within {waited:.1?}");
                    self.shared.fail(BootError::Aborted(reason));
                }
            }
        }
        self.node.tick(now);
    }
}
