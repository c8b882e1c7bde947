//! A peer that is to be told of a failure hears of it, whatever becomes of what tells it.

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use parting::{LONG, Wish, odd_with, until};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_hal::batch::POISON;

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

/// What cannot be looked at is taken to be as the wire has said.
#[test]
fn a_word_that_cannot_be_read_is_taken_for_poisoned() {
    let (rig, wish) = telling(Duration::from_secs(10), 0, true);
    until("nobody looks", || wish.blinded.load(Ordering::SeqCst) == 2);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((wish.told(), rig.word(SIGNAL).load()), (1, POISON));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(wish.blinded.load(Ordering::SeqCst), 2, "nobody looks again");
}
