//! How ranks come into the tree, and how they find another place when their parents have ended.

use std::net::SocketAddr;
use std::time::Instant;

use super::{Hub, HubPhase, Orphan};
use crate::hop::{Hop, To};
use crate::wire::{Message, NodeId};

impl Hub {
    /// Whether a rank may join now.
    pub(crate) fn may_join(&self, rank: usize) -> bool {
        self.is_gathering() && (1..self.size).contains(&rank) && !self.places.has_joined(rank)
    }

    /// Whether a rank may ask for another parent.
    pub(crate) fn may_resume(&self, rank: usize) -> bool {
        self.phase == HubPhase::Running && (1..self.size).contains(&rank)
    }

    /// A rank joins.
    pub(crate) fn join(&mut self, rank: u32, node: NodeId, address: Option<SocketAddr>) {
        if !self.may_join(rank as usize) {
            let reason = format!("rank {rank} has joined before");
            return self.answers.push((rank, Hop::Abort { reason }));
        }
        let parent = self.places.join(rank, node, address);
        self.answer_place(rank, parent);
    }

    fn answer_place(&mut self, rank: u32, parent: u32) {
        let address = self.places.address(parent);
        self.answers.push((rank, Hop::Place { parent, address }));
    }

    /// A rank cannot reach the parent that it was given, so rank 0 is its parent.
    pub(crate) fn unreached(&mut self, rank: u32) {
        if !self.places.has_joined(rank as usize) {
            let reason = format!("rank {rank} was given no parent");
            return self.answers.push((rank, Hop::Abort { reason }));
        }
        self.places.promise(rank, 0);
        self.answer_place(rank, 0);
    }

    /// A rank has lost its parent, and asks for another one.
    pub(crate) fn resume(&mut self, rank: u32, now: Instant) {
        self.asking.insert(rank, now + self.silence);
        self.answer_asking(now);
    }

    /// The connection of a rank that asked for a parent has ended, and it has not said that it has one.
    pub(crate) fn caller_ended(&mut self, rank: u32, reason: &str) {
        self.asking.remove(&rank);
        match self.phase {
            HubPhase::Gathering if self.places.has_joined(rank as usize) => {
                self.lose(rank as usize, reason);
            }
            HubPhase::Running if self.orphans.contains_key(&rank) => {
                self.lose(rank as usize, reason)
            }
            _ => {}
        }
    }

    /// Gives new parents to those whose old ones are gone for sure.
    pub(super) fn answer_asking(&mut self, now: Instant) {
        for (rank, until) in self.asking.clone() {
            let parent = self.places.parent(rank);
            if !self.is_here(rank as usize) {
                self.asking.remove(&rank);
                let reason = "it has ended".to_owned();
                self.answers.push((rank, Hop::GivenUp { reason }));
            } else if let Some(promised) = self.places.promised(rank)
                && promised != 0
                && self.places.is_connected(promised)
            {
                // It found that parent, which has ended. What both have said there may still be on its way.
                if now >= until {
                    self.asking.remove(&rank);
                    self.lose(rank as usize, "the parent that it was given has not ended");
                }
            } else if self.orphans.contains_key(&rank) {
                self.asking.remove(&rank);
                if let Some(promised) = self.places.promised(rank).filter(|rank| *rank != 0)
                    && self.orphans.contains_key(&promised)
                {
                    let reason = format!("rank {rank} has lost its connection to it");
                    self.lose(promised as usize, &reason);
                }
                let serves = |rank: u32| {
                    !self.gone[rank as usize]
                        && !self.leaving.contains_key(&rank)
                        && !self.orphans.contains_key(&rank)
                };
                let parent = self.places.another(rank, serves);
                self.answer_place(rank, parent);
            } else if let Some(parent) = parent.filter(|parent| self.orphans.contains_key(parent)) {
                // What was on its way through an orphan is lost, so it does not matter when it ended.
                let reason = format!("rank {rank} has lost its connection to it");
                self.lose(parent as usize, &reason);
            } else if now >= until {
                self.asking.remove(&rank);
                self.lose(
                    rank as usize,
                    "it has lost its connection, and its parent has not",
                );
            }
        }
    }

    /// A rank has found a parent, which says so in its message number `seq`.
    pub(super) fn attached(&mut self, parent: u32, seq: u64, rank: u32, heard: u64) {
        if rank as usize >= self.size {
            return self.lose(parent as usize, "it has a child that the job does not have");
        }
        if !self.places.has_joined(rank as usize) {
            return self.lose(rank as usize, "it has found a parent before it has joined");
        }
        if self.phase == HubPhase::Gathering {
            self.places.attach(rank, parent);
            self.placed.insert(rank);
            if self.placed.len() == self.size {
                self.phase = HubPhase::Opening;
                self.nodes = self.places.nodes();
                let (nodes, seed) = (self.nodes.clone(), self.seed);
                self.send(To::All, Message::Start { nodes, seed });
            }
            return;
        }
        if !self.places.is_connected(parent) {
            // The parent was given up, and this one looks for another.
            return;
        }
        let below = self.places.below(rank);
        let missed = match self.gone[rank as usize] {
            true => None,
            false => self.log.since(heard, rank, &below),
        };
        let Some(missed) = missed else {
            // It was given up meanwhile, and the parent closes the connection.
            self.lose(rank as usize, "it was away for too long");
            let reason = "it was given up".to_owned();
            let first = None;
            let lost = Message::Lost {
                rank,
                reason,
                first,
            };
            return self.send_to(parent as usize, lost);
        };
        self.places.attach(rank, parent);
        for rank in &below {
            self.orphans.remove(rank);
        }
        let child = rank;
        let below = below.into_iter().collect();
        self.send_to(parent as usize, Message::Joined { child, below });
        self.out.extend(missed);
        self.send_to(parent as usize, Message::Welcome { child, seq });
        self.welcomed = self.log.last();
    }

    /// The connection of a parent to its child has ended.
    pub(super) fn end_of(
        &mut self,
        parent: u32,
        rank: u32,
        reason: &str,
        heard: u64,
        now: Instant,
    ) {
        if rank as usize >= self.size || self.places.parent(rank) != Some(parent) {
            return;
        }
        let below = self.places.below(rank);
        self.places.detach(rank);
        if self.phase == HubPhase::Running {
            let until = now + self.silence;
            let here = below.iter().filter(|rank| self.is_here(**rank as usize));
            for rank in here.copied().collect::<Vec<_>>() {
                // An orphan may have lost its next parent, too, before it had heard anything there.
                let orphan = self.orphans.entry(rank);
                let orphan = orphan.or_insert(Orphan { until, heard });
                orphan.until = until;
                orphan.heard = orphan.heard.min(heard);
            }
            // Nobody looks for the way to a rank that has ended.
            if below.len() > 1 {
                let below = below.into_iter().collect();
                self.send_to(parent as usize, Message::Parted { below });
            }
        }
        self.lose(rank as usize, reason);
    }
}
