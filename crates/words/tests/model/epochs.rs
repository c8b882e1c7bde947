//! Epochs: post, start, put, complete, wait, read.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, QUANTUM, Step};
use tidegate_words::sync::model::{Mutant, mutate};
use tidegate_words::{Bell, Word};

use super::rig::{Count, Edge, Finding, Stream, add, add_value, caught, check, spawn, wait};

/// One origin, one target.
#[derive(Clone, Copy, Debug)]
struct Pair {
    buffers: usize,
    epochs: u64,
    /// Exposures that are given in advance although they must not be.
    credit: u64,
    /// The buffers are a ring, and the origin rings after two epochs unless it waits.
    ring: bool,
    /// The target posts the next epoch before it has read the last one.
    post_early: bool,
    origin: Option<Mutant>,
    target: Option<Mutant>,
}

const SINGLE: Pair = Pair {
    buffers: 1,
    epochs: 2,
    credit: 0,
    ring: false,
    post_early: false,
    origin: None,
    target: None,
};

/// Three epochs, so that a buffer is used again.
const DOUBLE: Pair = Pair {
    buffers: 2,
    epochs: 3,
    ..SINGLE
};

/// The buffers of both halves are used again.
const RING: Pair = Pair {
    buffers: 2,
    epochs: 3,
    ring: true,
    ..SINGLE
};
const LONG_RING: Pair = Pair {
    buffers: 4,
    epochs: 5,
    ..RING
};

fn pair(with: Pair) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let edge = Arc::new(match with.ring {
            true => Edge::of_ring(0, 1, with.buffers, with.credit),
            false => Edge::with(0, 1, with.buffers, 1, with.credit),
        });
        let origin = {
            let (edge, bells) = (edge.clone(), bells.clone());
            spawn(with.origin, move || {
                let after = if with.ring { 2 } else { 1 };
                let mut stream = Stream::new(&bells[0]).ringing_after(after);
                for epoch in 0..with.epochs {
                    edge.fill(epoch);
                    stream.go([edge.complete(&bells[1])]);
                }
                stream.ring();
            })
        };
        mutate(with.target);
        let mut stream = Stream::new(&bells[1]);
        let mut posted = 0;
        for epoch in 0..with.epochs {
            while posted <= epoch {
                stream.go([edge.post(&bells[0])]);
                posted += 1;
            }
            stream.go([edge.wait()]);
            if with.post_early && posted < with.epochs {
                stream.go([edge.post(&bells[0])]);
                posted += 1;
            }
            edge.verify(epoch);
        }
        origin.join().expect("the origin ends");
    }
}

#[test]
fn one_buffer() {
    check(3, pair(SINGLE));
}

#[test]
fn two_buffers() {
    check(3, pair(DOUBLE));
}

#[test]
fn a_ring_of_two() {
    check(3, pair(RING));
}

#[test]
fn a_ring_of_four() {
    check(2, pair(LONG_RING));
}

#[test]
fn mutants_of_a_ring() {
    for flaw in [Mutant::AddWithoutRelease, Mutant::LookWithoutAcquire] {
        let origin = Some(flaw);
        caught(Finding::Race, pair(Pair { origin, ..RING }));
        let target = Some(flaw);
        caught(Finding::Race, pair(Pair { target, ..RING }));
    }
    for ring in [RING, LONG_RING] {
        // The origin uses a buffer again that the target has not read, and stores its flag over one that the target waits
        // for.
        caught(Finding::Asleep, pair(Pair { credit: 1, ..ring }));
        let origin = Some(Mutant::NoFence);
        caught(Finding::Asleep, pair(Pair { origin, ..ring }));
    }
    let post_early = true;
    caught(Finding::Data, pair(Pair { post_early, ..RING }));
}

#[test]
fn mutants_of_one_buffer() {
    for flaw in [Mutant::AddWithoutRelease, Mutant::LookWithoutAcquire] {
        let origin = Some(flaw);
        caught(Finding::Race, pair(Pair { origin, ..SINGLE }));
        let target = Some(flaw);
        caught(Finding::Race, pair(Pair { target, ..SINGLE }));
    }
    let post_early = true;
    caught(
        Finding::Data,
        pair(Pair {
            post_early,
            ..SINGLE
        }),
    );
    let credit = 1;
    caught(Finding::Data, pair(Pair { credit, ..SINGLE }));
}

#[test]
fn mutants_of_two_buffers() {
    for flaw in [Mutant::AddWithoutRelease, Mutant::LookWithoutAcquire] {
        let origin = Some(flaw);
        caught(Finding::Race, pair(Pair { origin, ..DOUBLE }));
        let target = Some(flaw);
        caught(Finding::Race, pair(Pair { target, ..DOUBLE }));
    }
    // The exposures of both buffers are given at the start, and each is posted, too. So the origin comes two epochs
    // ahead.
    let credit = 1;
    caught(Finding::Data, pair(Pair { credit, ..DOUBLE }));
    let post_early = true;
    caught(
        Finding::Data,
        pair(Pair {
            post_early,
            ..DOUBLE
        }),
    );
}

/// Two origins put into slots of one target, which waits for both in one batch, on one bell.
fn two_origins(epochs: u64, mutant: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 3]> = Arc::default();
        let edges = Arc::new([Edge::new(0, 2, 1), Edge::new(1, 2, 1)]);
        let origins = [0, 1].map(|rank| {
            let (edges, bells) = (edges.clone(), bells.clone());
            spawn(mutant.filter(|_| rank == 1), move || {
                let mut stream = Stream::new(&bells[rank]);
                for epoch in 0..epochs {
                    edges[rank].fill(epoch);
                    stream.go([edges[rank].complete(&bells[2])]);
                }
            })
        });
        let mut stream = Stream::new(&bells[2]);
        for epoch in 0..epochs {
            stream.go([0, 1].map(|rank: usize| edges[rank].post(&bells[rank])));
            stream.go([0, 1].map(|rank: usize| edges[rank].wait()));
            edges.iter().for_each(|edge| edge.verify(epoch));
        }
        for origin in origins {
            origin.join().expect("the origin ends");
        }
    }
}

#[test]
fn two_origins_and_one_sleeper() {
    check(2, two_origins(1, None));
}

#[test]
fn mutants_of_two_origins() {
    caught(
        Finding::Race,
        two_origins(1, Some(Mutant::AddWithoutRelease)),
    );
    caught(Finding::Asleep, two_origins(1, Some(Mutant::NoFence)));
    caught(Finding::Asleep, two_origins(1, Some(Mutant::NoWake)));
}

/// One origin puts to two targets. Target 1 posts only when target 2 has its data and has said so. So the origin's
/// lanes must not wait for each other.
fn two_targets(one_lane: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 3]> = Arc::default();
        let edges = Arc::new([Edge::new(0, 1, 1), Edge::new(0, 2, 1)]);
        let told = Arc::new(Count::new(0));
        let first = {
            let (edges, bells, told) = (edges.clone(), bells.clone(), told.clone());
            spawn(None, move || {
                let mut stream = Stream::new(&bells[1]);
                stream.go([vec![wait(&told, QUANTUM, 2, Awaited::Event)]]);
                stream.go([edges[0].post(&bells[0])]);
                stream.go([edges[0].wait()]);
                edges[0].verify(0);
            })
        };
        let second = {
            let (edges, bells, told) = (edges.clone(), bells.clone(), told.clone());
            spawn(None, move || {
                let mut stream = Stream::new(&bells[2]);
                stream.go([edges[1].post(&bells[0])]);
                stream.go([edges[1].wait()]);
                edges[1].verify(0);
                stream.go([vec![add(&told.word, Some(&bells[1]))]]);
            })
        };
        let mut stream = Stream::new(&bells[0]);
        edges.iter().for_each(|edge| edge.fill(0));
        let lanes = [edges[0].complete(&bells[1]), edges[1].complete(&bells[2])];
        if one_lane {
            stream.go([lanes.concat()]);
        } else {
            stream.go(lanes);
        }
        first.join().expect("the first target ends");
        second.join().expect("the second target ends");
    }
}

#[test]
fn two_targets_and_independent_lanes() {
    check(2, two_targets(false));
}

#[test]
fn a_lane_that_waits_for_another_is_found() {
    caught(Finding::Asleep, two_targets(true));
}

/// Two ranks put to each other. The post, complete and wait of each rank are one batch.
fn exchange(epochs: u64, post_last: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 2]> = Arc::default();
        // The edge of each rank's puts.
        let edges = Arc::new([Edge::new(0, 1, 1), Edge::new(1, 0, 1)]);
        let program = move |rank: usize, edges: &[Edge; 2], bells: &[Bell; 2]| {
            let (own, other) = (&edges[rank], &edges[1 - rank]);
            let peer = &bells[1 - rank];
            let mut stream = Stream::new(&bells[rank]);
            for epoch in 0..epochs {
                own.fill(epoch);
                let (post, complete) = (other.post(peer), own.complete(peer));
                if post_last {
                    stream.go([[complete, post].concat(), other.wait()]);
                } else {
                    stream.go([post, complete, other.wait()]);
                }
                other.verify(epoch);
            }
        };
        let peer = {
            let (edges, bells) = (edges.clone(), bells.clone());
            spawn(None, move || program(1, &edges, &bells))
        };
        program(0, &edges, &bells);
        peer.join().expect("the peer ends");
    }
}

#[test]
fn exchange_in_one_batch() {
    check(2, exchange(2, false));
}

#[test]
fn an_add_that_moved_behind_a_wait_is_found() {
    caught(Finding::Asleep, exchange(1, true));
}

/// Two blocks carry out an origin's put, as on a GPU. All but one add 1, and the last adds the rest.
fn two_blocks(quantum: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bell = Arc::new(Bell::new());
        let edges = Arc::new([Edge::new(0, 2, 1), Edge::new(0, 2, 1)]);
        let done = Arc::new(Count::new(0));
        let blocks = [0, 1].map(|index| {
            let (edges, done, bell) = (edges.clone(), done.clone(), bell.clone());
            spawn(None, move || {
                let own = Bell::new();
                let edge: &Edge = &edges[index];
                edge.fill(0);
                let value = if index == 0 { 1 } else { QUANTUM - 1 };
                let word: &Word = &done.word;
                Stream::new(&own).go([vec![
                    edge.put(),
                    Step::Flush,
                    add_value(word, value, &bell),
                ]]);
            })
        });
        Stream::new(&bell).go([vec![wait(&done, quantum, 0, Awaited::Completion)]]);
        edges.iter().for_each(|edge| edge.verify(0));
        for block in blocks {
            block.join().expect("the block ends");
        }
    }
}

#[test]
fn a_quantum_in_parts() {
    check(3, two_blocks(QUANTUM));
}

#[test]
fn a_wait_for_less_than_a_quantum_is_found() {
    caught(Finding::Data, two_blocks(QUANTUM - 1));
    caught(Finding::Data, two_blocks(1));
}
