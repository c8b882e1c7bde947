//! The service's sleep, and its timers.

use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tidegate_hal::lock;
use tidegate_hal::tell;

use super::{Above, START_MARGIN, Service, Token};
use crate::config::unheard;
use crate::error::BootError;
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
        let above = match &self.above {
            Above::Hub(hub) => hub.next_tick(),
            Above::Parent { looked, .. } => looked.checked_add(self.look_after()),
            Above::Searched(_) | Above::Nothing => None,
        };
        let below = match self.children.is_empty() && !self.is_rank_0() {
            true => None,
            false => self.next_beat,
        };
        let last_words = self.failed_at().and_then(|since| self.patient_until(since));
        let start = lock(&self.shared.state)
            .phase
            .is_joining()
            .then(|| self.start_deadline())
            .flatten();
        // This is over when it has come once, if ranks below stay.
        let leaves = self.sees_off_until();
        let leaves = leaves.filter(|until| !self.branch.has_children() || *until > self.looked);
        let leaves = leaves.into_iter().chain(self.ends_at).min();
        let callers = self
            .callers
            .as_ref()
            .and_then(|callers| callers.next_tick());
        let all = [
            above,
            below,
            self.node.next_tick(),
            self.branch.next_tick(),
            last_words,
            start,
            leaves,
            callers,
        ];
        all.into_iter().flatten().min()
    }

    /// After how long the parent's silence is noted. This is a little more than an interval, so that a heartbeat in time
    /// prevents it.
    pub(super) fn look_after(&self) -> Duration {
        self.heartbeat.saturating_add(self.heartbeat / 2)
    }

    /// `None`: this rank waits for the others without a limit.
    pub(super) fn start_deadline(&self) -> Option<Instant> {
        let margin = match self.above {
            Above::Hub(_) => Duration::ZERO,
            _ => START_MARGIN,
        };
        self.started
            .checked_add(self.timeout.saturating_add(margin))
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.looked = now;
        let patience = self.patience();
        let deadline = self.start_deadline();
        let late = deadline.is_some_and(|deadline| now >= deadline)
            && lock(&self.shared.state).phase.is_joining();
        let waited = self.started.elapsed();
        let look_after = self.look_after();
        if let Some(callers) = &mut self.callers {
            callers.tick(now);
        }
        if self.next_beat.is_some_and(|at| now >= at) {
            self.next_beat = now.checked_add(self.heartbeat);
            self.beat();
            self.look(patience, now);
        }
        self.see_off();
        match &mut self.above {
            Above::Hub(hub) => {
                hub.tick(now);
                if self.ending.is_some() {
                    self.shared.remain(hub.others());
                }
                if late {
                    let missing = hub.missing();
                    let not_accepted = self.callers.as_mut();
                    let not_accepted = not_accepted.and_then(|callers| callers.not_accepted.take());
                    let error = match not_accepted {
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
            Above::Parent { link, looked, .. } => {
                if now.saturating_duration_since(*looked) >= look_after {
                    *looked = now;
                    link.quiet += 1;
                    // Each of these is one and a half intervals.
                    let quiet = link.quiet;
                    if u64::from(quiet) * 3 >= u64::from(patience) * 2 {
                        // The parent may have sent something while this rank could not run.
                        self.hear_parent();
                        if let Above::Parent { link, .. } = &self.above
                            && link.quiet > 0
                        {
                            self.parent_lost(&unheard(look_after.saturating_mul(quiet)));
                        }
                    }
                }
            }
            Above::Searched(_) | Above::Nothing => {}
        }
        if late && !self.is_rank_0() {
            let reason = format!("rank 0 did not start the job within {waited:.1?}");
            self.shared.fail(BootError::Aborted(reason));
        }
        self.node.tick(now);
    }
}
