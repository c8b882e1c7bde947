//! A peer dies before any one of its operations. Every rank that depends on it comes to an end, with the data or with
//! the right error.
//!
//! The monitor is the main thread. It notices a death (it joins the thread), poisons the words that the dead rank
//! should have added to, and wakes the sleepers. It tells only the neighbour of the dead rank. So a rank further on can
//! only have learnt of the death by the protocol.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, POISON, QUANTUM};
use tidegate_words::sync::model::{Mutant, mutate};
use tidegate_words::{Bell, Halt, Word};

use super::rig::{
    Edge, Finding, LEN, Stream, caught, caught_deaths, check, check_deaths, mortal, spawn,
};

/// How the monitor does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Monitor {
    /// Poisons, and wakes all sleepers, as `Device::poison` does.
    Wakes,
    /// Poisons, and only rings, as after an add.
    Rings,
    /// Only poisons.
    Poisons,
}

impl Monitor {
    fn poison(self, words: &[&Word], bell: &Bell) {
        for word in words {
            word.poison();
            match self {
                Monitor::Wakes => bell.wake_all(),
                Monitor::Rings => bell.ring(),
                Monitor::Poisons => {}
            }
        }
    }
}

/// How many epochs a word has counted.
fn count(word: &Word) -> u64 {
    let value = word.load() & !POISON;
    assert_eq!(value % QUANTUM, 0);
    value / QUANTUM
}

/// Asserts that a stream has ended by this.
fn failed_by(halt: Halt, peer: u32, awaited: Awaited, epoch: u64) {
    let Halt::Wait { tag, epoch: at } = halt else {
        panic!("it checks nothing");
    };
    assert_eq!(
        (tag.peer, tag.awaited, at),
        (peer, awaited, epoch),
        "the error names what was waited for"
    );
}

/// Rank 0 puts to rank 1, which then puts to rank 2. Rank 0 dies; rank 2 knows only rank 1.
fn chain(fuse: u32, monitor: Monitor, dying: Option<Mutant>, giving_up: Option<Mutant>) -> bool {
    let bells: Arc<[Bell; 3]> = Arc::default();
    let edges = Arc::new([Edge::with(0, 1, 1, LEN, 0), Edge::with(1, 2, 1, LEN, 0)]);
    let ranks = (edges.clone(), bells.clone());
    let first = spawn(dying, move || {
        let (edges, bells) = ranks;
        mortal(fuse, || {
            edges[0].fill(0);
            Stream::new(&bells[0]).go([edges[0].complete(&bells[1])]);
        })
    });
    let ranks = (edges.clone(), bells.clone());
    let second = spawn(None, move || {
        let (edges, bells) = ranks;
        let mut stream = Stream::new(&bells[1]);
        stream.go([edges[0].post(&bells[0])]);
        let outcome = stream.run([edges[0].wait()]);
        match outcome {
            Ok(()) => edges[0].verify(0),
            Err(halt) => {
                failed_by(halt, 0, Awaited::Completion, 0);
                mutate(giving_up);
            }
        }
        edges[1].fill(0);
        let _ = stream.run([edges[1].complete(&bells[2])]);
        outcome.is_ok()
    });
    let died = first.join().expect("a death is not a panic").is_none();
    if died {
        monitor.poison(&[&edges[0].done.word], &bells[1]);
    }
    // The monitor's thread goes on as rank 2. That is possible because rank 2 depends only on rank 1. A fourth thread
    // would make the model ten times as large.
    let mut stream = Stream::new(&bells[2]);
    stream.go([edges[1].post(&bells[1])]);
    let outcome = stream.run([edges[1].wait()]);
    match outcome {
        Ok(()) => edges[1].verify(0),
        Err(halt) => failed_by(halt, 1, Awaited::Completion, 0),
    }
    let third = outcome.is_ok();
    let second = second.join().expect("rank 1 ends");
    // An epoch that was complete before the death counts, and no other.
    assert_eq!(second, count(&edges[0].done.word) == 1);
    assert_eq!(third, second);
    assert!(died || second);
    died
}

#[test]
fn an_origin_dies() {
    check_deaths(2, |fuse| chain(fuse, Monitor::Wakes, None, None));
}

#[test]
fn mutants_of_failing() {
    // The dead rank has taken the flag, so a ring finds no sleeper.
    let rings = |fuse| chain(fuse, Monitor::Rings, None, None);
    caught_deaths(Finding::Asleep, rings);
    let poisons = |fuse| chain(fuse, Monitor::Poisons, None, None);
    caught_deaths(Finding::Asleep, poisons);
    // The failing rank poisons, and wakes nobody.
    let gives_up = |fuse| chain(fuse, Monitor::Wakes, None, Some(Mutant::NoWake));
    caught_deaths(Finding::Asleep, gives_up);
    // The add is seen before its data, which then never comes.
    let overtakes = |fuse| chain(fuse, Monitor::Wakes, Some(Mutant::AddWithoutRelease), None);
    caught_deaths(Finding::Race, overtakes);
}

/// Rank 0 puts to ranks 1 and 2 in one batch. Rank 1 dies.
fn fork(fuse: u32, monitor: Monitor) -> bool {
    let bells: Arc<[Bell; 3]> = Arc::default();
    let edges = Arc::new([Edge::new(0, 1, 1), Edge::new(0, 2, 1)]);
    let ranks = (edges.clone(), bells.clone());
    let dying = spawn(None, move || {
        let (edges, bells) = ranks;
        mortal(fuse, || {
            // Rank 0 does not wait for anything that rank 1 would do later.
            Stream::new(&bells[1]).go([edges[0].post(&bells[0])]);
        })
    });
    let ranks = (edges.clone(), bells.clone());
    let other = spawn(None, move || {
        let (edges, bells) = ranks;
        let mut stream = Stream::new(&bells[2]);
        stream.go([edges[1].post(&bells[0])]);
        let outcome = stream.run([edges[1].wait()]);
        match outcome {
            Ok(()) => edges[1].verify(0),
            Err(halt) => failed_by(halt, 0, Awaited::Completion, 0),
        }
        outcome.is_ok()
    });
    let ranks = (edges.clone(), bells.clone());
    let origin = spawn(None, move || {
        let (edges, bells) = ranks;
        edges.iter().for_each(|edge| edge.fill(0));
        let lanes = [edges[0].complete(&bells[1]), edges[1].complete(&bells[2])];
        let outcome = Stream::new(&bells[0]).run(lanes);
        if let Err(halt) = outcome {
            failed_by(halt, 1, Awaited::Exposure, 0);
        }
        outcome.is_ok()
    });
    let died = dying.join().expect("a death is not a panic").is_none();
    if died {
        monitor.poison(&[&edges[0].exposed.word], &bells[0]);
    }
    let origin = origin.join().expect("rank 0 ends");
    let other = other.join().expect("rank 2 ends");
    assert_eq!(origin, count(&edges[0].exposed.word) == 1);
    // If rank 0 has failed, its other lane may or may not have been through.
    assert!(other || !origin);
    died
}

#[test]
fn a_target_dies() {
    check_deaths(2, |fuse| fork(fuse, Monitor::Wakes));
}

#[test]
fn mutants_of_failing_with_another_target() {
    caught_deaths(Finding::Asleep, |fuse| fork(fuse, Monitor::Rings));
}

/// Two ranks exchange twice; one dies.
fn exchange(fuse: u32) -> bool {
    let bells: Arc<[Bell; 2]> = Arc::default();
    let edges = Arc::new([Edge::new(0, 1, 1), Edge::new(1, 0, 1)]);
    let program = |rank: usize, edges: &[Edge; 2], bells: &[Bell; 2]| {
        let (own, other) = (&edges[rank], &edges[1 - rank]);
        let peer = &bells[1 - rank];
        let mut stream = Stream::new(&bells[rank]);
        for epoch in 0..2 {
            own.fill(epoch);
            let outcome = stream.run([other.post(peer), own.complete(peer), other.wait()]);
            if let Err(halt) = outcome {
                return (epoch, Some(halt));
            }
            other.verify(epoch);
        }
        (2, None)
    };
    let ranks = (edges.clone(), bells.clone());
    let dying = spawn(None, move || {
        mortal(fuse, || program(1, &ranks.0, &ranks.1))
    });
    let ranks = (edges.clone(), bells.clone());
    let survivor = spawn(None, move || program(0, &ranks.0, &ranks.1));
    let died = dying.join().expect("a death is not a panic").is_none();
    let (exposed, done) = (&edges[0].exposed.word, &edges[1].done.word);
    if died {
        Monitor::Wakes.poison(&[exposed, done], &bells[0]);
    }
    let (epochs, halt) = survivor.join().expect("the survivor ends");
    assert_eq!(epochs, count(exposed).min(count(done)));
    assert!(died || halt.is_none());
    if let Some(halt) = halt {
        let awaited = halt.tag().awaited;
        failed_by(halt, 1, awaited, epochs);
        let word = match awaited {
            Awaited::Exposure => exposed,
            _ => done,
        };
        assert_eq!(
            count(word),
            epochs,
            "the wait that failed was not satisfied"
        );
    }
    died
}

#[test]
fn one_of_two_who_exchange_dies() {
    // In two epochs, a rank may die before twenty steps, so the bound is one interruption.
    check_deaths(1, exchange);
}

/// A window is revoked while both sides are at work: the words of both are poisoned at any time.
fn revoked(monitor: Monitor) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 2]> = Arc::default();
        let edge = Arc::new(Edge::new(0, 1, 1));
        let ranks = (edge.clone(), bells.clone());
        let origin = spawn(None, move || {
            let (edge, bells) = ranks;
            let mut stream = Stream::new(&bells[0]);
            for epoch in 0..2 {
                edge.fill(epoch);
                if let Err(halt) = stream.run([edge.complete(&bells[1])]) {
                    failed_by(halt, 1, Awaited::Exposure, epoch);
                    break;
                }
            }
        });
        let ranks = (edge.clone(), bells.clone());
        let target = spawn(None, move || {
            let (edge, bells) = ranks;
            let mut stream = Stream::new(&bells[1]);
            for epoch in 0..2 {
                let _ = stream.run([edge.post(&bells[0])]);
                match stream.run([edge.wait()]) {
                    Ok(()) => edge.verify(epoch),
                    Err(halt) => {
                        failed_by(halt, 0, Awaited::Completion, epoch);
                        break;
                    }
                }
            }
        });
        monitor.poison(&[&edge.done.word], &bells[1]);
        monitor.poison(&[&edge.exposed.word], &bells[0]);
        origin.join().expect("the origin ends");
        target.join().expect("the target ends");
    }
}

#[test]
fn a_window_is_revoked() {
    check(2, revoked(Monitor::Wakes));
}

#[test]
fn a_revocation_that_wakes_nobody_is_found() {
    caught(Finding::Asleep, revoked(Monitor::Poisons));
}
