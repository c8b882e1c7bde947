//! Grants: kernels put between two batches of their stream, and may complete the target by themselves.
//!
//! On some devices a kernel runs although its stream has failed. In these models it always does.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, QUANTUM, Step};
use tidegate_words::sync::model::Mutant;
use tidegate_words::{Bell, Grant, Granted};

use super::rig::{Edge, Finding, Stream, add, add_value, at, caught, check, spawn};

/// What the origin does.
#[derive(Clone, Copy, Debug)]
struct Fill {
    buffers: usize,
    epochs: u64,
    /// The kernel completes the target, and not the batch behind it.
    by_kernel: bool,
    /// The grant is given before the exposure has come.
    early: bool,
    /// No bell belongs to the words of the grant, so a stream that has failed does not end it.
    mute: bool,
    /// The kernel completes the target before its last put.
    before_the_put: bool,
    /// The kernel and the batch both complete the target.
    twice: bool,
    /// The kernel gets what the target has made of the epoch before: before it puts, or (a flaw) behind its completion.
    gets: Option<Gets>,
    /// The kernel does not look at its grant.
    blind: bool,
    /// The kernel does not look whether its stream has failed.
    heedless: bool,
    origin: Option<Mutant>,
}

/// When a kernel gets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gets {
    First,
    BehindCompletion,
}

const FILL: Fill = Fill {
    buffers: 1,
    epochs: 2,
    by_kernel: false,
    early: false,
    mute: false,
    before_the_put: false,
    twice: false,
    gets: None,
    blind: false,
    heedless: false,
    origin: None,
};

const BY_KERNEL: Fill = Fill {
    by_kernel: true,
    ..FILL
};

impl Fill {
    fn give(&self, grant: &Grant, own: &Bell) -> Step {
        add(&grant.given, (!self.mute).then_some(own))
    }

    fn open(&self, edge: &Edge, grant: &Grant, own: &Bell) -> Vec<Step> {
        let mut steps = vec![edge.await_exposure(), self.give(grant, own)];
        if self.early {
            steps.reverse();
        }
        steps
    }

    /// The batch that completes the epoch. `bell` is the target's.
    fn complete(&self, edge: &Edge, grant: &Grant, own: &Bell, bell: &Bell) -> Vec<Step> {
        if !self.by_kernel {
            let done = add(&edge.done.word, Some(bell));
            return vec![self.give(grant, own), Step::Flush, done];
        }
        if self.twice {
            return vec![check_of(grant), add(&edge.done.word, Some(bell))];
        }
        // The adds add nothing. They are there to be poisoned.
        let given = add_value(&grant.given, 0, own);
        vec![check_of(grant), given, add_value(&edge.done.word, 0, bell)]
    }

    /// The kernel. `failed` says whether its stream has failed.
    fn kernel(&self, epoch: u64, edge: &Edge, grant: &Grant, bell: &Bell, failed: bool) {
        if !self.blind && grant.look() != Granted::Yes {
            return;
        }
        if self.before_the_put {
            grant.complete(&edge.done.word, bell);
        }
        if self.gets == Some(Gets::First) {
            edge.get_changed(epoch);
        }
        edge.store(epoch);
        if self.by_kernel && !self.before_the_put && (self.heedless || !failed) {
            grant.complete(&edge.done.word, bell);
        }
        if self.gets == Some(Gets::BehindCompletion) {
            edge.get_changed(0);
        }
    }
}

/// The check that a kernel has completed its target.
fn check_of(grant: &Grant) -> Step {
    use tidegate_hal::batch::{Tag, Wait};
    Step::Wait(Wait {
        word: at(&grant.check),
        operand: at(&grant.passed),
        quantum: QUANTUM,
        tag: Tag {
            window: None,
            peer: 1,
            awaited: Awaited::Kernel,
        },
        landed: None,
        ring: None,
    })
}

/// Epochs of one origin and one target.
fn fill(with: Fill) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let edge = Arc::new(Edge::new(0, 1, with.buffers));
        let origin = {
            let (edge, bells) = (edge.clone(), bells.clone());
            spawn(with.origin, move || {
                let grant = Grant::new();
                let mut stream = Stream::new(&bells[0]);
                for epoch in 0..with.epochs {
                    stream.go([with.open(&edge, &grant, &bells[0])]);
                    with.kernel(epoch, &edge, &grant, &bells[1], false);
                    stream.go([with.complete(&edge, &grant, &bells[0], &bells[1])]);
                    assert_eq!(grant.look(), Granted::No, "the grant has ended");
                }
            })
        };
        let mut stream = Stream::new(&bells[1]);
        for epoch in 0..with.epochs {
            stream.go([edge.post(&bells[0])]);
            stream.go([edge.wait()]);
            edge.verify(epoch);
            if with.gets.is_some() {
                edge.change(epoch);
            }
        }
        origin.join().expect("the origin ends");
    }
}

/// The target changes its memory between its epochs. A kernel gets what it has made, whoever completes the target.
#[test]
fn a_kernel_gets_and_puts() {
    let gets = Some(Gets::First);
    check(3, fill(Fill { gets, ..FILL }));
    check(3, fill(Fill { gets, ..BY_KERNEL }));
}

#[test]
fn mutants_of_kernels_that_get() {
    let gets = Some(Gets::BehindCompletion);
    caught(Finding::Race, fill(Fill { gets, ..BY_KERNEL }));
    let gets = Some(Gets::First);
    for with in [FILL, BY_KERNEL] {
        // As for puts, the ring of the own bell would do in place of the order.
        let (origin, mute) = (Some(Mutant::LookWithoutAcquire), true);
        caught(
            Finding::Race,
            fill(Fill {
                gets,
                mute,
                origin,
                ..with
            }),
        );
    }
}

#[test]
fn a_kernel_puts() {
    check(3, fill(FILL));
    let buffers = 2;
    check(
        2,
        fill(Fill {
            buffers,
            epochs: 3,
            ..FILL
        }),
    );
}

#[test]
fn a_kernel_completes_its_target() {
    check(3, fill(BY_KERNEL));
    let buffers = 2;
    check(
        2,
        fill(Fill {
            buffers,
            epochs: 3,
            ..BY_KERNEL
        }),
    );
}

#[test]
fn mutants_of_kernels_that_put() {
    // The ring of the own bell is a fence, which would do in place of either order.
    let mute = true;
    for flaw in [Mutant::AddWithoutRelease, Mutant::LookWithoutAcquire] {
        for with in [FILL, BY_KERNEL] {
            let origin = Some(flaw);
            caught(
                Finding::Race,
                fill(Fill {
                    origin,
                    mute,
                    ..with
                }),
            );
        }
    }
    let before_the_put = true;
    caught(
        Finding::Data,
        fill(Fill {
            before_the_put,
            ..BY_KERNEL
        }),
    );
    let twice = true;
    caught(Finding::Data, fill(Fill { twice, ..BY_KERNEL }));
}

/// How the stream of an origin fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    /// The target is revoked: it poisons the origin's word instead of posting, and reads its memory.
    Revoked,
    /// Another target of the same `open` never posts.
    InOpen,
    /// For another reason, between the open and the kernel.
    BeforeTheKernel,
    /// For another reason, between the kernel and the complete.
    BehindTheKernel,
}

/// The origin's stream fails in the first epoch or in the second. Unless the target is revoked, it has posted, and reads
/// when its wait has ended.
fn failed(with: Fill, epoch: u64, fails: Fails) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let edge = Arc::new(Edge::new(0, 1, 1));
        let other = Arc::new(Edge::new(0, 2, 1));
        other.exposed.word.poison();
        let origin = {
            let (edge, bells) = (edge.clone(), bells.clone());
            spawn(None, move || {
                let grant = Grant::new();
                let mut stream = Stream::new(&bells[0]);
                for now in 0..=epoch {
                    let mut open = vec![with.open(&edge, &grant, &bells[0])];
                    let fails = (now == epoch).then_some(fails);
                    if fails == Some(Fails::InOpen) {
                        open.push(vec![other.await_exposure()]);
                    }
                    let _ = stream.run(open);
                    if fails == Some(Fails::BeforeTheKernel) {
                        let _ = stream.run([vec![other.await_exposure()]]);
                    }
                    with.kernel(now, &edge, &grant, &bells[1], stream.has_failed());
                    if fails == Some(Fails::BehindTheKernel) {
                        let _ = stream.run([vec![other.await_exposure()]]);
                    }
                    let _ = stream.run([with.complete(&edge, &grant, &bells[0], &bells[1])]);
                }
                // The program has enqueued one more epoch, before it knew.
                let _ = stream.run([with.open(&edge, &grant, &bells[0])]);
                with.kernel(epoch + 1, &edge, &grant, &bells[1], stream.has_failed());
            })
        };
        let mut stream = Stream::new(&bells[1]);
        for now in 0..epoch {
            stream.go([edge.post(&bells[0])]);
            stream.go([edge.wait()]);
            edge.verify(now);
        }
        if fails == Fails::Revoked {
            edge.exposed.word.poison();
            bells[0].wake_all();
        } else {
            stream.go([edge.post(&bells[0])]);
            let ended = stream.run([edge.wait()]);
            // A kernel that has completed the target was right. The failure came later.
            let right = with.by_kernel && fails == Fails::BehindTheKernel;
            assert_eq!(ended.is_ok(), right, "a wait for a stream that has failed");
            if right {
                edge.verify(epoch);
            }
        }
        edge.look();
        origin.join().expect("the origin ends");
    }
}

#[test]
fn kernels_of_a_failed_stream_complete_no_target() {
    for epoch in [0, 1] {
        for with in [FILL, BY_KERNEL] {
            check(2, failed(with, epoch, Fails::Revoked));
            check(2, failed(with, epoch, Fails::InOpen));
            check(2, failed(with, epoch, Fails::BeforeTheKernel));
            check(2, failed(with, epoch, Fails::BehindTheKernel));
        }
    }
}

#[test]
fn mutants_of_grants_of_a_failed_stream() {
    let with = Fill {
        early: true,
        ..FILL
    };
    caught(Finding::Race, failed(with, 0, Fails::Revoked));
    let with = Fill {
        blind: true,
        ..FILL
    };
    caught(Finding::Race, failed(with, 0, Fails::Revoked));
    let with = Fill { mute: true, ..FILL };
    caught(Finding::Race, failed(with, 0, Fails::BehindTheKernel));
    let with = Fill {
        heedless: true,
        ..BY_KERNEL
    };
    let says = Finding::Says("a wait for a stream that has failed");
    caught(says, failed(with, 0, Fails::InOpen));
    caught(says, failed(with, 0, Fails::BeforeTheKernel));
}
