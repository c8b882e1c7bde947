//! A peer that is to be told of a failure hears of it, whatever becomes of what tells it.

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use parting::{LONG, Wish, odd_with, until};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::{POISON, QUANTUM};

/// How often a peer is told of a failure where nobody can look whether it has heard.
const TOLD: usize = 11;

/// An endpoint that is to tell its peer of a failure, of which so much is lost.
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
fn what_tells_of_a_failure_may_be_lost() {
    for lost in [1, 5] {
        let (rig, wish) = telling(Duration::from_secs(10), lost, false);
        assert_eq!(rig.wait(SIGNAL, 1), POISON);
        assert!(rig.nic.quiesce(LONG));
        assert!(wish.told() > lost, "{} of {lost}", wish.told());
    }
}

/// Then core has to tell it, by the control plane.
#[test]
fn a_peer_that_never_hears_is_cores_affair() {
    let (rig, wish) = telling(Duration::from_millis(50), usize::MAX, false);
    rig.may_fail.store(true, Ordering::SeqCst);
    until("core does not hear of it", || {
        rig.has_failed.load(Ordering::SeqCst)
    });
    assert!(wish.told() > 1);
    assert_eq!(rig.word(SIGNAL).load(), 0);
}

/// Nobody can look whether it has come, and what has refused that may have taken the connection along, with the poison.
#[test]
fn where_nobody_can_look_it_is_told_again() {
    let (rig, wish) = telling(Duration::from_secs(10), 3, true);
    assert_eq!(rig.wait(SIGNAL, 1), POISON);
    until("it is told less often", || wish.told() == TOLD);
    assert_eq!(wish.blinded.load(Ordering::SeqCst), 2);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// Likewise where that was known before: the signal that came before it could not be asked for.
#[test]
fn where_nobody_could_look_it_is_told_again() {
    let silence = Duration::from_millis(50);
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

/// A peer that is stopped now and then answers late; what was lost meanwhile is not its fault.
#[test]
fn the_time_without_an_answer_does_not_count() {
    let silence = Duration::from_secs(4);
    // Of a pause no more than this counts, so these are as long as can be if all of it does.
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
