//! How operations that last too long come to an end, and what becomes of operations towards a peer that has left.

#[path = "rig/parting.rs"]
mod parting;
mod rig;
#[path = "rig/watched.rs"]
mod watched;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SIGNAL, until};
use tidegate_fabric::Options;
use tidegate_fabric::wire::{Event, Op, Posted, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::Direction;

const LONG: Duration = Duration::from_secs(600);

/// What a wire does wrong, and what it has done.
#[derive(Default)]
struct Wish {
    /// How many posts are refused from now on.
    fulls: AtomicUsize,
    /// How many posts were refused so, and how many were taken.
    refused: AtomicUsize,
    taken: AtomicUsize,
    /// The last poll before a refusal takes so many milliseconds, as if the process were stopped.
    stops: AtomicUsize,
    /// No events come.
    hold: AtomicBool,
    /// Reads never end.
    mute: AtomicBool,
    /// Operations that are done are reported as failed.
    fail: AtomicBool,
    /// The next poll panics, by a thread of the NIC, or (below) by the thread of the test.
    panic: AtomicBool,
    panic_here: AtomicBool,
    held: Mutex<Vec<Event>>,
}

struct Odd(Arc<Wish>, ThreadId);

// SAFETY: operations are those of the wire, or are not taken, or touch nothing.
unsafe impl Hooks for Odd {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        let left = self.0.fulls.load(Ordering::SeqCst);
        if left > 0 {
            self.0.fulls.store(left - 1, Ordering::SeqCst);
            self.0.refused.fetch_add(1, Ordering::SeqCst);
            return Ok(Posted::Full);
        }
        if matches!(op, Op::Read { .. }) && self.0.mute.load(Ordering::SeqCst) {
            return Ok(Posted::Taken);
        }
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
        if matches!(posted, Ok(Posted::Taken)) {
            self.0.taken.fetch_add(1, Ordering::SeqCst);
        }
        posted
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        // The thread of the test may turn the engine, too, when it rings.
        let is_test = std::thread::current().id() == self.1;
        let panics = match is_test {
            true => &self.0.panic_here,
            false => &self.0.panic,
        };
        assert!(!panics.swap(false, Ordering::SeqCst), "as was wished");
        if self.0.fulls.load(Ordering::SeqCst) == 1 {
            let stop = self.0.stops.swap(0, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(stop as u64));
        }
        let mut held = self.0.held.lock().unwrap();
        wire.poll(&mut held)?;
        if !self.0.hold.load(Ordering::SeqCst) {
            let fail = self.0.fail.load(Ordering::SeqCst);
            events.extend(held.drain(..).map(|event| match event {
                Event::Done(cookie) if fail => {
                    Event::Failed(cookie, "the connection has ended".into())
                }
                other => other,
            }));
        }
        Ok(())
    }
}

fn odd(options: Options) -> (Rig, Arc<Wish>) {
    let wish = Arc::new(Wish::default());
    let wire = Net::new(1, Faults::default()).wire(0);
    let hooks = Odd(wish.clone(), std::thread::current().id());
    (Rig::new(Wrapped { hooks, wire }, options, false), wish)
}

/// Waits until core hears that the wire has failed; returns whether it has.
fn fails_within(rig: &Rig, limit: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit && !rig.has_failed.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.has_failed.load(Ordering::SeqCst)
}

/// Waits until the wire has taken, or refused, so many operations.
fn await_posts(posts: &AtomicUsize, count: usize) {
    until("nothing is posted", || {
        posts.load(Ordering::SeqCst) >= count
    });
}

/// Between two refusals the process was stopped, so nobody has tried again in this time.
#[test]
fn time_in_which_a_process_is_stopped_is_no_refusal() {
    let (rig, wish) = odd(Options::default().silence(Duration::from_secs(1)));
    wish.stops.store(1500, Ordering::SeqCst);
    wish.fulls.store(2, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
}

/// The silence has no limit, and the first answer of a peer takes a while.
#[test]
fn silence_may_last_for_ever() {
    let (rig, wish) = odd(Options::default().silence(Duration::MAX));
    wish.hold.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 2).unwrap();
    rig.ring();
    std::thread::sleep(Duration::from_millis(100));
    wish.hold.store(false, Ordering::SeqCst);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
}

/// An endpoint whose peer has answered. The peer is given up soon if it answers no more.
fn met() -> (Rig, Arc<Wish>) {
    let silence = Duration::from_millis(250);
    let (rig, wish) = odd(Options::default().silence(silence));
    rig.may_fail.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 2).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    (rig, wish)
}

/// The data network is cut, and the control plane uses another one, so no peer is lost. The peer has answered before.
/// No operation fails: a provider may try for a quarter of an hour, or for ever.
#[test]
fn a_network_that_is_cut_ends_waits() {
    let (rig, wish) = met();
    wish.hold.store(true, Ordering::SeqCst);
    rig.ring();
    assert!(
        fails_within(&rig, LONG),
        "nothing has come, and nothing was said"
    );
}

/// The same holds if writes still go out, but reads never end.
#[test]
fn a_network_that_is_cut_one_way_ends_waits() {
    let (rig, wish) = met();
    wish.mute.store(true, Ordering::SeqCst);
    rig.ring();
    // The firing is through at this end. At the next tick but one, the engine asks whether the signal has come.
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(
        fails_within(&rig, LONG),
        "nothing was answered, and nothing was said"
    );
}

/// No operation of this end stands for a firing of hardware, and yet the wait for it must end.
#[test]
fn a_network_that_is_cut_ends_firings_of_hardware() {
    let silence = Duration::from_millis(250);
    let (rig, wish) = parting::odd_with(Options::default().silence(silence), &[0]);
    rig.may_fail.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 2).unwrap();
    wish.through.store(1, Ordering::SeqCst);
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    // While nothing is under way, the wire never fails.
    assert!(!fails_within(&rig, silence * 4));
    rig.ring();
    assert!(
        fails_within(&rig, LONG),
        "nothing has come, and nothing was said"
    );
}

/// A stream rings again and again, and its peer answers late each time. Nothing is reported.
#[test]
fn an_answer_ends_the_silence() {
    let silence = Duration::from_millis(1500);
    let (rig, wish) = odd(Options::default().silence(silence));
    rig.arm(&[rig.put(1)], 8).unwrap();
    for firing in 1..=8 {
        wish.hold.store(true, Ordering::SeqCst);
        rig.ring();
        std::thread::sleep(silence * 2 / 5);
        wish.hold.store(false, Ordering::SeqCst);
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
    }
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// After `Nic::hear`, this rank's own firings towards the peer are over. The peer's connection ends before the
/// acknowledgement of the data has come back.
#[test]
fn firings_towards_a_peer_that_has_left_are_over() {
    let (rig, wish) = odd(Options::default());
    wish.hold.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 3).unwrap();
    rig.ring();
    await_posts(&wish.taken, 1);
    rig.leaves(0);
    wish.fail.store(true, Ordering::SeqCst);
    wish.hold.store(false, Ordering::SeqCst);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    // Data that has gone out arrives, even if later.
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    // Firings that are rung for later are over, too, and send nothing.
    rig.ring();
    rig.ring();
    assert_eq!(rig.wait(SENT, 3), 3 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
}

/// The wire takes no more operations towards the peer. Nobody waits for that, not even this rank when it leaves.
#[test]
fn a_rank_that_leaves_does_not_wait_for_firings_towards_a_peer_that_has_left() {
    // Long enough that the wait does not end by silence.
    let (rig, wish) = odd(Options::default().silence(6 * LONG));
    wish.fulls.store(usize::MAX, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
    await_posts(&wish.refused, 1);
    rig.leaves(0);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(SENT).load(), QUANTUM);
}

/// Only the peer could have brought the data.
#[test]
fn a_get_from_a_peer_that_has_left_is_no_success() {
    let (rig, wish) = odd(Options::default());
    wish.hold.store(true, Ordering::SeqCst);
    let get = rig.transfer(&rig.memory, Direction::Get, 1);
    rig.arm(&[rig.program(vec![get])], 1).unwrap();
    rig.ring();
    await_posts(&wish.taken, 1);
    rig.leaves(0);
    wish.fail.store(true, Ordering::SeqCst);
    wish.hold.store(false, Ordering::SeqCst);
    assert_ne!(rig.wait(SENT, 1) & POISON, 0);
}

/// When it is known that the peer has left, a get is not sent: nobody would answer it.
#[test]
fn a_get_is_not_sent_to_a_peer_that_has_left() {
    let (rig, wish) = odd(Options::default());
    let get = |to| rig.transfer(&rig.memory, Direction::Get, to);
    let put = rig.transfer(&rig.memory, Direction::Put, 3);
    let both = rig.program(vec![get(2), put]);
    rig.arm(&[rig.put(1), rig.program(vec![get(1)]), both], 1)
        .unwrap();
    rig.leaves(0);
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.taken.load(Ordering::SeqCst), 0);
}

/// A get that was sent before the departure succeeds if its data comes. Only its signal is not sent, and nobody waits
/// for that.
#[test]
fn a_get_that_comes_when_its_peer_has_left_is_a_success() {
    for (fails, with_put) in [(false, false), (false, true), (true, false), (true, true)] {
        let (rig, wish) = odd(Options::default());
        rig.write(0, 7);
        wish.hold.store(true, Ordering::SeqCst);
        let mut transfers = vec![rig.transfer(&rig.memory, Direction::Get, 1)];
        let put = rig.transfer(&rig.memory, Direction::Put, 2);
        transfers.extend(with_put.then_some(put));
        rig.arm(&[rig.program(transfers), rig.put(3)], 1).unwrap();
        rig.ring();
        await_posts(&wish.taken, 1);
        rig.leaves(0);
        wish.fail.store(fails, Ordering::SeqCst);
        wish.hold.store(false, Ordering::SeqCst);
        let sent = rig.wait(SENT, 1);
        assert!(rig.nic.quiesce(LONG));
        assert_eq!(wish.taken.load(Ordering::SeqCst), 1, "more went out");
        if fails {
            assert_eq!(sent, POISON);
            continue;
        }
        assert_eq!((sent, rig.read(1)), (QUANTUM, 7));
        rig.ring();
        assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
        assert_eq!((rig.word(SIGNAL).load(), rig.read(2)), (0, 0));
    }
}

#[test]
fn a_thread_of_the_nic_that_panics_is_a_wire_that_has_failed() {
    let (rig, wish) = odd(Options::default());
    rig.may_fail.store(true, Ordering::SeqCst);
    wish.panic.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
    assert!(fails_within(&rig, LONG), "nobody has heard of it");
}

/// The stream may have taken events from the wire that other streams wait for, and those are lost.
#[test]
fn a_stream_that_panics_over_the_engine_is_a_wire_that_has_failed() {
    let (rig, wish) = odd(Options::default());
    rig.may_fail.store(true, Ordering::SeqCst);
    let helper = rig.nic.helper().unwrap();
    wish.panic_here.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    // Another thread may be turning the engine.
    while wish.panic_here.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < LONG, "it is never this thread's turn");
        let looks = std::panic::AssertUnwindSafe(|| helper.waiting());
        let panicked = std::panic::catch_unwind(looks).is_err();
        assert_eq!(panicked, !wish.panic_here.load(Ordering::SeqCst));
    }
    assert!(fails_within(&rig, LONG), "nobody has heard of it");
}

/// A thread of the NIC hears of the failure, and its panic alone would fail no test.
#[test]
fn a_wire_that_fails_although_it_may_not_fails_its_test() {
    let outcome = std::panic::catch_unwind(|| {
        let net = Net::new(1, Faults::default());
        let rig = Rig::new(net.wire(0), Options::default(), false);
        rig.arm(&[rig.put(1)], 1).unwrap();
        rig.ring();
        rig.wait(SIGNAL, 1);
        net.break_wire(0);
        assert!(fails_within(&rig, LONG));
    });
    let why = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(why.contains("may not"), "{why}");
}

/// If as many firings are through as were armed, and *sent* is not poisoned, core concludes that all of them have
/// succeeded.
#[test]
fn a_queue_that_gives_up_is_never_taken_for_one_that_is_through() {
    const TRIES: usize = 300;
    let wire = Net::new(1, Faults::default()).wire(0);
    let (wire, seen) = watched::watch(wire);
    let rig = Rig::sized(wire, Options::default(), (false, false), 1 << 20);
    seen.fails_writes.store(true, Ordering::SeqCst);
    for number in 0..TRIES {
        let beside = rig.beside();
        let put = rig.transfer(&rig.memory, Direction::Put, 1);
        // The queue has a signal of its own.
        let program = rig.program_of(65536 + 64 * number, vec![put]).unwrap();
        beside.fires(&rig, program);
        let sent = loop {
            let (armed, through) = beside.queue.counts();
            let sent = beside.sent();
            if armed == through {
                break sent;
            }
        };
        assert_ne!(sent & POISON, 0, "try {number}: its write has failed");
    }
}
