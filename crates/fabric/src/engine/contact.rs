//! Peers that accept nothing, and peers that nothing reaches.
//!
//! # Model
//!
//! An operation that a peer's wire refuses is tried again. When that has lasted too long, it has failed, since a
//! provider that cannot reach a peer may never say so. Other providers accept everything, connect in the background,
//! and never report that they cannot. So there are two more limits:
//!
//! - The first operation to a peer must end within a limit. (A signal that is through proves nothing about the peer.
//!   But the engine soon asks for it: see [`ask`](super::ask).)
//! - Of a peer that has answered before, something must end within a similar limit as long as anything is in progress
//!   towards it. A network may be cut while the control plane, which uses another path, hears that all ranks are well.
//!
//! Each [route](Route) to a peer is a connection of its own, and a network may cut only one of them. So an operation
//! that ends on one way is no sign of life of another.
//!
//! The operation that ends need not be the one that is waited for: a slow network may have much to do before it. (That
//! is why the operations of the software engine are short: see [`program`](super::program).) No wire reports the
//! progress of an operation before its end. So a way also gets the time that its longest operation takes over the
//! [slowest](SLOW) network. All ways together get the time that the longest operations of each take over a link that
//! they [share](SHARED), because a rank that sends to many peers has little bandwidth for each. A firing that hardware
//! has begun ends as a whole. So it gets the time that all of its bytes take over the slowest network [with such
//! hardware](SLOW_FIRING).
//!
//! # Failure
//!
//! A silent peer may simply have gone. So the engine first asks the control plane whether it is there
//! ([`departure`](super::departure)), and only then counts its silence as a failure.
//!
//! Operations towards a peer that has never answered may still be read for as long as the endpoint is open, so their
//! queue cannot end by itself. The endpoint is then reported to be useless ([`tidegate_hal::nic::Connection::failed`]).
//! Nothing new goes to a peer that has [left](super::departure) or is lost. What is in progress towards it ends only
//! its own queue, and keeps its memory. It also keeps its room on the wire. If such operations take all the room, the
//! wire accepts nothing towards any peer, and the queues towards the others fail by the limit for that.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::silence::Silence;
use crate::base::MOST_RAILS;

/// How many times longer an answer may take than anything else, because the peer may be connecting, perhaps with many
/// others.
const ANSWER: u32 = 2;

/// The fewest bytes in a second that any network carries towards a peer.
const SLOW: u64 = 100_000;
/// The fewest bytes in a second that a rank's link carries, to all its peers together.
const SHARED: u64 = 10_000_000;
/// The fewest bytes in a second on a network whose hardware fires.
const SLOW_FIRING: u64 = 1_000_000;

/// The time that `bytes` bytes take at `rate` bytes in a second.
fn takes(bytes: u64, rate: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / rate)
}

/// How long an answer may take, if a peer may accept nothing for as long as `limit`.
fn answer_within(limit: Duration) -> Duration {
    limit.saturating_mul(ANSWER)
}

/// One of the connections to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Route {
    pub(super) peer: usize,
    /// The number of the rail; 0 is the engine's own endpoint.
    pub(super) rail: usize,
}

impl Route {
    /// The route by the engine's own endpoint.
    pub(super) fn own(peer: usize) -> Self {
        Route { peer, rail: 0 }
    }
}

/// The bytes of operations in progress.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    /// Bytes of an operation, whose end is a sign of life.
    operation: u64,
    /// Bytes that hardware was fired for, and that end as a whole.
    fired: u64,
}

impl Load {
    /// The load of one operation.
    pub(super) fn operation(bytes: u64) -> Self {
        Load {
            operation: bytes,
            fired: 0,
        }
    }

    /// The load of bytes that hardware was fired for.
    pub(super) fn fired(bytes: u64) -> Self {
        Load {
            operation: 0,
            fired: bytes,
        }
    }
}

/// A route on which something is in progress.
struct Awaited {
    /// How many operations had ended at the last look.
    ends: u64,
    silence: Silence,
    /// The limit of the silence.
    limit: Duration,
}

/// What is known of the peers.
pub(super) struct Contact {
    limit: Duration,
    /// The peers for which the wire accepts nothing, and since when.
    refusing: HashMap<usize, Silence>,
    /// Whether each rank has answered.
    met: Vec<bool>,
    /// The peers that have not answered, and since when something is in progress towards them.
    asked: HashMap<usize, Silence>,
    /// How many operations have ended, by rank and rail.
    ends: Vec<[u64; MOST_RAILS]>,
    /// The routes on which something was in progress at the last look.
    awaited: HashMap<Route, Awaited>,
}

impl Contact {
    pub(super) fn new(limit: Duration) -> Self {
        Contact {
            limit,
            refusing: HashMap::new(),
            met: Vec::new(),
            asked: HashMap::new(),
            ends: Vec::new(),
            awaited: HashMap::new(),
        }
    }

    /// Notes that an operation on a route is over.
    fn ends(&mut self, route: Route) {
        if self.ends.len() <= route.peer {
            self.ends.resize(route.peer + 1, Default::default());
        }
        self.ends[route.peer][route.rail] += 1;
    }

    /// To be called regularly, with everything that is in progress. Returns the peers towards which nothing has ended
    /// for too long on some route, and for how long.
    pub(super) fn awaits(
        &mut self,
        under_way: impl Iterator<Item = (Route, Load)>,
    ) -> Vec<(usize, Duration)> {
        let mut routes: BTreeMap<Route, Load> = BTreeMap::new();
        for (route, load) in under_way {
            let all = routes.entry(route).or_default();
            // Operations follow one another, so the longest counts.
            all.operation = all.operation.max(load.operation);
            all.fired += load.fired;
        }
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.awaited);
        let mut over = Vec::new();
        let shared = routes.values().map(|load| load.operation).sum();
        let least = answer_within(self.limit).saturating_add(takes(shared, SHARED));
        for (route, load) in routes {
            let ends = self.ends.get(route.peer).map_or(0, |ends| ends[route.rail]);
            let mut silence = match before.remove(&route) {
                Some(then) if then.ends == ends => then.silence,
                _ => Silence::new(),
            };
            let own = takes(load.operation, SLOW) + takes(load.fired, SLOW_FIRING);
            let limit = least.saturating_add(own);
            if silence.look(now, limit) {
                over.push((route.peer, limit));
            }
            let awaited = Awaited {
                ends,
                silence,
                limit,
            };
            self.awaited.insert(route, awaited);
        }
        // A peer has several routes.
        over.dedup_by_key(|(peer, _)| *peer);
        over
    }

    /// Notes that the wire accepts nothing towards a peer for now. Returns the failure if that has lasted for too long.
    pub(super) fn refuses(&mut self, peer: usize) -> Option<String> {
        let refused = self.refusing.entry(peer).or_insert_with(Silence::new);
        let too_long = refused.look(Instant::now(), self.limit);
        too_long.then(|| format!("nothing was taken for {:?}", self.limit))
    }

    /// Notes that the wire has accepted something towards a peer.
    pub(super) fn takes(&mut self, peer: usize) {
        if !self.refusing.is_empty() {
            self.refusing.remove(&peer);
        }
        self.asks(peer);
    }

    /// Notes that a signal is through at this end. That says nothing about the peer, so the next question gets its full
    /// time.
    pub(super) fn is_through(&mut self, route: Route) {
        self.ends(route);
        if !self.asked.is_empty() {
            self.asked.remove(&route.peer);
        }
    }

    /// Notes that something is in progress towards a peer.
    pub(super) fn asks(&mut self, peer: usize) {
        if !self.has_met(peer) {
            self.asked.entry(peer).or_insert_with(Silence::new);
        }
    }

    /// Whether a peer has answered at all.
    pub(super) fn has_met(&self, peer: usize) -> bool {
        self.met.get(peer).is_some_and(|met| *met)
    }

    /// Notes that an operation has ended at the peer, or has failed.
    pub(super) fn answers(&mut self, route: Route) {
        self.ends(route);
        let peer = route.peer;
        if self.met.len() <= peer {
            self.met.resize(peer + 1, false);
        }
        if !std::mem::replace(&mut self.met[peer], true) {
            self.asked.remove(&peer);
        }
    }

    /// The extra time that operations in progress get for their bytes, as of the last look.
    pub(super) fn extra(&self) -> Duration {
        let most = self.awaited.values().map(|awaited| awaited.limit).max();
        most.map_or(Duration::ZERO, |most| {
            most.saturating_sub(answer_within(self.limit))
        })
    }

    /// Gives operations in progress towards a peer their full time from here on.
    pub(super) fn begins_anew(&mut self, peer: usize) {
        for rail in 0..MOST_RAILS {
            self.answers(Route { peer, rail });
        }
    }

    /// A peer that has not answered for too long, and for how long. Each peer is returned once.
    pub(super) fn unanswered(&mut self) -> Option<(usize, Duration)> {
        if self.asked.is_empty() {
            return None;
        }
        let (now, least) = (Instant::now(), answer_within(self.limit));
        let mut over = None;
        // Look at all of them, because a clock that nobody looks at does not count.
        for (peer, asked) in &mut self.asked {
            // Long operations get their time here, too.
            let routes = (0..MOST_RAILS).map(|rail| Route { peer: *peer, rail });
            let limits = routes.filter_map(|route| Some(self.awaited.get(&route)?.limit));
            let limit = limits.fold(least, Duration::max);
            if asked.look(now, limit) {
                over = Some((*peer, limit));
            }
        }
        let (peer, limit) = over?;
        self.answers(Route::own(peer));
        Some((peer, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Makes as much time pass as every limit allows. The test waits for nothing, so no machine is too slow for it.
    fn pass(contact: &mut Contact) {
        let all = contact.refusing.values_mut();
        all.chain(contact.asked.values_mut())
            .for_each(|since| since.lasts(2 * answer_within(LIMIT)));
    }

    #[test]
    fn only_a_first_answer_has_a_time() {
        let mut contact = Contact::new(LIMIT);
        contact.answers(Route::own(1));
        for peer in 0..4 {
            contact.takes(peer);
        }
        contact.answers(Route::own(2));
        assert_eq!(contact.unanswered(), None);
        pass(&mut contact);
        // Each peer is returned once, whatever is sent to it afterwards.
        let mut said = [contact.unanswered(), contact.unanswered()].map(|one| one.unwrap().0);
        said.sort_unstable();
        assert_eq!(said, [0, 3]);
        contact.takes(0);
        pass(&mut contact);
        assert_eq!(contact.unanswered(), None);
    }

    /// Short operations towards these peers.
    fn short<const N: usize>(peers: [usize; N]) -> impl Iterator<Item = (Route, Load)> {
        let load = |peer| (Route::own(peer), Load::default());
        peers.into_iter().map(load)
    }

    /// The peers that are found silent.
    fn silent_of(over: Vec<(usize, Duration)>) -> Vec<usize> {
        over.into_iter().map(|(peer, _)| peer).collect()
    }

    /// Makes every route silent for `more` beyond twice the limit.
    fn lasts(contact: &mut Contact, more: Duration) {
        let all = contact.awaited.values_mut();
        all.for_each(|awaited| awaited.silence.lasts(answer_within(LIMIT) + more));
    }

    const NOBODY: [usize; 0] = [];
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn firings_of_hardware_have_the_time_of_their_bytes() {
        let mut contact = Contact::new(LIMIT);
        let bytes = |seconds: u64| {
            let half = Load::fired(seconds * SLOW_FIRING / 2);
            [(Route::own(1), half); 2].into_iter()
        };
        assert_eq!(silent_of(contact.awaits(bytes(60))), NOBODY);
        lasts(&mut contact, 30 * SECOND);
        assert_eq!(silent_of(contact.awaits(bytes(60))), NOBODY);
        assert_eq!(silent_of(contact.awaits(bytes(20))), [1]);
    }

    #[test]
    fn an_operation_has_the_time_of_its_bytes() {
        let operations = |sizes: &[u64]| {
            let load = |bytes: &u64| (Route::own(1), Load::operation(*bytes));
            sizes.iter().map(load).collect::<Vec<_>>().into_iter()
        };
        let long = 60 * SLOW;
        let mut contact = Contact::new(LIMIT);
        contact.asks(1);
        assert_eq!(silent_of(contact.awaits(operations(&[long]))), NOBODY);
        lasts(&mut contact, 50 * SECOND);
        assert_eq!(silent_of(contact.awaits(operations(&[long]))), NOBODY);
        // A peer that has never answered has not failed either.
        let asked = contact.asked.get_mut(&1).unwrap();
        asked.lasts(answer_within(LIMIT) + 50 * SECOND);
        assert_eq!(contact.unanswered(), None);
        // One operation follows the other, so the end of the first is awaited.
        let halves = operations(&[long / 2, long / 2]);
        assert_eq!(silent_of(contact.awaits(halves)), [1]);
        assert!(contact.unanswered().is_some());
    }

    #[test]
    fn a_rank_that_sends_to_many_has_little_for_each() {
        const PEERS: usize = 100;
        let operations =
            |bytes: u64| (0..PEERS).map(move |peer| (Route::own(peer), Load::operation(bytes)));
        let each = 60 * SHARED / PEERS as u64;
        let mut contact = Contact::new(LIMIT);
        assert_eq!(silent_of(contact.awaits(operations(each))), NOBODY);
        lasts(&mut contact, 50 * SECOND + takes(each, SLOW));
        assert_eq!(silent_of(contact.awaits(operations(each))), NOBODY);
        assert_eq!(contact.awaits(operations(each / 2)).len(), PEERS);
    }

    /// Ends of operations on other routes do not count, because a network may cut one of them.
    #[test]
    fn each_connection_has_its_own_time() {
        let mut contact = Contact::new(LIMIT);
        let routes = |rails: &[usize]| {
            let route = |&rail: &usize| (Route { peer: 1, rail }, Load::default());
            let all: Vec<_> = rails.iter().map(route).collect();
            all.into_iter()
        };
        contact.answers(Route::own(1));
        assert_eq!(silent_of(contact.awaits(routes(&[0, 2]))), NOBODY);
        lasts(&mut contact, SECOND);
        contact.answers(Route::own(1));
        contact.is_through(Route { peer: 1, rail: 1 });
        assert_eq!(silent_of(contact.awaits(routes(&[0, 2]))), [1]);
        contact.is_through(Route { peer: 1, rail: 2 });
        assert_eq!(silent_of(contact.awaits(routes(&[0, 2]))), NOBODY);
        // When the peer has left, the operations on all routes get their full time again.
        lasts(&mut contact, SECOND);
        contact.begins_anew(1);
        assert_eq!(silent_of(contact.awaits(routes(&[0, 2]))), NOBODY);
    }

    #[test]
    fn a_peer_towards_which_no_operation_ends_has_failed() {
        let mut contact = Contact::new(LIMIT);
        contact.answers(Route::own(1));
        contact.answers(Route::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2, 1]))), NOBODY);
        lasts(&mut contact, SECOND);
        // Some operation has ended, though not the one that is in progress.
        contact.is_through(Route::own(1));
        contact.answers(Route::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2]))), NOBODY);
        lasts(&mut contact, SECOND);
        contact.answers(Route::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2]))), [1]);
        // A peer for which nothing waits may be silent.
        let mut contact = Contact::new(LIMIT);
        assert_eq!(silent_of(contact.awaits(short([1]))), NOBODY);
        lasts(&mut contact, SECOND);
        assert_eq!(silent_of(contact.awaits(short([]))), NOBODY);
        assert_eq!(silent_of(contact.awaits(short([1]))), NOBODY);
    }

    #[test]
    fn a_peer_that_takes_nothing_for_too_long_has_failed() {
        let mut contact = Contact::new(LIMIT);
        assert_eq!(contact.refuses(3), None);
        pass(&mut contact);
        assert!(contact.refuses(3).is_some());
        contact.takes(3);
        assert_eq!(contact.refuses(3), None);
    }
}
