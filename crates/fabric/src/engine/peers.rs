//! What is known of the peers, and of those that may be gone.

use std::time::Duration;

use super::contact::Contact;
use super::departure::{Departures, Question, Stage};

/// What is known of the peers.
pub(super) struct Peers {
    pub(super) contact: Contact,
    pub(super) departures: Departures,
    /// How long peers may be silent, and how long a signal may take to arrive.
    pub(super) silence: Duration,
    silent: Vec<Silent>,
}

/// A peer that has been silent for too long.
struct Silent {
    peer: usize,
    /// The question whether it is there. Its silence is a failure only if it is.
    question: Question,
    why: String,
}

impl Peers {
    pub(super) fn new(silence: Duration) -> Self {
        Peers {
            contact: Contact::new(silence),
            departures: Departures::default(),
            silence,
            silent: Vec::new(),
        }
    }

    pub(super) fn stage(&mut self, peer: usize) -> Stage {
        self.departures.of(peer).stage()
    }

    /// Notes that a peer has been silent for too long. That is a failure if it is there.
    pub(super) fn falls_silent(&mut self, peer: usize, limit: Duration) {
        if self.silent.iter().all(|silent| silent.peer != peer) {
            self.silent.push(Silent {
                peer,
                question: self.departures.question(peer),
                why: format!("the NIC of rank {peer} has not answered for {limit:?}"),
            });
        }
    }

    /// The failure of the wire, if a silent peer turns out to be there.
    pub(super) fn judge_silent(&mut self) -> Option<String> {
        let Peers {
            silent, departures, ..
        } = self;
        silent.retain(|silent| departures.of(silent.peer).stage() == Stage::Here);
        let is_there = |silent: &Silent| departures.is_answered(silent.question);
        let at = silent.iter().position(is_there)?;
        Some(silent.swap_remove(at).why)
    }
}
