//! The protocol on the real machine, with single threads, and with threads that really sleep.
#![cfg(not(loom))]

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Check, Move, POISON, QUANTUM, Shape, Side, Step, Store, Tag, Wait,
};
use tidegate_hal::memory::Ptr;
use tidegate_words::{
    Bell, Blocked, Engine, Grant, Granted, Halt, Patience, Poll, State, Word, run,
};

fn at<T>(place: &T) -> Ptr {
    Ptr(std::ptr::from_ref(place).cast_mut().cast())
}

fn tag(peer: u32) -> Tag {
    Tag {
        window: None,
        peer,
        awaited: Awaited::Completion,
    }
}

fn wait(word: &Word, operand: &Word, quantum: u64, peer: u32) -> Step {
    Step::Wait(Wait {
        word: at(word),
        operand: at(operand),
        quantum,
        tag: tag(peer),
        landed: None,
        ring: None,
    })
}

fn add(word: &Word, bell: Option<&Bell>) -> Step {
    Step::Add(Add {
        tag: None,
        word: at(word),
        value: QUANTUM,
        bell: bell.map_or(Ptr::NULL, at),
        turn: None,
    })
}

/// A move that only the mover of the test understands. It knows the move by its count.
fn note(count: usize) -> Step {
    let side = Side {
        base: Ptr::NULL,
        flip: 0,
        shape: Shape::Linear,
    };
    Step::Move(Move {
        action: Action::Copy,
        size: 1,
        count,
        src: side,
        dst: side,
        parity: Ptr::NULL,
        early: false,
        landing: None,
        buffers: 2,
    })
}

/// A batch whose words and bells outlive it.
fn batch(lanes: impl IntoIterator<Item = Vec<Step>>) -> Batch {
    // SAFETY: the tests keep all words and bells on their stacks until the batch is gone; movers touch only what they
    // own.
    unsafe { Batch::new(lanes, Vec::new()) }
}

#[test]
fn words_and_bells_are_as_they_lie_in_shared_memory() {
    assert_eq!((size_of::<Word>(), align_of::<Word>()), (8, 8));
    assert_eq!((size_of::<Bell>(), align_of::<Bell>()), (64, 64));
    // SAFETY: all-zero bytes are a bell, as `Bell::new` says.
    let bell: Bell = unsafe { std::mem::zeroed() };
    bell.ring();
    bell.wake_all();
    bell.wait(Patience::NONE, || Some(()), || unreachable!());
}

#[test]
fn a_count_that_was_reached_is_reached_poisoned_or_not() {
    let word = Word::new(0);
    assert_eq!(word.look(0, QUANTUM), State::Pending);
    word.add(QUANTUM - 1);
    assert_eq!(word.look(0, QUANTUM), State::Pending);
    word.add(1);
    assert_eq!(word.look(0, QUANTUM), State::Reached);
    assert_eq!(word.look(QUANTUM, QUANTUM), State::Pending);
    word.poison();
    word.poison();
    assert_eq!(word.load(), POISON | QUANTUM);
    assert_eq!(word.look(0, QUANTUM), State::Reached);
    assert_eq!(word.look(QUANTUM, QUANTUM), State::Poisoned);
    // An add after the poisoning still counts.
    word.add(QUANTUM);
    assert_eq!(word.look(QUANTUM, QUANTUM), State::Reached);
}

#[test]
fn a_ticket_waits_for_the_operand_itself() {
    let word = Word::new(0);
    assert_eq!(word.look(0, 0), State::Reached);
    assert_eq!(word.look(2 * QUANTUM, 0), State::Pending);
    word.add(QUANTUM);
    assert_eq!(word.look(2 * QUANTUM, 0), State::Pending);
    word.add(QUANTUM);
    assert_eq!(word.look(2 * QUANTUM, 0), State::Reached);
    word.poison();
    assert_eq!(word.look(3 * QUANTUM, 0), State::Poisoned);
}

#[test]
fn operands_count_epochs() {
    let operand = Word::new(0);
    operand.advance(QUANTUM);
    assert_eq!((operand.operand(), operand.epoch()), (QUANTUM, 0));
    operand.advance(3 * QUANTUM);
    assert_eq!(operand.epoch(), 2);
}

#[test]
fn lanes_go_as_far_as_they_can() {
    let words: [Word; 4] = std::array::from_fn(|_| Word::new(0));
    let [a, b, op_a, op_b] = &words;
    let out = Word::new(0);
    let batch = batch([
        vec![wait(a, op_a, QUANTUM, 1), note(1), add(&out, None)],
        vec![],
        vec![note(2), wait(b, op_b, QUANTUM, 2), Step::Flush, note(3)],
    ]);
    let moved = std::cell::RefCell::new(Vec::new());
    let mut mover = |step: &Move| moved.borrow_mut().push(step.count);
    let mut engine = Engine::default();
    engine.begin(&batch);
    let mut poll = |engine: &mut Engine| {
        // SAFETY: as `batch` says; it was begun.
        unsafe { engine.poll(&batch, &mut mover) }
    };
    assert_eq!(poll(&mut engine), Poll::Blocked);
    assert_eq!(*moved.borrow(), [2]);
    {
        // SAFETY: as above.
        let pending: Vec<_> = unsafe { engine.pending(&batch) }.collect();
        assert_eq!(pending, [(tag(1), 0), (tag(2), 0)]);
    }
    // The later lane comes first, because no lane waits for another.
    b.add(QUANTUM);
    assert_eq!(poll(&mut engine), Poll::Blocked);
    assert_eq!(*moved.borrow(), [2, 3]);
    assert_eq!((op_a.operand(), op_b.operand()), (0, QUANTUM));
    a.add(QUANTUM);
    assert_eq!(poll(&mut engine), Poll::Done);
    assert_eq!(poll(&mut engine), Poll::Done);
    assert_eq!(*moved.borrow(), [2, 3, 1]);
    assert_eq!(out.load(), QUANTUM);
}

/// A ring adds to a doorbell and stores to a register. A failure only poisons the doorbell.
#[test]
fn a_batch_that_fails_stores_nothing() {
    let (word, operand) = (Word::new(0), Word::new(0));
    let (doorbell, register) = (Word::new(0), Word::new(0));
    let bell = Bell::new();
    let store = Step::Store(Store {
        to: at(&register),
        value: 1,
    });
    let batch = batch([vec![
        wait(&word, &operand, QUANTUM, 1),
        add(&doorbell, Some(&bell)),
        store,
    ]]);
    let mut engine = Engine::default();
    engine.begin(&batch);
    // SAFETY: as `batch` says.
    let poll = |engine: &mut Engine| unsafe { engine.poll(&batch, &mut |_: &Move| ()) };
    assert_eq!(poll(&mut engine), Poll::Blocked);
    assert_eq!((doorbell.load(), register.load()), (0, 0));
    word.add(QUANTUM);
    assert_eq!(poll(&mut engine), Poll::Done);
    assert_eq!((doorbell.load(), register.load()), (QUANTUM, 1));

    register.strike(0);
    word.poison();
    engine.begin(&batch);
    assert!(matches!(poll(&mut engine), Poll::Failed(_)));
    // SAFETY: as `batch` says.
    unsafe { engine.give_up(&batch, &mut |_: &Move| ()) };
    assert_eq!((doorbell.load(), register.load()), (POISON | QUANTUM, 0));
}

#[test]
fn the_same_batch_goes_on_where_the_words_are() {
    let (word, operand, out) = (Word::new(0), Word::new(0), Word::new(0));
    let batch = batch([vec![wait(&word, &operand, QUANTUM, 1), add(&out, None)]]);
    let mut engine = Engine::default();
    for epoch in 0..5 {
        engine.begin(&batch);
        // SAFETY: as `batch` says.
        let mut poll = || unsafe { engine.poll(&batch, &mut |_: &Move| unreachable!()) };
        assert_eq!(poll(), Poll::Blocked);
        word.add(QUANTUM);
        assert_eq!(poll(), Poll::Done);
        assert_eq!(operand.epoch(), epoch);
    }
    assert_eq!(out.load(), 5 * QUANTUM);
}

#[test]
fn a_failure_names_its_wait_and_goes_on_to_whoever_waits() {
    let (word, operand) = (Word::new(2 * QUANTUM), Word::new(2 * QUANTUM));
    let (done, own, later, passed) = (Word::new(0), Word::new(0), Word::new(0), Word::new(0));
    let (never, never_operand) = (Word::new(0), Word::new(0));
    let bell = Bell::new();
    let batch = batch([
        vec![add(&passed, Some(&bell))],
        vec![
            wait(&word, &operand, QUANTUM, 9),
            note(1),
            add(&done, Some(&bell)),
            add(&own, None),
        ],
        vec![
            wait(&never, &never_operand, QUANTUM, 8),
            add(&later, Some(&bell)),
        ],
    ]);
    word.poison();
    // SAFETY: as `batch` says; nobody sleeps.
    let outcome = unsafe {
        run(
            &mut Engine::default(),
            &batch,
            &mut |_: &Move| unreachable!("a batch that failed moves nothing"),
            &bell,
            Patience::NONE,
            |_| Blocked::Waits,
            |_| unreachable!("it does not sleep"),
        )
    };
    let halt = Halt::Wait {
        tag: tag(9),
        epoch: 2,
    };
    assert_eq!(outcome, Err(Some(halt)));
    assert_eq!(passed.load(), QUANTUM, "what was added before stays");
    assert_eq!(done.load(), POISON);
    assert_eq!(later.load(), POISON);
    assert_eq!(
        own.load(),
        0,
        "an operand is not waited on, and is not poisoned"
    );
}

#[test]
fn a_number_that_is_too_great_fails_its_batch() {
    let (word, operand, done) = (Word::new(0), Word::new(0), Word::new(0));
    let bell = Bell::new();
    for (count, most) in [(0, 0), (7, 7), (8, 7), (u64::MAX, 7), (1, 0)] {
        let check = Step::Check(Check {
            count: Ptr(std::ptr::from_ref(&count).cast_mut().cast()),
            most,
            tag: tag(4),
        });
        done.strike(0);
        word.add(QUANTUM);
        let batch = batch([vec![
            wait(&word, &operand, QUANTUM, 1),
            check,
            note(1),
            add(&done, Some(&bell)),
        ]]);
        let mut moved = 0;
        // SAFETY: as `batch` says; nobody sleeps.
        let outcome = unsafe {
            run(
                &mut Engine::default(),
                &batch,
                &mut |_: &Move| moved += 1,
                &bell,
                Patience::NONE,
                |_| Blocked::Waits,
                |_| unreachable!("it does not sleep"),
            )
        };
        let passes = count <= most;
        let halt = Halt::Check { tag: tag(4), count };
        assert_eq!(outcome, if passes { Ok(()) } else { Err(Some(halt)) });
        assert_eq!(moved, usize::from(passes));
        assert_eq!(done.load(), if passes { QUANTUM } else { POISON });
    }
}

#[test]
fn what_is_aborted_is_given_up() {
    let (word, operand, done) = (Word::new(0), Word::new(0), Word::new(0));
    let bell = Bell::new();
    let batch = batch([vec![
        wait(&word, &operand, QUANTUM, 1),
        add(&done, Some(&bell)),
    ]]);
    let stop = AtomicBool::new(false);
    let asleep = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            // SAFETY: as `batch` says.
            unsafe {
                run(
                    &mut Engine::default(),
                    &batch,
                    &mut |_: &Move| unreachable!(),
                    &bell,
                    Patience::NONE,
                    |_| Blocked::unless(stop.load(Ordering::Relaxed)),
                    |_| asleep.store(true, Ordering::Relaxed),
                )
            }
        });
        while !asleep.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        bell.wake_all();
        assert_eq!(running.join().expect("it ends"), Err(None));
    });
    assert_eq!(done.load(), POISON);
}

#[test]
fn before_sleep_is_called_each_time() {
    let bell = Bell::new();
    let word = Word::new(0);
    let called = Cell::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(2));
                word.add(1);
                bell.ring();
            }
        });
        let patience = Patience {
            spins: 3,
            yields: 3,
        };
        let ready = || (word.load() == 3).then_some(());
        bell.wait(patience, ready, || called.set(called.get() + 1));
    });
    // It is called once for each ring that was not enough, and perhaps after a wake-up that was meant for another
    // thread.
    assert!(called.get() <= 6);
}

/// Data that the batches order.
struct Slot(UnsafeCell<u64>);

// SAFETY: the test accesses it only where the epochs allow it; Miri checks that.
unsafe impl Sync for Slot {}

/// Runs epochs on two threads that sleep whenever they must. The data is neither early nor late.
fn epochs(count: u64, patience: Patience) {
    let slot = Slot(UnsafeCell::new(0));
    let [exposed, exposed_operand, done, done_operand]: [Word; 4] =
        std::array::from_fn(|_| Word::new(0));
    let (origin, target) = (Bell::new(), Bell::new());
    let complete = batch([vec![
        wait(&exposed, &exposed_operand, QUANTUM, 1),
        note(1),
        Step::Flush,
        add(&done, Some(&target)),
    ]]);
    let post = batch([vec![add(&exposed, Some(&origin))]]);
    let arrive = batch([vec![wait(&done, &done_operand, QUANTUM, 0)]]);
    let go = |engine: &mut Engine, batch: &Batch, bell: &Bell, mover: &mut dyn FnMut()| {
        let mut mover = |_: &Move| mover();
        // SAFETY: as `batch` says; `bell` is rung for the words that the batch waits on.
        unsafe {
            run(
                engine,
                batch,
                &mut mover,
                bell,
                patience,
                |_| tidegate_words::Blocked::Waits,
                |_| {},
            )
        }
        .expect("nobody poisons");
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut engine = Engine::default();
            let slot = &slot;
            for epoch in 0..count {
                // SAFETY: the target does not touch the slot between its post and its wait.
                go(&mut engine, &complete, &origin, &mut || unsafe {
                    *slot.0.get() = epoch + 1;
                });
            }
        });
        let mut engine = Engine::default();
        for epoch in 0..count {
            go(&mut engine, &post, &target, &mut || unreachable!());
            go(&mut engine, &arrive, &target, &mut || unreachable!());
            // SAFETY: the origin does not touch the slot between its complete and the next post.
            assert_eq!(unsafe { *slot.0.get() }, epoch + 1);
        }
    });
}

/// The number of epochs, with fewer under an interpreter.
const EPOCHS: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn epochs_that_sleep() {
    epochs(EPOCHS, Patience::NONE);
}

#[test]
fn epochs_that_are_patient() {
    let patience = Patience {
        spins: 20,
        yields: 2,
    };
    epochs(EPOCHS, patience);
}

/// Many threads ring one bell, and two sleep on it.
#[test]
fn nobody_on_a_crowded_bell_is_forgotten() {
    let bell = Bell::new();
    let words: [Word; 4] = std::array::from_fn(|_| Word::new(0));
    thread::scope(|scope| {
        for word in &words {
            scope.spawn(|| {
                for _ in 0..EPOCHS {
                    word.add(1);
                    bell.ring();
                }
            });
        }
        for half in [0, 2] {
            let (words, bell) = (&words, &bell);
            scope.spawn(move || {
                for count in 1..=EPOCHS {
                    let reached = || {
                        words[half..half + 2]
                            .iter()
                            .all(|word| word.load() >= count)
                    };
                    bell.wait(Patience::NONE, || reached().then_some(()), || {});
                }
            });
        }
    });
}

/// A grant says what a kernel may do; whoever completes the epoch ends it, and a stream that has failed ends it for
/// good.
#[test]
fn a_grant_is_given_and_ended() {
    let (grant, own, done, bell) = (Grant::new(), Bell::new(), Word::new(0), Bell::new());
    let give = |engine: &mut Engine| {
        // SAFETY: all words and bells outlive the batch.
        let batch = unsafe { Batch::new([vec![add(&grant.given, Some(&own))]], Vec::new()) };
        engine.begin(&batch);
        batch
    };
    let check = vec![wait(&grant.check, &grant.passed, QUANTUM, 1)];
    // SAFETY: as above.
    let check = unsafe { Batch::new([check], Vec::new()) };
    let mut engine = Engine::default();
    let mut pass = |batch: &Batch| {
        engine.begin(batch);
        // SAFETY: as above.
        unsafe { engine.poll(batch, &mut |_: &Move| {}) }
    };
    assert_eq!(grant.look(), Granted::No);
    for epoch in 1..4 {
        assert_eq!(pass(&give(&mut Engine::default())), Poll::Done);
        assert_eq!(grant.look(), Granted::Yes);
        // The check does not wait for the kernel: it fails.
        assert!(matches!(pass(&check), Poll::Failed(_)));
        grant.complete(&done, &bell);
        assert_eq!((grant.look(), done.load()), (Granted::No, epoch * QUANTUM));
        assert_eq!(pass(&check), Poll::Done);
        assert!(matches!(pass(&check), Poll::Failed(_)));
    }
    let mut engine = Engine::default();
    let batch = give(&mut engine);
    // SAFETY: as above.
    unsafe { engine.give_up(&batch, &mut |_: &Move| {}) };
    assert_eq!(grant.look(), Granted::Failed);
    assert_eq!(pass(&give(&mut Engine::default())), Poll::Done);
    assert_eq!(grant.look(), Granted::Failed);
}
