//! Peers that take nothing, and peers that nothing reaches.
//!
//! # Model
//!
//! What is refused towards a peer is tried again; when that has lasted too long, it has failed: a provider that cannot
//! reach a peer may never say more. Others take everything, connect behind one's back, and never say that they cannot.
//! So what is first sent to a peer must come back within a time, too. (A signal that is through says nothing of the
//! peer; but it is asked for soon: see [`doubt`](super::doubt).) Of a peer that has answered something must come to its
//! end within a like time, as long as anything is under way towards it: a network may be cut while the control plane,
//! which goes another way, hears that all ranks are well. What comes to its end need not be what is waited for: a slow
//! network has much to do before that. (The software engine's operations are short for that reason:
//! [`program`](super::program).) What hardware has begun on its own ends as a whole, so it has the time that its bytes
//! take over a [slow](SLOW) network besides.
//!
//! # Failure
//!
//! What is under way towards a peer that has never answered may still be read for as long as the endpoint is open, so
//! its queue cannot end by itself: the endpoint is reported to be of no more use
//! ([`tidegate_hal::nic::Connection::failed`]). Towards a peer that has [left](super::departure) nothing new goes out, and
//! what is under way is nobody's loss but its own queue's: that one ends then, and keeps its memory.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tidegate_hal::tell;

use super::departure::Stage;
use super::firing::Flight;
use super::silence::Silence;
use super::work::Engine;
use crate::lock;
use crate::wire::Wire;

/// How much longer an answer may take than anything else: somebody connects, perhaps with many others.
const ANSWER: u32 = 2;

/// How many bytes a network of those on which hardware fires carries in a second, at least.
const SLOW: u64 = 1_000_000;

/// How long an answer may take, where `limit` is what a peer may take nothing for.
fn answer_within(limit: Duration) -> Duration {
    limit.saturating_mul(ANSWER)
}

/// Why a peer that does not answer is a failure.
fn silent(peer: usize, limit: Duration) -> String {
    let limit = answer_within(limit);
    format!("the NIC of rank {peer} has not answered for {limit:?}")
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
    /// How much has come to its end towards each, by rank.
    ends: Vec<u64>,
    /// Towards whom something was under way at the last tick: how much had ended then, and for how long that is so.
    awaited: HashMap<usize, (u64, Silence)>,
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
    fn ends(&mut self, peer: usize) {
        if self.ends.len() <= peer {
            self.ends.resize(peer + 1, 0);
        }
        self.ends[peer] += 1;
    }

    /// To be called by ticks, with everybody towards whom something is under way, and of how many bytes that have no
    /// signs of life of their own. Towards whom nothing has come to its end for too long.
    fn awaits(&mut self, under_way: impl Iterator<Item = (usize, u64)>) -> Vec<usize> {
        let mut peers: BTreeMap<usize, u64> = BTreeMap::new();
        for (peer, bytes) in under_way {
            *peers.entry(peer).or_default() += bytes;
        }
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.awaited);
        let mut over = Vec::new();
        for (peer, bytes) in peers {
            let ends = self.ends.get(peer).copied().unwrap_or(0);
            let mut silence = match before.remove(&peer) {
                Some((then, silence)) if then == ends => silence,
                _ => Silence::new(),
            };
            let takes = Duration::from_secs(bytes / SLOW);
            if silence.look(now, answer_within(self.limit).saturating_add(takes)) {
                over.push(peer);
            }
            self.awaited.insert(peer, (ends, silence));
        }
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
    pub(super) fn is_through(&mut self, peer: usize) {
        self.ends(peer);
        if !self.asked.is_empty() {
            self.asked.remove(&peer);
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
    pub(super) fn answers(&mut self, peer: usize) {
        self.ends(peer);
        if self.met.len() <= peer {
            self.met.resize(peer + 1, false);
        }
        if !std::mem::replace(&mut self.met[peer], true) {
            self.asked.remove(&peer);
        }
    }

    /// Who has never answered, and why that is a failure by now. Once for each.
    pub(super) fn unanswered(&mut self) -> Option<String> {
        if self.asked.is_empty() {
            return None;
        }
        let (now, limit) = (Instant::now(), answer_within(self.limit));
        let mut over = None;
        // All are looked at: what nobody looks at does not count.
        for (peer, asked) in &mut self.asked {
            if asked.look(now, limit) {
                over = Some(*peer);
            }
        }
        let peer = over?;
        self.answers(peer);
        Some(silent(peer, self.limit))
    }
}

impl<W: Wire> Engine<W> {
    /// Looks for how long peers have said nothing to what the wire has taken.
    pub(super) fn await_answers(&mut self) {
        let queue_of = |index: usize| Some(&self.queues.at(index)?.queue);
        let peer_of = |index: usize| Some(queue_of(index)?.peer);
        let flights = self.flights.iter().filter_map(|flight| match flight {
            Flight::Of(index, _) | Flight::With(index, ..) => peer_of(*index),
            // Perhaps a rail has not posted it yet. What goes by the engine's own endpoint goes along, as long as
            // something does.
            Flight::Handed(index) => queue_of(*index)
                .filter(|queue| queue.departure() == Stage::Left)
                .map(|queue| queue.peer),
            Flight::Poisoning(poisoning) => Some(poisoning.peer),
            Flight::Look(look) => Some(look.peer),
        });
        let chained = self.queues.iter().filter_map(|agenda| {
            let bytes = lock(agenda.chained.as_ref()?).under_way(&agenda.queue)?;
            Some((agenda.queue.peer, bytes))
        });
        let under_way = flights.map(|peer| (peer, 0)).chain(chained);
        for peer in self.contact.awaits(under_way) {
            match self.departures.of(peer).stage() {
                Stage::Here => {
                    let why = silent(peer, self.contact.limit);
                    self.failure.get_or_insert(why);
                }
                // When it has left, that has its time.
                Stage::Leaving => {}
                Stage::Left => self.strand(peer),
            }
        }
    }

    /// What is under way towards a peer that has left does not come to its end. It may still be read, so its queues
    /// cannot go on; but nobody is to wait for them.
    fn strand(&mut self, peer: usize) {
        for index in 0..self.queues.numbers() {
            let Some(agenda) = self.queues.at(index) else {
                continue;
            };
            let queue = &agenda.queue;
            let waits = agenda.firing.as_ref().is_some_and(|one| one.under_way > 0);
            if queue.peer == peer && waits && !queue.is_abandoned() {
                tell(|| {
                    tracing::warn!("what is under way to rank {peer}, which has left, does not end")
                });
                queue.lose();
            }
        }
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
        contact.answers(1);
        for peer in 0..4 {
            contact.takes(peer);
        }
        contact.answers(2);
        assert_eq!(contact.unanswered(), None);
        pass(&mut contact);
        // Once for each, whatever is sent to it afterwards.
        let mut said = [contact.unanswered(), contact.unanswered()].map(Option::unwrap);
        said.sort();
        assert!(
            said[0].contains("rank 0") && said[1].contains("rank 3"),
            "{said:?}"
        );
        contact.takes(0);
        pass(&mut contact);
        assert_eq!(contact.unanswered(), None);
    }

    /// Towards these peers, operations that are seen to end.
    fn short<const N: usize>(peers: [usize; N]) -> impl Iterator<Item = (usize, u64)> {
        peers.into_iter().map(|peer| (peer, 0))
    }

    #[test]
    fn what_hardware_does_has_the_time_of_its_bytes() {
        let mut contact = Contact::new(LIMIT);
        let bytes = |seconds: u64| [(1, seconds * SLOW / 2), (1, seconds * SLOW / 2)].into_iter();
        let nobody: [usize; 0] = [];
        assert_eq!(contact.awaits(bytes(60)), nobody);
        let silence = &mut contact.awaited.get_mut(&1).unwrap().1;
        silence.lasts(answer_within(LIMIT) + Duration::from_secs(30));
        assert_eq!(contact.awaits(bytes(60)), nobody);
        assert_eq!(contact.awaits(bytes(20)), [1]);
    }

    #[test]
    fn who_says_nothing_at_all_to_what_is_under_way_has_failed() {
        let mut contact = Contact::new(LIMIT);
        contact.answers(1);
        contact.answers(2);
        let pass = |contact: &mut Contact| {
            let all = contact.awaited.values_mut();
            all.for_each(|(_, silence)| silence.lasts(2 * answer_within(LIMIT)));
        };
        let nobody: [usize; 0] = [];
        assert_eq!(contact.awaits(short([1, 2, 1])), nobody);
        pass(&mut contact);
        // Something has come to its end, if not what is under way.
        contact.is_through(1);
        contact.answers(2);
        assert_eq!(contact.awaits(short([1, 2])), nobody);
        pass(&mut contact);
        contact.answers(2);
        assert_eq!(contact.awaits(short([1, 2])), [1]);
        // Who is not waited for may say nothing.
        let mut contact = Contact::new(LIMIT);
        assert_eq!(contact.awaits(short([1])), nobody);
        pass(&mut contact);
        assert_eq!(contact.awaits(short([])), nobody);
        assert_eq!(contact.awaits(short([1])), nobody);
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
