//! What the control plane of each rank does: how it passes messages on, and what the end of a neighbour means to it.

use super::{Event, Network};
use crate::branch::downs;
use crate::hop::{Down, Hop};
use std::time::Duration;

impl Network {
    /// The connection to a neighbour has ended.
    pub(super) fn lose(&mut self, at: u32, from: u32) {
        let now = self.now;
        let rank = &mut self.ranks[at as usize];
        if rank.parent == Some(from) {
            rank.parent = None;
            if from == 0 {
                return self.cut(at);
            }
            rank.branch.lose_parent();
            if rank.bye.is_some() {
                return self.at(Duration::ZERO, Event::Exit { rank: at });
            }
            rank.calls = true;
            let (hop, delay) = (Hop::Resume, self.delay());
            return self.at(delay, Event::Call { from: at, hop });
        }
        rank.branch.lose_child(from, "closed", now);
        self.settle(at);
    }

    /// Rank 0 is lost: a rank tells those below it.
    pub(super) fn cut(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        if !state.is_alive || std::mem::replace(&mut state.is_cut, true) {
            return;
        }
        state.waits = false;
        state.branch.lose_parent();
        let children: Vec<_> = state.branch.children().collect();
        for child in children {
            let reason = "lost".into();
            self.send(rank, child, Hop::Cut { reason });
        }
    }

    /// A rank was given up: those below it look for other parents.
    pub(super) fn give_up(&mut self, rank: u32) {
        if std::mem::replace(&mut self.ranks[rank as usize].is_cut, true) {
            return;
        }
        self.ranks[rank as usize].waits = false;
        self.ranks[rank as usize].branch.lose_parent();
        self.close_all(rank);
    }

    pub(super) fn hear_answer(&mut self, to: u32, hop: Hop) {
        if !self.ranks[to as usize].is_alive {
            return;
        }
        match hop {
            Hop::Place { parent, .. } => {
                let state = &self.ranks[parent as usize];
                if !state.is_alive || state.is_cut {
                    let (hop, delay) = (Hop::Unreached, self.delay());
                    return match parent {
                        0 => self.cut(to),
                        _ => self.at(delay, Event::Call { from: to, hop }),
                    };
                }
                self.connect(to, parent);
                let state = &mut self.ranks[to as usize];
                state.parent = Some(parent);
                state.calls = false;
                state.branch.find_parent(self.now);
                let attach = state.branch.attachment();
                self.send(to, parent, attach);
                self.settle(to);
            }
            // The acknowledgement was lost on its way.
            Hop::GivenUp { .. } if self.ranks[to as usize].leaves => {
                self.at(Duration::ZERO, Event::Exit { rank: to });
            }
            Hop::GivenUp { .. } | Hop::Abort { .. } => self.give_up(to),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hear(&mut self, from: u32, to: u32, hop: Hop) {
        let now = self.now;
        let state = &mut self.ranks[to as usize];
        match hop {
            Hop::Attach { heard, all_heard } => {
                let is_cut = state.is_cut;
                if is_cut || state.branch.attach(from, heard, all_heard, now).is_err() {
                    return self.close(to, from);
                }
            }
            Hop::Up(up) => match state.branch.hear_up(from, up, now) {
                Ok(()) => {}
                // It may have been given up.
                Err(error) => assert!(state.is_cut, "{error} ({from} to {to})"),
            },
            Hop::Beat { upto } => state.branch.hear_beat(upto),
            Hop::Down(down) => state.branch.hear_down(down),
            Hop::Again => state.branch.again(now),
            Hop::Cut { .. } => return self.cut(to),
            Hop::GivenUp { .. } => return self.give_up(to),
            other => panic!("{other:?}"),
        }
        self.settle(to);
    }

    /// Does what a rank's service does in a turn.
    pub(super) fn settle(&mut self, rank: u32) {
        let now = self.now;
        while self.ranks[rank as usize].is_alive {
            let state = &mut self.ranks[rank as usize];
            let ups = state.branch.take_up(now);
            if rank == 0 {
                for up in ups {
                    self.hub.hear(up, now);
                }
                self.hub.all_heard(state.branch.all_heard());
                let items = self.hub.take_down(now);
                if !items.is_empty() {
                    let upto = self.hub.last();
                    state.branch.hear_down(Down { upto, items });
                }
                for (to, hop) in std::mem::take(&mut self.hub.answers) {
                    let delay = self.delay();
                    self.at(delay, Event::Answer { to, hop });
                }
            } else if let Some(parent) = state.parent {
                for up in ups {
                    self.send(rank, parent, Hop::Up(up));
                }
            }
            if let Some(message) = self.ranks[rank as usize].branch.own.pop_front() {
                self.deliver(rank, message);
                continue;
            }
            break;
        }
        if !self.ranks[rank as usize].is_alive {
            return;
        }
        for (child, _) in std::mem::take(&mut self.ranks[rank as usize].branch.given_up) {
            self.send_down(rank, child);
            self.close(rank, child);
            let branch = &mut self.ranks[rank as usize].branch;
            branch.lose_child(child, "given up", now);
        }
        let children: Vec<_> = self.ranks[rank as usize].branch.children().collect();
        for child in children {
            self.send_down(rank, child);
        }
        let state = &mut self.ranks[rank as usize];
        let clock = state.branch.next_tick();
        let clock = clock
            .into_iter()
            .chain(self.hub.next_tick().filter(|_| rank == 0));
        if let Some(clock) = clock.min()
            && state.clock.is_none_or(|at| clock < at)
        {
            state.clock = Some(clock);
            self.schedule(clock.max(now), Event::Clock { rank });
        }
        if rank == 0 && !self.hub.answers.is_empty() {
            self.settle(0);
        }
    }

    fn send_down(&mut self, rank: u32, child: u32) {
        let branch = &mut self.ranks[rank as usize].branch;
        if branch.wants_down(child) {
            let (again, items, upto) = branch.take_down(child);
            if again {
                self.send(rank, child, Hop::Again);
            }
            for hop in downs(items, upto) {
                self.send(rank, child, hop);
            }
        }
    }
}
