//! Writes and reads.

use std::time::Instant;

use tidegate_ffi::fabric::*;

use crate::support::{LONG, Pair, comes_to, hints, library, piece, skip, tcp};

const SOCKETS: &str = "sockets";
const SHM: &str = "shm";

fn caps() -> Caps {
    Caps::RMA | Caps::ATOMIC
}

/// Two ends over `provider`; `None` if this library cannot make them, after a line that says so.
fn pair(test: &str, provider: &str, caps: Caps) -> Option<Pair> {
    let library = library(test)?;
    match Pair::open(&library, &hints(provider, caps), 64) {
        Ok(pair) => Some(pair),
        Err(error) => {
            skip(test, &format!("{provider}: {error}"));
            None
        }
    }
}

#[test]
fn a_write_arrives_and_the_targets_counter_counts_it() {
    // `tcp;ofi_rxm` has no such counters, as the last test of this file shows.
    let Some(pair) = pair(
        "a write and a remote counter",
        SOCKETS,
        caps() | Caps::RMA_EVENT,
    ) else {
        return;
    };
    pair.a.store(0, 42);
    pair.write(pair.a.local(0, 1), pair.word(3), None, 7);
    let done = pair.complete(1);
    assert_eq!(done[0].context, 7);
    let came = pair.b.came.as_ref().expect("a counter");
    assert!(comes_to(came, 1));
    assert_eq!((pair.b.load(3), came.read(), came.read_err()), (42, 1, 0));
    assert_eq!(pair.a.written.read(), 1);
}

#[test]
fn a_write_carries_data_to_the_targets_queue() {
    for provider in [SOCKETS, tcp(), SHM] {
        let Some(pair) = pair("a write with data", provider, caps()) else {
            continue;
        };
        pair.a.store(0, 43);
        let data = 0xfeed_beef;
        pair.write(pair.a.local(0, 1), pair.word(1), Some(data), 0);
        let came = || {
            let start = Instant::now();
            loop {
                pair.a.poll().expect("no operation fails");
                if let Some(got) = pair.b.poll().expect("no operation fails").first() {
                    return got.remote_data();
                }
                assert!(start.elapsed() < LONG, "{provider}: no data came");
            }
        };
        assert_eq!(came(), Some(data), "{provider}");
        assert_eq!(pair.b.load(1), 43, "{provider}: data before its signal");

        let bytes = 44u64.to_ne_bytes();
        pair.post(|| pair.a.endpoint.inject_write_data(&bytes, 5, pair.word(2)));
        assert_eq!((came(), pair.b.load(2)), (Some(5), 44));
    }
}

#[test]
fn writes_keep_their_order() {
    for provider in [SOCKETS, tcp(), SHM] {
        let Some(pair) = pair("ordered writes", provider, caps()) else {
            continue;
        };
        let order = pair.a.domain.info().tx_order();
        assert!(order.contains(Order::RMA_WAW), "{provider}: {order:?}");
        for round in 1..=200 {
            for at in 0..32 {
                pair.a.store(at, round);
            }
            pair.write(pair.a.local(0, 32), pair.word(0), None, 0);
            pair.post(|| {
                let signal = round.to_ne_bytes();
                pair.a.endpoint.inject_write_data(&signal, 0, pair.word(40))
            });
            pair.until("the signal", || pair.b.load(40) == round);
            let seen: Vec<u64> = (0..32).map(|at| pair.b.load(at)).collect();
            assert_eq!(seen, vec![round; 32], "{provider}");
            pair.until("the source can be used again", || {
                pair.a.written.read() >= 2 * round
            });
        }
    }
}

#[test]
fn a_message_writes_pieces_and_is_complete_when_it_is_delivered() {
    for provider in [SOCKETS, tcp()] {
        let Some(pair) = pair("a message of pieces", provider, caps()) else {
            continue;
        };
        for at in 0..4 {
            pair.a.store(at, 10 + at as u64);
        }
        let local = [pair.a.local(0, 1), pair.a.local(2, 2)];
        let remote = pair.word(8);
        let message = Message {
            local: &local,
            peer: remote.peer,
            remote: &[piece(remote, 24)],
            context: 99,
            data: 0,
            flags: OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE,
        };
        // SAFETY: the words are registered, and nothing writes them until the completion is there.
        pair.post(|| unsafe { pair.a.endpoint.write_msg(&message) });
        assert_eq!(pair.complete(1)[0].context, 99);
        let seen: Vec<u64> = (8..11).map(|at| pair.b.load(at)).collect();
        assert_eq!(seen, [10, 12, 13], "{provider}");

        let many = [pair.a.local(0, 1); MAX_PIECES + 1];
        let message = Message {
            local: &many,
            ..message
        };
        // SAFETY: as above; besides, the message is refused.
        let refused = unsafe { pair.a.endpoint.write_msg(&message) };
        assert!(refused.expect_err("too many").is_refused());
    }
}

#[test]
fn a_read_brings_the_peers_data() {
    for provider in [SOCKETS, tcp(), SHM] {
        let Some(pair) = pair("a read", provider, caps()) else {
            continue;
        };
        for at in 0..16 {
            pair.b.store(at, 100 + at as u64);
        }
        let message = Message {
            local: &[pair.a.local(32, 16)],
            peer: pair.to_b.peer,
            remote: &[piece(pair.word(0), 8 * 16)],
            context: 3,
            data: 0,
            flags: OpFlags::COMPLETION,
        };
        // SAFETY: the words are registered, and nothing else touches them until the completion is there.
        pair.post(|| unsafe { pair.a.endpoint.read_msg(&message) });
        assert_eq!(pair.complete(1)[0].context, 3, "{provider}");
        let seen: Vec<u64> = (32..48).map(|at| pair.a.load(at)).collect();
        assert_eq!(seen, (100..116).collect::<Vec<_>>(), "{provider}");
    }
}

#[test]
fn bytes_that_are_too_long_to_inject_are_refused() {
    for provider in [SOCKETS, tcp(), SHM] {
        let Some(pair) = pair("an injection that is too long", provider, caps()) else {
            continue;
        };
        let most = pair.a.endpoint.inject_size();
        assert_eq!(most, pair.a.domain.info().inject_size());
        let error = pair
            .a
            .endpoint
            .inject_write_data(&vec![0; most + 1], 0, pair.word(0))
            .expect_err("too long");
        assert_eq!(error.name, "FI_EMSGSIZE", "{error}");
        assert!(
            error.to_string().contains(&most.to_string()),
            "{provider}: {error}"
        );
    }
}

#[test]
fn a_wrong_key_fails_the_operation_and_nothing_else() {
    for provider in [SOCKETS, tcp()] {
        let Some(pair) = pair("a wrong key", provider, caps()) else {
            continue;
        };
        let wrong = Remote {
            key: pair.to_b.key ^ 0x5a5a_0000,
            ..pair.to_b
        };
        let message = Message {
            local: &[pair.a.local(0, 1)],
            peer: wrong.peer,
            remote: &[piece(wrong, 8)],
            context: 77,
            data: 0,
            // Without `DELIVERY_COMPLETE`, `tcp;ofi_rxm` would call the write complete even though it fails at the
            // target.
            flags: OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE,
        };
        // SAFETY: the word is registered, and nothing writes it until the completion is there.
        pair.post(|| unsafe { pair.a.endpoint.write_msg(&message) });
        let start = Instant::now();
        let error = loop {
            match pair.a.poll() {
                Ok(done) => assert_eq!(done, [], "{provider}: it is complete"),
                Err(CqError::Completion(error)) => break error,
                Err(error) => panic!("{provider}: {error}"),
            }
            let _ = pair.b.poll();
            assert!(start.elapsed() < LONG, "{provider}: no error came");
        };
        eprintln!("{provider}: {error}");
        assert_eq!(error.context, 77, "{provider}: {error}");
        assert!(error.code > 0 && !error.text.is_empty(), "{error}");
        assert_eq!(pair.a.written.read(), 0, "{provider}");
        // `tcp;ofi_rxm` does not count failures: it reports them in the queue only.
        let failures = if provider == SOCKETS { 1 } else { 0 };
        assert_eq!(pair.a.written.read_err(), failures, "{provider}");

        // The next write must succeed, although `tcp;ofi_rxm` has to connect again.
        let start = Instant::now();
        while pair.b.load(2) != 9 {
            let right = pair
                .a
                .endpoint
                .inject_write_data(&9u64.to_ne_bytes(), 0, pair.word(2));
            if right.expect("posted").is_taken() {
                let patience = Instant::now();
                while pair.b.load(2) != 9 && patience.elapsed().as_millis() < 500 {
                    let _ = (pair.a.poll(), pair.b.poll());
                }
            }
            let _ = (pair.a.poll(), pair.b.poll());
            assert!(
                start.elapsed() < LONG,
                "{provider}: nothing arrives any more"
            );
        }
    }
}

#[test]
fn a_full_provider_says_so_and_takes_more_after_progress() {
    for provider in [tcp(), SHM] {
        let Some(pair) = pair("a full provider", provider, caps()) else {
            continue;
        };
        // Nothing makes progress, so there is no room at some time.
        let (mut taken, mut again) = (0u64, 0);
        for _ in 0..200_000 {
            let word = taken.to_ne_bytes();
            match pair.a.endpoint.inject_write_data(&word, 0, pair.word(1)) {
                Ok(Post::Taken) => taken += 1,
                Ok(Post::Again) => {
                    again += 1;
                    if again > 3 {
                        break;
                    }
                }
                Err(error) => panic!("{provider}: {error}"),
            }
        }
        assert!(again > 0, "{provider}: it takes everything");
        pair.until("all that was taken is written", || {
            pair.a.written.read() == taken
        });
        pair.post(|| {
            pair.a
                .endpoint
                .inject_write_data(&u64::MAX.to_ne_bytes(), 0, pair.word(1))
        });
        pair.until("one more", || pair.b.load(1) == u64::MAX);
    }
}

#[test]
fn a_peer_of_another_vector_is_refused() {
    let Some(pair) = pair("a stranger", SOCKETS, caps()) else {
        return;
    };
    let stranger = Remote {
        peer: pair.b.vector.insert(&[&pair.a.name]).expect("a's address")[0],
        ..pair.to_b
    };
    let error = pair.a.endpoint.inject_write_data(&[1], 0, stranger);
    assert!(error.expect_err("refused").is_refused());
}

#[test]
fn tcp_cannot_count_writes_by_peers() {
    let Some(library) = library("remote counters") else {
        return;
    };
    let can = |provider| {
        let asked = hints(provider, Caps::RMA | Caps::RMA_EVENT);
        library.query(&asked, Location::ANY)
    };
    assert!(can(SOCKETS).is_ok());
    match can("no-such-provider") {
        Err(error) => assert!(error.is_no_data(), "{error}"),
        Ok(infos) => panic!("{infos:?}"),
    }
}
