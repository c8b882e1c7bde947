//! What streams keep, until they have passed it.

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use tidegate_gpu::driver::ErrorKind;
use tidegate_hal::control::Handle;
use tidegate_hal::device::{Fault, Reclaim as _, Stand, Stream as _};
use tidegate_hal::memory::Sharing;

use super::driver::Did;
use super::{Bench, of, raw, seen};

#[test]
fn garbage_is_dropped_when_the_stream_has_passed_it() {
    let bench = Bench::new();
    let stream = bench.stream();
    // Nothing was submitted, so it is dropped at once.
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    assert!(gone());
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    assert!(!gone() && matches!(stream.reclaim().stand(), Stand::Works(_)));
    bench.null.release(raw(&stream));
    // Somebody has to ask.
    assert_eq!(stream.reclaim().passed(), stream.mark());
    assert!(gone() && matches!(stream.reclaim().stand(), Stand::Through));
}

#[test]
fn garbage_behind_an_event_goes_before_later_work_is_over() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    bench.null.release(raw(&stream));
    bench.null.hold(raw(&stream));
    // SAFETY: as above.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    assert!(stream.reclaim().passed() < stream.mark());
    assert!(gone());
    bench.null.release(raw(&stream));
}

#[test]
fn memory_for_peers_is_given_up_when_no_stream_has_work() {
    let bench = Bench::new();
    let stream = bench.stream();
    let peers = || bench.device.alloc(64, Sharing::Peers).expect("memory");
    let gave_up = || bench.null.did().contains(&Did::GaveUp);
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    drop(peers());
    let kept = peers();
    assert!(!gave_up(), "a call could wait for the stream");
    bench.null.release(raw(&stream));
    let second = peers();
    assert!(gave_up());
    let third = peers();
    assert!(!gave_up(), "nothing was left");
    drop((kept, second, third));
    drop(stream);
    assert!(gave_up(), "the end of a stream is a time for it, too");
}

#[test]
fn memory_is_handed_over_as_a_descriptor_or_refused() {
    let bench = Bench::new();
    for (handle, why) in [
        (Handle::Key(vec![1]), "handed over as a file descriptor"),
        (Handle::Lost("there are none".into()), "there are none"),
    ] {
        let error = bench.device.map(handle, 64).err().expect("it is refused");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_batch_is_kept_until_the_stream_has_passed_it() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.hold(raw(&stream));
    let batch = bench.batch(1);
    let kept = Arc::downgrade(&batch);
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    drop(batch);
    assert!(kept.strong_count() > 0);
    stream.synchronize().unwrap().unwrap();
    assert_eq!(kept.strong_count(), 0);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the attendant has woken so often, and no oftener.
fn is_woken(times: impl Fn() -> usize, expected: usize) {
    let limit = Instant::now() + Duration::from_secs(60);
    while times() < expected && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(times(), expected);
}

#[test]
fn a_future_is_woken_once_by_the_stream_itself() {
    let bench = Bench::new();
    let stream = bench.stream();
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(woken.clone());
    let times = || woken.0.load(Ordering::Relaxed);
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    let mark = stream.mark();
    assert!(!stream.reclaim().wake_at(mark, 7, &waker));
    // The same future asks again with another waker, and another future gives up.
    assert!(!stream.reclaim().wake_at(mark, 7, &waker.clone()));
    assert!(!stream.reclaim().wake_at(mark, 8, &waker));
    stream.reclaim().forget_waker(8);
    assert_eq!(times(), 0);
    bench.null.release(raw(&stream));
    is_woken(times, 1);
    assert!(stream.reclaim().wake_at(mark, 7, &waker), "it is over");
}

/// The driver calls no function of a stream whose context is lost.
#[test]
fn a_future_is_woken_when_the_context_is_lost() {
    let bench = Bench::new();
    let stream = bench.stream();
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(woken.clone());
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    assert!(!stream.reclaim().wake_at(stream.mark(), 7, &waker));
    bench.null.refuse("stream_query", 0, ErrorKind::ContextLost);
    is_woken(|| woken.0.load(Ordering::Relaxed), 1);
    assert!(stream.reclaim().wake_at(stream.mark(), 7, &waker));
    assert!(matches!(stream.reclaim().fault(), Some(Fault::Kernel(_))));
}

/// A waker may drop the task that owns the stream, and nobody else has the stream then.
#[test]
fn a_waker_may_drop_the_stream() {
    struct Owner<T>(Mutex<Option<T>>, AtomicUsize);
    impl<T: Send + 'static> Wake for Owner<T> {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let bench = Bench::new();
    let stream = bench.stream();
    let (at, number, mark) = (raw(&stream), of(&stream), stream.mark() + 1);
    let owner = Arc::new(Owner(Mutex::new(None), AtomicUsize::new(0)));
    bench.null.hold(at);
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    let waker = Waker::from(owner.clone());
    assert!(!stream.reclaim().wake_at(mark, 7, &waker));
    *owner.0.lock().unwrap() = Some(stream);
    bench.null.did();
    bench.null.release(at);
    is_woken(|| owner.1.load(Ordering::Relaxed), 1);
    assert_eq!(bench.null.did(), [Did::Waited(number), Did::Gone(number)]);
}

#[test]
fn a_stream_is_waited_for_before_it_is_destroyed() {
    let bench = Bench::new();
    let (thing, gone) = seen();
    let stream = bench.stream_that_keeps(thing);
    let number = of(&stream);
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    bench.null.did();
    drop(stream);
    assert_eq!(bench.null.did(), [Did::Waited(number), Did::Gone(number)]);
    assert!(gone());
}

#[test]
fn what_may_still_run_is_left_behind() {
    let bench = Bench::new();
    let stream = bench.stream();
    let number = of(&stream);
    bench.null.hold(raw(&stream));
    let batch = bench.batch(1);
    let kept = Arc::downgrade(&batch);
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    drop(batch);
    // The driver does not say that the stream is over.
    bench.null.refuse("stream_synchronize", 0, ErrorKind::Other);
    drop(stream);
    assert!(!bench.null.did().contains(&Did::Gone(number)));
    assert!(kept.strong_count() > 0);
}

#[test]
fn a_lost_context_ends_everything() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.hold(raw(&stream));
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    assert!(!gone());
    bench
        .null
        .refuse("stream_synchronize", 0, ErrorKind::ContextLost);
    let fault = stream.synchronize().unwrap().unwrap_err();
    assert!(
        matches!(&fault, Fault::Kernel(why) if why.contains("is refused")),
        "{fault:?}"
    );
    assert!(gone(), "nothing runs any more");
}

/// A courier waits for a batch that never tells it to go, and the driver does not read the word that says so.
#[test]
fn in_a_lost_context_no_courier_is_waited_for() {
    let bench = Bench::new();
    let (stream, batch) = (bench.stream(), bench.large());
    stream.prepare(&batch, 1).unwrap();
    bench.null.hold(raw(&stream));
    bench.null.did();
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&batch, Location::caller()) }.unwrap();
    assert!(matches!(bench.null.did()[0], Did::Words(..)), "a courier");
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    assert!(!gone());
    bench
        .null
        .refuse("stream_synchronize", 0, ErrorKind::ContextLost);
    assert!(stream.synchronize().unwrap().is_err());
    assert!(gone(), "nothing runs any more");
    // So does what is retired later.
    let (thing, gone) = seen();
    stream.reclaim().retire(Box::new(thing));
    assert!(gone());
}

/// Whoever asks for something may free the memory that it names when the call has failed.
#[test]
fn the_service_stream_is_waited_for_after_an_error_too() {
    let bench = Bench::new();
    let word = bench.word(0);
    for call in ["copy_in", "copy_out"] {
        let before = bench.null.served();
        bench.null.refuse(call, 0, ErrorKind::Other);
        let mut bytes = [0; 8];
        // SAFETY: the word lives, and nobody else uses it.
        let error = unsafe {
            match call {
                "copy_in" => bench.device.write(word, &bytes),
                _ => bench.device.read(word, &mut bytes),
            }
        };
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("{call} is refused")), "{error}");
        assert_eq!(bench.null.served(), before + 1, "{call}");
    }
}

#[test]
fn a_shortage_of_memory_gives_no_stream_and_leaves_none() {
    let bench = Bench::new();
    bench.null.did();
    for call in ["stream_create", "alloc", "fill"] {
        bench.null.refuse(call, 0, ErrorKind::OutOfMemory);
        let config = tidegate_hal::device::StreamConfig {
            name: "stream".into(),
            bell: tidegate_hal::memory::Ptr::NULL,
            keep: Arc::new(()),
            inline: false,
            ranks_on_node: 1,
            priority: Default::default(),
            helper: None,
            stamped: false,
        };
        // SAFETY: nobody rings the bell.
        assert!(unsafe { bench.device.stream(config) }.is_err(), "{call}");
    }
    let gone = |did: &&Did| matches!(did, Did::Gone(_));
    let did = bench.null.did();
    assert_eq!(
        did.iter().filter(gone).count(),
        2,
        "one was never made: {did:?}"
    );
}
