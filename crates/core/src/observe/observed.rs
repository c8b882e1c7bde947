//! The funnel: what a rank tells its observers, and the thread that takes the stamps of streams.

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, DeviceError, Fault, Reclaim};
use tidegate_hal::limits::WithLimit;
use tidegate_hal::process::Process;
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::{Stamp, Stamps, lost, now};
use tidegate_hal::tell;

use super::Observer;
use super::event::{Declared, EpochCall, Event, Recorded, RecordedStep};
use crate::error::{Error, Result};
use crate::ground::lock;

/// How often the thread takes stamps.
const TICK: Duration = Duration::from_millis(1);
/// How many ticks there are between two calls of [`Observer::flush`].
const FLUSH: u32 = 100;

thread_local! {
    /// Whether the thread is inside an observer.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What an observed rank has.
pub(crate) struct Observed {
    process: Process,
    /// Locked while an event is told, so that observers get one event at a time.
    observers: Mutex<Vec<Arc<dyn Observer>>>,
    /// Whether an observer asks for the legs.
    stamps: bool,
    /// Whether an observer asks for returns.
    returns: bool,
    /// Read by those that end waits and then tell of it: see [`Observed::news`].
    news: RwLock<()>,
    streams: Mutex<Streams>,
    thread: Mutex<Option<(Sender<Infallible>, JoinHandle<()>)>>,
}

#[derive(Default)]
struct Streams {
    made: u32,
    alive: Vec<Seen>,
}

/// A stream, as the thread sees it.
struct Seen {
    number: u32,
    stamps: Option<Arc<dyn Stamps>>,
    dropped: u64,
    /// The error of its clock that was told last.
    error: u64,
    /// The names of its kernels.
    names: HashMap<&'static str, Arc<str>>,
    /// Returns `None` if the stream is gone, and else why it has failed, if it has.
    fault: Box<dyn Fn() -> Option<Option<Fault>> + Send>,
    /// Whether the failure of the stream has been told.
    told: Arc<AtomicBool>,
}

impl Observed {
    /// Begins to observe. The first event comes with [`Observed::tell`].
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Result<Arc<Self>> {
        let observed = Arc::new(Observed {
            process: Process::this(),
            stamps: observers.iter().any(|observer| observer.stamps()),
            returns: observers.iter().any(|observer| observer.returns()),
            observers: Mutex::new(observers),
            news: RwLock::default(),
            streams: Mutex::default(),
            thread: Mutex::default(),
        });
        let (stop, stopped) = channel();
        let weak = Arc::downgrade(&observed);
        let look = move || {
            let mut tick = 0;
            while let Some(observed) = weak.upgrade() {
                observed.take();
                tick = (tick + 1) % FLUSH;
                if tick == 0 {
                    observed.flush();
                }
                drop(observed);
                if ends(&stopped) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-observe".into());
        let thread = thread.spawn(look).map_err(|e| {
            let detail = WithLimit(&e).to_string();
            Error::Device(DeviceError::Exhausted {
                what: "threads",
                detail,
            })
        })?;
        *lock(&observed.thread) = Some((stop, thread));
        Ok(observed)
    }

    /// Tells the observers of an event.
    pub(crate) fn tell(&self, event: &Event) {
        self.each(|observer| observer.event(event));
    }

    /// Calls each observer.
    fn each(&self, call: impl Fn(&dyn Observer)) {
        // In a forked child, another thread may hold the lock for ever. Inside an observer, this thread holds it.
        if !self.process.is_this() || INSIDE.get() {
            return;
        }
        for observer in &*lock(&self.observers) {
            inside(|| call(&**observer));
        }
    }

    /// The rank does not leave as long as somebody has this. It is taken before waits end, since the program may then
    /// leave, and is dropped when the observers know why they have ended.
    pub(crate) fn news(&self) -> RwLockReadGuard<'_, ()> {
        self.news.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether streams stamp what they do.
    pub(crate) fn stamps(&self) -> bool {
        self.stamps
    }

    fn flush(&self) {
        self.each(|observer| observer.flush());
    }

    /// Tells of all that has been stamped, and of streams that have failed.
    fn take(&self) {
        // An observer may make a stream, so nobody is told under the lock. Only one thread takes at a time: this one, or,
        // when it has ended, the one that ends the rank.
        let mut alive = std::mem::take(&mut lock(&self.streams).alive);
        alive.retain_mut(|seen| {
            // The state is asked for before the stamps are taken: what a stream has stamped before its end is there.
            let state = (seen.fault)();
            seen.take(self);
            if let Some(Some(fault)) = &state {
                self.failed(seen.number, fault, &seen.told);
            }
            state.is_some()
        });
        let streams = &mut lock(&self.streams).alive;
        alive.append(streams);
        *streams = alive;
    }

    /// Tells that a stream has failed, unless that has been told.
    fn failed(&self, stream: u32, fault: &Fault, told: &AtomicBool) {
        if !told.swap(true, Ordering::Relaxed) {
            let (why, at) = (fault.to_string(), now());
            self.tell(&Event::Failed { stream, why, at });
        }
    }

    /// Ends: tells of everything that was stamped, and then that the rank has left.
    pub(crate) fn end(&self) {
        let thread = lock(&self.thread).take();
        if INSIDE.get() {
            // An observer has dropped the last world. This is the thread, or the thread may wait for that observer. So
            // it ends alone, and nothing more is told.
            return;
        }
        if let Some((stop, thread)) = thread {
            drop(stop);
            // A panic of the thread has been printed where it happened.
            let _ = thread.join();
        }
        self.take();
        drop(self.news.write().unwrap_or_else(PoisonError::into_inner));
        // Nothing is told after that, though other ranks may end before this one has left.
        let observers = std::mem::take(&mut *lock(&self.observers));
        for observer in observers {
            inside(|| observer.event(&Event::Left { at: now() }));
            inside(|| observer.flush());
        }
    }

    /// Observes a new stream.
    pub(crate) fn stream<R: Reclaim>(
        self: &Arc<Self>,
        stamps: Option<Arc<dyn Stamps>>,
        reclaim: &Arc<R>,
    ) -> ObservedStream {
        let told = Arc::<AtomicBool>::default();
        // The thread holds the stream only while it looks: the last one that does frees what was retired there.
        let weak = Arc::downgrade(reclaim);
        let strong = reclaim.clone();
        let mut streams = lock(&self.streams);
        let number = streams.made;
        streams.made += 1;
        let stamped = stamps.is_some();
        streams.alive.push(Seen {
            number,
            stamps,
            dropped: 0,
            error: 0,
            names: HashMap::new(),
            fault: Box::new(move || Some(weak.upgrade()?.fault())),
            told: told.clone(),
        });
        ObservedStream {
            fault: Box::new(move || strong.fault()),
            told,
            observed: self.clone(),
            number,
            stamped,
        }
    }
}

/// Runs code of an observer.
fn inside(observer: impl FnOnce()) {
    INSIDE.set(true);
    tell(observer);
    INSIDE.set(false);
}

/// Waits for the next tick. Returns whether there is none.
fn ends(stopped: &Receiver<Infallible>) -> bool {
    stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout)
}

impl Seen {
    fn take(&mut self, observed: &Observed) {
        let Some(stamps) = &self.stamps else { return };
        let error = stamps.clock_error();
        // The error grows all the time. So more is told than it is now, which then holds for a while.
        if error > self.error || error < self.error / 2 {
            self.error = error.saturating_add(error / 4);
            observed.tell(&Event::Clock {
                stream: self.number,
                error: self.error,
            });
        }
        let (stream, names) = (self.number, &mut self.names);
        let dropped = stamps.take(&mut |stamp| match stamp {
            Stamp::Leg(leg) => observed.tell(&Event::Leg { stream, leg }),
            Stamp::Kernel {
                name,
                begun,
                ended,
                lost,
            } => {
                let kernel = names.entry(name).or_insert_with(|| name.into()).clone();
                observed.tell(&Event::Ran {
                    stream,
                    kernel,
                    begun,
                    ended,
                    lost,
                });
            }
            _ => {}
        });
        if std::mem::replace(&mut self.dropped, dropped) != dropped {
            let stamps = dropped;
            observed.tell(&Event::Dropped { stream, stamps });
        }
    }
}

thread_local! {
    /// What the thread had lost when that was asked for last, and when that was.
    static LOST: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// A thread that makes its calls faster than this loses little between them. To ask the system takes as long as a call.
const PAUSE: u64 = 50_000;

/// How much time the program's thread has lost since its last pause.
fn lost_since_last() -> u64 {
    let ask = |last: &Cell<(u64, u64)>| {
        let (at, before) = last.get();
        let now = now();
        if now.saturating_sub(at) < PAUSE {
            last.set((now, before));
            return 0;
        }
        let lost = lost();
        last.set((now, lost));
        // What it had lost before its first call does not count.
        if at == 0 {
            0
        } else {
            lost.saturating_sub(before)
        }
    };
    LOST.try_with(ask).unwrap_or(0)
}

/// What an observed stream tells.
pub(crate) struct ObservedStream {
    /// Why the stream has failed, if it has.
    fault: Box<dyn Fn() -> Option<Fault> + Send + Sync>,
    told: Arc<AtomicBool>,
    observed: Arc<Observed>,
    number: u32,
    stamped: bool,
}

/// The stream has come to its end, and the thread may not have looked since.
impl Drop for ObservedStream {
    fn drop(&mut self) {
        // In a forked child, another thread may hold the locks for ever.
        if self.observed.process.is_this()
            && let Some(fault) = (self.fault)()
        {
            self.observed.failed(self.number, &fault, &self.told);
        }
    }
}

impl ObservedStream {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.observed.tell(event);
    }

    /// The stream has got its name.
    pub(crate) fn made(&self, name: &str) {
        self.tell(&Event::Made {
            stream: self.number,
            name: name.to_owned(),
            stamped: self.stamped,
            at: now(),
        });
    }

    /// A batch is about to be recorded, or enqueued.
    pub(crate) fn declares(&self, batch: &Batch, call: EpochCall, site: CallSite) {
        if !batch.mark_told() {
            self.tell(&Event::Declared(Declared::of(batch, call, site)));
        }
    }

    /// A batch is about to be enqueued.
    #[cold]
    pub(crate) fn enqueues(&self, batch: &Batch, call: EpochCall, site: CallSite) {
        self.declares(batch, call, site);
        self.tell(&Event::Enqueued {
            stream: self.number,
            batch: batch.id(),
            at: now(),
            lost: lost_since_last(),
        });
    }

    /// A kernel is about to be enqueued.
    #[cold]
    pub(crate) fn launches(&self, kernel: Arc<str>, site: CallSite) {
        self.tell(&Event::Launched {
            stream: self.number,
            kernel,
            site: site.to_string().into(),
            at: now(),
            lost: lost_since_last(),
        });
    }

    /// The program waits for the stream, by `wait`.
    #[cold]
    pub(crate) fn synchronizes<T>(
        &self,
        call: Call,
        site: CallSite,
        wait: impl FnOnce() -> T,
    ) -> T {
        let (begun, lost) = (now(), lost_since_last());
        let site: Arc<str> = site.to_string().into();
        self.tell(&Event::Synchronizes {
            stream: self.number,
            call: call.name().trim_matches('`').into(),
            site: site.clone(),
            at: begun,
        });
        let waited = wait();
        self.tell(&Event::Synchronized {
            stream: self.number,
            site,
            begun,
            at: now(),
            lost,
        });
        self.returned();
        // What the thread lost while it waited is nobody's.
        lost_since_last();
        waited
    }

    /// The call that was told of last returns.
    #[cold]
    pub(crate) fn returned(&self) {
        if !self.observed.returns {
            return;
        }
        let (stream, at) = (self.number, now());
        self.observed.each(|observer| {
            if observer.returns() {
                observer.event(&Event::Returned { stream, at });
            }
        });
    }

    /// The later work of another stream is about to be ordered behind this one's.
    #[cold]
    pub(crate) fn hands_off(&self, to: &Self) {
        self.tell(&Event::HandedOff {
            from: self.number,
            to: to.number,
            at: now(),
        });
    }

    /// A step has been recorded.
    #[cold]
    pub(crate) fn records(&self, recording: u64, steps: Vec<(u32, RecordedStep)>) {
        let at = now();
        self.tell(&Event::Recorded(Recorded {
            recording,
            steps,
            at,
        }));
    }

    /// A recording is about to be replayed.
    #[cold]
    pub(crate) fn replays(&self, recording: u64, times: u64, site: CallSite) {
        self.tell(&Event::Replayed {
            recording,
            times,
            site: site.to_string().into(),
            at: now(),
            lost: lost_since_last(),
        });
    }
}

#[cfg(test)]
mod tests;
