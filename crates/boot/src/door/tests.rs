//! Guests of a node's leader, some of which are strangers.

use super::*;
use std::thread::sleep;

const MEMBERS: usize = 150;

fn key() -> Key {
    Key::of_job(b"a key for tests", "", MEMBERS)
}

fn visit(porch: &Porch, rank: usize) -> Visit {
    Visit::start(key(), porch.name, rank).unwrap()
}

/// Accepts guests in time, since some kernels keep only 128 waiting connections.
fn admit_in_time(porch: &mut Porch, number: usize) {
    if number.is_multiple_of(100) {
        porch.admit(Instant::now());
    }
}

/// The ranks that have proved themselves.
fn hear_all(porch: &mut Porch) -> Vec<usize> {
    let guests = (0..porch.guests.len()).rev();
    let heard: Vec<_> = guests.filter_map(|index| porch.hear(index)).collect();
    heard
        .into_iter()
        .map(|proved| proved.unwrap().0)
        .rev()
        .collect()
}

#[test]
fn members_that_come_all_at_once_are_all_let_in() {
    let mut porch = Porch::open(key(), MEMBERS).unwrap();
    // The leader's thread has not run yet when all ranks of a large node have connected.
    let mut visits = Vec::new();
    for rank in 1..MEMBERS {
        visits.push(visit(&porch, rank));
        admit_in_time(&mut porch, rank);
    }
    porch.admit(Instant::now());
    for visit in &mut visits {
        assert!(!visit.advance().unwrap());
    }
    let all: Vec<_> = (1..MEMBERS).collect();
    assert_eq!(hear_all(&mut porch), all);
    assert!(visits.iter_mut().all(|visit| visit.advance().unwrap()));
}

/// While a leader is suspended, members go on with other work. They connect when the leader goes on.
#[test]
fn a_member_that_finds_no_room_does_not_block() {
    let mut porch = Porch::open(key(), 2).unwrap();
    let mut visits = Vec::new();
    // These are more than any queue that `open` has asked for can hold.
    for _ in 0..2 + STRANGERS + 10 {
        visits.push(visit(&porch, 1));
    }
    let mut last = visits.pop().unwrap();
    assert!(!last.is_connected() && !last.advance().unwrap());
    visits.clear();
    while !last.is_connected() {
        porch.admit(Instant::now() + YOUNG);
        porch.guests.clear();
        assert!(!last.advance().unwrap());
    }
    porch.admit(Instant::now());
    assert!(!last.advance().unwrap());
    assert_eq!(hear_all(&mut porch), [1]);
    assert!(last.advance().unwrap());
    // A member does not try for ever.
    let mut porch = Porch::open(key(), 2).unwrap();
    let mut visits: Vec<_> = (0..2 + STRANGERS + 10).map(|_| visit(&porch, 1)).collect();
    let mut late = visits.pop().unwrap();
    late.begun -= CROWDED;
    let error = late.advance().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(late.again(&error).is_none());
    porch.guests.clear();
}

#[test]
fn strangers_that_say_nothing_have_to_make_room() {
    let mut porch = Porch::open(key(), MEMBERS).unwrap();
    let mut strangers = Vec::new();
    for number in 0..MEMBERS + STRANGERS {
        strangers.push(visit(&porch, 1));
        admit_in_time(&mut porch, number);
    }
    porch.admit(Instant::now());
    let mut member = visit(&porch, 7);
    let now = Instant::now();
    if let Some(until) = porch.crowded_until(now) {
        porch.admit(now);
        assert!(until <= now + YOUNG);
        assert!(!member.advance().unwrap());
        assert!(hear_all(&mut porch).is_empty());
        assert!(member.nonces.is_none(), "there was no room");
    }
    let later = Instant::now() + YOUNG;
    assert_eq!(porch.crowded_until(later), None);
    porch.admit(later);
    assert!(!member.advance().unwrap());
    assert_eq!(hear_all(&mut porch), [7]);
    assert!(member.advance().unwrap());
    // One guest was sent away, and no more.
    assert_eq!(porch.guests.len(), strangers.len() - 1);
}

#[test]
fn a_guest_that_was_sent_away_for_being_slow_comes_again() {
    let mut porch = Porch::open(key(), 2).unwrap();
    for said in [false, true] {
        let mut slow = visit(&porch, 1);
        porch.admit(Instant::now());
        if said {
            assert!(!slow.advance().unwrap());
        }
        sleep(YOUNG);
        porch.guests.clear();
        let error = slow.advance().unwrap_err();
        let mut again = slow.again(&error).unwrap();
        porch.admit(Instant::now());
        assert!(!again.advance().unwrap());
        assert_eq!(hear_all(&mut porch), [1]);
        assert!(again.advance().unwrap());
    }
}

#[test]
fn a_guest_that_was_refused_does_not_come_again() {
    let mut porch = Porch::open(key(), 2).unwrap();
    let mut refused = visit(&porch, 1);
    porch.admit(Instant::now());
    porch.guests.clear();
    let error = refused.advance().unwrap_err();
    // On a machine that stands still this cannot be distinguished from the other case.
    let since = refused.since.unwrap();
    assert!(refused.again(&error).is_none() || since.elapsed() >= YOUNG);
    // A member that cannot trust the leader does not try again, nor does one that finds no leader.
    sleep(YOUNG);
    assert!(refused.again(&io::Error::other("no proof")).is_none());
    assert!(refused.again(&error).is_some());
    drop(porch);
    assert!(refused.again(&error).is_none());
}
