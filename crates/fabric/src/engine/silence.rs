//! Clocks that stand still while the process is stopped.
//!
//! # Model
//!
//! An operation that takes too long has failed, and a thread notices this by looking now and then. Between two looks
//! the process may have been stopped (by a debugger, by a batch system, together with the machine). Nothing was tried
//! in that time. So a pause between looks counts for no more than a part of the limit.

use std::time::{Duration, Instant};

/// How long nothing has been heard, for a thread that looks regularly.
pub(crate) struct Silence {
    looked: Instant,
    lasted: Duration,
}

impl Silence {
    /// A pause between two looks counts for at most this part of the limit.
    const PART: u32 = 8;

    pub(crate) fn new() -> Self {
        Silence {
            looked: Instant::now(),
            lasted: Duration::ZERO,
        }
    }

    /// Begins anew, because something was heard just now.
    pub(crate) fn ends(&mut self) {
        *self = Silence::new();
    }

    /// Looks at the time. Returns whether the silence has lasted longer than the limit.
    pub(crate) fn look(&mut self, now: Instant, limit: Duration) -> bool {
        let pause = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.lasted = self.lasted.saturating_add(pause.min(limit / Self::PART));
        self.lasted > limit
    }

    /// Leaves out the time since the last look.
    pub(crate) fn skips(&mut self, now: Instant) {
        self.looked = now;
    }

    /// Adds `time`, for tests.
    #[cfg(test)]
    pub(crate) fn lasts(&mut self, time: Duration) {
        self.lasted = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn time_in_which_nobody_looks_is_no_silence() {
        let mut silence = Silence::new();
        let mut now = silence.looked;
        // The process is stopped between a ring and its strike, and again before the agent has looked twice.
        for _ in 0..2 {
            now += 100 * LIMIT;
            assert!(!silence.look(now, LIMIT));
        }
        // An hour that the agent has slept through does not count either.
        silence.ends();
        assert!(!silence.look(silence.looked + 360 * LIMIT, LIMIT));
    }

    #[test]
    fn silence_ends_however_seldom_somebody_looks() {
        for pause in [LIMIT / 1000, LIMIT / 10, LIMIT] {
            let mut silence = Silence::new();
            let begun = silence.looked;
            let mut now = begun;
            while !silence.look(now, LIMIT) {
                now += pause;
                assert!(now - begun <= 10 * LIMIT, "{pause:?}");
            }
            assert!(now - begun > LIMIT, "{pause:?}");
            if pause < LIMIT / Silence::PART {
                assert!(now - begun <= LIMIT + pause, "{pause:?}");
            }
        }
    }

    #[test]
    fn skipped_time_does_not_count() {
        let mut silence = Silence::new();
        let mut now = silence.looked;
        for _ in 0..1000 {
            now += LIMIT;
            silence.skips(now);
            assert!(!silence.look(now, LIMIT));
        }
    }

    #[test]
    fn a_limit_may_be_none() {
        let mut silence = Silence::new();
        let mut now = silence.looked;
        for _ in 0..3 {
            now += Duration::from_secs(1 << 30);
            assert!(!silence.look(now, Duration::MAX));
        }
    }
}
