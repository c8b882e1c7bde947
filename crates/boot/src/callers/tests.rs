//! Callers, of which not all are ranks.

use super::*;
use crate::handshake::{self, Attempt, Claims, Purpose};
use std::net::TcpStream;
use std::thread;

const SIZE: usize = 4;

fn key() -> Key {
    Key::of_job(b"a key for tests of callers", "", SIZE)
}

/// The callers of rank 0, in the job after the first one.
fn callers() -> (Callers, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Callers::new(listener, key(), 0, SIZE, 1).unwrap(), address)
}

#[test]
fn as_many_callers_are_heard_as_there_is_room_for() {
    let (mut host, address) = callers();
    let mut callers = Vec::new();
    let begun = Instant::now();
    while callers.len() < MAX_CALLERS {
        callers.push(TcpStream::connect(address).unwrap());
        while host.list.len() < callers.len() {
            host.accept(begun);
        }
    }
    // All have had enough time, but no other caller is there.
    let later = begun + YOUNG;
    host.accept(later);
    assert_eq!(host.list.len(), MAX_CALLERS);
    let oldest = host.list[0].from;
    let second = host.list[1].from;
    let last = TcpStream::connect(address).unwrap();
    let from = last.local_addr().unwrap();
    while host.list.iter().all(|caller| caller.from != from) {
        host.accept(later);
    }
    assert_eq!(host.list.len(), MAX_CALLERS);
    assert!(host.list.iter().all(|caller| caller.from != oldest));
    assert_eq!(host.list[0].from, second, "one had to go, and no more");
}

/// The answer to rank 1 of this generation, which wants to meet this rank.
fn answer(generation: u64, rank: u32) -> Result<(), Attempt> {
    let (mut host, address) = callers();
    let claims = Claims {
        size: SIZE as u32,
        rank: 1,
        generation,
        host: rank,
        purpose: Purpose::Join,
    };
    let caller = thread::spawn(move || {
        let stream = TcpStream::connect(address).unwrap();
        handshake::call(&stream, &key(), claims).map(drop)
    });
    let mut met = false;
    while !caller.is_finished() {
        host.accept(Instant::now());
        for index in (0..host.list.len()).rev() {
            if let Some(proved) = host.hear(index) {
                assert_eq!((proved.session.rank, proved.purpose), (1, Purpose::Join));
                met = proved.accept().is_ok();
            }
        }
    }
    let answer = caller.join().unwrap();
    assert_eq!(met, answer.is_ok());
    answer
}

#[test]
fn a_rank_of_the_next_job_is_told_to_come_again() {
    assert!(answer(1, 0).is_ok());
    assert!(matches!(answer(2, 0), Err(Attempt::Later)));
    assert!(matches!(answer(0, 0), Err(Attempt::Final(_))));
}

/// Another process may have the port of a rank that has ended.
#[test]
fn a_rank_meets_only_the_one_that_it_calls() {
    assert!(matches!(answer(1, 2), Err(Attempt::Final(_))));
}
