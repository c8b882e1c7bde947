//! Failures of operations towards a peer that leaves or dies. They come before the news of its end, or between the news
//! and the end (see [`parting`]).

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parting::{LONG, Wish, between, busy, odd, odd_with, settle, until, wishing};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, News};

/// The peer's connections end after a put has arrived, but before its acknowledgement has come back.
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

/// The same holds for one stage of a put. The rest of its ring comes when the peer has left: the firing is through
/// then, and not before.
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

/// The same holds for a put that the wire refuses, of a queue that is made while the peer leaves.
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

/// Only the peer could bring the data of a get, so the get has failed. But no peer is left who would have to be told.
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

/// For longer than usual, the engine cannot find out whether a signal has come. The reason may be that the peer's
/// connections end.
#[test]
fn a_signal_that_cannot_be_asked_for_is_not_lost() {
    let silence = Duration::from_millis(50);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    rig.arm(&[rig.put(1)], 2).unwrap();
    wish.blind.store(true, Ordering::SeqCst);
    between(&rig, 0, || {
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        // Each look counts as an eighth of the silence at most, and the first few count as less.
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

/// A peer that leaves does not count as silent, however long operations towards it take.
#[test]
fn a_peer_that_leaves_need_not_answer() {
    let silence = Duration::from_millis(50);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.hold.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    between(&rig, 0, || {
        rings_and_is_posted(&rig, &wish);
        std::thread::sleep(10 * silence);
        wish.hold.store(false, Ordering::SeqCst);
    });
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// Rings for a firing, and waits until its operation is posted.
fn rings_and_is_posted(rig: &Rig, wish: &Wish) {
    rig.ring();
    until("nothing is posted", || {
        wish.taken.load(Ordering::SeqCst) == 1
    });
}

/// Arms two firings. Returns what their program keeps.
fn arms_what_is_kept(rig: &Rig) -> Weak<()> {
    let kept = Arc::new(());
    let put = rig.transfer(&rig.memory, Direction::Put, 1);
    let program = rig.program_keeping(0, vec![put], kept.clone()).unwrap();
    rig.arm(&[program], 2).unwrap();
    Arc::downgrade(&kept)
}

/// An operation never ends. That ends the queue that waits for it, and no other queue.
#[test]
fn an_operation_that_never_ends_after_a_departure_ends_only_its_queue() {
    let silence = Duration::from_millis(400);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.hold.store(true, Ordering::SeqCst);
    let kept = arms_what_is_kept(&rig);
    between(&rig, 0, || rings_and_is_posted(&rig, &wish));
    let other = rig.beside();
    other.fires(&rig, rig.put(2));
    until("it is never through", || other.sent() != 0);
    assert_eq!(rig.wait(SENT, 1), POISON);
    until("it takes a slot for ever", || rig.nic.armed() == 0);
    // The operation is not over, so its memory stays.
    assert!(kept.upgrade().is_some());
    other.fires(&rig, rig.put(2));
    until("it is not through", || other.sent() != QUANTUM);
    assert_eq!(other.sent(), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
    wish.hold.store(false, Ordering::SeqCst);
    until("it stays for ever", || kept.upgrade().is_none());
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// Such an operation does not keep the listener awake for ever, as an operation does whose end is still expected.
#[test]
fn an_operation_that_never_ends_after_a_departure_lets_the_listener_sleep() {
    // In milliseconds. Sleeps are shorter if nothing on the wire ends them.
    let rests = |deaf| if deaf { 4 } else { 1000 };
    for (polled, deaf) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = Options::default().silence(Duration::from_millis(400));
        let wish = Wish {
            deaf,
            ..Wish::default()
        };
        let (rig, wish) = wishing(wish, options, polled);
        wish.hold.store(true, Ordering::SeqCst);
        let kept = arms_what_is_kept(&rig);
        between(&rig, 0, || rings_and_is_posted(&rig, &wish));
        assert_eq!(rig.wait(SENT, 1), POISON);
        wish.slept.store(0, Ordering::SeqCst);
        until("it stays awake", || {
            wish.slept.load(Ordering::SeqCst) >= 1000 * rests(deaf)
        });
        // New operations are not late because of the long sleeps.
        let other = rig.beside();
        for sent in 1..=10 {
            other.fires(&rig, rig.put(2));
            until("it is never through", || other.sent() >= sent * QUANTUM);
        }
        // The old operation ends after all, and that is seen, too.
        wish.hold.store(false, Ordering::SeqCst);
        until("it stays for ever", || kept.upgrade().is_none());
        assert!(!rig.has_failed.load(Ordering::SeqCst));
    }
}

/// Makes a put fail at once.
fn a_put_is_refused(rig: &Rig, wish: &Wish) {
    wish.refuse.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
}

/// Waits until the queue has failed; returns how often the peer was told by then.
fn told_of_a_failure(rig: &Rig, wish: &Wish) -> usize {
    assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    assert!(rig.nic.quiesce(LONG));
    wish.told()
}

/// A put has failed before. The message that tells the peer is under way when the news of the departure comes.
#[test]
fn a_message_that_does_not_reach_the_peer_is_not_repeated() {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is told", || wish.told() == 1);
    between(&rig, 0, || wish.fails());
    assert_eq!(told_of_a_failure(&rig, &wish), 1);
}

/// The message has not gone out when the news comes.
#[test]
fn a_message_that_has_not_gone_out_is_dropped() {
    let (rig, wish) = odd(&[]);
    wish.full.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is to be told", || {
        wish.untold.load(Ordering::SeqCst) > 0
    });
    between(&rig, 0, || wish.full.store(false, Ordering::SeqCst));
    assert_eq!(told_of_a_failure(&rig, &wish), 0);
}

/// Firings of hardware are given up when the hardware has come to rest. A failure towards another peer, which stays,
/// comes later, and so tells when that must have happened.
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
    // The queue that has failed has told its peer.
    assert_eq!(wish.told(), 1);
}

/// An endpoint on which an operation has failed, before the control plane has said anything.
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

/// Three kinds of failure: a post is refused, an operation fails, and a firing of hardware fails.
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

/// The end of the peer's endpoint is seen before the news. The cause is its departure, so this is no failure.
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
            // Later it is no failure, either, even if an earlier question is answered now.
            rig.plane.answers();
            rig.ring();
            assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
            assert!(rig.nic.quiesce(LONG));
            assert_eq!(wish.told(), 0);
        }
    }
}

/// A peer that has died is told nothing, and this endpoint does not count as failed.
#[test]
fn a_failure_before_the_news_of_a_loss_is_the_lost_peers() {
    for (wrongs, chains) in WRONGS {
        let (rig, wish) = wronged(wrongs, chains);
        // Another peer has died, which says nothing about this one.
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

/// If the peer is there, it is told of the failure.
#[test]
fn a_failure_towards_a_peer_that_is_there_is_one() {
    for (wrongs, chains) in WRONGS {
        let (rig, wish) = wronged(wrongs, chains);
        rig.plane.answers();
        assert_eq!(rig.wait(SENT, 1), POISON);
        until("it is not told", || wish.told() > 0);
    }
}

/// It counts as a failure if the control plane says nothing for as long as the wire may be silent.
#[test]
fn a_failure_about_which_no_answer_comes_is_one() {
    let (rig, wish) = odd_with(Options::default().silence(Duration::from_millis(50)), &[]);
    rig.plane.is_mute();
    a_put_is_refused(&rig, &wish);
    assert_eq!(rig.wait(SENT, 1), POISON);
    assert_eq!(rig.plane.asked(), 1);
}

/// A failure after a question was sent gets a question of its own: the peer may have gone in between.
#[test]
fn an_answer_does_not_hold_for_later_failures() {
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

/// While the failure of one queue is held, the puts of another queue to the same peer go on, and so do the peer's own.
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

/// If the engine cannot find out whether a signal has come, the signal counts as lost only if the peer is there.
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

/// A peer refuses to be told of a failure. It is tried until the wire may no longer be silent, however many tries that
/// takes. Then, if the peer is there, the wire has failed.
#[test]
fn a_peer_that_cannot_be_told_is_tried_for_the_silence() {
    // This is longer than the test takes.
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
    // With a short silence, the control plane is asked whether the peer is there.
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

/// A departure waits for threads of the NIC, which may have no processor. The thread that brings the news does not.
#[test]
fn a_thread_that_brings_news_does_not_wait() {
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
