//! The parts that all models share: ranks with their words, bells and data, batches like those of windows, and the
//! checker.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64 as AtomicWord;
use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Move, Pull, QUANTUM, Ring, Shape, Side, Step, Tag, Turn, Wait,
};
use tidegate_hal::memory::Ptr;
use tidegate_words::sync::model::{self, Died, Mutant};
use tidegate_words::{Bell, Blocked, Engine, Halt, Mover, Patience, Word};

/// Explores a model. `bound` is how often a thread is interrupted although it could go on. Switches at which a thread
/// sleeps or ends do not count. Most errors need one or two interruptions (CHESS). Models that are small enough have no
/// bound.
pub(crate) fn check(bound: impl Into<Option<usize>>, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = bound.into();
    }
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicU64::new(0));
    let counted = executions.clone();
    let begun = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model::begin();
        f();
    });
    if std::env::var_os("TIDEGATE_LOOM_COUNT").is_some_and(|text| !text.is_empty()) {
        let thread = std::thread::current();
        eprintln!(
            "{}: {} executions, {:.2} s",
            thread.name().unwrap_or("?"),
            executions.load(Relaxed),
            begun.elapsed().as_secs_f64()
        );
    }
}

/// The error that the checker must report for a mutant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finding {
    /// Two accesses to data that nothing orders.
    Race,
    /// A race, or data of another epoch.
    Data,
    /// A thread sleeps for ever.
    Asleep,
    /// An assertion of the model fails, with a message that contains this text.
    Says(&'static str),
}

/// Asserts that the checker finds the error.
pub(crate) fn caught(finding: Finding, f: impl Fn() + Send + Sync + 'static) {
    quietly(finding, || check(2, f));
}

fn quietly(finding: Finding, checking: impl FnOnce()) {
    thread_local! { static QUIET: Cell<bool> = const { Cell::new(false) }; }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if !QUIET.get() {
                hook(info);
            }
        }));
    });
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(checking));
    QUIET.set(false);
    let panic = outcome.expect_err("the mutant survived");
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .expect("panics have a text");
    let expected: &[&str] = match finding {
        Finding::Race => &["Causality violation"],
        Finding::Data => &["Causality violation", "the data of epoch"],
        Finding::Asleep => &["deadlock"],
        Finding::Says(text) => &[text],
    };
    assert!(
        expected.iter().any(|expected| text.contains(expected)),
        "the mutant was found by another error than {finding:?}: {text}"
    );
}

/// Spawns a thread of the model that has a flaw.
pub(crate) fn spawn<T: Send + 'static>(
    mutant: Option<Mutant>,
    f: impl FnOnce() -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    loom::thread::spawn(move || {
        model::mutate(mutant);
        f()
    })
}

/// A word with its operand, as they lie in a window's block.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) word: Word,
    pub(crate) operand: Word,
}

impl Count {
    pub(crate) fn new(value: u64) -> Self {
        Count {
            word: Word::new(value),
            operand: Word::new(0),
        }
    }
}

/// A datum, whose accesses loom checks.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Datum(UnsafeCell<u64>);

// SAFETY: loom ends the model when an access races with another.
unsafe impl Sync for Datum {}

impl Datum {
    pub(crate) fn new() -> Self {
        Datum(UnsafeCell::new(0))
    }

    pub(crate) fn read(&self) -> u64 {
        // SAFETY: loom has checked that no write is concurrent.
        self.0.with(|ptr| unsafe { *ptr })
    }

    pub(crate) fn write(&self, value: u64) {
        // SAFETY: loom has checked that no other access is concurrent.
        self.0.with_mut(|ptr| unsafe { *ptr = value });
    }
}

/// Elements of a slot. Two, so that the slot can be half-written.
pub(crate) const LEN: usize = 2;

/// An edge from an origin to a target, with the state of both sides.
#[derive(Debug)]
pub(crate) struct Edge {
    /// Lies at the origin. The target's posts add to it.
    pub(crate) exposed: Count,
    /// Lies at the target. The origin's completes add to it.
    pub(crate) done: Count,
    /// The slot at the target: one buffer or two, one after the other.
    slot: Box<[Datum]>,
    /// The flags of the buffers, if they are a ring.
    flags: Box<[Word]>,
    /// What the origin puts.
    source: Box<[Datum]>,
    len: usize,
    /// Numbers of the two ranks, for tags.
    pub(crate) origin: u32,
    pub(crate) target: u32,
}

impl Edge {
    /// Makes an edge whose slot has `buffers` buffers of `len` elements. As in `Window::open`, exposures are given in
    /// advance for all buffers but one, and then `credit` more.
    pub(crate) fn with(origin: u32, target: u32, buffers: usize, len: usize, credit: u64) -> Self {
        let data = |count| (0..count).map(|_| Datum::new()).collect();
        Edge {
            exposed: Count::new((buffers as u64 - 1 + credit) * QUANTUM),
            done: Count::new(0),
            slot: data(buffers * len),
            flags: Box::default(),
            source: data(len),
            len,
            origin,
            target,
        }
    }

    /// Makes an edge whose slot is a ring of `buffers` buffers. Half of them are exposed in advance, and `credit` more.
    pub(crate) fn of_ring(origin: u32, target: u32, buffers: usize, credit: u64) -> Self {
        let first = (buffers / 2) as u64 + credit;
        Edge {
            exposed: Count::new(first * QUANTUM),
            flags: (0..buffers).map(|_| Word::new(0)).collect(),
            ..Self::with(origin, target, buffers, 1, 0)
        }
    }

    fn ring(&self) -> Option<Ring> {
        (!self.flags.is_empty()).then(|| Ring {
            flags: at(&self.flags[0]),
            stride: size_of::<Word>(),
            buffers: self.flags.len() as u32,
        })
    }

    pub(crate) fn new(origin: u32, target: u32, buffers: usize) -> Self {
        Self::with(origin, target, buffers, 1, 0)
    }

    /// The value that the origin puts in an epoch.
    fn value(&self, epoch: u64, index: usize) -> u64 {
        1000 * u64::from(self.origin + 1) + 10 * (epoch + 1) + index as u64
    }

    /// Fills the source for an epoch.
    pub(crate) fn fill(&self, epoch: u64) {
        for (index, datum) in self.source.iter().enumerate() {
            datum.write(self.value(epoch, index));
        }
    }

    /// Asserts that the slot holds what was put in an epoch.
    pub(crate) fn verify(&self, epoch: u64) {
        let buffers = self.slot.len() / self.len;
        let first = epoch as usize % buffers * self.len;
        for (index, datum) in self.slot[first..][..self.len].iter().enumerate() {
            assert_eq!(
                datum.read(),
                self.value(epoch, index),
                "the data of epoch {epoch}"
            );
        }
    }

    /// Puts the data of an epoch straight into the slot, as a kernel does.
    pub(crate) fn store(&self, epoch: u64) {
        let buffers = self.slot.len() / self.len;
        let current = self.exposed.operand.epoch() as usize;
        let first = current % buffers * self.len;
        for (index, datum) in self.slot[first..][..self.len].iter().enumerate() {
            datum.write(self.value(epoch, index));
        }
    }

    /// The target changes what an epoch has brought to its only buffer, while its memory is not exposed.
    pub(crate) fn change(&self, epoch: u64) {
        for (index, datum) in self.slot.iter().enumerate() {
            datum.write(self.value(epoch, index) + 1);
        }
    }

    /// The origin gets what the target has made of the epoch before.
    pub(crate) fn get_changed(&self, epoch: u64) {
        for (index, datum) in self.slot.iter().enumerate() {
            let got = datum.read();
            let changed = || self.value(epoch - 1, index) + 1;
            assert!(
                epoch == 0 || got == changed(),
                "the data before epoch {epoch}"
            );
        }
    }

    /// Puts one element of an epoch's data into the first buffer, as a block of a kernel does.
    pub(crate) fn store_one(&self, epoch: u64, index: usize) {
        self.slot[index].write(self.value(epoch, index));
    }

    /// Reads the first buffer, whatever it holds.
    pub(crate) fn look(&self) {
        self.slot[..self.len].iter().for_each(|datum| {
            datum.read();
        });
    }

    /// The target's post. `bell` is the origin's.
    pub(crate) fn post(&self, bell: &Bell) -> Vec<Step> {
        let turn = self.ring().map(|ring| {
            let (epochs, operand) = (ring.exposed_every(), at(&self.done.operand));
            (epochs, Turn::Every { epochs, operand })
        });
        let (epochs, turn) = turn.unzip();
        vec![Step::Add(Add {
            tag: None,
            word: at(&self.exposed.word),
            value: epochs.unwrap_or(1) * QUANTUM,
            bell: at(bell),
            turn,
        })]
    }

    /// The origin's complete with one put. `bell` is the target's.
    pub(crate) fn complete(&self, bell: &Bell) -> Vec<Step> {
        vec![
            self.await_exposure(),
            self.put(),
            Step::Flush,
            Step::Add(Add {
                tag: None,
                word: at(&self.done.word),
                value: QUANTUM,
                bell: at(bell),
                turn: self.ring().map(|ring| {
                    let operand = at(&self.exposed.operand);
                    Turn::Flag { ring, operand }
                }),
            }),
        ]
    }

    pub(crate) fn await_exposure(&self) -> Step {
        wait(&self.exposed, QUANTUM, self.target, Awaited::Exposure)
    }

    /// The target's wait.
    pub(crate) fn wait(&self) -> Vec<Step> {
        let plain = wait(&self.done, QUANTUM, self.origin, Awaited::Completion);
        let Step::Wait(plain) = plain else {
            unreachable!("it was just made");
        };
        let ring = self.ring();
        vec![Step::Wait(Wait { ring, ..plain })]
    }

    /// The move from the source to the slot, by parity if there are two buffers.
    pub(crate) fn put(&self) -> Step {
        let base = |data: &[Datum]| Ptr(data.as_ptr().cast_mut().cast());
        let double = self.slot.len() > self.len;
        Step::Move(Move {
            action: Action::Copy,
            size: size_of::<Datum>() as u32,
            count: self.len,
            src: Side {
                base: base(&self.source),
                flip: 0,
                shape: Shape::Linear,
            },
            dst: Side {
                base: base(&self.slot),
                flip: if double {
                    self.len * size_of::<Datum>()
                } else {
                    0
                },
                shape: Shape::Linear,
            },
            parity: if double {
                at(&self.exposed.operand)
            } else {
                Ptr::NULL
            },
            early: false,
            landing: None,
            buffers: (self.slot.len() / self.len) as u32,
        })
    }
}

pub(crate) fn at<T>(place: &T) -> Ptr {
    Ptr(std::ptr::from_ref(place).cast_mut().cast())
}

pub(crate) fn add(word: &Word, bell: Option<&Bell>) -> Step {
    Step::Add(Add {
        tag: None,
        word: at(word),
        value: QUANTUM,
        bell: bell.map_or(Ptr::NULL, at),
        turn: None,
    })
}

/// An add of a part of the quantum.
pub(crate) fn add_value(word: &Word, value: u64, bell: &Bell) -> Step {
    Step::Add(Add {
        tag: None,
        word: at(word),
        value,
        bell: at(bell),
        turn: None,
    })
}

pub(crate) fn wait(count: &Count, quantum: u64, peer: u32, awaited: Awaited) -> Step {
    Step::Wait(Wait {
        word: at(&count.word),
        operand: at(&count.operand),
        quantum,
        tag: Tag {
            window: None,
            peer,
            awaited,
        },
        landed: None,
        ring: None,
    })
}

/// Moves data as the host device does, but one element at each step of the model, because a peer may die between two.
#[derive(Debug)]
pub(crate) struct DataMover;

impl Mover for DataMover {
    unsafe fn carry(&mut self, step: &Move) {
        let turn = match step.parity.is_null() {
            true => 0,
            // SAFETY: a parity that is not null is an operand of the batch's.
            false => unsafe { &*step.parity.0.cast::<Word>() }.epoch() as usize,
        };
        let flip = turn % step.buffers as usize * step.dst.flip;
        let (src, dst) = (step.src.base.0, step.dst.base.0.wrapping_add(flip));
        for index in 0..step.count {
            model::tick();
            let offset = index * size_of::<Datum>();
            // SAFETY: both are arrays of at least `count` data, which live as long as the batch runs.
            let (src, dst) = unsafe {
                (
                    &*src.add(offset).cast::<Datum>(),
                    &*dst.add(offset).cast::<Datum>(),
                )
            };
            dst.write(src.read());
        }
    }

    unsafe fn pull(&mut self, pull: &Pull, from: u64) -> bool {
        let from = std::ptr::with_exposed_provenance::<AtomicWord>(from as usize);
        // SAFETY: both are atomics, which live as long as the batch runs.
        let (from, to) = unsafe { (&*from, &*pull.to.0.cast::<AtomicWord>()) };
        to.store(from.load(Relaxed), Relaxed);
        true
    }
}

/// A rank's stream. It runs batches one after the other. Once one has failed, it gives up all later ones, as the host
/// device's executor does.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    engine: Engine,
    bell: &'a Bell,
    failed: Option<Halt>,
    /// After how many batches it rings, if it need not wait before. And after how many it has not rung.
    rings_after: u64,
    owed: u64,
}

impl<'a> Stream<'a> {
    /// Makes the stream of a rank that sleeps on this bell.
    pub(crate) fn new(bell: &'a Bell) -> Self {
        Stream {
            engine: Engine::default(),
            bell,
            failed: None,
            rings_after: 1,
            owed: 0,
        }
    }

    /// Lets it ring only after so many batches.
    pub(crate) fn ringing_after(self, rings_after: u64) -> Self {
        Stream {
            rings_after,
            ..self
        }
    }

    /// Runs the lanes. It sleeps after the first look that finds nothing, because spinning would only repeat such
    /// looks.
    pub(crate) fn run(&mut self, lanes: impl IntoIterator<Item = Vec<Step>>) -> Result<(), Halt> {
        // SAFETY: the words, bells and data belong to the model, which outlives its threads; moves are checked by loom.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        if let Some(halt) = self.failed {
            self.engine.begin(&batch);
            // SAFETY: as above.
            unsafe { self.engine.give_up(&batch, &mut DataMover) };
            return Err(halt);
        }
        // SAFETY: as above; models ring the bell of the rank that waits.
        let outcome = unsafe {
            let outcome = tidegate_words::run(
                &mut self.engine,
                &batch,
                &mut DataMover,
                self.bell,
                Patience::NONE,
                |_| Blocked::Waits,
                |_| {},
            );
            self.owed += 1;
            if self.owed >= self.rings_after || outcome.is_err() {
                self.owed = 0;
                self.engine.ring();
            }
            outcome
        };
        outcome.map_err(|halt| {
            let halt = halt.expect("no model aborts a stream");
            self.failed = Some(halt);
            halt
        })
    }

    /// Rings for the last batches.
    pub(crate) fn ring(&mut self) {
        // SAFETY: the bells belong to the model.
        unsafe { self.engine.ring() };
    }

    /// Whether a batch has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Like [`Stream::run`], for models in which no rank dies.
    pub(crate) fn go(&mut self, lanes: impl IntoIterator<Item = Vec<Step>>) {
        self.run(lanes).expect("nobody poisons");
    }
}

/// Runs a rank that dies before its n-th operation; `None` if it did.
pub(crate) fn mortal<T>(fuse: u32, f: impl FnOnce() -> T) -> Option<T> {
    model::light(fuse);
    catch_unwind(AssertUnwindSafe(f))
        .map_err(|panic| {
            if !panic.is::<Died>() {
                resume_unwind(panic);
            }
        })
        .ok()
}

/// Explores a model for each step before which a rank may die, until the rank never reaches the step. The model gets
/// the number of the step, and returns whether the rank died.
pub(crate) fn check_deaths(bound: usize, f: impl Fn(u32) -> bool + Send + Sync + 'static) {
    let f = Arc::new(f);
    for fuse in 0.. {
        let died = Arc::new(AtomicBool::new(false));
        let (f, noted) = (f.clone(), died.clone());
        check(bound, move || {
            if f(fuse) {
                noted.store(true, Relaxed);
            }
        });
        if !died.load(Relaxed) {
            assert!(fuse > 3, "the rank must have had occasions to die");
            return;
        }
    }
}

/// Asserts that the checker finds the error for one of the steps before which a rank may die.
pub(crate) fn caught_deaths(finding: Finding, f: impl Fn(u32) -> bool + Send + Sync + 'static) {
    quietly(finding, move || check_deaths(2, f));
}
