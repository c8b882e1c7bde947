//! A target reads an origin's own memory.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_hal::batch::{Add, Awaited, POISON, Pull, QUANTUM, Step, Tag, Turn};
use tidegate_hal::memory::Ptr;
use tidegate_hal::process::memory::Readable;
use tidegate_words::sync::model::{Mutant, mutate};
use tidegate_words::{Bell, Halt};

use super::rig::{Count, Finding, Stream, add, at, caught, check, spawn, wait};

/// What the origin has in its memory in an epoch, and when it uses the memory for something else.
fn value(epoch: u64) -> u64 {
    10 + epoch
}
const OTHER: u64 = 5;

/// The two ends.
struct Pair {
    /// Lies at the target. The origin's completes add to it.
    done: Count,
    /// Lies at the origin. The target's reads add to it.
    read: Count,
    /// The origin's memory. The system reads it while the origin may write it, so accesses need no order.
    source: AtomicU64,
    copy: AtomicU64,
    /// The slot for the address.
    address: u64,
}

impl Pair {
    fn new() -> Arc<Self> {
        let mut pair = Arc::new(Pair {
            done: Count::new(0),
            read: Count::new(0),
            source: AtomicU64::new(0),
            copy: AtomicU64::new(0),
            address: 0,
        });
        let address = std::ptr::from_ref(&pair.source).expose_provenance() as u64;
        Arc::get_mut(&mut pair).expect("nobody else has it").address = address;
        pair
    }

    /// The origin completes, and waits until the data have been read.
    fn complete(&self, bell: &Bell, guarded: bool) -> [Vec<Step>; 2] {
        let poison = Step::Add(Add {
            word: at(&self.done.word),
            value: 0,
            bell: at(bell),
            tag: None,
            turn: Some(Turn::Never),
        });
        let mut until_read = vec![wait(&self.read, QUANTUM, 1, Awaited::Read)];
        until_read.extend(guarded.then_some(poison));
        [vec![add(&self.done.word, Some(bell))], until_read]
    }

    /// The target waits, reads, and says so.
    fn pull(&self, bell: &Bell) -> Vec<Step> {
        let pull = Step::Pull(Pull {
            origin: Readable::here(),
            address: Ptr(std::ptr::from_ref(&self.address).cast_mut().cast()),
            flip: 0,
            buffers: 2,
            parity: at(&self.done.operand),
            offset: 0,
            to: Ptr(std::ptr::from_ref(&self.copy).cast_mut().cast()),
            bytes: size_of::<AtomicU64>(),
            guard: at(&self.done.word),
            tag: Tag {
                window: None,
                peer: 0,
                awaited: Awaited::Completion,
            },
        });
        let wait = wait(&self.done, QUANTUM, 0, Awaited::Completion);
        vec![wait, pull, add(&self.read.word, Some(bell))]
    }
}

/// What is broken.
#[derive(Clone, Copy, Default)]
struct Flaws {
    origin: Option<Mutant>,
    target: Option<Mutant>,
    /// The origin does not wait until the data have been read.
    hasty: bool,
    /// An origin that fails does not poison the word that the target has waited for.
    unguarded: bool,
}

/// The origin writes its memory again when the target has read it.
fn epochs(flaws: Flaws) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 2]> = Arc::default();
        let pair = Pair::new();
        let ends = (pair.clone(), bells.clone());
        let origin = spawn(flaws.origin, move || {
            let (pair, bells) = ends;
            let mut stream = Stream::new(&bells[0]);
            for epoch in 0..2 {
                pair.source.store(value(epoch), Relaxed);
                let [complete, until_read] = pair.complete(&bells[1], true);
                match flaws.hasty {
                    true => stream.go([complete]),
                    false => stream.go([complete, until_read]),
                }
            }
        });
        mutate(flaws.target);
        let mut stream = Stream::new(&bells[1]);
        for epoch in 0..2 {
            stream.go([pair.pull(&bells[0])]);
            assert_eq!(
                pair.copy.load(Relaxed),
                value(epoch),
                "the data of epoch {epoch}"
            );
        }
        origin.join().expect("the origin ends");
    }
}

#[test]
fn memory_is_read_before_it_is_used_again() {
    check(3, epochs(Flaws::default()));
}

#[test]
fn mutants_of_reads() {
    // Loom lets no store overtake a load. So it finds only the flaws by which the target reads too early.
    let origin = Some(Mutant::AddWithoutRelease);
    caught(
        Finding::Data,
        epochs(Flaws {
            origin,
            ..Flaws::default()
        }),
    );
    let target = Some(Mutant::LookWithoutAcquire);
    caught(
        Finding::Data,
        epochs(Flaws {
            target,
            ..Flaws::default()
        }),
    );
    let hasty = true;
    caught(
        Finding::Data,
        epochs(Flaws {
            hasty,
            ..Flaws::default()
        }),
    );
}

/// The origin's wait is ended, and it uses its memory for something else. The target has what was put, or fails.
fn ended(flaws: Flaws) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells: Arc<[Bell; 2]> = Arc::default();
        let pair = Pair::new();
        let ends = (pair.clone(), bells.clone());
        let origin = spawn(flaws.origin, move || {
            let (pair, bells) = ends;
            pair.source.store(value(0), Relaxed);
            let mut stream = Stream::new(&bells[0]);
            // Somebody revokes the window. It does not matter who, or when.
            pair.read.word.poison();
            let lanes = pair.complete(&bells[1], !flaws.unguarded);
            let outcome = stream.run(lanes);
            pair.source.store(OTHER, Relaxed);
            outcome.is_err()
        });
        mutate(flaws.target);
        let mut stream = Stream::new(&bells[1]);
        // A target that would sleep is no part of this model: it would need fences for that, too.
        if pair.done.word.load() & !POISON == 0 {
            origin.join().expect("the origin ends");
            return;
        }
        match stream.run([pair.pull(&bells[0])]) {
            Ok(()) => assert_eq!(pair.copy.load(Relaxed), value(0), "the data of epoch 0"),
            Err(Halt::Wait { tag, epoch }) => {
                assert_eq!((tag.peer, tag.awaited, epoch), (0, Awaited::Completion, 0));
            }
            Err(halt) => panic!("it checks nothing: {halt:?}"),
        }
        origin.join().expect("the origin ends");
    }
}

#[test]
fn what_an_origin_that_failed_has_since_written_is_not_taken() {
    check(None, ended(Flaws::default()));
}

#[test]
fn mutants_of_an_origin_that_fails() {
    let unguarded = true;
    caught(
        Finding::Data,
        ended(Flaws {
            unguarded,
            ..Flaws::default()
        }),
    );
    let origin = Some(Mutant::NoFence);
    caught(
        Finding::Data,
        ended(Flaws {
            origin,
            ..Flaws::default()
        }),
    );
    let target = Some(Mutant::NoFence);
    caught(
        Finding::Data,
        ended(Flaws {
            target,
            ..Flaws::default()
        }),
    );
}
