//! Deferred works. Of the providers that need no hardware, only sockets has them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_ffi::fabric::*;

use crate::support::{End, LONG, Pair, comes_to, hints, info, library, skip, tcp, words};

fn pair(test: &str) -> Option<Pair> {
    let library = library(test)?;
    let asked = hints("sockets", Caps::RMA | Caps::ATOMIC);
    match Pair::open(&library, &asked, 64) {
        Ok(pair) => Some(pair),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

fn counter(end: &End) -> Arc<Counter> {
    Counter::open(&end.domain, WaitObject::UNSPEC).expect("a counter")
}

#[test]
fn a_probe_finds_out_whether_there_are_deferred_works() {
    let Some(library) = library("probing for deferred works") else {
        return;
    };
    for (provider, can) in [("sockets", true), (tcp(), false), ("shm", false)] {
        let Ok(info) = info(&library, &hints(provider, Caps::RMA)) else {
            skip(
                "probing for deferred works",
                &format!("there is no {provider}"),
            );
            continue;
        };
        let domain = Domain::open(&Fabric::open(&info).expect("fabric"), &info).expect("domain");
        let answer = domain.probe_deferred(LONG);
        assert_eq!(answer.works(), can, "{provider}: {answer:?}");
        if let Deferred::Refused(error) = answer {
            assert!(error.is_not_supported(), "{provider}: {error}");
        }
        // The probe leaves nothing behind.
        assert_eq!(Arc::strong_count(&domain), 1, "{provider}");
    }
}

#[test]
fn a_put_is_fired_by_a_counter_and_chained_to_a_signal() {
    let Some(pair) = pair("a triggered put") else {
        return;
    };
    let (trigger, put, signalled) = (counter(&pair.a), counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    const ROUNDS: u64 = 20;
    for round in 1..=ROUNDS {
        let endpoint = &pair.a.endpoint;
        let data = Work::write(endpoint, pair.a.local(0, 16), pair.word(0))
            .expect("a work")
            .flags(OpFlags::DELIVERY_COMPLETE)
            .after(&trigger, round)
            .completes(&put);
        let signal = Work::add(endpoint, 1 << 20, pair.word(32))
            .expect("a work")
            .after(&put, round)
            .completes(&signalled);
        // SAFETY: the words live as long as the region. Nothing writes them from the moment when the trigger fires
        // until the works are complete. The counters count nothing else, and every work waits for the one before.
        unsafe {
            works.queue(data).expect("queued");
            works.queue(signal).expect("queued");
        }
    }
    assert_eq!(works.reclaim(), 2 * ROUNDS as usize);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((put.read(), pair.b.load(32)), (0, 0), "nobody fired");
    for round in 1..=ROUNDS {
        for at in 0..16 {
            pair.a.store(at, 1000 * round + at as u64);
        }
        trigger.add(1).expect("fired");
        pair.until("the signal", || pair.b.load(32) == round << 20);
        let seen: Vec<u64> = (0..16).map(|at| pair.b.load(at)).collect();
        let sent: Vec<u64> = (0..16).map(|at| 1000 * round + at).collect();
        assert_eq!(seen, sent, "data before its signal");
        assert!(comes_to(&signalled, round));
    }
    assert_eq!(works.reclaim(), 0);
}

/// The parts of a signal: a write waits for a counter, is delivered when it is complete, and brings data to the
/// target's queue. If it fails, it brings no data.
#[test]
fn a_deferred_write_brings_data_when_it_is_delivered() {
    let Some(pair) = pair("a deferred write with data") else {
        return;
    };
    let (trigger, put, signalled) = (counter(&pair.a), counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::REMOTE_CQ_DATA;
    const ROUNDS: u64 = 50;
    for round in 1..=ROUNDS {
        let endpoint = &pair.a.endpoint;
        let data = Work::write(endpoint, pair.a.local(0, 16), pair.word(0)).expect("a work");
        let last = Work::write(endpoint, pair.a.local(16, 16), pair.word(16)).expect("a work");
        let data = data
            .flags(OpFlags::DELIVERY_COMPLETE)
            .after(&trigger, round)
            .completes(&put);
        let last = last
            .flags(flags)
            .data(0xdada << 32 | round)
            .after(&put, round)
            .completes(&signalled);
        // SAFETY: the words live as long as the region. Nothing writes them from the moment when the trigger fires
        // until the works are complete. The counters count nothing else.
        unsafe {
            works.queue(data).expect("queued");
            works.queue(last).expect("queued");
        }
    }
    for round in 1..=ROUNDS {
        for at in 0..32 {
            pair.a.store(at, 1000 * round + at as u64);
        }
        trigger.add(1).expect("fired");
        let mut came = Vec::new();
        let start = std::time::Instant::now();
        while came.is_empty() {
            came = pair.b.poll().expect("no operation fails");
            came.retain(|entry| entry.remote_data().is_some());
            assert!(start.elapsed() < LONG, "no entry came");
        }
        // This reads without a wait: the entry says that all data is there.
        let seen: Vec<u64> = (0..32).map(|at| pair.b.load(at)).collect();
        let sent: Vec<u64> = (0..32).map(|at| 1000 * round + at).collect();
        assert_eq!(seen, sent);
        let data: Vec<_> = came.iter().filter_map(Completion::remote_data).collect();
        assert_eq!(data, [0xdada << 32 | round]);
        assert!(comes_to(&signalled, round));
    }
    assert!(works.drain(LONG, || {}));
    while !pair.a.poll().expect("no operation fails").is_empty() {}

    // A work that fails is reported with its context, and the target gets no entry.
    let wrong = Remote {
        key: pair.to_b.key ^ 0x5a5a_0000,
        ..pair.to_b
    };
    let failing = Work::write(&pair.a.endpoint, pair.a.local(0, 16), wrong).expect("a work");
    let failing = failing
        .flags(flags)
        .data(7)
        .after(&trigger, ROUNDS + 1)
        .completes(&signalled);
    let context = failing.context();
    // SAFETY: as above.
    unsafe { works.queue(failing) }.expect("queued");
    trigger.add(1).expect("fired");
    let start = std::time::Instant::now();
    let error = loop {
        match pair.a.poll() {
            Err(CqError::Completion(error)) => break error,
            other => assert_eq!(other.expect("read"), []),
        }
        assert!(start.elapsed() < LONG, "no error came");
    };
    assert_eq!(error.context, context);
    assert_eq!(works.pending(), 1);
    assert!(works.failed(context) && !works.failed(context));
    assert!(works.pending() == 0, "what is known to be over is freed");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(pair.b.poll().expect("read"), []);
    assert_eq!(signalled.read(), ROUNDS);
}

#[test]
fn all_kinds_of_works_are_carried_out() {
    let Some(pair) = pair("all kinds of works") else {
        return;
    };
    let (trigger, done) = (counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    for at in 0..4 {
        pair.b.store(at, 10 * (1 + at as u64));
    }
    let endpoint = &pair.a.endpoint;
    let kept = Arc::new(());
    let all = [
        Work::read(endpoint, pair.a.local(8, 2), pair.word(0)),
        Work::add(endpoint, 5, pair.word(2)),
    ];
    for work in all {
        let keep = Arc::clone(&kept);
        let work = work
            .expect("a work")
            .after(&trigger, 1)
            .completes(&done)
            .keep(keep);
        // SAFETY: the words live as long as the region. Nothing touches those that the works write until the works are
        // complete. The counter counts nothing else.
        unsafe { works.queue(work) }.expect("queued");
    }
    let added = counter(&pair.a);
    let add = Work::counter_add(&added, 7).after(&done, 2);
    // SAFETY: the work names no memory, and its counter counts nothing else.
    unsafe { works.queue(add) }.expect("queued");
    assert_eq!((works.pending(), Arc::strong_count(&kept)), (3, 3));
    trigger.add(1).expect("fired");
    assert!(works.drain(LONG, || {}), "{works:?}");
    assert_eq!(Arc::strong_count(&kept), 1, "all is freed");
    assert_eq!((pair.a.load(8), pair.a.load(9)), (10, 20));
    assert_eq!((pair.b.load(2), added.read()), (35, 7));
    // A work whose threshold was reached before fires at once.
    let work = Work::counter_add(&added, 1).after(&trigger, 1);
    // SAFETY: the work names no memory, and its counter counts nothing else.
    unsafe { works.queue(work) }.expect("queued");
    assert_eq!(added.read(), 8);
    assert_eq!(works.reclaim(), 0);
}

#[test]
fn a_work_that_lacks_a_counter_is_refused() {
    let Some(pair) = pair("works without counters") else {
        return;
    };
    let (trigger, done) = (counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    let write = || Work::write(&pair.a.endpoint, pair.a.local(0, 1), pair.word(0)).expect("a work");
    // SAFETY: all of them are refused.
    unsafe {
        let refused = works.queue(write().after(&trigger, 1));
        assert!(matches!(refused, Err(QueueError::NoCompletionCounter)));
        let refused = works.queue(write().completes(&done));
        assert!(matches!(refused, Err(QueueError::NoTrigger)));
        let nothing = works.queue(Work::counter_add(&done, 0).after(&trigger, 1));
        assert!(matches!(nothing, Err(QueueError::AddsNothing)));
        let strange = counter(&pair.b);
        let refused = works.queue(write().after(&strange, 1).completes(&done));
        assert!(matches!(refused, Err(QueueError::OtherDomain)));
    }
    let stranger = Remote {
        peer: pair.b.vector.insert(&[&pair.a.name]).expect("a's address")[0],
        ..pair.to_b
    };
    let refused = Work::write(&pair.a.endpoint, pair.a.local(0, 1), stranger);
    assert!(refused.expect_err("a stranger").is_refused());
    assert!(works.pending() == 0);
}

#[test]
fn sockets_refuses_to_take_back_a_work() {
    let Some(pair) = pair("taking works back") else {
        return;
    };
    let (trigger, target) = (counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    // SAFETY: the work names no memory, and its counter counts nothing else.
    let id = unsafe { works.queue(Work::counter_add(&target, 1).after(&trigger, 1)) };
    let id = id.expect("queued");
    let error = works.cancel(id).expect_err("sockets cannot do it");
    assert!(error.is_not_supported(), "{error}");
    assert_eq!(works.pending(), 1);
    trigger.add(1).expect("fired");
    assert!(works.drain(LONG, || {}));
    assert!(works.cancel(id).expect_err("complete").is_refused());
}

#[test]
fn a_work_that_never_fired_is_leaked() {
    let Some(library) = library("works that never fire") else {
        return;
    };
    let asked = hints("sockets", Caps::RMA | Caps::ATOMIC);
    let info = info(&library, &asked).expect("a provider");
    let (mine, theirs) = (words(8), words(8));
    let a = End::open(&info, Arc::clone(&mine)).expect("an end");
    let b = End::open(&info, Arc::clone(&theirs)).expect("an end");
    let pair = Pair::of(a, b);
    let (trigger, done) = (counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    let work = Work::write(&pair.a.endpoint, pair.a.local(0, 1), pair.word(0))
        .expect("a work")
        .after(&trigger, 1)
        .completes(&done)
        .keep(Arc::new(Arc::clone(&mine)));
    // SAFETY: the work keeps the words alive.
    unsafe { works.queue(work) }.expect("queued");
    drop(works);
    // The work that the queue has leaked can still fire.
    pair.a.store(0, 6);
    trigger.add(1).expect("fired");
    assert!(comes_to(&done, 1));
    assert_eq!(pair.b.load(0), 6);
    drop(pair);
    assert_eq!(Arc::strong_count(&theirs), 1);
    assert!(Arc::strong_count(&mine) > 1, "what the work kept is there");
}

#[test]
fn thousands_of_works_complete_if_0_is_added_to_their_counter() {
    let Some(pair) = pair("many works") else {
        return;
    };
    let (trigger, done) = (counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    const MANY: u64 = 5_000;
    for _ in 0..MANY {
        let endpoint = &pair.a.endpoint;
        let work = Work::add(endpoint, 1, pair.word(0))
            .expect("a work")
            .after(&trigger, 1)
            .completes(&done);
        // SAFETY: the work names no memory of this end, and the counter counts nothing else.
        unsafe { works.queue(work) }.expect("queued");
    }
    trigger.add(1).expect("fired");
    let drained = works.drain(LONG, || trigger.add(0).expect("poked"));
    assert!(drained, "{works:?}, {} counted", done.read());
    assert_eq!(pair.b.load(0), MANY);
}

#[test]
fn a_put_that_fails_does_not_fire_its_signal() {
    let Some(pair) = pair("a put that fails") else {
        return;
    };
    let (trigger, put, signalled) = (counter(&pair.a), counter(&pair.a), counter(&pair.a));
    let works = WorkQueue::new(&pair.a.domain);
    let wrong = Remote {
        key: pair.to_b.key ^ 0x5a5a_0000,
        ..pair.to_b
    };
    let endpoint = &pair.a.endpoint;
    let data = Work::write(endpoint, pair.a.local(0, 16), wrong)
        .expect("a work")
        .flags(OpFlags::DELIVERY_COMPLETE)
        .after(&trigger, 1)
        .completes(&put);
    let signal = Work::add(endpoint, 1, pair.word(32))
        .expect("a work")
        .after(&put, 1)
        .completes(&signalled);
    // SAFETY: the words live as long as the region, which outlives the works. The test adds to a counter below, but
    // only when the put has failed, and so is over.
    unsafe {
        works.queue(data).expect("queued");
        works.queue(signal).expect("queued");
    }
    trigger.add(1).expect("fired");
    let start = std::time::Instant::now();
    let error = loop {
        match pair.a.poll() {
            Err(CqError::Completion(error)) => break error,
            other => assert_eq!(other.expect("read"), []),
        }
        assert!(start.elapsed() < LONG, "no error came");
    };
    assert!(error.code > 0, "{error}");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((put.read(), signalled.read(), pair.b.load(32)), (0, 0, 0));
    eprintln!(
        "counted failures: the put {}, the endpoint {}; {error}",
        put.read_err(),
        pair.a.written.read_err()
    );
    let left = works.reclaim();
    // The test fires the signal itself, so that no work is left.
    put.add(1).expect("fired");
    pair.until("the signal", || signalled.read() == 1);
    assert!(left >= 1);
}
