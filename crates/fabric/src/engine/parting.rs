//! A peer's departure, which the listener takes on: see [`news`](super::news).

use std::time::{Duration, Instant};

/// How long the threads that hear are waited for, before a peer's departure counts: longer than a machine with too much
/// to do keeps the processor from one of them, with what a peer has sent last in its hands.
const ROUNDS: Duration = Duration::from_secs(2);
/// How often it is looked at least, and for how long at most after that, while others go on sending.
const LAST: (usize, Duration) = (10, Duration::from_millis(100));
/// A peer that has left in good order, as the control plane says.
pub(super) struct Parting {
    pub(super) peer: usize,
    /// How often each thread that hears had looked when that was said.
    pub(super) rounds: Vec<u64>,
    pub(super) since: Instant,
    /// Since when all of them have looked, how often the listener has looked after that, and how much was heard by then.
    pub(super) last: Option<(Instant, usize, u64)>,
    pub(super) then: Box<dyn FnOnce() + Send>,
}

impl Parting {
    /// Whether all that the peer has sent is done. `rounds`, and `heard`: as of now.
    pub(super) fn is_over(&mut self, rounds: &[u64], heard: u64) -> bool {
        let came = |(now, then): (&u64, &u64)| *now >= then + 2;
        match &mut self.last {
            None => {
                if rounds.iter().zip(&self.rounds).all(came) || self.since.elapsed() >= ROUNDS {
                    self.last = Some((Instant::now(), 0, heard));
                }
                false
            }
            Some((since, looks, before)) => {
                *looks += 1;
                let is_quiet = std::mem::replace(before, heard) == heard;
                is_quiet || (*looks >= LAST.0 && since.elapsed() >= LAST.1)
            }
        }
    }
}
