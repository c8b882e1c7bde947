//! What the program of each rank does.

use super::{CALLS, Event, Network};
use crate::hub::HOLD;
use crate::rounds::Outcome;
use crate::wire::Message;
use std::collections::BTreeSet;
use std::time::Duration;

impl Network {
    /// The ranks on both sides, in ascending order.
    pub(super) fn sides(&self, rank: u32) -> Vec<u32> {
        let sides = [(rank + 1) % self.size, (rank + self.size - 1) % self.size];
        let sides: BTreeSet<_> = sides.into_iter().filter(|side| *side != rank).collect();
        sides.into_iter().collect()
    }

    /// The program of a rank makes its next call.
    pub(super) fn begin(&mut self, rank: u32) {
        let sides = self.sides(rank);
        let state = &mut self.ranks[rank as usize];
        if state.is_cut || !state.is_alive || !state.waits {
            return;
        }
        let round = state.round;
        if round.is_multiple_of(CALLS) {
            for to in sides {
                let letter = Message::Letter {
                    rank: to,
                    round,
                    handles: 0,
                    lost: None,
                    bytes: vec![7; 100],
                };
                state.branch.say(letter, self.now);
            }
        }
        let label = "opening a window".into();
        let vote = Box::default();
        state
            .branch
            .say(Message::Confer { round, label, vote }, self.now);
    }

    pub(super) fn deliver(&mut self, rank: u32, message: Message) {
        let thinks = Duration::from_micros(self.random.below(self.thinks.as_micros() as u64));
        let sides = self.sides(rank);
        let state = &mut self.ranks[rank as usize];
        match message {
            Message::Start { .. } => state.branch.say(Message::Ready, self.now),
            Message::Go => {
                state.waits = true;
                self.at(thinks, Event::Begin { rank });
            }
            Message::Letter {
                rank: from, round, ..
            } => assert!(state.letters.insert((round, from)), "a letter came twice"),
            Message::Decided { round, outcome } => {
                assert!(state.waits && round == state.round, "out of order");
                let agreed = matches!(outcome, Outcome::Agreed { .. });
                if agreed && round.is_multiple_of(CALLS) {
                    for side in sides {
                        let letter = state.letters.remove(&(round, side));
                        assert!(letter, "a letter has not come before its decision");
                    }
                }
                state.outcomes.push(outcome);
                state.round += 1;
                if !agreed {
                    let (team, reason) = (None, "a call has failed".into());
                    state
                        .branch
                        .say(Message::Withdrawn { team, reason }, self.now);
                    self.leave(rank);
                } else if state.round < self.windows * CALLS {
                    self.at(thinks, Event::Begin { rank });
                } else {
                    self.leave(rank);
                }
            }
            Message::Bye => {
                state.bye = Some(self.now);
                self.at(thinks, Event::Clock { rank });
            }
            Message::Lost { rank: lost, .. } if lost == rank => self.give_up(rank),
            Message::Lost {
                rank: lost, reason, ..
            } => {
                // A rank that was given up and looks for a parent is refused by a second such message to that parent.
                let again = !state.lost.insert(lost);
                assert!(
                    !again || reason == "it was given up",
                    "rank {lost} was lost twice: {reason}"
                );
            }
            Message::Left { ranks } => state.lost.extend(ranks),
            other => panic!("{other:?}"),
        }
    }

    /// The program of a rank ends.
    pub(super) fn leave(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.waits = false;
        if self.leave_at_the_end {
            state.leaves = true;
            state.branch.say(Message::Leave, self.now);
        }
    }

    /// Ends the process of a rank that has left: when all below it have ended, or after a while.
    pub(super) fn exit(&mut self, rank: u32) {
        let state = &self.ranks[rank as usize];
        let Some(bye) = state.bye.filter(|_| state.is_alive && rank != 0) else {
            return;
        };
        match state.branch.has_children() && self.now < bye + HOLD {
            true => self.at(Duration::from_millis(1), Event::Clock { rank }),
            false => self.at(Duration::ZERO, Event::Exit { rank }),
        }
    }
}
