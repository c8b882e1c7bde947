//! Further endpoints that send, each with a thread of its own.
//!
//! # Model
//!
//! Over sockets whoever posts a write copies it into the network, at some GB/s, and whoever hears copies it out. Where
//! streams are no threads, and the machine has processors to spare, that is shared: a rank has several *rails*, of which
//! the engine's endpoint is the first, and as many [ears](super::ear). A long write is cut into *stripes*, one a rail
//! ([`super::program`]), which are parts of the signal like other pieces: nothing orders the rails, and the target adds
//! to the word when all have come.
//!
//! The engine *hands* a rail what is to be posted, and goes on. The rail's thread looks for that without a pause as long
//! as there is much to do, and sleeps otherwise. What it has not taken when the engine has posted its own, the engine
//! posts: so a thread that has to be woken, or has no processor, keeps nobody back.
//!
//! Each end has as many rails as it likes: what goes to a peer is cut for those that both have.
//!
//! # Failure
//!
//! What a rail's wire refuses for good, for too long, or when nobody waits for it any more, has failed. A rail that
//! breaks is a wire that breaks.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_hal::nic::NicError;

use super::Shared;
use super::listen::{BROKEN, idle};
use super::program::Piece;
use super::queue::Queue;
use crate::wire::{Event, Op, Posted, Sleeper, Wire};
use crate::{RemoteRegion, lock};

/// For how long a rail is looked at without a pause after it had something to do.
const KEEN: Duration = Duration::from_micros(200);
/// How long its thread sleeps at most while the wire has no room.
const FULL: Duration = Duration::from_millis(1);
/// The most writes that are handed over and not over.
const MOST: usize = 64;

/// A write for a rail.
pub(super) struct Job<W: Wire> {
    queue: Arc<Queue>,
    from: *const u8,
    bytes: usize,
    to: Arc<RemoteRegion<W>>,
    offset: usize,
    notice: Option<u64>,
    cookie: u64,
}

impl<W: Wire> Job<W> {
    /// A piece of a firing of a queue, which is to be written so.
    pub(super) fn new(queue: &Arc<Queue>, piece: &Piece<W>, op: &Op<'_, W>, cookie: u64) -> Self {
        let Op::Write {
            from,
            bytes,
            offset,
            notice,
            ..
        } = *op
        else {
            unreachable!("only writes are cut for rails");
        };
        Job {
            queue: queue.clone(),
            from,
            bytes,
            to: piece.remote.clone(),
            offset,
            notice,
            cookie,
        }
    }
}

// SAFETY: the pointer is only handed to the wire, by whoever holds the rail; what it points to may be read by any thread,
// as `NicQueue::prepare` has it.
unsafe impl<W: Wire> Send for Job<W> {}

/// An endpoint that sends.
pub(crate) struct Rail<W: Wire> {
    /// Which of the ears of peers it writes to; the engine's endpoint writes to that of number 0.
    number: usize,
    hands: Mutex<Hands<W>>,
    jobs: Mutex<VecDeque<Job<W>>>,
    /// How many are in there, so that a look is cheap.
    waiting: AtomicUsize,
    /// What has become of others, for the engine.
    over: Mutex<Over>,
    has_over: AtomicBool,
    asleep: AtomicBool,
    sleeper: Box<dyn Sleeper>,
    /// How many threads want the wire, so that one that does not pause lets them.
    wanted: AtomicUsize,
}

/// What the engine is to hear.
#[derive(Default)]
struct Over {
    events: Vec<Event>,
    /// Why no more will come, until that was heard.
    broken: Option<NicError>,
}

/// What whoever posts or listens has.
struct Hands<W: Wire> {
    wire: W,
    /// Towards whom it takes nothing, since when.
    refusing: HashMap<usize, Instant>,
    /// How many writes are not over.
    under_way: usize,
    limit: Duration,
    /// It is of no use any more.
    broken: bool,
    /// What has happened.
    events: Vec<Event>,
}

impl<W: Wire> Rail<W> {
    /// Number `number` of a rank, from 1: its wire is connected with those ears of the peers. `limit`: how long a peer may take nothing.
    pub(super) fn new(number: usize, wire: W, limit: Duration) -> Self {
        Rail {
            number,
            sleeper: wire.sleeper(),
            hands: Mutex::new(Hands {
                wire,
                refusing: HashMap::new(),
                under_way: 0,
                limit,
                broken: false,
                events: Vec::new(),
            }),
            jobs: Mutex::default(),
            waiting: AtomicUsize::new(0),
            over: Mutex::default(),
            has_over: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
        }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let mut hands = lock(&self.hands);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        act(&mut hands.wire)
    }

    pub(super) fn wake(&self) {
        self.sleeper.wake();
    }

    /// Whether it takes another write.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < MOST
    }

    /// Takes a write over. An event with its cookie comes by [`collect`](Self::collect).
    ///
    /// # Safety
    ///
    /// As [`Wire::post`], until that event, or this is dropped.
    pub(super) unsafe fn hand(&self, job: Job<W>) {
        let mut jobs = lock(&self.jobs);
        jobs.push_back(job);
        self.waiting.store(jobs.len(), Ordering::Relaxed);
        drop(jobs);
        // Who falls asleep says so, and then looks for jobs; with a fence in between on both sides one of the two sees
        // the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.sleeper.wake();
        }
    }

    /// Posts what nobody else has taken.
    pub(super) fn help(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0
            && let Ok(mut hands) = self.hands.try_lock()
        {
            self.post(&mut hands);
            self.tell(&mut hands);
        }
    }

    /// Appends what is over.
    ///
    /// # Errors
    ///
    /// Why the rail is broken: no event comes any more.
    pub(super) fn collect(&self, events: &mut Vec<Event>) -> Result<(), NicError> {
        if !self.has_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut over = lock(&self.over);
        self.has_over.store(false, Ordering::Relaxed);
        events.append(&mut over.events);
        over.broken.take().map_or(Ok(()), Err)
    }

    /// Posts what was handed over, as far as the wire takes it. A peer that takes nothing keeps back none but its own.
    fn post(&self, hands: &mut Hands<W>) -> bool {
        let (mut refused, mut posted) = (VecDeque::new(), false);
        while !hands.broken {
            // One by one: the lock is the engine's way to hand over.
            let mut jobs = lock(&self.jobs);
            let Some(job) = jobs.pop_front() else { break };
            self.waiting.store(jobs.len(), Ordering::Relaxed);
            drop(jobs);
            let peer = job.queue.peer;
            let behind = |before: &Job<W>| before.queue.peer == peer;
            if refused.iter().any(behind) {
                refused.push_back(job);
                continue;
            }
            let op = Op::Write {
                from: job.from,
                bytes: job.bytes,
                to: &job.to.rails[self.number - 1],
                offset: job.offset,
                notice: job.notice,
            };
            // SAFETY: `hand`'s caller promised it.
            match unsafe { hands.wire.post(peer, op, job.cookie) } {
                Ok(Posted::Taken) => {
                    posted = true;
                    hands.under_way += 1;
                    hands.refusing.remove(&peer);
                }
                Ok(Posted::Full) => match hands.refused(&job) {
                    None => refused.push_back(job),
                    Some(why) => hands.events.push(Event::Failed(job.cookie, why)),
                },
                Err(error) => {
                    let failed = Event::Failed(job.cookie, error.to_string());
                    hands.events.push(failed);
                }
            }
        }
        if !refused.is_empty() {
            let mut jobs = lock(&self.jobs);
            refused.append(&mut jobs);
            *jobs = refused;
            self.waiting.store(jobs.len(), Ordering::Relaxed);
        }
        posted
    }

    /// Hears what is over.
    fn hear(&self, hands: &mut Hands<W>) {
        if hands.broken {
            return;
        }
        let from = hands.events.len();
        if let Err(error) = hands.wire.poll(&mut hands.events) {
            hands.broken = true;
            lock(&self.over).broken = Some(error);
            self.has_over.store(true, Ordering::Release);
        }
        // Nobody writes to this end.
        let is_over = |event: &Event| matches!(event, Event::Done(_) | Event::Failed(..));
        debug_assert!(hands.events.iter().all(is_over));
        hands.under_way -= hands.events.len() - from;
    }

    /// Lets the engine know.
    fn tell(&self, hands: &mut Hands<W>) -> bool {
        if hands.events.is_empty() {
            return false;
        }
        let mut over = lock(&self.over);
        over.events.append(&mut hands.events);
        self.has_over.store(true, Ordering::Release);
        true
    }

    /// Takes everything as far as it goes. Whether something has happened.
    fn turn(&self, hands: &mut Hands<W>) -> bool {
        let posted = self.waiting.load(Ordering::Relaxed) > 0 && self.post(hands);
        self.hear(hands);
        self.tell(hands) || posted
    }
}

impl<W: Wire> Hands<W> {
    /// Why a write that was not taken has failed, if it has.
    fn refused(&mut self, job: &Job<W>) -> Option<String> {
        if job.queue.is_abandoned() {
            return Some("it was given up before it was sent".into());
        }
        if self.under_way >= self.wire.limits().depth {
            // No fault of the peer's.
            return None;
        }
        let since = self.refusing.entry(job.queue.peer);
        let since = since.or_insert_with(Instant::now).elapsed();
        (since > self.limit).then(|| format!("nothing was taken for {:?}", self.limit))
    }
}

impl<W: Wire> Shared<W> {
    /// The thread of a rail.
    pub(crate) fn serve(&self, rail: &Rail<W>) {
        let mut last = Instant::now();
        while !self.stop.load(Ordering::SeqCst) {
            while rail.wanted.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
            let mut hands = lock(&rail.hands);
            let happened = rail.turn(&mut hands);
            let may_sleep = hands.wire.may_sleep();
            let broken = hands.broken;
            drop(hands);
            if broken {
                std::thread::sleep(BROKEN);
            } else if happened {
                last = Instant::now();
            } else if last.elapsed() < KEEN || !may_sleep {
                std::thread::yield_now();
            } else {
                rail.asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let hears = rail.sleeper.hears();
                match rail.waiting.load(Ordering::Relaxed) {
                    0 => rail.sleeper.sleep(idle(hears, last.elapsed())),
                    _ => rail.sleeper.sleep(FULL),
                }
                rail.asleep.store(false, Ordering::Relaxed);
                if hears {
                    last = Instant::now();
                }
            }
        }
    }
}
