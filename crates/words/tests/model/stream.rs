//! The handshakes between a host stream's owner, its executor, and the threads that wait for it.
//!
//! The model includes the host device's own file, so no copy can become stale. Only the queue, which comes from another
//! crate, is replaced, by the count of submitted items.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Wake, Waker};

use tidegate_hal::batch::{Awaited, Batch, QUANTUM, Tag};
use tidegate_hal::device::{Fault, Reclaim, StreamConfig};
use tidegate_words::sync::Ordering;
use tidegate_words::sync::model::{Mutant, mutate};
use tidegate_words::{Bell, Blocked, Engine, Patience, Word};

use super::rig::{Count, DataMover, Datum, Finding, at, caught, check, spawn, wait};
use reclaim::StreamState;

#[path = "../../../host/src/reclaim.rs"]
#[allow(dead_code, unreachable_pub)]
mod reclaim;

fn shared() -> Arc<StreamState> {
    let bell = Arc::new(Bell::new());
    Arc::new(StreamState::new(StreamConfig {
        name: "".into(),
        bell: at(&*bell),
        keep: bell,
        inline: false,
        ranks_on_node: 1,
        priority: Default::default(),
        helper: None,
        stamped: false,
    }))
}

/// The owner submits one more item.
fn submit(shared: &StreamState) {
    let mark = shared.submitted.load(Ordering::Relaxed) + 1;
    shared.submitted.store(mark, Ordering::Release);
    shared.work.ring();
}

/// The executor takes the item that makes the count `mark`.
fn take(shared: &StreamState, mark: u64) {
    let submitted = || shared.submitted.load(Ordering::Acquire) >= mark;
    shared
        .work
        .wait(Patience::NONE, || submitted().then_some(()), || {});
}

/// Memory that an item uses, and that is written when it is freed.
struct Garbage {
    datum: Arc<Datum>,
    freed: Arc<AtomicU32>,
}

impl Drop for Garbage {
    fn drop(&mut self) {
        self.datum.write(1);
        self.freed.fetch_add(1, Relaxed);
    }
}

/// The owner submits an item, and retires memory that the item uses. Another thread retires something of its own.
fn retire(executor: Option<Mutant>, owner: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = shared();
        let datum = Arc::new(Datum::new());
        let freed = Arc::new(AtomicU32::new(0));
        let executing = {
            let (shared, datum) = (shared.clone(), datum.clone());
            spawn(None, move || {
                take(&shared, 1);
                mutate(executor);
                assert_eq!(datum.read(), 0, "the memory is in use");
                shared.pass(1);
            })
        };
        submit(&shared);
        mutate(owner);
        let garbage = Garbage {
            datum,
            freed: freed.clone(),
        };
        shared.retire(Box::new(garbage));
        executing.join().expect("the executor ends");
        assert_eq!(freed.load(Relaxed), 1, "garbage is freed, once");
    }
}

#[test]
fn garbage_is_freed_when_its_item_has_passed() {
    check(3, retire(None, None));
}

#[test]
fn mutants_of_retiring() {
    let left = Finding::Says("garbage is freed, once");
    caught(left, retire(Some(Mutant::NoFence), None));
    caught(left, retire(None, Some(Mutant::NoFence)));
    let flaw = Some(Mutant::LookWithoutAcquire);
    caught(Finding::Race, retire(None, flaw));
}

/// A task that sleeps until it is woken.
struct Task {
    woken: Word,
    bell: Bell,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.add(QUANTUM);
        self.bell.ring();
    }
}

/// A task awaits an item, while other things are retired, which use the same list.
fn awaiting(executor: Option<Mutant>, task: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = shared();
        let executing = {
            let shared = shared.clone();
            spawn(executor, move || {
                shared.pass(1);
                shared.pass(1);
            })
        };
        // The items that were submitted, and that the executor has found.
        shared.submitted.store(2, Ordering::Release);
        mutate(task);
        let freed = Arc::new(AtomicU32::new(0));
        let this = Arc::new(Task {
            woken: Word::new(0),
            bell: Bell::new(),
        });
        let waker = Waker::from(this.clone());
        let mut polls = 0;
        while !shared.wake_at(1, 1, &waker) {
            polls += 1;
            let woken = || this.woken.load() >= polls * QUANTUM;
            this.bell
                .wait(Patience::NONE, || woken().then_some(()), || {});
        }
        shared.retire(Box::new(Garbage {
            datum: Arc::new(Datum::new()),
            freed: freed.clone(),
        }));
        executing.join().expect("the executor ends");
        assert_eq!(freed.load(Relaxed), 1, "garbage is freed, once");
    }
}

#[test]
fn a_task_is_woken_when_its_item_has_passed() {
    check(3, awaiting(None, None));
}

#[test]
fn mutants_of_waking_tasks() {
    caught(Finding::Asleep, awaiting(Some(Mutant::NoFence), None));
    caught(Finding::Asleep, awaiting(None, Some(Mutant::NoFence)));
}

/// The owner and another stream wait for an item that fails.
fn fault(executor: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = shared();
        let datum = Arc::new(Datum::new());
        let passed = |shared: &StreamState| {
            shared.wait_until_passed(1, Patience::NONE);
            assert!(shared.failed_by(1), "the fault is seen");
            assert_eq!(shared.fault(), Some(Fault::Aborted), "the fault is seen");
        };
        let other = {
            let (shared, datum) = (shared.clone(), datum.clone());
            spawn(None, move || {
                passed(&shared);
                datum.read();
            })
        };
        let executing = {
            let (shared, datum) = (shared.clone(), datum.clone());
            spawn(executor, move || {
                datum.write(1);
                shared.set_fault(Fault::Aborted, 0);
                shared.pass(1);
            })
        };
        passed(&shared);
        datum.read();
        other.join().expect("the other stream ends");
        executing.join().expect("the executor ends");
    }
}

#[test]
fn a_fault_is_seen_by_all_who_wait() {
    check(2, fault(None));
}

#[test]
fn mutants_of_passing() {
    caught(Finding::Asleep, fault(Some(Mutant::NoFence)));
    caught(Finding::Asleep, fault(Some(Mutant::NoWake)));
}

/// The owner waits for the second item, and another stream for the first. A thread that is woken too early asks again.
fn two_marks(executor: Option<Mutant>, owner: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = shared();
        let datum = Arc::new(Datum::new());
        let other = {
            let shared = shared.clone();
            spawn(None, move || {
                shared.wait_until_passed(1, Patience::NONE);
            })
        };
        let executing = {
            let (shared, datum) = (shared.clone(), datum.clone());
            spawn(executor, move || {
                shared.pass(1);
                datum.write(1);
                shared.pass(1);
            })
        };
        mutate(owner);
        shared.wait_until_passed(2, Patience::NONE);
        assert_eq!(datum.read(), 1);
        other.join().expect("the other stream ends");
        executing.join().expect("the executor ends");
    }
}

#[test]
fn two_wait_for_different_items() {
    check(2, two_marks(None, None));
}

#[test]
fn mutants_of_waiting_for_items() {
    for flaw in [Mutant::NoFence, Mutant::NoWake, Mutant::NoBump] {
        caught(Finding::Asleep, two_marks(Some(flaw), None));
    }
    for flaw in [Mutant::NoFence, Mutant::FlagAfterLook] {
        caught(Finding::Asleep, two_marks(None, Some(flaw)));
    }
}

/// A stream is aborted during a wait that would never end.
fn abort(stopper: Option<Mutant>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = shared();
        let stopping = {
            let shared = shared.clone();
            spawn(stopper, move || shared.abort())
        };
        let never = Count::new(0);
        let lane = vec![wait(&never, QUANTUM, 7, Awaited::Completion)];
        // SAFETY: word and operand outlive the batch.
        let batch = unsafe { Batch::new([lane], Vec::new()) };
        // SAFETY: as above.
        let outcome = unsafe {
            tidegate_words::run(
                &mut Engine::default(),
                &batch,
                &mut DataMover,
                shared.bell(),
                Patience::NONE,
                |_| Blocked::unless(shared.is_aborted()),
                |engine| {
                    let pending: Vec<(Tag, u64)> = engine.pending(&batch).collect();
                    assert_eq!((pending[0].0.peer, pending[0].1), (7, 0));
                    shared.set_blocked(pending.into_iter(), Location::caller());
                },
            )
        };
        assert_eq!(outcome, Err(None));
        stopping.join().expect("whoever aborts ends");
    }
}

#[test]
fn a_waiting_stream_is_aborted() {
    check(None, abort(None));
}

#[test]
fn mutants_of_aborting() {
    caught(Finding::Asleep, abort(Some(Mutant::NoBump)));
    caught(Finding::Asleep, abort(Some(Mutant::NoWake)));
}
