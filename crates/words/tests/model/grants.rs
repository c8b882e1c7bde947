//! Grants: kernels put between two batches of their stream, and may complete the target by themselves.
//!
//! On some devices a kernel runs although its stream has failed. In these models it always does.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, QUANTUM, Step};
use tidegate_words::sync::model::Mutant;
use tidegate_words::{Bell, Grant, Granted};

use super::rig::{Edge, Finding, Stream, add, at, caught, check, spawn};

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
    /// The kernel does not look at its grant.
    blind: bool,
    origin: Option<Mutant>,
}

const FILL: Fill = Fill {
    buffers: 1,
    epochs: 2,
    by_kernel: false,
    early: false,
    mute: false,
    before_the_put: false,
    twice: false,
    blind: false,
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
        let mut steps = vec![check_of(grant)];
        if self.twice {
            steps.push(add(&edge.done.word, Some(bell)));
        }
        steps
    }

    fn kernel(&self, epoch: u64, edge: &Edge, grant: &Grant, bell: &Bell) {
        if !self.blind && grant.look() != Granted::Yes {
            return;
        }
        if self.before_the_put {
            grant.complete(&edge.done.word, bell);
        }
        edge.store(epoch);
        if self.by_kernel && !self.before_the_put {
            grant.complete(&edge.done.word, bell);
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
                    with.kernel(epoch, &edge, &grant, &bells[1]);
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
        }
        origin.join().expect("the origin ends");
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

/// The target is revoked in the middle of the first epoch or of the second: it poisons the origin's word instead of
/// posting, and reads its memory. `late` says that the exposure has come, and that the origin's stream fails for
/// another reason before it completes. Then the target reads when its wait has failed.
fn revoked(with: Fill, epoch: u64, late: bool) -> impl Fn() + Send + Sync + 'static {
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
                    let _ = stream.run([with.open(&edge, &grant, &bells[0])]);
                    with.kernel(now, &edge, &grant, &bells[1]);
                    if late && now == epoch {
                        let _ = stream.run([vec![other.await_exposure()]]);
                    }
                    let _ = stream.run([with.complete(&edge, &grant, &bells[0], &bells[1])]);
                }
                // The program has enqueued one more epoch, before it knew.
                let _ = stream.run([with.open(&edge, &grant, &bells[0])]);
                with.kernel(epoch + 1, &edge, &grant, &bells[1]);
            })
        };
        let mut stream = Stream::new(&bells[1]);
        for now in 0..epoch {
            stream.go([edge.post(&bells[0])]);
            stream.go([edge.wait()]);
            edge.verify(now);
        }
        if late {
            stream.go([edge.post(&bells[0])]);
            assert!(stream.run([edge.wait()]).is_err());
        } else {
            edge.exposed.word.poison();
            bells[0].wake_all();
        }
        edge.look();
        origin.join().expect("the origin ends");
    }
}

#[test]
fn kernels_behind_a_failure_put_nothing() {
    for epoch in [0, 1] {
        check(2, revoked(FILL, epoch, false));
        check(2, revoked(FILL, epoch, true));
        check(2, revoked(BY_KERNEL, epoch, false));
    }
}

#[test]
fn mutants_of_grants_of_a_failed_stream() {
    let early = true;
    caught(Finding::Race, revoked(Fill { early, ..FILL }, 0, false));
    let blind = true;
    caught(Finding::Race, revoked(Fill { blind, ..FILL }, 0, false));
    let mute = true;
    caught(Finding::Race, revoked(Fill { mute, ..FILL }, 0, true));
}
