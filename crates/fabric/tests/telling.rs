//! A peer is told of a failure even if messages that tell it are lost.

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use parting::{LONG, Wish, odd_with, until};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::{POISON, QUANTUM};

/// How often a peer is told of a failure if the engine cannot look whether the message has come.
const TOLD: usize = 11;

/// An endpoint that tells its peer of a failure. The first `lost` messages are lost. If it is `blind`, it cannot look
/// whether one has come.
fn telling(silence: Duration, lost: usize, blind: bool) -> (Rig, std::sync::Arc<Wish>) {
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.lose.store(lost, Ordering::SeqCst);
    wish.blind.store(blind, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.poison();
    assert_eq!(rig.wait(SENT, 1), POISON);
    (rig, wish)
}

#[test]
fn messages_that_tell_of_a_failure_may_be_lost() {
    for lost in [1, 5] {
        let (rig, wish) = telling(Duration::from_secs(10), lost, false);
        assert_eq!(rig.wait(SIGNAL, 1), POISON);
        assert!(rig.nic.quiesce(LONG));
        assert!(wish.told() > lost, "{} of {lost}", wish.told());
    }
}

/// If no message comes, core has to tell the peer by the control plane.
#[test]
fn a_peer_that_never_hears_is_left_to_core() {
    let (rig, wish) = telling(Duration::from_millis(50), usize::MAX, false);
    rig.may_fail.store(true, Ordering::SeqCst);
    until("core does not hear of it", || {
        rig.has_failed.load(Ordering::SeqCst)
    });
    assert!(wish.told() > 1);
    assert_eq!(rig.word(SIGNAL).load(), 0);
}

/// The engine cannot look whether the message has come. The refused look may have ended the connection, and the message
/// with it. So the peer is told several times.
#[test]
fn a_blind_engine_tells_again() {
    let (rig, wish) = telling(Duration::from_secs(10), 3, true);
    assert_eq!(rig.wait(SIGNAL, 1), POISON);
    until("it is told less often", || wish.told() == TOLD);
    assert_eq!(wish.blinded.load(Ordering::SeqCst), 2);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// The same holds if the engine could not look before, at an earlier signal.
#[test]
fn an_engine_that_was_blind_before_tells_again() {
    let silence = Duration::from_secs(1);
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.lose.store(3, Ordering::SeqCst);
    wish.blind.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 2).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SIGNAL, 1) & POISON, 0);
    rig.poison();
    assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
    until("it is told less often", || wish.told() == TOLD);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// A peer that is stopped now and then answers late. The time of its pauses does not count as silence.
#[test]
fn the_time_without_an_answer_does_not_count() {
    let silence = Duration::from_secs(4);
    // At most this much of a pause counts. So these are the longest pauses that would count as a whole.
    let late = silence / 8;
    let (rig, wish) = odd_with(Options::default().silence(silence), &[]);
    wish.lose.store(usize::MAX, Ordering::SeqCst);
    wish.late.store(late.as_millis() as u64, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.poison();
    until("nobody looks", || {
        rig.has_failed.load(Ordering::SeqCst) || wish.asked.load(Ordering::SeqCst) > 10
    });
    wish.lose.store(0, Ordering::SeqCst);
    assert_eq!(rig.wait(SIGNAL, 1), POISON);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}
