//! Tests of tickets, with a NIC that is held back.

mod ends;
mod hosted;
mod refused;
mod registers;
mod scarce;
mod slots;
mod staged;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_host::Host;
use tidegate_loopback::{Gate, Loopback, Options};

use crate::window::{
    AtomicWindow, ByRange, BySlot, Discipline, Inbox, Op, Outbox, RangeWindow, SlotWindow,
};
use crate::*;
use tidegate_hal::device::Device;

type On1<'s> = Region<u64, On<'s, Host>>;
type SlotOutbox<'s> = Outbox<'s, u64, Host, BySlot>;
/// An outbox that leads back to the source of the get, and one that never waits for a post.
type TwoOutboxes<'s> = (Outbox<'s, u64, Host, ByRange>, SlotOutbox<'s>);

const LEN: usize = 16;

/// The first slot or range of an outbox.
fn first<T: Element, K: Discipline, D: Device>(outbox: &Outbox<'_, T, D, K>) -> Out<T> {
    outbox.slots().next().expect("there is one")
}

/// Long enough for something to happen that must not.
const WHILE: Duration = Duration::from_millis(60);
/// Long enough for something to happen that must, on any machine.
const LONG: Duration = Duration::from_secs(120);

/// A job of two ranks. Rank 0 reaches all ranks by a NIC behind `gate`.
fn two<R: Send>(gate: &Gate, program: impl Fn(World<Host>) -> R + Sync) -> Vec<R> {
    gated(2, gate, Options::default(), program)
}

fn gated<R: Send>(
    n: usize,
    gate: &Gate,
    options: Options,
    program: impl Fn(World<Host>) -> R + Sync,
) -> Vec<R> {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Loopback::new(options.clone().gate(gate)))
            .route(Route::Nic),
        _ => WorldOptions::new().nic(Loopback::default()),
    };
    World::local_with(n, nic, program)
}

/// A flag that a kernel sets when it runs.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether the flag is set in good time. If that is `expected`, this waits for as long as it takes.
    fn comes(&self, expected: bool) -> bool {
        let start = Instant::now();
        let limit = if expected { LONG } else { WHILE };
        while !self.is_set() && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.is_set()
    }
}

fn overwrite(flag: &Flag) -> impl Fn(&mut [u64]) + Clone + Send + use<> {
    let flag = flag.clone();
    move |region: &mut [u64]| {
        region.fill(2);
        flag.set();
    }
}

fn put<'s>(s: &Stream<'s, Host>, src: &On1<'s>, outbox: SlotOutbox<'s>) -> SlotOutbox<'s> {
    let to = first(&outbox);
    let mut epoch = outbox.start();
    epoch.put(src, to).unwrap();
    epoch.complete(s).unwrap()
}

fn ones<'s>(s: &Stream<'s, Host>) -> On1<'s> {
    let region = Region::from_slice(s.world(), &[1; LEN]).unwrap();
    region.on(s).unwrap()
}

/// Rank 0 puts ones to rank 1 while the gate is closed. `then` enqueues work that writes the source, and sets the flag
/// when it runs. Returns whether it ran while the gate was closed, and what arrived.
fn source_is_written(
    ignore: bool,
    then: impl for<'s> Fn(&Stream<'s, Host>, On1<'s>, &Flag) + Sync,
) -> (bool, Vec<u64>) {
    let (gate, early, flag) = (Gate::closed(), Flag::default(), Flag::default());
    let came = two(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        if world.rank() == 0 {
            let mut window = SlotWindow::<u64>::new("w");
            window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            if ignore {
                let attached = world.nic().unwrap();
                attached.ignore_tickets.store(true, Ordering::Relaxed);
            }
            let src = ones(&s);
            let _outbox = put(&s, &src, outbox);
            gate.wait_held();
            std::thread::scope(|scope| {
                // The enqueueing call may block the host (`into_host`).
                scope.spawn(|| {
                    if flag.comes(ignore) {
                        early.set();
                    }
                    gate.open();
                });
                then(&s, src, &flag);
                s.synchronize().unwrap();
            });
            assert!(flag.is_set());
            Vec::new()
        } else {
            let mut window = SlotWindow::<u64>::new("w");
            let from = window.slot_from(0, 0, LEN);
            let (inbox, _outbox) = window.open(&s).unwrap();
            let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            inbox.read(&s).unwrap().slot(from).to_vec()
        }
    });
    (early.is_set(), came[1].clone())
}

/// Gives a closure its signature.
fn writer<F: for<'s> Fn(&Stream<'s, Host>, On1<'s>, &Flag) + Copy + Sync>(then: F) -> F {
    then
}

/// Gives a closure its signature.
fn reader<F: for<'s> Fn(&Stream<'s, Host>, On1<'s>, TwoOutboxes<'s>, &Flag) + Sync>(then: F) -> F {
    then
}

#[test]
fn writing_a_source_waits_for_the_nic() {
    let kernel = writer(|s, mut src, flag| {
        s.launch(overwrite(flag), &mut src).unwrap();
    });
    assert_eq!(source_is_written(false, kernel), (false, vec![1; LEN]));
    // The test must detect the mutant that ignores tickets.
    assert_eq!(source_is_written(true, kernel), (true, vec![2; LEN]));
}

#[test]
fn so_does_writing_a_part_of_it() {
    let halves = writer(|s, src, flag| {
        let (_low, mut high) = src.split_at(LEN / 2).unwrap();
        s.launch(overwrite(flag), &mut high).unwrap();
    });
    assert_eq!(source_is_written(false, halves), (false, vec![1; LEN]));
    let parts = writer(|s, src, flag| {
        let set = |range: Range<usize>| IndexSet::from_ranges([range]).unwrap();
        let [_low, mut high] = src.partition([set(0..3), set(3..LEN)]).unwrap();
        let flag = flag.clone();
        let kernel = move |mut part: CellsMut<'_, u64>| {
            (3..LEN).for_each(|index| part.set(index, 2));
            flag.set();
        };
        s.launch(kernel, &mut high).unwrap();
    });
    assert_eq!(source_is_written(false, parts), (false, vec![1; LEN]));
}

#[test]
fn what_is_put_together_has_the_tickets_of_all_parts() {
    let gate = Gate::opened();
    gated(1, &gate, Options::default(), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        window.slot_from(0, 0, LEN);
        window.slot_to(0, 0);
        let (inbox, mut outbox) = window.open(&s).unwrap();
        let _exposed = inbox.post(&s).unwrap();
        let (low, high) = ones(&s).split_at(LEN / 2).unwrap();
        outbox = put(&s, &high, outbox);
        assert!(low.body.outstanding().is_none());
        let mut whole = low.join(high).unwrap();
        assert!(whole.body.outstanding().is_some());
        s.launch(overwrite(&Flag::default()), &mut whole).unwrap();
        assert!(whole.body.outstanding().is_none());

        let set = |range: Range<usize>| IndexSet::from_ranges([range]).unwrap();
        let [low, high] = whole.partition([set(0..3), set(3..LEN)]).unwrap();
        let surface = Layout::strided(3, &[(4, 1)]).unwrap();
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(high.with(&surface).unwrap(), to).unwrap();
        let _outbox = epoch.complete(&s).unwrap();
        let whole = Region::reunite([low, high]).unwrap();
        assert!(whole.body.outstanding().is_some());
    });
}

#[test]
fn so_does_giving_it_away() {
    let to_a_stream = writer(|s, src, flag| {
        crate::stream!(let t = s.world().stream().unwrap());
        let mut src = s.hand_off(src, &t).unwrap();
        t.launch(overwrite(flag), &mut src).unwrap();
        t.synchronize().unwrap();
    });
    assert_eq!(source_is_written(false, to_a_stream), (false, vec![1; LEN]));
    let to_the_host = writer(|s, src, flag| {
        let mut src = src.into_host(s).unwrap();
        src.fill(2);
        flag.set();
    });
    assert_eq!(source_is_written(false, to_the_host), (false, vec![1; LEN]));
    let to_a_recording = writer(|s, src, flag| {
        crate::stream!(let t = s.world().stream().unwrap());
        let src = s.hand_off(src, &t).unwrap();
        let flag = flag.clone();
        let (graph, src) = t
            .capture(src, move |t, mut src| {
                t.launch(overwrite(&flag), &mut src)?;
                Ok(src)
            })
            .unwrap();
        drop(graph.replay(&t, src, 2).unwrap());
        t.synchronize().unwrap();
    });
    assert_eq!(
        source_is_written(false, to_a_recording),
        (false, vec![1; LEN])
    );
}

#[test]
fn reading_a_source_does_not_wait() {
    let reads_first = writer(|s, mut src, flag| {
        let seen = Flag::default();
        let read = seen.clone();
        s.launch(move |_: &[u64]| read.set(), &src).unwrap();
        s.synchronize().unwrap();
        assert!(seen.is_set() && !flag.is_set());
        s.launch(overwrite(flag), &mut src).unwrap();
    });
    assert_eq!(source_is_written(false, reads_first), (false, vec![1; LEN]));
}

#[test]
fn a_source_that_is_dropped_or_forgotten_lives_until_it_was_read() {
    for forget in [false, true] {
        let then = writer(move |s, src, flag| {
            if forget {
                std::mem::forget(src);
            } else {
                drop(src);
            }
            s.synchronize().unwrap();
            // Memory that was freed would be used again here.
            let others: Vec<_> = (0..8)
                .map(|_| Region::from_slice(s.world(), &[9u64; LEN]).unwrap())
                .collect();
            std::thread::sleep(WHILE / 2);
            drop(others);
            flag.set();
        });
        let (_, came) = source_is_written(false, then);
        assert_eq!(came, [1; LEN]);
    }
}

/// Rank 0 gets rank 1's memory (threes) while the gate is closed. `then` enqueues work that reads the result, and sets
/// the flag. Returns whether it ran while the gate was closed.
fn destination_is_used(
    then: impl for<'s> Fn(&Stream<'s, Host>, On1<'s>, TwoOutboxes<'s>, &Flag) + Sync,
) -> bool {
    let (gate, early, flag) = (Gate::closed(), Flag::default(), Flag::default());
    two(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        if world.rank() == 0 {
            let mut window = RangeWindow::<u64>::new("g", 0);
            window.range_to(1, 0..LEN);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let mut window = SlotWindow::<u64>::new("w");
            window.slot_to(1, 0);
            let (_inbox, other) = window.open(&s).unwrap();
            let mut dst = ones(&s);
            let to = first(&outbox);
            let mut epoch = outbox.start();
            epoch.get(&mut dst, to).unwrap();
            let outbox = epoch.complete(&s).unwrap();
            gate.wait_held();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if flag.comes(false) {
                        early.set();
                    }
                    gate.open();
                });
                then(&s, dst, (outbox, other), &flag);
                s.synchronize().unwrap();
            });
        } else {
            let window = RangeWindow::<u64>::new("g", LEN);
            let (mut inbox, _outbox) = window.open(&s).unwrap();
            let mut window = SlotWindow::<u64>::new("w");
            window.slot_from(0, 0, LEN);
            let _halves = window.open(&s).unwrap();
            inbox.host_mut(&s).unwrap().fill(3);
            // The second exposure is for the cases that go on.
            let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            assert_eq!(inbox.host_mut(&s).unwrap(), [3; LEN]);
        }
    });
    assert!(flag.is_set());
    early.is_set()
}

fn pass<'s>(s: &Stream<'s, Host>, outboxes: TwoOutboxes<'s>) {
    drop(outboxes.0.start().complete(s).unwrap());
}

#[test]
fn a_destination_is_kept_from_readers_and_writers() {
    let read = reader(|s, dst, outboxes, flag| {
        let flag = flag.clone();
        let kernel = move |dst: &[u64]| {
            assert_eq!(dst, [3; LEN]);
            flag.set();
        };
        s.launch(kernel, &dst).unwrap();
        pass(s, outboxes);
    });
    assert!(!destination_is_used(read));
    let write = reader(|s, mut dst, outboxes, flag| {
        s.launch(overwrite(flag), &mut dst).unwrap();
        let dst = dst.into_host(s).unwrap();
        assert_eq!(dst[..], [2; LEN]);
        pass(s, outboxes);
    });
    assert!(!destination_is_used(write));
    let put_on = reader(|s, dst, outboxes, flag| {
        // The source of this get has not come yet. So everything behind this epoch on the stream waits, too.
        let _outbox = put(s, &dst, outboxes.1);
        let mut other = ones(s);
        s.launch(overwrite(flag), &mut other).unwrap();
        drop(outboxes.0.start().complete(s).unwrap());
    });
    assert!(!destination_is_used(put_on));
    let to_the_host = reader(|s, dst, outboxes, flag| {
        let dst = dst.into_host(s).unwrap();
        assert_eq!(dst[..], [3; LEN]);
        flag.set();
        pass(s, outboxes);
    });
    assert!(!destination_is_used(to_the_host));
}

#[test]
fn atomics_by_the_nic_and_by_mapped_origins_are_atomic_to_each_other() {
    const ROUNDS: u64 = 50;
    let sums = gated(3, &Gate::opened(), Options::default(), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = AtomicWindow::<u64>::new("a", LEN);
        let at = window.target(2);
        let (mut inbox, mut outbox): (Inbox<'_, _, Host, _>, _) = window.open(&s).unwrap();
        let (one, mut old) = (ones(&s), ones(&s));
        for _ in 0..ROUNDS {
            let mut epoch = outbox.start();
            epoch.fetch_and_op(&one, &mut old, at, Op::Sum).unwrap();
            if world.rank() == 2 {
                let exposed = inbox.post(&s).unwrap();
                outbox = epoch.complete(&s).unwrap();
                inbox = exposed.wait(&s).unwrap();
            } else {
                outbox = epoch.complete(&s).unwrap();
            }
            let below = |old: &[u64]| assert!(old.iter().all(|x| *x < 3 * ROUNDS));
            s.launch(below, &old).unwrap();
        }
        s.synchronize().unwrap();
        inbox.host_mut(&s).unwrap().to_vec()
    });
    assert_eq!(sums[2], [3 * ROUNDS; LEN]);
}

/// Steps that add one to the source and put it, eager and replayed, each while the gate is closed.
#[test]
fn recordings_wait_for_what_was_before_and_for_themselves() {
    let (gate, count) = (Gate::closed(), Arc::new(AtomicU64::new(0)));
    let came = two(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("r");
        if world.rank() == 0 {
            window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let counting = count.clone();
            let step = move |src: &mut [u64]| {
                src.iter_mut().for_each(|x| *x += 1);
                counting.fetch_add(1, Ordering::SeqCst);
            };
            let stays_at = |so_many: u64| {
                gate.wait_held();
                std::thread::sleep(WHILE);
                assert_eq!(count.load(Ordering::SeqCst), so_many);
            };
            // The reads of an eager step have not ended when a capture begins, which executes nothing ...
            let src = ones(&s);
            let outbox = put(&s, &src, outbox);
            let recorded = step.clone();
            let (graph, held) = s
                .capture((src, outbox), move |s, (mut src, outbox)| {
                    s.launch(recorded, &mut src)?;
                    let to = first(&outbox);
                    let mut epoch = outbox.start();
                    epoch.put(&src, to)?;
                    let outbox = epoch.complete(s)?;
                    Ok((src, outbox))
                })
                .unwrap();
            let (mut src, outbox) = held;
            s.launch(step, &mut src).unwrap();
            stays_at(0);
            gate.open();
            s.synchronize().unwrap();
            // ... or when a replay begins ...
            gate.close();
            let outbox = put(&s, &src, outbox);
            let held = graph.replay(&s, (src, outbox), 1).unwrap();
            stays_at(1);
            gate.open();
            s.synchronize().unwrap();
            // ... and those of each replay have not ended when the next one begins.
            gate.close();
            let (src, _outbox) = graph.replay(&s, held, 3).unwrap();
            stays_at(3);
            gate.open();
            assert_eq!(src.into_host(&s).unwrap()[..], [6; LEN]);
            Vec::new()
        } else {
            let from = window.slot_from(0, 0, LEN);
            let mut inbox = window.open(&s).unwrap().0;
            let mut came = Vec::new();
            for _ in 0..6 {
                inbox = inbox.expose(&s).unwrap();
                came.push(inbox.read(&s).unwrap().slot(from)[LEN - 1]);
            }
            came
        }
    });
    assert_eq!(came[1], [1, 2, 3, 4, 5, 6]);
}

/// A NIC has sent from a region, and the window is gone. Then the memory belongs to the region alone again.
#[test]
fn a_block_comes_back_when_no_nic_sends_from_it_any_more() {
    let gate = Gate::closed();
    gate.open();
    two(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        if world.rank() == 1 {
            window.slot_from(0, 0, LEN);
            let (inbox, _outbox) = window.open(&s).unwrap();
            inbox.expose(&s).map(drop).unwrap();
            return s.synchronize().unwrap();
        }
        window.slot_to(1, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let src = ones(&s);
        drop((inbox, put(&s, &src, outbox)));
        let mut src = src.into_host(&s).unwrap();
        let begun = Instant::now();
        // The NIC drops its queue when it has finished.
        while let Err(refused) = src.try_into_block() {
            assert!(begun.elapsed() < LONG, "{}", refused.error);
            src = refused.value;
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
