//! The hub, with ranks that say what the tests want.

use super::*;
use crate::rounds::{Failure, Outcome};
use crate::tally::Tally;
use crate::votes::{Call, Kind, Vote};

const SIZE: usize = 4;

/// A hub whose job runs, in which all ranks are children of rank 0.
struct Job {
    hub: Hub,
    said: Vec<u64>,
    now: Instant,
    /// What each rank has heard.
    heard: Vec<Vec<Message>>,
}

fn job() -> Job {
    let silence = Duration::from_secs(10);
    let mut job = Job {
        hub: Hub::new(SIZE, None, [0; 32], [0; 16], silence),
        said: vec![0; SIZE],
        now: Instant::now(),
        heard: vec![Vec::new(); SIZE],
    };
    for rank in 1..SIZE as u32 {
        job.hub.join(rank, [0; 32], None);
        let parent = 0;
        let address = None;
        assert_eq!(
            job.hub.answers.pop(),
            Some((rank, Hop::Place { parent, address }))
        );
        job.say(0, Message::Attached { rank, heard: 0 });
    }
    let mut ranks = RankSet::default();
    (0..SIZE as u32).for_each(|rank| ranks.insert(rank));
    job.up(Item::Ready { ranks });
    job.heard.iter_mut().for_each(|heard| {
        assert!(matches!(heard[..], [Message::Start { .. }, Message::Go]));
        heard.clear();
    });
    job
}

impl Job {
    fn up(&mut self, item: Item) {
        let (epoch, heard, items) = (0, 0, vec![Arc::new(item)]);
        let up = Up {
            epoch,
            heard,
            items,
        };
        self.hub.hear(up, self.now);
        self.turn();
    }

    /// Passes on what the hub says.
    fn turn(&mut self) {
        for passed in self.hub.take_down(self.now) {
            for (rank, heard) in self.heard.iter_mut().enumerate() {
                let rank = rank as u32;
                let is_for = match &passed.to {
                    To::All => true,
                    To::Others(other) => *other != rank,
                    To::One(one) => *one == rank,
                    To::Ranks(ranks) => ranks.contains(&rank),
                };
                heard.extend(is_for.then(|| passed.message.clone()));
            }
        }
    }

    fn say(&mut self, from: u32, message: Message) {
        self.said[from as usize] += 1;
        let seq = self.said[from as usize];
        self.up(Item::Said { from, seq, message });
    }

    fn vote(&mut self, rank: u32, round: u64) {
        let call = Call::new(Kind::Confer, "opening a window");
        let tally = Tally::of(rank, call, Vote::default());
        self.up(Item::Votes { round, tally });
    }

    /// The connection of a rank to rank 0 ends.
    fn end(&mut self, rank: u32) {
        let (reason, heard) = ("closed".into(), self.hub.last());
        self.say(
            0,
            Message::Gone {
                rank,
                reason,
                heard,
            },
        );
    }

    fn wait(&mut self) {
        for time in [HOLD, GATHERS] {
            self.now += time;
            self.hub.tick(self.now);
            self.turn();
        }
    }

    /// What a rank has heard, without acknowledgements.
    fn hear(&mut self, rank: usize) -> Vec<Message> {
        let mut heard = std::mem::take(&mut self.heard[rank]);
        heard.retain(|message| !matches!(message, Message::Heard { .. } | Message::Parted { .. }));
        heard
    }
}

/// At the end of a large job, each connection that ends must not cost a look at all ranks.
#[test]
fn connections_that_end_cost_what_was_below_them() {
    const RANKS: u32 = 10_000;
    let (size, silence) = (RANKS as usize, Duration::from_secs(10));
    let mut hub = Hub::new(size, Some(ARITY), [0; 32], [0; 16], silence);
    let now = Instant::now();
    let mut said = vec![0; size];
    let mut say = |hub: &mut Hub, from: u32, message| {
        let seq = &mut said[from as usize];
        *seq += 1;
        let seq = *seq;
        let items = vec![Arc::new(Item::Said { from, seq, message })];
        let (epoch, heard) = (0, 0);
        hub.hear(
            Up {
                epoch,
                heard,
                items,
            },
            now,
        );
    };
    let mut parents = vec![0; size];
    for rank in 1..RANKS {
        hub.join(rank, [0; 32], None);
        let Some((_, Hop::Place { parent, .. })) = hub.answers.pop() else {
            panic!("rank {rank} has no place");
        };
        parents[rank as usize] = parent;
        say(&mut hub, parent, Message::Attached { rank, heard: 0 });
    }
    let mut ranks = RankSet::default();
    (0..RANKS).for_each(|rank| ranks.insert(rank));
    let (epoch, heard, items) = (0, 0, vec![Arc::new(Item::Ready { ranks })]);
    let up = Up {
        epoch,
        heard,
        items,
    };
    hub.hear(up, now);
    assert_eq!(hub.phase, HubPhase::Running);
    for rank in 0..RANKS {
        say(&mut hub, rank, Message::Leave);
    }
    hub.places.seen.set(0);
    // Children have joined after their parents.
    for rank in (1..RANKS).rev() {
        let (reason, heard) = ("closed".into(), 0);
        let gone = Message::Gone {
            rank,
            reason,
            heard,
        };
        say(&mut hub, parents[rank as usize], gone);
    }
    assert!(hub.is_deserted());
    let seen = hub.places.seen.get();
    assert!(seen <= size, "{seen}");
}

fn left(ranks: &[u32]) -> Message {
    let ranks = ranks.to_vec();
    Message::Left { ranks }
}

const BECAUSE: &str = "its program has failed (exit status 1)";

fn fail() -> Message {
    let reason = BECAUSE.into();
    Message::Fail {
        reason,
        first: Some(3),
    }
}

fn lost(rank: u32) -> Message {
    let reason = BECAUSE.into();
    Message::Lost {
        rank,
        reason,
        first: Some(3),
    }
}

/// A rank that has not joined has no node, so it can have no place.
#[test]
fn only_ranks_that_have_joined_find_places() {
    let hub = || Hub::new(SIZE, None, [0; 32], [0; 16], Duration::from_secs(10));
    let mut early = hub();
    early.unreached(1);
    assert!(matches!(early.answers.pop(), Some((1, Hop::Abort { .. }))));
    early.join(1, [1; 32], None);
    assert!(matches!(
        early.answers.pop(),
        Some((1, Hop::Place { parent: 0, .. }))
    ));
    let mut early = hub();
    early.attached(0, 1, 1, 0);
    let passed = early.take_down(Instant::now());
    let aborts = |message: &Message| matches!(message, Message::Abort { reason } if reason.starts_with("rank 1 "));
    assert!(passed.iter().any(|passed| aborts(&passed.message)));
}

#[test]
fn a_departure_is_told_after_a_while_or_when_the_connection_ends() {
    let mut job = job();
    job.say(1, Message::Leave);
    assert_eq!(job.hear(1), [Message::Bye]);
    assert!(job.hear(2).is_empty(), "it is not told yet");
    assert_eq!(job.hub.next_tick(), Some(job.now + HOLD));
    job.wait();
    assert_eq!(job.hear(2), [left(&[1])]);
    // Rank 2's process ends.
    job.say(2, Message::Leave);
    job.end(2);
    job.now += GATHERS;
    job.turn();
    assert_eq!(job.hear(3), [left(&[1]), left(&[2])]);
    assert_eq!(job.hub.others(), [3]);
}

#[test]
fn a_rank_that_fails_just_after_it_has_left_is_lost() {
    let mut job = job();
    job.say(1, Message::Leave);
    job.say(1, fail());
    job.wait();
    assert_eq!(job.hear(2), [lost(1)]);
    assert_eq!(job.hear(1), [Message::Bye, Message::Bye]);
}

/// It does not matter how long ago rank 0 has left, since its hub still serves the others.
#[test]
fn the_others_hear_that_rank_0_fails_after_it_has_left() {
    let mut job = job();
    job.say(0, Message::Leave);
    job.wait();
    job.say(0, fail());
    for rank in 1..SIZE {
        assert_eq!(job.hear(rank), [left(&[0]), lost(0)]);
    }
}

fn letter(rank: u32, round: u64) -> Message {
    Message::Letter {
        rank,
        round,
        handles: 0,
        lost: None,
        bytes: vec![rank as u8],
    }
}

fn agreed(round: u64) -> Message {
    let outcome = Outcome::Agreed { flags: 0 };
    Message::Decided { round, outcome }
}

#[test]
fn letters_go_to_their_receivers_and_the_decision_to_all() {
    let mut job = job();
    for to in [0, 3] {
        job.say(1, letter(to, 0));
    }
    job.say(0, letter(2, 0));
    assert!(
        (0..SIZE).all(|rank| job.hear(rank).is_empty()),
        "letters wait"
    );
    (0..SIZE as u32).for_each(|rank| job.vote(rank, 0));
    for (rank, from) in [(0, Some(1)), (1, None), (2, Some(0)), (3, Some(1))] {
        let heard = job.hear(rank);
        let came = heard.iter().filter_map(|message| match message {
            Message::Letter { rank, .. } => Some(*rank),
            _ => None,
        });
        assert!(came.eq(from));
        assert_eq!(heard.last(), Some(&agreed(0)));
        assert_eq!(heard.len(), 1 + usize::from(from.is_some()));
    }
    // What comes again changes nothing.
    job.vote(2, 0);
    job.said[1] -= 1;
    job.say(1, letter(3, 0));
    assert!((0..SIZE).all(|rank| job.hear(rank).is_empty()));
}

fn says(round: u64, bytes: Vec<u8>) -> Message {
    let label = "telling all".into();
    Message::Exchange {
        round,
        label,
        bytes,
    }
}

/// What ranks say in an exchange goes to all in few messages, but what is long goes at once, and not back to its rank.
#[test]
fn an_exchange_is_told_in_few_messages() {
    let mut job = job();
    let long = vec![9; 60 << 10];
    for (round, said) in [
        (0, [1, 2, 3, 4].map(|n| vec![n; n as usize])),
        (1, [0; 4].map(|_| long.clone())),
    ] {
        for rank in [2, 3, 1, 0] {
            job.say(rank, says(round, said[rank as usize].clone()));
        }
        for me in 0..SIZE {
            let mut heard = job.hear(me);
            assert_eq!(heard.pop(), Some(agreed(round)));
            assert_eq!(heard.len(), if round == 0 { 1 } else { 3 });
            let parts = heard.into_iter().flat_map(|message| match message {
                Message::Said { round: of, said } if of == round => said,
                other => panic!("{other:?}"),
            });
            let mut came: Vec<_> = parts.map(|one| (one.rank as usize, one.bytes)).collect();
            came.sort();
            let all = said.iter().cloned().enumerate();
            assert!(
                came.into_iter()
                    .eq(all.filter(|(rank, _)| round == 0 || *rank != me))
            );
        }
    }
}

/// At the end of a job all ranks leave.
#[test]
fn ranks_that_leave_at_a_time_are_told_in_one_message() {
    let mut job = job();
    for rank in [1, 2] {
        job.say(rank, Message::Leave);
    }
    job.wait();
    assert_eq!(job.hear(3), [left(&[1, 2])]);
    // A call to which they have not come fails.
    job.vote(0, 0);
    assert!(is_failure(job.hear(3).last(), 1));
}

/// A rank that is killed between its letters and its vote.
#[test]
fn a_rank_that_has_only_sent_letters_has_not_come() {
    for others_come_first in [false, true] {
        let mut job = job();
        job.say(1, letter(2, 0));
        if others_come_first {
            job.vote(0, 0);
        }
        job.end(1);
        if !others_come_first {
            job.vote(0, 0);
        }
        for rank in [2, 3] {
            let mut heard = job.hear(rank);
            if rank == 2 {
                assert!(matches!(heard.remove(0), Message::Letter { rank: 1, .. }));
            }
            assert!(
                matches!(heard[0], Message::Lost { rank: 1, .. }),
                "{heard:?}"
            );
            assert!(is_failure(heard.get(1), 1), "{heard:?}");
        }
        // Rank 2 had not heard of it. Its vote is no offence, and nothing follows.
        job.say(2, letter(3, 0));
        job.vote(2, 0);
        job.say(0, Message::Leave);
        job.wait();
        assert_eq!(job.hear(3), [left(&[0])]);
    }
}

/// Whether the message says that the round failed because `lost` did not come.
fn is_failure(message: Option<&Message>, lost: u32) -> bool {
    let Some(Message::Decided { outcome, .. }) = message else {
        return false;
    };
    matches!(outcome, Outcome::Failed(Failure::Lost { rank, .. }) if *rank == lost)
}

#[test]
fn what_no_rank_says_in_a_call_loses_the_rank() {
    let wrong: [&[Message]; 8] = [
        &[letter(0, 1)],
        &[letter(SIZE as u32, 0)],
        &[letter(u32::MAX, 0)],
        &[letter(1, 0)],
        &[letter(2, 0), letter(2, 0)],
        &[letter(2, 0), letter(0, 0)],
        &[letter(2, 0), says(0, Vec::new())],
        &[agreed(0)],
    ];
    for said in wrong {
        let mut job = job();
        for message in said {
            job.say(1, message.clone());
        }
        let is_lost = |message: &Message| matches!(message, Message::Lost { rank: 1, .. });
        assert!(job.hear(0).iter().any(is_lost), "{said:?}");
    }
    for after_the_vote in [letter(2, 0), says(0, Vec::new())] {
        let mut job = job();
        job.vote(1, 0);
        job.say(1, after_the_vote);
        assert!(job.hub.gone[1]);
    }
}
