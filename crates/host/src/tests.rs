//! Failures of parts that should never fail.

mod panics;

use std::cell::Cell;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Move, Op, POISON, QUANTUM, Scalar, Side, Step, Tag, Wait,
};
use tidegate_hal::device::{
    Device, DeviceError, Fault, Issues, Priority, Reclaim, Stream, StreamConfig,
};
use tidegate_hal::far::{Bus, BusError, Piece, Reached, Span, Update};
use tidegate_hal::memory::{Block, Ptr, Sharing};
use tidegate_words::{Bell, Word};

use crate::{Host, HostBlock, HostGraph, HostStream};

/// A bus that fails when it is told to, and panics when it is to move anything.
#[derive(Default)]
struct Fails(OnceLock<BusError>);

/// Where its far addresses begin. Nothing is mapped there.
const FAR: usize = 1 << 40;

// SAFETY: it has no memory, and reaches none.
unsafe impl Bus for Fails {
    fn name(&self) -> &'static str {
        "a bus that fails"
    }

    fn alloc(&self, _: usize) -> Result<Span, DeviceError> {
        unreachable!()
    }

    fn reach(&self, _: &[u8], _: usize) -> Result<Reached, DeviceError> {
        unreachable!()
    }

    fn far(&self) -> Range<usize> {
        FAR..2 * FAR
    }

    fn name_of(&self, _: Ptr) -> Result<Option<Ptr>, BusError> {
        unreachable!()
    }

    fn refuses(&self, _: Option<Op>, _: Scalar) -> Option<String> {
        None
    }

    fn failure(&self) -> Option<BusError> {
        self.0.get().cloned()
    }

    unsafe fn put(&self, _: &[Piece]) -> Result<(), BusError> {
        panic!("on purpose")
    }

    unsafe fn get(&self, _: &[Piece]) -> Result<(), BusError> {
        unreachable!()
    }

    unsafe fn update(
        &self,
        _: Update,
        _: Scalar,
        _: Ptr,
        _: Ptr,
        _: usize,
    ) -> Result<(), BusError> {
        unreachable!()
    }

    unsafe fn signal(&self, _: Ptr, _: u64) -> Result<(), BusError> {
        unreachable!()
    }

    unsafe fn poison(&self, _: Ptr) -> bool {
        unreachable!()
    }

    unsafe fn look(&self, _: Ptr) {}

    fn turn(&self) -> bool {
        false
    }
}

/// Whether there is memory at this address.
fn is_mapped(at: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
    maps.lines().any(|line| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).expect("a hexadecimal number");
        range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&at))
    })
}

/// A far address of a bus is a name, and no kernel may store there.
#[test]
fn kernels_do_not_reach_far_addresses() {
    let at = |address| Ptr(std::ptr::without_provenance_mut(address));
    let far = [FAR, FAR + 64, 2 * FAR - 8].map(at);
    let near = [64, FAR - 8, 2 * FAR].map(at);
    let over = Host::over(Arc::new(Fails::default()));
    assert!(far.iter().all(|memory| !over.reaches(*memory)));
    assert!(near.iter().all(|memory| over.reaches(*memory)));
    let alone = Host::for_threads();
    assert!(far.iter().all(|memory| alone.reaches(*memory)));
}

#[test]
#[cfg_attr(miri, ignore = "there is no /proc")]
fn memory_that_a_failed_bus_may_read_is_given_up() {
    let bus = Arc::new(Fails::default());
    // So large that the allocator returns it to the system at once.
    let device = Host::over(bus.clone());
    let block = || device.alloc(1 << 26, Sharing::Private).unwrap();
    let place = |block: &HostBlock| block.base().0.addr() + (1 << 25);
    let is_given_back = |block| {
        let at = place(&block);
        drop(block);
        !is_mapped(at)
    };
    // A thread of another test may map something there meanwhile, but not each time.
    assert!(
        (0..10).any(|_| is_given_back(block())),
        "nothing is under way"
    );
    let after = block();
    let error = BusError {
        bus: "a bus that fails",
        detail: "it was told to".into(),
    };
    bus.0.set(error).unwrap();
    assert!(!is_given_back(after), "nobody knows what is under way");
}

#[test]
fn memory_of_one_bus_is_not_for_streams_of_another() {
    let bus: Arc<dyn Bus> = Arc::new(Fails::default());
    let (one, again) = (Host::over(bus.clone()), Host::over(bus));
    let (other, none) = (
        Host::over(Arc::new(Fails::default())),
        Host::for_processes(),
    );
    assert!(one.same(&again) && one.same(&one.clone()) && none.same(&Host::for_threads()));
    assert!(!one.same(&other) && !one.same(&none) && !none.same(&one));
}

/// A stream of a device, with a bell of its own.
fn stream(device: &Host, inline: bool) -> HostStream {
    stream_of(device, inline, Arc::new(Bell::new()))
}

fn stream_of(device: &Host, inline: bool, bell: Arc<Bell>) -> HostStream {
    let config = StreamConfig {
        name: "stream".into(),
        bell: Ptr(Arc::as_ptr(&bell).cast_mut().cast()),
        keep: bell,
        inline,
        ranks_on_node: 1,
        priority: Priority::Normal,
        helper: None,
        stamped: false,
    };
    // SAFETY: the bell is kept by the configuration.
    unsafe { device.stream(config) }.unwrap()
}

fn pointer<T>(to: &T) -> Ptr {
    Ptr(std::ptr::from_ref(to).cast_mut().cast())
}

/// A put that panics, and after it the signal for a peer.
fn put_and_signal(source: &u64, word: &Word, bell: &Bell) -> Arc<Batch> {
    let put = Move {
        action: Action::Copy,
        size: 8,
        count: 1,
        src: Side::linear(pointer(source)),
        dst: Side::linear(Ptr(std::ptr::without_provenance_mut(FAR))),
        parity: Ptr::NULL,
        early: true,
        landing: None,
        buffers: 2,
    };
    let signal = Add {
        tag: None,
        word: pointer(word),
        value: QUANTUM,
        bell: pointer(bell),
        turn: None,
    };
    let lane = vec![Step::Move(put), Step::Flush, Step::Add(signal)];
    // SAFETY: the test waits until the stream has passed it; the far address is the bus's, which never uses it.
    Arc::new(unsafe { Batch::new([lane], Vec::new()) })
}

/// A batch that is done is let go of soon, even if the next one was always there, and each had to wait.
#[test]
fn batches_that_have_waited_are_let_go_of() {
    let (word, operand, bell) = (Word::new(0), Word::new(0), Arc::new(Bell::new()));
    let s = stream_of(&Host::for_threads(), false, bell.clone());
    let batch = |_| {
        let wait = Wait {
            word: pointer(&word),
            operand: pointer(&operand),
            quantum: QUANTUM,
            tag: Tag {
                window: None,
                peer: 1,
                awaited: Awaited::Completion,
            },
            landed: None,
            ring: None,
        };
        // SAFETY: the test waits until the stream has passed it.
        Arc::new(unsafe { Batch::new([vec![Step::Wait(wait)]], Vec::new()) })
    };
    let batches: Vec<_> = (0..40).map(batch).collect();
    for batch in &batches {
        // SAFETY: the promises of the batch hold.
        unsafe { s.submit(batch, Location::caller()) }.unwrap();
    }
    let signal = || {
        word.add(QUANTUM);
        bell.ring();
    };
    for done in 1..batches.len() as u64 {
        signal();
        // The next batch waits when this one counts as passed.
        while s.reclaim().passed() < done {
            std::thread::yield_now();
        }
    }
    let holders = Arc::strong_count(&batches[0]);
    signal();
    s.synchronize().unwrap().unwrap();
    assert_eq!(holders, 1, "the stream keeps the first batch");
}

/// No repetition is counted, so that none of them takes time.
#[test]
fn a_replay_of_nothing_ends_at_once() {
    let s = stream(&Host::for_threads(), false);
    s.begin_capture(&[]).unwrap();
    let graph = Arc::new(s.end_capture(&[]).unwrap());
    // SAFETY: nothing was recorded.
    unsafe { s.replay(&[], &graph, u64::MAX) }.unwrap();
    s.synchronize().unwrap().unwrap();
}

/// A replay is one item, but a thread that waits for it sees that it makes progress.
#[test]
fn a_stream_goes_on_with_each_step_of_a_replay() {
    let s = stream(&Host::for_threads(), false);
    s.begin_capture(&[]).unwrap();
    for _ in 0..2 {
        // SAFETY: the kernel touches nothing.
        unsafe { s.launch::<(), _>(|_| ()) }.unwrap();
    }
    let graph = Arc::new(s.end_capture(&[]).unwrap());
    let before = s.reclaim().progress();
    // SAFETY: as above.
    unsafe { s.replay(&[], &graph, 100) }.unwrap();
    s.synchronize().unwrap().unwrap();
    assert!(s.reclaim().progress() >= before + 200);
}

/// The number of repetitions of a replay that would never end.
const EVER: u64 = u64::MAX;

/// A kernel that counts its calls, and panics in one of them, counted from 1.
fn counting(
    calls: &Arc<AtomicU64>,
    fails_in: Option<u64>,
) -> impl Fn(&dyn Issues) + Send + 'static {
    let calls = calls.clone();
    move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        assert_ne!(Some(call), fails_in, "on purpose");
    }
}

/// A recording of two streams. Each counts, the second after the first. If they `join`, the first also waits for the
/// second.
struct Pair {
    streams: [HostStream; 2],
    graph: Arc<HostGraph>,
    calls: [Arc<AtomicU64>; 2],
}

impl Pair {
    /// `fails_in` is the call of its kernel in which each stream fails, if it does.
    fn record(inline: [bool; 2], join: bool, fails_in: [Option<u64>; 2]) -> Self {
        let device = Host::for_threads();
        let streams = inline.map(|inline| stream(&device, inline));
        let calls = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let [s, t] = &streams;
        s.begin_capture(&[t]).unwrap();
        // SAFETY: the kernels touch nothing but what they own.
        unsafe { s.launch::<(), _>(counting(&calls[0], fails_in[0])) }.unwrap();
        t.wait_event(&s.record().unwrap()).unwrap();
        // SAFETY: as above.
        unsafe { t.launch::<(), _>(counting(&calls[1], fails_in[1])) }.unwrap();
        if join {
            s.wait_event(&t.record().unwrap()).unwrap();
        }
        let graph = Arc::new(s.end_capture(&[t]).unwrap());
        Pair {
            streams,
            graph,
            calls,
        }
    }

    /// For each stream: whether it failed, and how often its kernel was called by then.
    fn replay(&self, times: u64) -> [(bool, u64); 2] {
        let [s, t] = &self.streams;
        // SAFETY: the kernels touch nothing but what they own.
        unsafe { s.replay(&[t], &self.graph, times) }.unwrap();
        // Wait for the second stream first: this shows whether it was ordered after the first.
        let end = |which: usize| {
            let healthy = self.streams[which].synchronize().unwrap().is_ok();
            let calls = self.calls.each_ref();
            (healthy, calls.map(|calls| calls.load(Ordering::Relaxed)))
        };
        let (second, seen) = end(1);
        let (first, calls) = end(0);
        assert_eq!(seen[1], calls[1], "the second stream's work was over");
        if !second && first {
            assert_eq!(
                seen[0], times,
                "the second stream did not wait for the first"
            );
        }
        [(first, calls[0]), (second, calls[1])]
    }
}

#[test]
fn a_replay_on_a_stream_that_has_failed_comes_to_its_end() {
    let device = Host::for_threads();
    for inline in [false, true] {
        let s = stream(&device, inline);
        let (word, bell, calls) = (Word::new(0), Bell::new(), Arc::<AtomicU64>::default());
        let add = Add {
            tag: None,
            word: pointer(&word),
            value: QUANTUM,
            bell: pointer(&bell),
            turn: None,
        };
        // SAFETY: the test waits until the stream has passed it.
        let signal = Arc::new(unsafe { Batch::new([vec![Step::Add(add)]], Vec::new()) });
        s.begin_capture(&[]).unwrap();
        // SAFETY: the promises of the batch hold; the kernel touches nothing but what it owns.
        unsafe {
            s.submit(&signal, Location::caller()).unwrap();
            s.launch::<(), _>(counting(&calls, Some(3))).unwrap();
        }
        let graph = Arc::new(s.end_capture(&[]).unwrap());
        // The second time, the stream has already failed.
        for _ in 0..2 {
            // SAFETY: as above.
            unsafe { s.replay(&[], &graph, EVER) }.unwrap();
            let fault = s.synchronize().unwrap().unwrap_err();
            assert!(matches!(fault, Fault::Kernel(_)), "{fault:?}");
            assert_eq!(calls.load(Ordering::Relaxed), 3);
            // Three signals, and the poison instead of the others.
            assert_eq!(word.load(), POISON | (3 * QUANTUM));
        }
    }
}

#[test]
fn of_two_streams_neither_waits_for_one_that_has_failed() {
    for inline in [[false; 2], [true, false], [false, true]] {
        for (fails_in, calls) in [
            ([Some(3), None], [3, 2]),
            ([None, Some(3)], [3, 3]),
            ([Some(3), Some(2)], [2, 2]),
        ] {
            let pair = Pair::record(inline, true, fails_in);
            // The second time, the streams have already failed.
            for _ in 0..2 {
                let ends = pair.replay(EVER);
                assert_eq!(ends, calls.map(|calls| (false, calls)), "{fails_in:?}");
            }
        }
        let pair = Pair::record(inline, true, [None; 2]);
        assert_eq!(pair.replay(100), [(true, 100); 2]);
    }
}

/// Memory that was lent to the second stream may be freed when that stream is through, while the first may still use
/// it.
#[test]
fn a_stream_that_has_failed_awaits_one_that_has_not() {
    // Miri takes long for each.
    let times = if cfg!(miri) { 50 } else { 1000 };
    for inline in [[false; 2], [true, false], [false, true]] {
        let pair = Pair::record(inline, false, [None, Some(3)]);
        assert_eq!(pair.replay(times), [(true, times), (false, 3)]);
        let pair = Pair::record(inline, false, [Some(3), None]);
        let [first, (healthy, calls)] = pair.replay(EVER);
        assert_eq!(first, (false, 3));
        assert!(!healthy && calls <= 2, "{calls} calls of the second");
    }
}

/// Memory that was lent to the second stream is freed when that stream has passed its replays. That is not before the
/// first stream has given up its part. From then on the first stream does not touch the memory, whatever replay it is
/// in.
#[test]
fn what_is_given_up_is_not_touched_again() {
    let device = Host::for_threads();
    let [s, t, u] = [(); 3].map(|()| stream(&device, false));
    let (word, bell) = (Word::new(0), Bell::new());
    let add = Add {
        tag: None,
        word: pointer(&word),
        value: QUANTUM,
        bell: pointer(&bell),
        turn: None,
    };
    // SAFETY: the test waits until all streams have passed it.
    let signal = Arc::new(unsafe { Batch::new([vec![Step::Add(add)]], Vec::new()) });
    let gates = [(); 2].map(|()| Arc::<Gate>::default());
    let [first, second] = gates.each_ref();
    let calls = Arc::<AtomicU64>::default();
    s.begin_capture(&[&t, &u]).unwrap();
    let (gate, times) = (first.clone(), AtomicU64::new(0));
    // SAFETY: the promises of the batch hold; the kernels touch nothing but what they own.
    unsafe {
        s.launch::<(), _>(counting(&calls, Some(2))).unwrap();
        s.submit(&signal, Location::caller()).unwrap();
        t.wait_event(&s.record().unwrap()).unwrap();
        // The repetition in which it fails takes the first stream long.
        let waits = move |_: &dyn Issues| {
            if times.fetch_add(1, Ordering::Relaxed) == 1 {
                gate.pass();
            }
        };
        u.launch::<(), _>(waits).unwrap();
        s.wait_event(&u.record().unwrap()).unwrap();
    }
    let graph = Arc::new(s.end_capture(&[&t, &u]).unwrap());
    // SAFETY: as above.
    unsafe { s.replay(&[&t, &u], &graph, 5) }.unwrap();
    // The first stream comes late to the second replay, too.
    let v = stream(&device, false);
    let gate = second.clone();
    // SAFETY: as above.
    unsafe { v.launch::<(), _>(move |_| gate.pass()) }.unwrap();
    s.wait_event(&v.record().unwrap()).unwrap();
    // SAFETY: as above.
    unsafe { s.replay(&[&t, &u], &graph, 5) }.unwrap();

    while word.load() & POISON == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(50));
    let early = t.reclaim().passed();
    first.open();
    t.synchronize().unwrap().unwrap_err();
    // From here on the memory belongs to somebody else.
    let freed = word.replace(word.load(), 0);
    second.open();
    s.synchronize().unwrap().unwrap_err();
    u.synchronize().unwrap().unwrap();
    assert_eq!(early, 0, "the first was to poison it once more");
    assert_eq!((freed, word.load()), (true, 0));
}

/// A gate at which a kernel waits.
#[derive(Default)]
struct Gate(AtomicBool);

impl Gate {
    fn pass(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A panic outside kernels, in the middle of a repetition.
#[test]
fn a_panic_in_a_replay_leaves_nobody_waiting() {
    let device = Host::over(Arc::new(Fails::default()));
    let (s, t) = (stream(&device, false), stream(&device, false));
    let (source, word, bell) = (7, Word::new(0), Bell::new());
    let batch = put_and_signal(&source, &word, &bell);
    let calls = Arc::<AtomicU64>::default();
    s.begin_capture(&[&t]).unwrap();
    let (counts, gate) = (counting(&calls, None), Arc::new(Mutex::new(())));
    let (here, held) = (gate.clone(), calls.clone());
    let holds = move |stream: &dyn Issues| {
        if held.load(Ordering::Relaxed) == 10 {
            drop(here.lock());
        }
        counts(stream);
    };
    let closed = gate.lock().unwrap();
    // SAFETY: the kernel touches nothing but what it owns.
    unsafe { t.launch::<(), _>(holds) }.unwrap();
    s.wait_event(&t.record().unwrap()).unwrap();
    // SAFETY: the promises of the batch hold.
    unsafe { s.submit(&batch, Location::caller()) }.unwrap();
    let graph = Arc::new(s.end_capture(&[&t]).unwrap());
    // SAFETY: as above.
    unsafe { s.replay(&[&t], &graph, 100) }.unwrap();
    while s.reclaim().fault().is_none() {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(s.reclaim().passed() < s.mark(), "the other is at work");
    drop(closed);
    assert!(s.synchronize().unwrap().is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 100, "it was waited for");
    assert_eq!(t.synchronize().unwrap(), Ok(()));
    assert_eq!(word.load(), POISON);
}

#[test]
fn a_replay_of_kernels_ends_when_the_stream_is_aborted() {
    let s = stream(&Host::for_threads(), false);
    let calls = Arc::<AtomicU64>::default();
    s.begin_capture(&[]).unwrap();
    // SAFETY: the kernel touches nothing but what it owns.
    unsafe { s.launch::<(), _>(counting(&calls, None)) }.unwrap();
    let graph = Arc::new(s.end_capture(&[]).unwrap());
    // SAFETY: as above.
    unsafe { s.replay(&[], &graph, EVER) }.unwrap();
    while calls.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    s.reclaim().abort();
    assert_eq!(s.synchronize().unwrap(), Err(Fault::Aborted));
}

thread_local! {
    /// The function that a kernel on this thread calls with its stream.
    static BACK: Cell<Option<fn(&HostStream)>> = const { Cell::new(None) };
    static STREAM: Cell<*const HostStream> = const { Cell::new(std::ptr::null()) };
}

/// Kernels cannot capture their stream, but can find it by the thread.
fn come_back() {
    if let Some(back) = BACK.take() {
        // SAFETY: the test keeps the stream, and this is its thread.
        back(unsafe { &*STREAM.get() });
    }
}

/// Calls its stream when it is dropped.
struct ComesBack;

impl Drop for ComesBack {
    fn drop(&mut self) {
        come_back();
    }
}

#[test]
fn what_comes_back_to_its_inline_stream_is_refused() {
    fn refused<T>(outcome: Result<T, DeviceError>) {
        assert!(matches!(outcome, Err(DeviceError::Inside(_))));
    }
    let ways: [fn(&HostStream); 4] = [
        // SAFETY: the kernel touches nothing.
        |s| refused(unsafe { s.launch::<(), _>(|_| unreachable!("it was refused")) }),
        |s| refused(s.synchronize()),
        |s| {
            // SAFETY: there is nothing in it.
            let batch = Arc::new(unsafe { Batch::new([], Vec::new()) });
            refused(s.prepare(&batch, 1));
            // SAFETY: as above.
            refused(unsafe { s.submit(&batch, Location::caller()) });
        },
        |s| {
            s.begin_capture(&[]).unwrap();
            let graph = Arc::new(s.end_capture(&[]).unwrap());
            // SAFETY: there is nothing in it.
            refused(unsafe { s.replay(&[], &graph, 1) });
        },
    ];
    let s = stream(&Host::for_threads(), true);
    STREAM.set(&raw const s);
    for way in ways {
        let mark = s.mark();
        BACK.set(Some(way));
        // SAFETY: the kernel touches nothing.
        unsafe { s.launch::<(), _>(|_| come_back()) }.unwrap();
        // The stream also drops the values that a kernel has captured.
        let held = ComesBack;
        BACK.set(Some(way));
        // SAFETY: as above.
        unsafe { s.launch::<(), _>(move |_| _ = &held) }.unwrap();
        assert!(BACK.take().is_none(), "both came back");
        assert_eq!(s.mark(), mark + 2, "what is refused does not count");
        s.synchronize().unwrap().unwrap();
    }
}
