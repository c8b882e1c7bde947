//! Kernels that own both halves of a window: epochs that a kernel makes by itself, between epochs of the host.
//!
//! A kernel runs the batches of the host, one for each of its calls, and puts in between by its own stores.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Check, QUANTUM, Step, Tag};
use tidegate_words::sync::model::Mutant;
use tidegate_words::{Bell, Grant, Word};

use super::rig::{Edge, Finding, Stream, add, add_value, at, caught, check, spawn};

/// What two ranks do, each of them with both halves.
#[derive(Clone, Copy, Debug)]
struct Both {
    buffers: usize,
    /// For each rank, which epochs a kernel makes; the host makes the others.
    by_kernel: [fn(u64) -> bool; 2],
    epochs: u64,
    /// Both kernels start their epochs before they post.
    start_first: bool,
    /// The kernel of rank 0 reads its slot before it waits.
    hasty: bool,
    /// The kernel of rank 0 puts before it starts.
    eager: bool,
    /// No bell belongs to the words of the grants.
    mute: bool,
    /// The stream of rank 0 keeps back its rings for so many batches, though a kernel may compute for long.
    rings_after: u64,
    flaw: Option<Mutant>,
}

const BOTH: Both = Both {
    buffers: 1,
    by_kernel: [|_| true; 2],
    epochs: 2,
    start_first: false,
    hasty: false,
    eager: false,
    mute: false,
    rings_after: 1,
    flaw: None,
};

/// The two halves of a rank, and what its kernels need.
struct Rank<'a> {
    out: &'a Edge,
    inward: &'a Edge,
    grant: Grant,
    /// Whether an epoch is open, of the inbox and of the outbox: 0, or a fault.
    states: [Cell<u64>; 2],
    own: &'a Bell,
    peer: &'a Bell,
}

impl<'a> Rank<'a> {
    fn new(number: usize, edges: &'a [Edge; 2], bells: &'a [Bell; 2]) -> Self {
        Rank {
            out: &edges[number],
            inward: &edges[1 - number],
            grant: Grant::new(),
            states: Default::default(),
            own: &bells[number],
            peer: &bells[1 - number],
        }
    }

    fn give(&self, mute: bool) -> Step {
        add(&self.grant.given, (!mute).then_some(self.own))
    }

    fn start(&self, stream: &mut Stream<'_>, mute: bool) {
        self.states[1].set(15);
        stream.go([vec![self.out.await_exposure(), self.give(mute)]]);
    }

    fn complete(&self, stream: &mut Stream<'_>, mute: bool) {
        let done = add(&self.out.done.word, Some(self.peer));
        stream.go([vec![self.give(mute), Step::Flush, done]]);
        self.states[1].set(0);
    }

    fn post(&self, stream: &mut Stream<'_>) {
        self.states[0].set(14);
        stream.go([self.inward.post(self.peer)]);
    }

    fn wait(&self, stream: &mut Stream<'_>) {
        stream.go([self.inward.wait()]);
        self.states[0].set(0);
    }

    /// The batches behind a kernel. Their adds add nothing, and are there to be poisoned.
    fn closings(&self, mute: bool) -> [Vec<Step>; 2] {
        let words = [&self.inward.exposed.word, &self.out.done.word];
        [0, 1].map(|half| {
            let state = Step::Check(Check {
                count: at(&self.states[half]),
                most: 0,
                tag: Tag {
                    window: None,
                    peer: 0,
                    awaited: Awaited::Kernel,
                },
            });
            match mute {
                false => vec![state, add_value(words[half], 0, self.peer)],
                true => vec![state],
            }
        })
    }

    /// One epoch of a kernel.
    fn kernel(&self, stream: &mut Stream<'_>, epoch: u64, with: &Both) {
        if with.start_first {
            self.start(stream, with.mute);
            self.post(stream);
        } else {
            self.post(stream);
            if with.eager {
                self.out.store(epoch);
            }
            self.start(stream, with.mute);
        }
        if !with.eager {
            self.out.store(epoch);
        }
        self.complete(stream, with.mute);
        if with.hasty {
            self.inward.verify(epoch);
        }
        self.wait(stream);
        self.inward.verify(epoch);
    }

    /// One epoch of the host.
    fn host(&self, stream: &mut Stream<'_>, epoch: u64) {
        self.out.fill(epoch);
        stream.go([self.inward.post(self.peer)]);
        stream.go([self.out.complete(self.peer)]);
        stream.go([self.inward.wait()]);
        self.inward.verify(epoch);
    }

    fn all(&self, number: usize, with: &Both) {
        let rings_after = if number == 0 { with.rings_after } else { 1 };
        let mut stream = Stream::new(self.own).ringing_after(rings_after);
        for epoch in 0..with.epochs {
            match with.by_kernel[number](epoch) {
                true => {
                    self.kernel(&mut stream, epoch, with);
                    self.closings(false)
                        .into_iter()
                        .for_each(|lane| stream.go([lane]));
                }
                false => self.host(&mut stream, epoch),
            }
        }
    }
}

fn edges(buffers: usize) -> Arc<[Edge; 2]> {
    Arc::new([Edge::new(0, 1, buffers), Edge::new(1, 0, buffers)])
}

fn both(with: Both) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (edges, bells) = (edges(with.buffers), Arc::new([Bell::new(), Bell::new()]));
        let zero = {
            let (edges, bells) = (edges.clone(), bells.clone());
            spawn(with.flaw, move || {
                Rank::new(0, &edges, &bells).all(0, &with)
            })
        };
        let right = Both {
            hasty: false,
            eager: false,
            ..with
        };
        Rank::new(1, &edges, &bells).all(1, &right);
        zero.join().expect("the rank ends");
    }
}

#[test]
fn kernels_exchange() {
    check(2, both(BOTH));
    check(
        1,
        both(Both {
            buffers: 2,
            epochs: 3,
            ..BOTH
        }),
    );
    // With two buffers, the post of the epoch before is enough.
    check(
        2,
        both(Both {
            buffers: 2,
            start_first: true,
            ..BOTH
        }),
    );
}

#[test]
fn kernels_and_hosts_exchange_by_turns() {
    let even: fn(u64) -> bool = |epoch| epoch.is_multiple_of(2);
    let odd: fn(u64) -> bool = |epoch| !epoch.is_multiple_of(2);
    let never: fn(u64) -> bool = |_| false;
    for by_kernel in [[even, odd], [even, even], [even, never]] {
        check(2, both(Both { by_kernel, ..BOTH }));
    }
}

#[test]
fn mutants_of_kernels_that_exchange() {
    for flaw in [Mutant::AddWithoutRelease, Mutant::LookWithoutAcquire] {
        let (flaw, mute) = (Some(flaw), true);
        caught(Finding::Race, both(Both { flaw, mute, ..BOTH }));
    }
    let start_first = true;
    caught(
        Finding::Asleep,
        both(Both {
            start_first,
            ..BOTH
        }),
    );
    let hasty = true;
    caught(Finding::Data, both(Both { hasty, ..BOTH }));
    let eager = true;
    let epochs = 3;
    caught(
        Finding::Data,
        both(Both {
            eager,
            epochs,
            ..BOTH
        }),
    );
}

/// A kernel makes an epoch with the peer, and then computes until the peer has answered it in another way. So its stream
/// must ring at once, and not when it waits the next time.
fn computes(rings_after: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (edges, bells) = (edges(1), Arc::new([Bell::new(), Bell::new()]));
        let answered = Arc::new((Bell::new(), Word::new(0)));
        let zero = {
            let (edges, bells, answered) = (edges.clone(), bells.clone(), answered.clone());
            spawn(None, move || {
                let rank = Rank::new(0, &edges, &bells);
                let mut stream = Stream::new(&bells[0]).ringing_after(rings_after);
                rank.start(&mut stream, true);
                rank.out.store(0);
                rank.complete(&mut stream, true);
                let ready = || (answered.1.load() != 0).then_some(());
                answered
                    .0
                    .wait(tidegate_words::Patience::NONE, ready, || {});
                stream.ring();
            })
        };
        let rank = Rank::new(1, &edges, &bells);
        let mut stream = Stream::new(&bells[1]);
        rank.post(&mut stream);
        rank.wait(&mut stream);
        rank.inward.verify(0);
        answered.1.add(QUANTUM);
        answered.0.ring();
        zero.join().expect("the rank ends");
    }
}

#[test]
fn a_kernel_that_computes_has_rung() {
    check(3, computes(1));
    caught(Finding::Asleep, computes(3));
}

/// How the kernel of rank 0 ends in its last epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// Between post and wait.
    Exposed,
    /// Between start and complete.
    Open,
    /// One of its waits has failed, in the middle of both.
    Failed,
}

/// Rank 1 waits for what the kernel has not done, and its wait ends.
fn ends(how: Ends, mute: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (edges, bells) = (edges(1), Arc::new([Bell::new(), Bell::new()]));
        let zero = {
            let (edges, bells) = (edges.clone(), bells.clone());
            spawn(None, move || {
                let rank = Rank::new(0, &edges, &bells);
                let mut stream = Stream::new(&bells[0]);
                rank.kernel(&mut stream, 0, &BOTH);
                match how {
                    Ends::Exposed => rank.post(&mut stream),
                    Ends::Open => rank.start(&mut stream, false),
                    Ends::Failed => {
                        rank.post(&mut stream);
                        let other = Edge::new(0, 2, 1);
                        other.exposed.word.poison();
                        let _ = stream.run([vec![other.await_exposure()]]);
                    }
                }
                let ended = rank.closings(mute).map(|lane| stream.run([lane]).is_err());
                assert_eq!(ended, [how != Ends::Open, true], "the stream fails");
            })
        };
        let rank = Rank::new(1, &edges, &bells);
        let mut stream = Stream::new(&bells[1]);
        rank.kernel(&mut stream, 0, &BOTH);
        rank.post(&mut stream);
        let ended = stream.run([rank.inward.wait()]);
        assert!(ended.is_err(), "a wait for a kernel that has ended");
        zero.join().expect("the rank ends");
    }
}

#[test]
fn peers_hear_of_a_kernel_that_ends_in_an_epoch() {
    for how in [Ends::Exposed, Ends::Open, Ends::Failed] {
        check(1, ends(how, false));
        caught(Finding::Asleep, ends(how, true));
    }
}
