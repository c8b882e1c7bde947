//! What fails while a peer leaves: between the news of that and its end (see [`parting`]).

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use parting::{LONG, Wish, between, busy, odd, odd_with, settle, until, wishing};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::Direction;

/// Its connections end, and the acknowledgement of what has come was not heard of.
#[test]
fn a_put_that_fails_is_no_failure() {
    let (rig, wish) = busy(Direction::Put);
    between(&rig, &wish, 0, || {
        wish.fails();
        settle(&rig);
        assert_eq!(rig.word(SENT).load(), 0, "it is not known yet what it is");
    });
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((rig.word(SIGNAL).load() & POISON, wish.told()), (0, 0));
}

/// Likewise a part of one, of whose ring the rest comes when the peer has left: it is through then, and not before.
#[test]
fn a_part_of_a_put_that_fails_is_no_failure() {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    let put = |to, stage| {
        let mut put = rig.transfer(&rig.memory, Direction::Put, to);
        put.stage = stage;
        put
    };
    let parts = rig.program(vec![put(1, 0), put(2, 1)]);
    rig.arm(&[parts, rig.put(3)], 1).unwrap();
    rig.ring_part(0, 0, 2);
    until("nothing is posted", || {
        wish.taken.load(Ordering::SeqCst) == 1
    });
    between(&rig, &wish, 0, || wish.fails());
    settle(&rig);
    assert_eq!(rig.word(SENT).load(), 0, "the stream is not there yet");
    rig.ring_part(0, 1, 2);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((rig.word(SIGNAL).load() & POISON, wish.told()), (0, 0));
}

/// Likewise what is not taken at all, of a queue that is made while the peer leaves.
#[test]
fn a_put_of_a_new_queue_that_is_refused_is_no_failure() {
    let (rig, wish) = busy(Direction::Put);
    let mut made = None;
    between(&rig, &wish, 0, || {
        let beside = made.insert(rig.beside());
        wish.refuse.store(true, Ordering::SeqCst);
        beside.fires(&rig, rig.put(2));
        until("nothing is refused", || {
            wish.refused.load(Ordering::SeqCst) == 1
        });
        settle(&rig);
        assert_eq!(beside.sent(), 0, "it is not known yet what it is");
    });
    let beside = made.unwrap();
    until("it is never through", || beside.sent() != 0);
    assert_eq!(beside.sent(), QUANTUM);
    wish.hold.store(false, Ordering::SeqCst);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
}

/// What only the peer could bring has not come; but nobody is there who would have to be told.
#[test]
fn a_get_that_fails_is_a_failure_that_the_peer_is_not_told_of() {
    let (rig, wish) = busy(Direction::Get);
    between(&rig, &wish, 0, || {
        wish.fails();
        assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    });
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
}

/// That a signal has come cannot be found out meanwhile, for longer than is asked otherwise: it may be the connections
/// that end.
#[test]
fn a_signal_that_cannot_be_asked_for_is_not_lost() {
    let silence = Duration::from_millis(50);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    rig.arm(&[rig.put(1)], 2).unwrap();
    wish.blind.store(true, Ordering::SeqCst);
    between(&rig, &wish, 0, || {
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        // Each look counts for an eighth of the silence at most, and the first few for less.
        until("nobody asks", || {
            let lost = rig.word(SENT).load() & POISON != 0;
            lost || wish.blinded.load(Ordering::SeqCst) > 30
        });
        assert_eq!(
            rig.word(SENT).load(),
            QUANTUM,
            "it is not known yet what it is"
        );
    });
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((rig.word(SENT).load() & POISON, wish.told()), (0, 0));
}

/// Nor is a peer silent that leaves, however long what is under way takes meanwhile.
#[test]
fn who_leaves_need_not_answer() {
    let silence = Duration::from_millis(50);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.hold.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    between(&rig, &wish, 0, || {
        rig.ring();
        until("nothing is posted", || {
            wish.taken.load(Ordering::SeqCst) == 1
        });
        std::thread::sleep(10 * silence);
        wish.hold.store(false, Ordering::SeqCst);
    });
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// What is under way never comes to its end: that is the loss of who waits for it, and no other queue's.
#[test]
fn what_does_not_end_when_its_peer_has_left_ends_its_queue_alone() {
    // Twice that is left for this thread to say that the peer leaves: till then it counts as one that never answers.
    let silence = Duration::from_millis(400);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.hold.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
    until("nothing is posted", || {
        wish.taken.load(Ordering::SeqCst) == 1
    });
    rig.nic.hear(0);
    let other = rig.beside();
    other.fires(&rig, rig.put(2));
    until("it is never through", || other.sent() != 0);
    assert_eq!(rig.wait(SENT, 1), POISON);
    // It is not over: its memory stays.
    assert_eq!(rig.nic.armed(), 1);
    other.fires(&rig, rig.put(2));
    until("it is not through", || other.sent() != QUANTUM);
    assert_eq!(other.sent(), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
    wish.hold.store(false, Ordering::SeqCst);
    until("it stays for ever", || rig.nic.armed() == 0);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// Nor does it keep whoever listens awake for ever, as something does of which an end is awaited.
#[test]
fn what_does_not_end_when_its_peer_has_left_keeps_nobody_awake() {
    // Rests are not for as long where nothing on the wire ends them.
    let rests = |deaf| if deaf { 4 } else { 1000 };
    for (polled, deaf) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = Options::default().silence(Duration::from_millis(400));
        let wish = Wish {
            deaf,
            ..Wish::default()
        };
        let (rig, wish) = wishing(wish, options, polled);
        wish.hold.store(true, Ordering::SeqCst);
        rig.arm(&[rig.put(1)], 2).unwrap();
        rig.ring();
        until("nothing is posted", || {
            wish.taken.load(Ordering::SeqCst) == 1
        });
        rig.nic.hear(0);
        assert_eq!(rig.wait(SENT, 1), POISON);
        wish.slept.store(0, Ordering::SeqCst);
        until("it stays awake", || {
            wish.slept.load(Ordering::SeqCst) >= 1000 * rests(deaf)
        });
        // What is new is not late for that.
        let other = rig.beside();
        for sent in 1..=10 {
            other.fires(&rig, rig.put(2));
            until("it is never through", || other.sent() >= sent * QUANTUM);
        }
        // Nor is what comes to its end after all.
        wish.hold.store(false, Ordering::SeqCst);
        until("it stays for ever", || rig.nic.armed() == 1);
        assert!(!rig.has_failed.load(Ordering::SeqCst));
    }
}

/// A put fails at once.
fn a_put_is_refused(rig: &Rig, wish: &Wish) {
    wish.refuse.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
}

/// The queue has failed: how often the peer was told when all is over.
fn told_of_a_failure(rig: &Rig, wish: &Wish) -> usize {
    assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    assert!(rig.nic.quiesce(LONG));
    wish.told()
}

/// A put has failed before, and what tells the peer of that is under way when the news comes.
#[test]
fn what_does_not_reach_the_peer_is_not_told_again() {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is told", || wish.told() == 1);
    between(&rig, &wish, 0, || wish.fails());
    assert_eq!(told_of_a_failure(&rig, &wish), 1);
}

/// Or it has not gone out by then.
#[test]
fn what_the_peer_was_to_be_told_is_dropped() {
    let (rig, wish) = odd(&[]);
    wish.full.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is to be told", || {
        wish.untold.load(Ordering::SeqCst) > 0
    });
    between(&rig, &wish, 0, || wish.full.store(false, Ordering::SeqCst));
    assert_eq!(told_of_a_failure(&rig, &wish), 0);
}

/// What hardware fires is given up when it has come to rest. That of a peer which stays, and has failed later, says when
/// that must have been.
#[test]
fn a_chain_that_fails_is_no_failure() {
    let (rig, wish) = odd(&[0, 1]);
    let leaving = rig.beside_towards(1);
    leaving.fires(&rig, rig.put(2));
    rig.arm(&[rig.put(1)], 1).unwrap();
    let stuck = |peer: usize| {
        wish.stuck[peer].store(true, Ordering::SeqCst);
        until("nothing fails", || {
            wish.seen_stuck[peer].load(Ordering::SeqCst) > 0
        });
    };
    between(&rig, &wish, 1, || {
        stuck(1);
        rig.ring();
        stuck(0);
        assert_ne!(rig.wait(SENT, 1) & POISON, 0);
        assert_eq!(leaving.sent(), 0, "it is not known yet what it is");
    });
    until("it is never through", || leaving.sent() != 0);
    assert_eq!(leaving.sent(), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    // By the queue that has failed.
    assert_eq!(wish.told(), 1);
}
