//! How far the departures of peers are that leave in good order.
//!
//! # Model
//!
//! A peer that leaves its job in good order has got all that it waited for. Its connections end with it, and this end
//! may hear of that before the news comes, or instead of the acknowledgement of what has come. So a departure has two
//! stages ([`Shared::hear`](super::Shared::hear)):
//!
//! 1. the *news* of it has come, and what came of the peer last is looked for. From here on nobody there is told of a
//!    failure. What fails meanwhile may say no more than that connections end: it waits for the second stage, whatever
//!    fires.
//! 2. its *end*: all that came of the peer is known. What is rung for towards it, now or later, is through as soon as
//!    nothing of it is under way; nothing more goes out; and the peer is asked nothing ([`doubt`](super::doubt)).
//!
//! What only the peer could bring, by a get, has failed all the same, at either stage; and so has what is to be asked for
//! when it has left, at once, since nothing goes out. (A get that went out before may still come.) Whether something is a
//! failure is for [`Stage::says`] to say, and how loudly.
//!
//! There is one [`Departure`] a peer, and all who go by it look at that one, the threads of rails among them. So no two
//! can be of different minds, and a queue that is made late is as those that were there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_hal::tell;

/// How far a peer's departure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nobody has said that it leaves.
    Here,
    /// The news has come.
    Leaving,
    /// It is over.
    Left,
}

impl Stage {
    /// Says that something towards the peer has gone wrong. It is an error, unless that `only_sends` and the peer leaves.
    pub(super) fn says(self, only_sends: bool, what: &str) {
        if self == Stage::Here || !only_sends {
            tell(|| tracing::error!("{what}"));
        } else {
            tell(|| tracing::debug!("while it leaves: {what}"));
        }
    }
}

/// That of one peer.
#[derive(Default)]
pub(crate) struct Departure(AtomicU8);

impl Departure {
    pub(crate) fn stage(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            0 => Stage::Here,
            1 => Stage::Leaving,
            _ => Stage::Left,
        }
    }

    /// It has come to a stage, unless it is beyond: whoever has left stays so. To be called under the engine's lock, so
    /// that it stays the same for as long as somebody has that.
    pub(super) fn comes_to(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Release);
    }
}

/// Those of all peers, by rank.
#[derive(Default)]
pub(super) struct Departures(Vec<Arc<Departure>>);

impl Departures {
    pub(super) fn of(&mut self, peer: usize) -> &Arc<Departure> {
        if self.0.len() <= peer {
            self.0.resize_with(peer + 1, Arc::default);
        }
        &self.0[peer]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_stays_so_for_all_who_look() {
        let mut departures = Departures::default();
        let before = departures.of(3).clone();
        assert_eq!(before.stage(), Stage::Here);
        departures.of(3).comes_to(Stage::Leaving);
        assert_eq!(before.stage(), Stage::Leaving);
        departures.of(3).comes_to(Stage::Left);
        // The news, once more.
        departures.of(3).comes_to(Stage::Leaving);
        let after = departures.of(3).clone();
        assert_eq!((before.stage(), after.stage()), (Stage::Left, Stage::Left));
        assert_eq!(departures.of(2).stage(), Stage::Here);
    }
}
