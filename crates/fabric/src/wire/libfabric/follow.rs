//! Notices that follow their data, over providers that do not bear a long write with a notice.
//!
//! # Why
//!
//! `ofi_rxm` over `tcp` crashes if a connection ends in the middle of an incoming write with `FI_REMOTE_CQ_DATA`. That
//! happens when this end closes its endpoint, and from 1.18 on also when the peer dies. `tcp` then reports the write as
//! failed, without a context, and `ofi_rxm` reads what it takes for the operation behind the context (1.17 to 2.6). If
//! a write without such data ends early, `tcp` reports nothing.
//!
//! # Model
//!
//! So a long write brings no notice there. It asks for delivery, and its notice follows in a write of no bytes. Such a
//! write has come when its header has come, so a connection cannot end in the middle of it. Both are one operation: it
//! has one event, when the notice is over, or when either has failed.
//!
//! The notice is posted when the data is known to be delivered, which costs a round trip. The order of one connection
//! is not enough (`tcp` sends the operations of a connection one by one, and handles them so): if the connection ends
//! between the two posts, and the peer has made another, the notice would come by that, without its data.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::engine::silence::Silence;

/// The most bytes of a write that brings its notice. Linux takes so many at once for an idle connection (the default of
/// `tcp_wmem`). So even if this process is killed then, they arrive, and soon.
const WHOLE: usize = 16 << 10;

/// A notice that follows data.
pub(super) struct Follower {
    /// The context of the whole operation.
    pub(super) context: usize,
    pub(super) peer: usize,
    pub(super) notice: u64,
    /// The time in which the provider has refused it.
    pub(super) refused: Option<Silence>,
}

/// The notices of an endpoint that follow their data.
pub(super) struct Followers {
    /// Whether the provider needs this.
    needed: bool,
    /// How long the provider may refuse a notice; at first, without limit. (It refuses without end if the peer has
    /// closed its endpoint since the data was delivered.)
    pub(super) limit: Duration,
    /// Those whose data is under way, by the context.
    waiting: HashMap<usize, Follower>,
    /// Those whose data is delivered, until they are posted.
    due: VecDeque<Follower>,
}

impl Followers {
    pub(super) fn new(provider: &str) -> Self {
        let mut layers = provider.split(';');
        // (`net` is a variant of `tcp`.)
        let over_tcp = matches!(layers.next(), Some("tcp" | "net"));
        Followers {
            needed: over_tcp && layers.any(|layer| layer == "ofi_rxm"),
            limit: Duration::MAX,
            waiting: HashMap::new(),
            due: VecDeque::new(),
        }
    }

    /// Whether the provider needs this at all.
    pub(super) fn is_needed(&self) -> bool {
        self.needed
    }

    /// Whether the notice of a write of so many bytes must follow.
    pub(super) fn follows(&self, bytes: usize) -> bool {
        self.needed && bytes > WHOLE
    }

    /// Notes that the data is under way.
    pub(super) fn await_data(&mut self, follower: Follower) {
        self.waiting.insert(follower.context, follower);
    }

    /// Notes that something is complete. Returns whether it was data, so that its operation goes on.
    pub(super) fn delivered(&mut self, context: usize) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let before = self.due.len();
        self.due.extend(self.waiting.remove(&context));
        self.due.len() > before
    }

    /// Notes that something has failed. If it was data, its notice never comes.
    pub(super) fn failed(&mut self, context: usize) {
        self.waiting.remove(&context);
    }

    /// How many are to be posted.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Takes the one to be posted next.
    pub(super) fn next(&mut self) -> Option<Follower> {
        self.due.pop_front()
    }

    /// Takes one back that the provider refuses for now. It comes behind the others, because the provider may have room
    /// for other peers. Returns `false` if it has been refused for too long.
    pub(super) fn again(&mut self, mut follower: Follower, now: Instant) -> bool {
        let refused = follower.refused.get_or_insert_with(Silence::new);
        let is_kept = !refused.look(now, self.limit);
        if is_kept {
            self.due.push_back(follower);
        }
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(context: usize) -> Follower {
        Follower {
            context,
            peer: 3,
            notice: 7,
            refused: None,
        }
    }

    #[test]
    fn only_rxm_over_tcp_needs_it_for_long_writes() {
        for provider in ["tcp;ofi_rxm", "net;ofi_rxm"] {
            let followers = Followers::new(provider);
            assert!(followers.is_needed());
            assert!(!followers.follows(8) && !followers.follows(WHOLE));
            assert!(followers.follows(WHOLE + 1));
        }
        for provider in ["tcp", "sockets", "verbs;ofi_rxm", "shm", "cxi", "ofi_rxm"] {
            let followers = Followers::new(provider);
            assert!(!followers.is_needed() && !followers.follows(usize::MAX));
        }
    }

    #[test]
    fn a_notice_is_due_once_and_only_when_its_data_is_delivered() {
        let mut followers = Followers::new("tcp;ofi_rxm");
        assert!(!followers.delivered(1), "it is an operation of its own");
        for context in 1..=3 {
            followers.await_data(follower(context));
        }
        assert_eq!(followers.due(), 0);
        followers.failed(2);
        assert!(followers.delivered(3) && followers.delivered(1));
        assert!(!followers.delivered(2) && !followers.delivered(3));
        assert_eq!(followers.due(), 2);
        let next = |followers: &mut Followers| followers.next().map(|next| next.context);
        assert_eq!(next(&mut followers), Some(3));
        assert_eq!(next(&mut followers), Some(1));
        assert_eq!(next(&mut followers), None);
    }

    #[test]
    fn a_refused_notice_has_the_time_of_the_options_in_which_the_process_runs() {
        const LIMIT: Duration = Duration::from_secs(60);
        let mut followers = Followers::new("tcp;ofi_rxm");
        followers.limit = LIMIT;
        let [first, second] = [1, 2].map(follower);
        let mut now = Instant::now();
        assert!(followers.again(first, now) && followers.again(second, now));
        let first = followers.next().unwrap();
        assert_eq!(first.context, 1);
        // The process is stopped for long.
        now += 100 * LIMIT;
        assert!(followers.again(first, now), "the time is up");
        let second = followers.next().unwrap();
        assert_eq!(second.context, 2, "the other does not wait for it");
        let mut looks = 0;
        while let Some(refused) = followers.next() {
            now += LIMIT / 10;
            followers.again(refused, now);
            looks += 1;
            assert!(looks < 20, "it is never given up");
        }
        assert!(looks > 5, "it is given up after {looks} looks");
    }
}
