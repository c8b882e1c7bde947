//! Bells: every sleeping thread is woken.

use std::sync::Arc;

use tidegate_hal::batch::QUANTUM;
use tidegate_words::sync::model::{Mutant, mutate};
use tidegate_words::sync::{AtomicBool, Ordering};
use tidegate_words::{Bell, Patience, State, Word};

use super::rig::{Finding, caught, check, spawn};

#[derive(Debug, Default)]
struct Place {
    bell: Bell,
    words: [Quiet; 2],
    aborted: Flag,
}

#[derive(Debug)]
struct Quiet(Word);

impl Default for Quiet {
    fn default() -> Self {
        Quiet(Word::new(0))
    }
}

#[derive(Debug)]
struct Flag(AtomicBool);

impl Default for Flag {
    fn default() -> Self {
        Flag(AtomicBool::new(false))
    }
}

impl Place {
    fn ring(&self, word: usize) {
        self.words[word].0.add(QUANTUM);
        self.bell.ring();
    }

    fn wait(&self, word: usize, patience: Patience) {
        let reached = || self.words[word].0.look(0, QUANTUM) == State::Reached;
        self.bell.wait(patience, || reached().then_some(()), || {});
    }
}

/// Two threads ring for a sleeper that waits for both.
fn two_ringers(
    ringer: Option<Mutant>,
    sleeper: Option<Mutant>,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let place = Arc::new(Place::default());
        let ringers = [0, 1].map(|word| {
            let place = place.clone();
            spawn(ringer.filter(|_| word == 0), move || place.ring(word))
        });
        mutate(sleeper);
        place.wait(0, Patience::NONE);
        place.wait(1, Patience::NONE);
        for ringer in ringers {
            ringer.join().expect("the ringer ends");
        }
    }
}

#[test]
fn two_ringers_and_one_sleeper() {
    check(3, two_ringers(None, None));
}

/// Two threads sleep on one bell, each for its own word.
fn two_sleepers(
    ringer: Option<Mutant>,
    sleeper: Option<Mutant>,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let place = Arc::new(Place::default());
        let other = {
            let place = place.clone();
            spawn(None, move || place.wait(1, Patience::NONE))
        };
        let ringing = {
            let place = place.clone();
            spawn(ringer, move || {
                place.ring(0);
                place.ring(1);
            })
        };
        mutate(sleeper);
        place.wait(0, Patience::NONE);
        other.join().expect("the other sleeper ends");
        ringing.join().expect("the ringer ends");
    }
}

#[test]
fn two_sleepers_on_one_bell() {
    check(3, two_sleepers(None, None));
}

#[test]
fn patience_before_sleep() {
    check(None, || {
        let place = Arc::new(Place::default());
        let ringer = {
            let place = place.clone();
            spawn(None, move || place.ring(0))
        };
        place.wait(
            0,
            Patience {
                spins: 1,
                yields: 1,
            },
        );
        ringer.join().expect("the ringer ends");
    });
}

#[test]
fn mutants_of_ringing() {
    for flaw in [Mutant::NoFence, Mutant::NoWake, Mutant::NoBump] {
        caught(Finding::Asleep, two_ringers(Some(flaw), None));
        caught(Finding::Asleep, two_sleepers(Some(flaw), None));
    }
}

#[test]
fn mutants_of_sleeping() {
    for flaw in [Mutant::NoFence, Mutant::FlagAfterLook, Mutant::SleepAnyway] {
        caught(Finding::Asleep, two_ringers(None, Some(flaw)));
        caught(Finding::Asleep, two_sleepers(None, Some(flaw)));
    }
    // This takes two rings: the first takes the flag and counts up before the count is read, and the second then finds
    // no flag.
    caught(
        Finding::Asleep,
        two_ringers(None, Some(Mutant::KeyAfterFlag)),
    );
}

/// A sleeper is told to stop, by a flag that has no order of its own.
fn abort(stopper: Option<Mutant>, sleeper: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let place = Arc::new(Place::default());
        let stopper = {
            let place = place.clone();
            spawn(stopper, move || {
                place.aborted.0.store(true, Ordering::Relaxed);
                place.bell.wake_all();
            })
        };
        mutate(sleeper);
        let stopped = || place.aborted.0.load(Ordering::Relaxed).then_some(());
        place.bell.wait(Patience::NONE, stopped, || {});
        stopper.join().expect("the stopper ends");
    }
}

#[test]
fn a_sleeper_can_be_stopped() {
    check(None, abort(None, None));
}

#[test]
fn mutants_of_stopping() {
    for flaw in [Mutant::NoWake, Mutant::NoBump, Mutant::BumpWithoutRelease] {
        caught(Finding::Asleep, abort(Some(flaw), None));
    }
    caught(Finding::Asleep, abort(None, Some(Mutant::SleepAnyway)));
}
