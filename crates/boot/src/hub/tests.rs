//! The hub, with ranks that are only connections.

use super::*;
use crate::handshake::{self, Attempt, Claims};
use crate::rounds::{Failure, Outcome, Vote};
use std::thread;

const SIZE: usize = 4;

fn key() -> Key {
    Key::of_job(b"a key for tests", "", SIZE)
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nodelay(true).unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

/// A hub whose job runs, and the other ends of its connections, from rank 1 on.
pub(crate) fn running(size: usize) -> (Hub, Vec<Link<TcpStream>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut hub = Hub::new(listener, key(), size, 0).unwrap();
    hub.phase = HubPhase::Running;
    hub.nodes = vec![0; size];
    let mut ranks = Vec::new();
    for rank in 1..size {
        let (here, there) = pair();
        hub.link(rank, Link::new(here, key(), key(), usize::MAX))
            .unwrap();
        ranks.push(Link::new(there, key(), key(), usize::MAX));
    }
    (hub, ranks)
}

/// The next message to a rank.
fn hear(rank: &mut Link<TcpStream>) -> Message {
    loop {
        // Messages before the end of the connection count.
        let end = rank.fill();
        if let Some(message) = rank.next().unwrap() {
            return message;
        }
        end.unwrap();
        thread::yield_now();
    }
}

fn say(rank: &mut Link<TcpStream>, message: &Message) {
    rank.push(&Body::of(message)).unwrap();
    while rank.wants_write() {
        rank.flush().unwrap();
    }
}

/// Makes the hub read from a rank until something has come.
fn read(hub: &mut Hub, rank: usize) {
    let link = |hub: &mut Hub| hub.links[rank].as_ref().map(|link| link.heard);
    hub.links[rank].as_mut().unwrap().heard = false;
    while link(hub) == Some(false) {
        hub.hear_rank(rank);
    }
    hub.flush();
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

#[test]
fn a_departure_is_told_after_a_while_or_when_the_connection_ends() {
    let (mut hub, mut ranks) = running(SIZE);
    let begun = Instant::now();
    say(&mut ranks[0], &Message::Leave);
    read(&mut hub, 1);
    assert_eq!(hear(&mut ranks[0]), Message::Bye);
    assert!(hub.own.is_empty(), "it is not told yet");
    assert!(hub.next_tick().is_some_and(|at| at > begun));
    hub.tick(Instant::now() + HOLD);
    hub.flush();
    assert_eq!(hear(&mut ranks[1]), Message::Left { ranks: vec![1] });
    assert_eq!(hub.own, [Message::Left { ranks: vec![1] }]);
    assert!(hub.links[1].is_none());
    // Rank 2's process ends.
    say(&mut ranks[1], &Message::Leave);
    read(&mut hub, 2);
    drop(ranks.remove(1));
    while hub.links[2].is_some() {
        hub.hear_rank(2);
    }
    hub.flush();
    // Rank 3 gets no other message about the two.
    let heard = [hear(&mut ranks[1]), hear(&mut ranks[1])];
    assert_eq!(
        heard,
        [
            Message::Left { ranks: vec![1] },
            Message::Left { ranks: vec![2] }
        ]
    );
    assert_eq!(hub.others(), [3]);
}

#[test]
fn a_rank_that_fails_just_after_it_has_left_is_lost() {
    let (mut hub, mut ranks) = running(SIZE);
    say(&mut ranks[0], &Message::Leave);
    read(&mut hub, 1);
    say(&mut ranks[0], &fail());
    read(&mut hub, 1);
    hub.tick(Instant::now() + HOLD);
    hub.flush();
    assert_eq!(hear(&mut ranks[1]), lost(1));
    assert_eq!(hub.own, [lost(1)]);
    let acknowledged = [hear(&mut ranks[0]), hear(&mut ranks[0])];
    assert_eq!(acknowledged, [Message::Bye, Message::Bye]);
}

/// It does not matter how long ago rank 0 has left, since its hub still serves the others.
#[test]
fn the_others_hear_that_rank_0_fails_after_it_has_left() {
    let (mut hub, mut ranks) = running(SIZE);
    hub.receive(0, Message::Leave);
    hub.tick(Instant::now() + HOLD);
    hub.receive(0, fail());
    hub.flush();
    hub.hang_up();
    for rank in &mut ranks {
        assert_eq!(hear(rank), Message::Left { ranks: vec![0] });
        assert_eq!(hear(rank), lost(0));
        let end = loop {
            if let Err(end) = rank.fill() {
                break end;
            }
        };
        assert!(matches!(end, crate::link::LinkError::Closed), "{end}");
    }
    drop(ranks);
    while !hub.is_hung_up() {
        (1..SIZE).for_each(|rank| hub.hear_rank(rank));
    }
}

/// Ranks may have sent something while this rank could not run.
#[test]
fn a_rank_is_silent_only_if_nothing_of_it_waits_to_be_read() {
    let (mut hub, mut ranks) = running(2);
    let interval = Duration::from_secs(1);
    hub.look(interval, 1);
    say(&mut ranks[0], &Message::Beat);
    // This makes sure that the data has arrived.
    let mut bytes = [0; 1];
    let there = hub.links[1].as_ref().unwrap().stream();
    while there.peek(&mut bytes).is_err() {
        thread::yield_now();
    }
    hub.look(interval, 1);
    assert!(hub.links[1].is_some());
    hub.look(interval, 1);
    assert!(hub.links[1].is_some(), "it was heard");
    hub.look(interval, 1);
    assert!(hub.links[1].is_none());
    assert!(matches!(
        hub.own.front(),
        Some(Message::Lost { rank: 1, .. })
    ));
}

#[test]
fn as_many_callers_are_heard_as_there_is_room_for() {
    let (mut hub, _) = running(2);
    let address = hub.listener.local_addr().unwrap();
    let mut callers = Vec::new();
    let begun = Instant::now();
    while callers.len() < MAX_CALLERS {
        callers.push(TcpStream::connect(address).unwrap());
        while hub.callers.len() < callers.len() {
            hub.accept(begun);
        }
    }
    // All have had enough time, but no other caller is there.
    let later = begun + YOUNG;
    hub.accept(later);
    assert_eq!(hub.callers.len(), MAX_CALLERS);
    let oldest = hub.callers[0].from;
    let second = hub.callers[1].from;
    let last = TcpStream::connect(address).unwrap();
    let from = last.local_addr().unwrap();
    while hub.callers.iter().all(|caller| caller.from != from) {
        hub.accept(later);
    }
    assert_eq!(hub.callers.len(), MAX_CALLERS);
    assert!(hub.callers.iter().all(|caller| caller.from != oldest));
    assert_eq!(hub.callers[0].from, second, "one had to go, and no more");
}

/// The answer of a hub of generation 1 to rank 1 of this generation.
fn answer(generation: u64) -> Result<(), Attempt> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut hub = Hub::new(listener, key(), SIZE, 1).unwrap();
    let claims = Claims {
        size: SIZE as u32,
        rank: 1,
        generation,
    };
    let caller = thread::spawn(move || {
        let stream = TcpStream::connect(address).unwrap();
        handshake::call(&stream, &key(), claims).map(drop)
    });
    while !caller.is_finished() {
        hub.accept(Instant::now());
        (0..hub.callers.len())
            .rev()
            .for_each(|index| hub.hear_caller(index));
    }
    let joined = hub.links[1].is_some();
    let answer = caller.join().unwrap();
    assert_eq!(joined, answer.is_ok());
    answer
}

#[test]
fn a_rank_of_the_next_job_is_told_to_come_again() {
    assert!(answer(1).is_ok());
    assert!(matches!(answer(2), Err(Attempt::Later)));
    assert!(matches!(answer(0), Err(Attempt::Final(_))));
}

/// A message to many ranks reaches each of them whole and in order, however little the kernel takes at a time.
#[test]
fn long_messages_come_whole() {
    let (mut hub, mut ranks) = running(2);
    let long = |byte: u8| Message::Notify {
        from: 0,
        to: None,
        bytes: vec![byte; 1 << 20],
    };
    for byte in 0..8 {
        hub.receive(0, long(byte));
        hub.receive(
            0,
            Message::Notify {
                from: 0,
                to: None,
                bytes: vec![byte],
            },
        );
    }
    for byte in 0..8 {
        for bytes in [vec![byte; 1 << 20], vec![byte]] {
            let heard = loop {
                hub.flush();
                if let Some(message) = ranks[0].next().unwrap() {
                    break message;
                }
                ranks[0].fill().unwrap();
            };
            assert_eq!(
                heard,
                Message::Notify {
                    from: 0,
                    to: None,
                    bytes
                }
            );
        }
    }
    assert!(hub.is_flushed());
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

fn confer(round: u64) -> Message {
    Message::Confer {
        round,
        label: "opening a window".into(),
        vote: Vote::default(),
    }
}

fn exchange(round: u64) -> Message {
    let (label, bytes) = ("opening a window".into(), Vec::new());
    Message::Exchange {
        round,
        label,
        bytes,
    }
}

fn agreed(round: u64) -> Message {
    let outcome = Outcome::Agreed { flags: 0 };
    Message::Decided { round, outcome }
}

#[test]
fn letters_go_to_their_receivers_and_the_decision_to_all() {
    let (mut hub, mut ranks) = running(SIZE);
    say(&mut ranks[0], &letter(0, 0));
    say(&mut ranks[0], &letter(3, 0));
    say(&mut ranks[0], &confer(0));
    read(&mut hub, 1);
    for rank in [2, 3] {
        say(&mut ranks[rank - 1], &confer(0));
        read(&mut hub, rank);
    }
    hub.receive(0, letter(2, 0));
    hub.receive(0, confer(0));
    hub.flush();
    let own: Vec<_> = hub.own.drain(..).collect();
    assert!(
        matches!(&own[..], [Message::Letter { rank: 1, bytes, .. }, decided] if *bytes == [0] && *decided == agreed(0))
    );
    assert_eq!(hear(&mut ranks[0]), agreed(0));
    let to_2 = [hear(&mut ranks[1]), hear(&mut ranks[1])];
    assert!(matches!(to_2[0], Message::Letter { rank: 0, .. }));
    assert_eq!(to_2[1], agreed(0));
    let to_3 = [hear(&mut ranks[2]), hear(&mut ranks[2])];
    assert!(matches!(to_3[0], Message::Letter { rank: 1, .. }));
    assert_eq!(to_3[1], agreed(0));
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
    let (mut hub, mut ranks) = running(SIZE);
    let long = vec![9; 60 << 10];
    for (round, said) in [
        (0, [1, 2, 3, 4].map(|n| vec![n; n as usize])),
        (1, [0; 4].map(|_| long.clone())),
    ] {
        for rank in [2, 3, 1] {
            say(&mut ranks[rank - 1], &says(round, said[rank].clone()));
            read(&mut hub, rank);
        }
        hub.receive(0, says(round, said[0].clone()));
        // Rank 1 reads meanwhile, since the kernel takes only so much.
        let mut heard = Vec::new();
        while !matches!(heard.last(), Some(Message::Decided { .. })) {
            hub.flush();
            ranks[0].fill().unwrap();
            heard.extend(ranks[0].next().unwrap());
        }
        assert_eq!(heard.pop(), Some(agreed(round)));
        let parts = heard.into_iter().map(|message| match message {
            Message::Said { round: of, said } if of == round => said,
            other => panic!("{other:?}"),
        });
        let parts: Vec<_> = parts.collect();
        assert_eq!(parts.len(), if round == 0 { 1 } else { 3 });
        let came = parts.into_iter().flatten().map(|one| (one.rank, one.bytes));
        let mut came: Vec<_> = came.collect();
        came.sort();
        let all = said
            .into_iter()
            .enumerate()
            .map(|(rank, bytes)| (rank as u32, bytes));
        assert!(
            came.into_iter()
                .eq(all.filter(|(rank, _)| round == 0 || *rank != 1))
        );
        for rank in [2, 3] {
            let is_end = |message: &Message| *message == agreed(round);
            while !is_end(&hear(&mut ranks[rank - 1])) {
                hub.flush();
            }
        }
    }
}

/// At the end of a job all ranks leave.
#[test]
fn ranks_that_leave_in_one_turn_are_told_in_one_message() {
    let (mut hub, mut ranks) = running(SIZE);
    for rank in [1, 2] {
        say(&mut ranks[rank - 1], &Message::Leave);
        read(&mut hub, rank);
    }
    hub.tick(Instant::now() + HOLD);
    hub.flush();
    assert_eq!(hear(&mut ranks[2]), Message::Left { ranks: vec![1, 2] });
    assert_eq!(hub.own, [Message::Left { ranks: vec![1, 2] }]);
    // A call to which they have not come fails.
    hub.receive(0, confer(0));
    assert!(is_failure(hub.own.back().unwrap(), 1));
}

/// A rank that is killed between its letters and its vote.
#[test]
fn a_rank_that_has_only_sent_letters_has_not_come() {
    for others_come_first in [false, true] {
        let (mut hub, mut ranks) = running(SIZE);
        say(&mut ranks[0], &letter(2, 0));
        read(&mut hub, 1);
        if others_come_first {
            hub.receive(0, confer(0));
        }
        drop(ranks.remove(0));
        while hub.links[1].is_some() {
            hub.hear_rank(1);
        }
        if !others_come_first {
            hub.receive(0, confer(0));
        }
        hub.flush();
        assert!(matches!(
            hear(&mut ranks[0]),
            Message::Letter { rank: 1, .. }
        ));
        for rank in &mut ranks {
            let first = hear(rank);
            assert!(matches!(first, Message::Lost { rank: 1, .. }), "{first:?}");
            let second = hear(rank);
            assert!(is_failure(&second, 1), "{second:?}");
        }
        // Rank 2 had not heard of it. Its vote is no offence, and nothing follows.
        say(&mut ranks[0], &letter(3, 0));
        say(&mut ranks[0], &confer(0));
        read(&mut hub, 2);
        hub.receive(0, Message::Leave);
        hub.tick(Instant::now() + HOLD);
        hub.flush();
        assert_eq!(hear(&mut ranks[1]), Message::Left { ranks: vec![0] });
    }
}

/// Whether the message says that the round failed because `lost` did not come.
fn is_failure(message: &Message, lost: u32) -> bool {
    let Message::Decided { outcome, .. } = message else {
        return false;
    };
    matches!(outcome, Outcome::Failed(Failure::Lost { rank, .. }) if *rank == lost)
}

#[test]
fn what_no_rank_says_in_a_call_loses_the_rank() {
    let wrong: [&[Message]; 10] = [
        &[letter(0, 1)],
        &[letter(SIZE as u32, 0)],
        &[letter(u32::MAX, 0)],
        &[letter(1, 0)],
        &[letter(2, 0), letter(2, 0)],
        &[letter(2, 0), letter(0, 0)],
        &[confer(0), letter(2, 0)],
        &[confer(0), exchange(0)],
        &[letter(2, 0), exchange(0)],
        &[agreed(0)],
    ];
    for said in wrong {
        let (mut hub, mut ranks) = running(SIZE);
        for message in said {
            say(&mut ranks[0], message);
        }
        while hub.links[1].is_some() {
            hub.hear_rank(1);
        }
        assert_eq!(hub.others(), [2, 3], "{said:?}");
        hub.receive(0, confer(0));
        assert!(matches!(
            hub.own.pop_front(),
            Some(Message::Lost { rank: 1, .. })
        ));
        assert!(
            hub.own.iter().any(|message| is_failure(message, 1))
                != matches!(said[0], Message::Confer { .. })
        );
    }
}

/// The load at each flush so far.
pub(crate) fn flushes(hub: &Hub) -> &[(usize, usize)] {
    &hub.flushed
}
