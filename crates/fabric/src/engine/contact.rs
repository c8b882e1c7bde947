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
//! Each [way](Way) to a peer is a connection of its own, and a network may cut only one of them. So an operation that
//! ends on one way is no sign of life of another.
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
//! Nothing new goes to a peer that has [left](super::departure). What is in progress towards it concerns only its own
//! queue, which ends and keeps its memory.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::silence::Silence;
use crate::base::MOST_RAILS;

/// How much longer an answer may take than anything else: somebody connects, perhaps with many others.
const ANSWER: u32 = 2;

/// How many bytes any network carries towards a peer in a second, at least.
const SLOW: u64 = 100_000;
/// How many bytes a rank's link carries in a second, at least, towards however many peers.
const SHARED: u64 = 10_000_000;
/// How many bytes a network of those on which hardware fires carries in a second, at least.
const SLOW_FIRING: u64 = 1_000_000;

/// How long so many bytes take, at so many in a second.
fn takes(bytes: u64, rate: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / rate)
}

/// How long an answer may take, where `limit` is what a peer may take nothing for.
fn answer_within(limit: Duration) -> Duration {
    limit.saturating_mul(ANSWER)
}

/// One of the connections to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Way {
    pub(super) peer: usize,
    /// By which of the rails; 0 is the engine's own endpoint.
    pub(super) rail: usize,
}

impl Way {
    /// That of the engine's own endpoint.
    pub(super) fn own(peer: usize) -> Self {
        Way { peer, rail: 0 }
    }
}

/// Something that is under way: of how many bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    /// An operation, whose end is a sign of life.
    operation: u64,
    /// What ends as a whole, by hardware that fires.
    fired: u64,
}

impl Load {
    /// An operation of so many bytes.
    pub(super) fn operation(bytes: u64) -> Self {
        Load {
            operation: bytes,
            fired: 0,
        }
    }

    /// So many bytes that hardware was fired for.
    pub(super) fn fired(bytes: u64) -> Self {
        Load {
            operation: 0,
            fired: bytes,
        }
    }
}

/// For how long nothing has come to its end on a way.
struct Awaited {
    /// How much had ended then.
    ends: u64,
    silence: Silence,
    /// How long that may last.
    limit: Duration,
}

/// What is known of the peers.
pub(super) struct Contact {
    limit: Duration,
    /// Towards whom the wire takes nothing, since when.
    refusing: HashMap<usize, Silence>,
    /// Who has answered, by rank.
    met: Vec<bool>,
    /// Since when something is under way towards those that have not.
    asked: HashMap<usize, Silence>,
    /// How much has come to its end towards each, by rank and rail.
    ends: Vec<[u64; MOST_RAILS]>,
    /// Where something was under way when that was last looked at.
    awaited: HashMap<Way, Awaited>,
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

    /// Something that was under way towards a peer is over.
    fn ends(&mut self, way: Way) {
        if self.ends.len() <= way.peer {
            self.ends.resize(way.peer + 1, Default::default());
        }
        self.ends[way.peer][way.rail] += 1;
    }

    /// To be called now and then, with everything that is under way. Towards whom nothing has come to its end for too
    /// long, on one way or another, and for how long.
    pub(super) fn awaits(
        &mut self,
        under_way: impl Iterator<Item = (Way, Load)>,
    ) -> Vec<(usize, Duration)> {
        let mut ways: BTreeMap<Way, Load> = BTreeMap::new();
        for (way, load) in under_way {
            let all = ways.entry(way).or_default();
            // One operation goes behind the other.
            all.operation = all.operation.max(load.operation);
            all.fired += load.fired;
        }
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.awaited);
        let mut over = Vec::new();
        let shared = ways.values().map(|load| load.operation).sum();
        let least = answer_within(self.limit).saturating_add(takes(shared, SHARED));
        for (way, load) in ways {
            let ends = self.ends.get(way.peer).map_or(0, |ends| ends[way.rail]);
            let mut silence = match before.remove(&way) {
                Some(then) if then.ends == ends => then.silence,
                _ => Silence::new(),
            };
            let own = takes(load.operation, SLOW) + takes(load.fired, SLOW_FIRING);
            let limit = least.saturating_add(own);
            if silence.look(now, limit) {
                over.push((way.peer, limit));
            }
            let awaited = Awaited {
                ends,
                silence,
                limit,
            };
            self.awaited.insert(way, awaited);
        }
        // A peer has several ways.
        over.dedup_by_key(|(peer, _)| *peer);
        over
    }

    /// The wire takes nothing towards a peer for now. Why that is a failure, if it has been so for too long.
    pub(super) fn refuses(&mut self, peer: usize) -> Option<String> {
        let refused = self.refusing.entry(peer).or_insert_with(Silence::new);
        let too_long = refused.look(Instant::now(), self.limit);
        too_long.then(|| format!("nothing was taken for {:?}", self.limit))
    }

    /// The wire has taken something towards a peer.
    pub(super) fn takes(&mut self, peer: usize) {
        if !self.refusing.is_empty() {
            self.refusing.remove(&peer);
        }
        self.asks(peer);
    }

    /// A signal towards a peer is through at this end, which says nothing of the peer: what is asked next has its time.
    pub(super) fn is_through(&mut self, way: Way) {
        self.ends(way);
        if !self.asked.is_empty() {
            self.asked.remove(&way.peer);
        }
    }

    /// Something is under way towards a peer.
    pub(super) fn asks(&mut self, peer: usize) {
        if !self.has_met(peer) {
            self.asked.entry(peer).or_insert_with(Silence::new);
        }
    }

    /// Whether a peer has answered at all.
    pub(super) fn has_met(&self, peer: usize) -> bool {
        self.met.get(peer).is_some_and(|met| *met)
    }

    /// What was under way towards a peer has come to an end over there, or has failed.
    pub(super) fn answers(&mut self, way: Way) {
        self.ends(way);
        let peer = way.peer;
        if self.met.len() <= peer {
            self.met.resize(peer + 1, false);
        }
        if !std::mem::replace(&mut self.met[peer], true) {
            self.asked.remove(&peer);
        }
    }

    /// How much longer than anything else what is under way may take, for its bytes: as of when it was last looked at.
    pub(super) fn extra(&self) -> Duration {
        let most = self.awaited.values().map(|awaited| awaited.limit).max();
        most.map_or(Duration::ZERO, |most| {
            most.saturating_sub(answer_within(self.limit))
        })
    }

    /// What is under way towards a peer has its time from here on.
    pub(super) fn begins_anew(&mut self, peer: usize) {
        for rail in 0..MOST_RAILS {
            self.answers(Way { peer, rail });
        }
    }

    /// Who has never answered for too long, and for how long. Once for each.
    pub(super) fn unanswered(&mut self) -> Option<(usize, Duration)> {
        if self.asked.is_empty() {
            return None;
        }
        let (now, least) = (Instant::now(), answer_within(self.limit));
        let mut over = None;
        // All are looked at: what nobody looks at does not count.
        for (peer, asked) in &mut self.asked {
            // What is long has its time here, too.
            let ways = (0..MOST_RAILS).map(|rail| Way { peer: *peer, rail });
            let limits = ways.filter_map(|way| Some(self.awaited.get(&way)?.limit));
            let limit = limits.fold(least, Duration::max);
            if asked.look(now, limit) {
                over = Some((*peer, limit));
            }
        }
        let (peer, limit) = over?;
        self.answers(Way::own(peer));
        Some((peer, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// As if so long had gone by that every limit is over: no machine is too slow for a time that nobody waits for.
    fn pass(contact: &mut Contact) {
        let all = contact.refusing.values_mut();
        all.chain(contact.asked.values_mut())
            .for_each(|since| since.lasts(2 * answer_within(LIMIT)));
    }

    #[test]
    fn only_a_first_answer_has_a_time() {
        let mut contact = Contact::new(LIMIT);
        contact.answers(Way::own(1));
        for peer in 0..4 {
            contact.takes(peer);
        }
        contact.answers(Way::own(2));
        assert_eq!(contact.unanswered(), None);
        pass(&mut contact);
        // Once for each, whatever is sent to it afterwards.
        let mut said = [contact.unanswered(), contact.unanswered()].map(|one| one.unwrap().0);
        said.sort_unstable();
        assert_eq!(said, [0, 3]);
        contact.takes(0);
        pass(&mut contact);
        assert_eq!(contact.unanswered(), None);
    }

    /// Towards these peers, short operations.
    fn short<const N: usize>(peers: [usize; N]) -> impl Iterator<Item = (Way, Load)> {
        let load = |peer| (Way::own(peer), Load::default());
        peers.into_iter().map(load)
    }

    /// Who is found silent.
    fn silent_of(over: Vec<(usize, Duration)>) -> Vec<usize> {
        over.into_iter().map(|(peer, _)| peer).collect()
    }

    /// As if so much of its silence had been counted on every way, behind twice the limit.
    fn lasts(contact: &mut Contact, more: Duration) {
        let all = contact.awaited.values_mut();
        all.for_each(|awaited| awaited.silence.lasts(answer_within(LIMIT) + more));
    }

    const NOBODY: [usize; 0] = [];
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_hardware_does_has_the_time_of_its_bytes() {
        let mut contact = Contact::new(LIMIT);
        let bytes = |seconds: u64| {
            let half = Load::fired(seconds * SLOW_FIRING / 2);
            [(Way::own(1), half); 2].into_iter()
        };
        assert_eq!(silent_of(contact.awaits(bytes(60))), NOBODY);
        lasts(&mut contact, 30 * SECOND);
        assert_eq!(silent_of(contact.awaits(bytes(60))), NOBODY);
        assert_eq!(silent_of(contact.awaits(bytes(20))), [1]);
    }

    #[test]
    fn an_operation_has_the_time_of_its_bytes() {
        let operations = |sizes: &[u64]| {
            let load = |bytes: &u64| (Way::own(1), Load::operation(*bytes));
            sizes.iter().map(load).collect::<Vec<_>>().into_iter()
        };
        let long = 60 * SLOW;
        let mut contact = Contact::new(LIMIT);
        contact.asks(1);
        assert_eq!(silent_of(contact.awaits(operations(&[long]))), NOBODY);
        lasts(&mut contact, 50 * SECOND);
        assert_eq!(silent_of(contact.awaits(operations(&[long]))), NOBODY);
        // Nor has one that never answered failed.
        let asked = contact.asked.get_mut(&1).unwrap();
        asked.lasts(answer_within(LIMIT) + 50 * SECOND);
        assert_eq!(contact.unanswered(), None);
        // One goes behind the other, so the end of the first is what is waited for.
        let halves = operations(&[long / 2, long / 2]);
        assert_eq!(silent_of(contact.awaits(halves)), [1]);
        assert!(contact.unanswered().is_some());
    }

    #[test]
    fn who_sends_to_many_has_little_for_each() {
        const PEERS: usize = 100;
        let operations =
            |bytes: u64| (0..PEERS).map(move |peer| (Way::own(peer), Load::operation(bytes)));
        let each = 60 * SHARED / PEERS as u64;
        let mut contact = Contact::new(LIMIT);
        assert_eq!(silent_of(contact.awaits(operations(each))), NOBODY);
        lasts(&mut contact, 50 * SECOND + takes(each, SLOW));
        assert_eq!(silent_of(contact.awaits(operations(each))), NOBODY);
        assert_eq!(contact.awaits(operations(each / 2)).len(), PEERS);
    }

    /// However much comes to its end on others: a network may cut one of them.
    #[test]
    fn each_connection_has_its_own_time() {
        let mut contact = Contact::new(LIMIT);
        let ways = |rails: &[usize]| {
            let way = |&rail: &usize| (Way { peer: 1, rail }, Load::default());
            let all: Vec<_> = rails.iter().map(way).collect();
            all.into_iter()
        };
        contact.answers(Way::own(1));
        assert_eq!(silent_of(contact.awaits(ways(&[0, 2]))), NOBODY);
        lasts(&mut contact, SECOND);
        contact.answers(Way::own(1));
        contact.is_through(Way { peer: 1, rail: 1 });
        assert_eq!(silent_of(contact.awaits(ways(&[0, 2]))), [1]);
        contact.is_through(Way { peer: 1, rail: 2 });
        assert_eq!(silent_of(contact.awaits(ways(&[0, 2]))), NOBODY);
        // When it has left, all have.
        lasts(&mut contact, SECOND);
        contact.begins_anew(1);
        assert_eq!(silent_of(contact.awaits(ways(&[0, 2]))), NOBODY);
    }

    #[test]
    fn who_says_nothing_at_all_to_what_is_under_way_has_failed() {
        let mut contact = Contact::new(LIMIT);
        contact.answers(Way::own(1));
        contact.answers(Way::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2, 1]))), NOBODY);
        lasts(&mut contact, SECOND);
        // Something has come to its end, if not what is under way.
        contact.is_through(Way::own(1));
        contact.answers(Way::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2]))), NOBODY);
        lasts(&mut contact, SECOND);
        contact.answers(Way::own(2));
        assert_eq!(silent_of(contact.awaits(short([1, 2]))), [1]);
        // Who is not waited for may say nothing.
        let mut contact = Contact::new(LIMIT);
        assert_eq!(silent_of(contact.awaits(short([1]))), NOBODY);
        lasts(&mut contact, SECOND);
        assert_eq!(silent_of(contact.awaits(short([]))), NOBODY);
        assert_eq!(silent_of(contact.awaits(short([1]))), NOBODY);
    }

    #[test]
    fn who_takes_nothing_for_too_long_has_failed() {
        let mut contact = Contact::new(LIMIT);
        assert_eq!(contact.refuses(3), None);
        pass(&mut contact);
        assert!(contact.refuses(3).is_some());
        contact.takes(3);
        assert_eq!(contact.refuses(3), None);
    }
}
