//! What the engine does when the control plane reports something about a peer.
//!
//! # Model
//!
//! News takes effect at once, and the thread that brings it does not wait. Only a departure takes a moment. The
//! listener or an ear may still hold what the peer sent last, and that counts before the departure ends any wait. So
//! the listener carries a [`Parting`] along, turn by turn, and does not sleep meanwhile. Each of these threads looks at
//! its wire twice, so that one look has begun after the news. Then the listener turns the engine until nothing more
//! arrives.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_hal::nic::News;

use super::agent::{Agent, Watched};
use super::contact::Route;
use super::departure::{Parting, Stage};
use super::ear::Ear;
use super::queues::LoneSignal;
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

/// The pause between two looks of the listener, while a thread that receives has not looked yet.
const PAUSE: Duration = Duration::from_micros(50);

impl<W: Wire> Agent<W> {
    /// Takes news of a peer from the control plane.
    pub(crate) fn hear(&self, peer: usize, news: News) {
        match news {
            News::There(number) => self.with(|engine| engine.answered(peer, number)),
            News::Leaves => self.with(|engine| engine.leaves(peer)),
            News::Lost => self.with(|engine| engine.lost(peer)),
            News::Left(then) => {
                self.with(|engine| engine.leaves(peer));
                let parting = Parting {
                    peer,
                    rounds: self.all_rounds(),
                    since: Instant::now(),
                    last: None,
                    then,
                };
                lock(&self.partings).push(parting);
                self.has_partings.store(true, Ordering::SeqCst);
                self.wake_listener();
                return;
            }
        }
        // The listener may be asleep, and held failures go on.
        self.look();
        self.tell_listener();
    }

    fn all_rounds(&self) -> Vec<u64> {
        let of_ears = self.ears().iter().map(|ear| &ear.rounds);
        let of_all = std::iter::once(&self.rounds).chain(of_ears);
        of_all.map(|rounds| rounds.load(Ordering::SeqCst)).collect()
    }

    /// Whether the listener has departures to complete.
    pub(super) fn has_partings(&self) -> bool {
        self.has_partings.load(Ordering::SeqCst)
    }

    /// Completes departures after a turn of the listener. To be called on the listener's thread.
    pub(super) fn take_leave(&self) {
        let _watched = Watched::new(self);
        self.ears().iter().for_each(Ear::wake);
        let (rounds, heard) = (self.all_rounds(), self.heard());
        let mut partings = lock(&self.partings);
        let all = std::mem::take(&mut *partings).into_iter();
        let (over, rest): (Vec<_>, Vec<_>) = all
            .map(|mut parting| (parting.is_over(&rounds, heard), parting))
            .partition(|(is_over, _)| *is_over);
        partings.extend(rest.into_iter().map(|(_, parting)| parting));
        self.has_partings
            .store(!partings.is_empty(), Ordering::SeqCst);
        drop(partings);
        if over.is_empty() {
            std::thread::sleep(PAUSE);
            return;
        }
        for (_, parting) in over {
            self.with(|engine| engine.left(parting.peer));
            (parting.then)();
        }
        // Queues may have ended thereby.
        self.look();
    }
}

impl<W: Wire> Engine<W> {
    /// Handles the answer that a peer is there, and was after this question was asked.
    fn answered(&mut self, peer: usize, number: u64) {
        if self.peers.departures.answers(peer, number) {
            self.takes_up(peer);
        }
    }

    /// Handles a peer that leaves in good order. Its last messages are looked for when it has [`left`](Self::left).
    fn leaves(&mut self, peer: usize) {
        self.peers.departures.comes_to(peer, Stage::Leaving);
        // The control plane knows of the peer, so nobody need ask whether it is there.
        self.peers.contact.answers(Route::own(peer));
        self.poisonings.retain(|poisoning| poisoning.peer != peer);
        self.takes_up(peer);
    }

    /// Handles a peer that has left in good order. Everything that it waited for has arrived, and it can be asked no
    /// more. From here on, rung firings towards it are through, and pieces that are not posted yet are dropped.
    fn left(&mut self, peer: usize) {
        self.peers.departures.comes_to(peer, Stage::Left);
        self.is_gone(peer);
    }

    /// Handles a lost peer: its queues give up, and it is told nothing.
    fn lost(&mut self, peer: usize) {
        self.peers.departures.comes_to(peer, Stage::Lost);
        self.poisonings.retain(|poisoning| poisoning.peer != peer);
        self.is_gone(peer);
    }

    /// Stops everything that would go out to a peer.
    fn is_gone(&mut self, peer: usize) {
        self.peers.contact.begins_anew(peer);
        let is_theirs = |signal: &mut LoneSignal| signal.peer == peer;
        let dropped: Vec<_> = self.queues.signals.extract_if(.., is_theirs).collect();
        for signal in dropped {
            self.over(signal.queue, 0, None);
        }
        self.takes_up(peer);
    }

    /// Lets queues towards a peer go on, which may have waited for news of it.
    pub(super) fn takes_up(&mut self, peer: usize) {
        for index in self.queues.towards(peer) {
            self.queues.make_ready(index);
        }
        self.watch_chains();
    }
}
