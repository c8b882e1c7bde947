//! What fails towards a peer that leaves, or dies: before the news of that, and between the news and its end (see
//! [`parting`]).

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parting::{LONG, Wish, between, busy, odd, odd_with, settle, until, wishing};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, News};

/// Its connections end, and the acknowledgement of what has come was not heard of.
#[test]
fn a_put_that_fails_is_no_failure() {
    let (rig, wish) = busy(Direction::Put);
    between(&rig, 0, || {
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
    between(&rig, 0, || wish.fails());
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
    between(&rig, 0, || {
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
    between(&rig, 0, || {
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
    between(&rig, 0, || {
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
    between(&rig, 0, || {
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
    rig.leaves(0);
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
        rig.leaves(0);
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
    between(&rig, 0, || wish.fails());
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
    between(&rig, 0, || wish.full.store(false, Ordering::SeqCst));
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
    between(&rig, 1, || {
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

/// An endpoint that something has failed for, and whose control plane has said nothing yet.
fn wronged(wrongs: impl Fn(&Rig, &Wish), chains: &[usize]) -> (Rig, Arc<Wish>) {
    let (rig, wish) = odd(chains);
    rig.plane.is_mute();
    rig.arm(&[rig.put(1)], 2).unwrap();
    wrongs(&rig, &wish);
    until("nobody is asked", || rig.plane.asked() > 0);
    settle(&rig);
    assert_eq!(rig.word(SENT).load(), 0, "it is not known yet what it is");
    assert_eq!(wish.told(), 0, "nor is anybody told");
    (rig, wish)
}

/// What is posted is refused; what was posted fails; what hardware was to do fails.
type Wrongs = fn(&Rig, &Wish);
const WRONGS: [(Wrongs, &[usize]); 3] = [
    (
        |rig, wish| {
            wish.refuse.store(true, Ordering::SeqCst);
            rig.ring();
        },
        &[],
    ),
    (
        |rig, wish| {
            wish.hold.store(true, Ordering::SeqCst);
            rig.ring();
            until("nothing is posted", || {
                wish.taken.load(Ordering::SeqCst) == 1
            });
            wish.fails();
        },
        &[],
    ),
    (
        |rig, wish| {
            wish.stuck[0].store(true, Ordering::SeqCst);
            rig.ring();
        },
        &[0],
    ),
];

/// The end of its endpoint was seen first: the departure is the cause, and no failure.
#[test]
fn a_failure_before_the_news_of_a_departure_is_none() {
    for (wrongs, chains) in WRONGS {
        for announced in [false, true] {
            let (rig, wish) = wronged(wrongs, chains);
            if announced {
                rig.nic.hear(0, News::Leaves);
                settle(&rig);
            }
            rig.leaves(0);
            assert_eq!(rig.wait(SENT, 1), QUANTUM);
            // Nor is it one later, or when an answer comes that was sent before.
            rig.plane.answers();
            rig.ring();
            assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
            assert!(rig.nic.quiesce(LONG));
            assert_eq!(wish.told(), 0);
        }
    }
}

/// A peer that has died is told nothing, and this end is not to blame.
#[test]
fn a_failure_before_the_news_of_a_loss_is_the_lost_ones() {
    for (wrongs, chains) in WRONGS {
        let (rig, wish) = wronged(wrongs, chains);
        // Another one has died, which says nothing of this.
        rig.nic.hear(1, News::Lost);
        settle(&rig);
        assert_eq!(rig.word(SENT).load(), 0);
        rig.nic.hear(0, News::Lost);
        assert_eq!(rig.wait(SENT, 1), POISON);
        assert!(rig.nic.quiesce(LONG));
        assert_eq!((wish.told(), rig.word(SIGNAL).load() & POISON), (0, 0));
        assert!(!rig.has_failed.load(Ordering::SeqCst));
    }
}

/// A peer that is there hears of it, as it must.
#[test]
fn a_failure_towards_a_peer_that_is_there_is_one() {
    for (wrongs, chains) in WRONGS {
        let (rig, wish) = wronged(wrongs, chains);
        rig.plane.answers();
        assert_eq!(rig.wait(SENT, 1), POISON);
        until("it is not told", || wish.told() > 0);
    }
}

/// So it is where the control plane says nothing for as long as the wire may be silent.
#[test]
fn a_failure_of_which_nothing_is_said_is_one() {
    let (rig, wish) = odd_with(Options::default().silence(Duration::from_millis(50)), &[]);
    rig.plane.is_mute();
    a_put_is_refused(&rig, &wish);
    assert_eq!(rig.wait(SENT, 1), POISON);
    assert_eq!(rig.plane.asked(), 1);
}

/// What fails after a question was sent has a question of its own: the peer may have gone in between.
#[test]
fn an_answer_says_nothing_of_what_fails_later() {
    let (rig, wish) = wronged(WRONGS[0].0, &[]);
    let beside = rig.beside();
    wish.refuse.store(true, Ordering::SeqCst);
    beside.fires(&rig, rig.put(2));
    until("it is not refused", || {
        wish.refused.load(Ordering::SeqCst) == 2
    });
    settle(&rig);
    assert_eq!(rig.plane.asked(), 1, "one at a time");
    rig.plane.answers();
    assert_eq!(rig.wait(SENT, 1), POISON);
    until("nobody is asked", || rig.plane.asked() == 2);
    until("it is held for ever", || beside.sent() != 0);
    assert_eq!(beside.sent(), POISON);
}

/// One queue's failure is held while another's puts to the same peer, and what the peer sends, go on.
#[test]
fn traffic_goes_on_while_a_failure_is_held() {
    let (rig, wish) = wronged(WRONGS[0].0, &[]);
    let beside = rig.beside();
    for sent in 1..=50 {
        beside.fires(&rig, rig.put(2));
        until("it is never through", || beside.sent() >= sent * QUANTUM);
    }
    assert_eq!(rig.word(SENT).load(), 0);
    rig.leaves(0);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!((beside.sent(), wish.told()), (50 * QUANTUM, 0));
}

/// A signal of which nothing can be known is not lost either, unless the peer is there.
#[test]
fn a_signal_is_lost_if_the_peer_is_there() {
    let silence = Duration::from_millis(50);
    for is_there in [false, true] {
        let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
        rig.plane.is_mute();
        wish.blind.store(true, Ordering::SeqCst);
        rig.arm(&[rig.put(1)], 1).unwrap();
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        until("nobody is asked", || rig.plane.asked() > 0);
        if is_there {
            rig.plane.answers();
            assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
        } else {
            rig.leaves(0);
            assert!(rig.nic.quiesce(LONG));
            assert_eq!((rig.word(SENT).load(), wish.told()), (QUANTUM, 0));
        }
    }
}

/// A peer that refuses to be told of a failure cannot be told, if that lasts for as long as the wire may be silent and the
/// peer is there. However often it was tried.
#[test]
fn a_peer_that_cannot_be_told_is_tried_for_the_silence() {
    // Longer than a test.
    let (rig, wish) = odd_with(Options::default().silence(Duration::from_secs(600)), &[]);
    wish.deny.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("it is not told again", || {
        wish.denied.load(Ordering::SeqCst) > 12
    });
    assert!(!rig.has_failed.load(Ordering::SeqCst));
    rig.nic.hear(0, News::Lost);
    assert!(rig.nic.quiesce(LONG));
    assert!(!rig.has_failed.load(Ordering::SeqCst));
    // Or the peer is not there.
    let (rig, wish) = odd_with(Options::default().silence(Duration::from_millis(50)), &[]);
    wish.deny.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    assert_eq!(rig.wait(SENT, 1), POISON);
    rig.plane.is_mute();
    until("nobody is asked", || rig.plane.asked() > 1);
    settle(&rig);
    let denied = wish.denied.load(Ordering::SeqCst);
    rig.may_fail.store(true, Ordering::SeqCst);
    assert!(!rig.has_failed.load(Ordering::SeqCst), "after {denied}");
    rig.plane.answers();
    until("core does not hear of it", || {
        rig.has_failed.load(Ordering::SeqCst)
    });
}

/// Other news does not wait for what a departure waits for: threads that have no processor.
#[test]
fn who_brings_news_does_not_wait() {
    let (rig, wish) = odd(&[]);
    wish.sleeps.store(true, Ordering::SeqCst);
    until("it does not sleep", || {
        wish.is_asleep.load(Ordering::SeqCst)
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let then = move || over.store(true, Ordering::SeqCst);
    rig.nic.hear(0, News::Left(Box::new(then)));
    assert!(!is_over.load(Ordering::SeqCst), "nobody has looked yet");
    wish.sleeps.store(false, Ordering::SeqCst);
    until("it never ends", || is_over.load(Ordering::SeqCst));
}
