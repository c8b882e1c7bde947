//! Every event of a rank, for tools.
//!
//! # Model
//!
//! An [`Observer`] gets what the program does and what the streams have done: [`Event`]s. The program's calls are
//! events at once: a batch is enqueued, a kernel is launched, a recording is replayed. The streams stamp what they do,
//! replays included, and a thread of tidegate turns the stamps into events about every millisecond.
//!
//! A stream never waits for an observer. If the thread does not keep up, the stream drops stamps, and
//! [`Event::Dropped`] says how many. Calls of the program do wait until the observer has seen their event.
//!
//! [`WorldOptions::observer`](crate::WorldOptions::observer) adds an observer. With the variable `TIDEGATE_TRACE`, a
//! [`Recorder`] writes all events of each rank to a file, which [`read`] reads. Events name windows, streams and
//! batches by numbers, and [`Known`] knows what these are. `tidegate::guide::observe` has models of tools.
//!
//! # What it costs
//!
//! Without an observer, a call looks at one field. With one, each call and each lane of a batch costs up to a
//! microsecond, or up to three after a pause of the program; so does a kernel on a stream of the host. Streams of GPUs
//! carry out batches by a kernel that stamps. Streams do not stamp for observers that decline it
//! ([`Observer::stamps`]).
//!
//! # Stability
//!
//! More kinds of events, and more fields, may come with any version, so end patterns with `..`. A file of events is
//! read by the version that wrote it.

#[cfg(feature = "prometheus")]
mod counters;
mod event;
mod file;
mod known;
mod observed;
#[cfg(feature = "profiler")]
mod profiler;

#[cfg(feature = "prometheus")]
pub use counters::Counters;
pub use event::{
    Awaits, Declared, EpochCall, Event, Joined, Operation, Part, Recorded, RecordedStep, TeamMade,
    Tells,
};
pub use file::{ReadError, Recorder, read};
pub use known::Known;
pub(crate) use observed::{Observed, ObservedStream};
#[cfg(feature = "profiler")]
pub use profiler::Profiler;
pub use tidegate_hal::ids::{TeamId, WindowId};
pub use tidegate_hal::stamps::{Leg, now};

/// Gets the events of a rank.
///
/// # Examples
///
/// This one counts the bytes that streams have put:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::{Arc, Mutex};
/// use tidegate::host::prelude::*;
/// use tidegate::observe::{Event, Known, Observer};
/// use tidegate::WorldOptions;
///
/// #[derive(Default)]
/// struct Bytes {
///     known: Mutex<Known>,
///     moved: AtomicU64,
/// }
///
/// impl Observer for Bytes {
///     fn event(&self, event: &Event) {
///         let mut known = self.known.lock().unwrap();
///         known.learn(event);
///         if let Event::Leg { leg, .. } = event
///             && let Some(part) = known.part(leg)
///         {
///             self.moved.fetch_add(part.bytes, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let bytes = [0, 1].map(|_| Arc::new(Bytes::default())); // an observer for each rank
/// World::local_with(2, |rank| WorldOptions::new().observer(bytes[rank].clone()), |world| {
///     let swap = || -> Result<()> {
///         stream!(let s = world.stream()?);
///         let (mut window, other) = (SlotWindow::<u64>::new("swap"), 1 - world.rank());
///         window.slot_from(other, 0, 4);
///         let to = window.slot_to(other, 0);
///         let (inbox, outbox) = window.open(&s)?;
///         let src = Region::from_slice(&world, &[7; 4])?.on(&s)?;
///         let exposed = inbox.post(&s)?;
///         let mut epoch = outbox.start();
///         epoch.put(&src, to)?;
///         epoch.complete(&s)?;
///         exposed.wait(&s)?;
///         s.synchronize()
///     };
///     swap().unwrap();
/// });
/// assert!(bytes.iter().all(|bytes| bytes.moved.load(Ordering::Relaxed) == 4 * 8)); // each has put 4 elements
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called for each event, by one thread at a time for each rank. The caller is the program, or a thread of
    /// tidegate. It waits, so be quick. Do not call tidegate here. A panic is caught, and ignored.
    fn event(&self, event: &Event);

    /// Whether streams should stamp what they do, for this observer. Without stamps there are no [`Event::Leg`] and
    /// [`Event::Ran`], and streams run as if nobody observed. It is asked at most once, when the rank joins. If
    /// another observer of the rank wants them, this one gets them, too.
    fn stamps(&self) -> bool {
        true
    }

    /// Whether this observer wants [`Event::Returned`], to know how long calls of the program last. Always give the
    /// same answer: it is asked when the rank joins, and at each return.
    fn returns(&self) -> bool {
        false
    }

    /// Called about every 100 ms, and after the last event: what is not written yet should be written.
    fn flush(&self) {}
}
