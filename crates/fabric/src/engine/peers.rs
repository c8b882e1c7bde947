//! What is known of the peers, and of those that may be gone.

use std::time::Duration;

use super::contact::Contact;
use super::departure::{Departures, Question, Stage};

/// What is known of the peers.
pub(super) struct Peers {
    pub(super) contact: Contact,
    pub(super) departures: Departures,
    /// For how long they may be silent, and how long a signal may take to come.
    pub(super) silence: Duration,
    silent: Vec<Silent>,
}

/// A peer that has said nothing for too long.
struct Silent {
    peer: usize,
    /// It may be gone: this is to be answered before its silence is a failure.
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

    /// A peer says nothing for too long: that is a failure if it is there.
    pub(super) fn falls_silent(&mut self, peer: usize, limit: Duration) {
        if self.silent.iter().all(|silent| silent.peer != peer) {
            self.silent.push(Silent {
                peer,
                question: self.departures.question(peer),
                why: format!("the NIC of rank {peer} has not answered for {limit:?}"),
            });
        }
    }

    /// Why the wire is of no more use, if a silent peer is there.
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
