//! Further endpoints that send, each with a thread of its own.
//!
//! # Model
//!
//! Over sockets, the thread that posts a write copies it into the network, at some GB/s, and another thread copies it
//! out. If streams are not threads, and the machine has processors to spare, this work is shared: a rank has several
//! *rails*. The engine's endpoint is the first, and there are as many [ears](super::ear). A long write is cut into
//! *stripes*, one for each rail ([`super::program`]). Like other pieces, stripes are parts of the signal: nothing
//! orders the rails, and the target adds to the word when all parts have come.
//!
//! The engine *hands* operations to a rail, and goes on. The rail's thread looks for them without a pause while there
//! is much to do, and sleeps otherwise. Any thread that holds the rail's wire does what there is to do. So the engine
//! posts what the rail's thread has not taken by the time its own stripe is posted. And while that thread sleeps, each
//! turn of the engine polls the wire for it.
//!
//! Each end may have any number of rails. Writes to a peer are cut for the rails that both ends have.
//!
//! # Failure
//!
//! An operation has failed if the rail's wire refuses it for good, or for too long, or if nobody waits for it any more.
//! An operation that the wire has accepted must end within a limit, whatever ends on other rails: a network may cut one
//! connection alone ([`contact`](super::contact)). A rail that breaks counts as a wire that breaks.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_hal::nic::{NicError, Prepared};

use super::contact::Route;
use super::departure::Stage;
use super::program::script;
use super::queue::Queue;
use super::rest::{BROKEN, awaits, idle};
use super::silence::Silence;
use crate::base::{MOST_HANDED, Yielding, lock};
use crate::strays::Strays;
use crate::wire::{Event, Posted, Sleeper, Wire};

/// How long a rail's thread looks without a pause after it had something to do.
const KEEN: Duration = Duration::from_micros(200);
/// The longest sleep of its thread while the wire has no room.
const FULL: Duration = Duration::from_millis(1);

/// A piece of a firing, to be written by a rail. Its bytes are contiguous here.
pub(super) struct Job {
    pub(super) queue: Arc<Queue>,
    pub(super) program: Prepared,
    /// The index of the piece in the program.
    pub(super) piece: usize,
    /// Whether the firing has an odd number.
    pub(super) odd: bool,
    pub(super) notice: Option<u64>,
    pub(super) cookie: u64,
}

/// An endpoint that sends.
pub(crate) struct Rail<W: Wire> {
    /// The number of the peers' ears that it writes to. The engine's endpoint writes to ears of number 0.
    number: usize,
    strays: Arc<Strays>,
    hands: Yielding<Hands<W>>,
    jobs: Mutex<Jobs>,
    /// How many jobs there are, so that a look is cheap.
    waiting: AtomicUsize,
    /// The operations in progress, by the cookie. The thread with the hands changes it. It has a lock of its own
    /// because the engine looks at it while the hands may be busy.
    taken: Mutex<HashMap<u64, Taken>>,
    /// The operations that are over, for the engine.
    over: Mutex<Over>,
    has_over: AtomicBool,
    /// How many jobs the engine has handed over and not collected. Only the engine counts, before it hands one over.
    handed: AtomicUsize,
    asleep: AtomicBool,
    sleeper: Box<dyn Sleeper>,
}

/// The jobs that were handed over and are not posted.
struct Jobs {
    queue: VecDeque<Job>,
    /// Whether the engine has given up. Then nothing more is posted.
    closed: bool,
}

/// An operation in progress.
struct Taken {
    peer: usize,
    bytes: u64,
    /// Whether nobody waits for its end, because the peer is gone, and it may never end.
    is_adrift: bool,
}

/// The results for the engine.
#[derive(Default)]
struct Over {
    events: Vec<Event>,
    /// Writes that were never begun, by their cookies, and why.
    unsent: Vec<(u64, String)>,
    /// Why no more results will come, until the engine has heard of it.
    broken: Option<NicError>,
}

/// The parts that a thread needs to post or poll.
struct Hands<W: Wire> {
    wire: W,
    /// The peers for which the wire accepts nothing, and since when.
    refusing: HashMap<usize, Silence>,
    limit: Duration,
    /// Whether the wire can no longer be used.
    broken: bool,
    /// The events of the last poll.
    events: Vec<Event>,
    unsent: Vec<(u64, String)>,
}

/// The result of a turn of a rail.
struct Turn {
    /// Whether something was posted, or is over.
    happened: bool,
    /// How many jobs the wire has no room for.
    refused: usize,
}

impl<W: Wire> Rail<W> {
    /// Makes rail `number` of a rank, from 1. Its wire is connected with the ears of that number. `limit` is how long a
    /// peer may accept nothing.
    pub(super) fn new(number: usize, wire: W, strays: Arc<Strays>, limit: Duration) -> Self {
        Rail {
            number,
            strays,
            sleeper: wire.sleeper(),
            hands: Yielding::new(Hands {
                wire,
                refusing: HashMap::new(),
                limit,
                broken: false,
                events: Vec::new(),
                unsent: Vec::new(),
            }),
            jobs: Mutex::new(Jobs {
                queue: VecDeque::new(),
                closed: false,
            }),
            waiting: AtomicUsize::new(0),
            taken: Mutex::default(),
            over: Mutex::default(),
            has_over: AtomicBool::new(false),
            handed: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
        }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        act(&mut self.hands.lock().wire)
    }

    pub(super) fn wake(&self) {
        self.sleeper.wake();
    }

    /// Whether it accepts another write.
    pub(super) fn has_room(&self) -> bool {
        self.handed.load(Ordering::Relaxed) < MOST_HANDED
    }

    /// The operations in progress: the route of each, and its number of bytes.
    pub(super) fn under_way(&self) -> Vec<(Route, u64)> {
        let taken = lock(&self.taken);
        let rail = self.number;
        let route = |&Taken { peer, bytes, .. }: &Taken| (Route { peer, rail }, bytes);
        taken.values().map(route).collect()
    }

    /// Notes that nobody waits any more for the operations towards a peer.
    pub(super) fn set_adrift(&self, peer: usize) {
        let mut taken = lock(&self.taken);
        let theirs = taken.values_mut().filter(|taken| taken.peer == peer);
        theirs.for_each(|taken| taken.is_adrift = true);
    }

    /// Takes a write over. The engine hears of its end by [`collect`](Self::collect).
    ///
    /// # Safety
    ///
    /// As for [`Wire::post`], until the write is collected, or the rail is dropped.
    pub(super) unsafe fn hand(&self, job: Job) {
        self.handed.fetch_add(1, Ordering::Relaxed);
        let mut jobs = lock(&self.jobs);
        jobs.queue.push_back(job);
        self.waiting.store(jobs.queue.len(), Ordering::Relaxed);
        drop(jobs);
        // A thread that goes to sleep says so, and then looks for jobs. With a fence in between on both sides, one of
        // the two threads sees the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.sleeper.wake();
        }
    }

    /// Does the work that waits, unless another thread is doing it. Only the engine calls this, because it holds the
    /// queues of all jobs.
    pub(super) fn help(&self) {
        let idle = self.asleep.load(Ordering::Relaxed) && self.handed.load(Ordering::Relaxed) > 0;
        if (idle || self.waiting.load(Ordering::Relaxed) > 0)
            && let Some(mut hands) = self.hands.try_lock()
        {
            // One at a time, so that the rail's thread can take over in between.
            self.turn(&mut hands, 1, &mut Vec::new());
        }
    }

    /// Appends the operations that are over, and those that never began, with the reason.
    ///
    /// # Errors
    ///
    /// Why the rail is broken. Then no event comes any more.
    pub(super) fn collect(
        &self,
        events: &mut Vec<Event>,
        unsent: &mut Vec<(u64, String)>,
    ) -> Result<(), NicError> {
        if !self.has_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut over = lock(&self.over);
        self.has_over.store(false, Ordering::Relaxed);
        let heard = over.events.len() + over.unsent.len();
        self.handed.fetch_sub(heard, Ordering::Relaxed);
        events.append(&mut over.events);
        unsent.append(&mut over.unsent);
        over.broken.take().map_or(Ok(()), Err)
    }

    /// Stops posting. Returns the jobs that nobody has taken.
    pub(super) fn close(&self) -> VecDeque<Job> {
        let mut jobs = lock(&self.jobs);
        jobs.closed = true;
        self.waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut jobs.queue)
    }

    /// The loop of its thread.
    pub(crate) fn serve(&self, stop: &AtomicBool) {
        let (mut last, mut posted) = (Instant::now(), Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let mut hands = self.hands.lock_last();
            let turn = self.turn(&mut hands, usize::MAX, &mut posted);
            let may_sleep = hands.wire.may_sleep();
            let broken = hands.broken;
            drop(hands);
            posted.clear();
            if broken {
                std::thread::sleep(BROKEN);
            } else if turn.happened {
                last = Instant::now();
            } else if last.elapsed() < KEEN || !may_sleep {
                std::thread::yield_now();
            } else {
                self.asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let hears = self.sleeper.hears();
                let limit = match self.waiting.load(Ordering::Relaxed) {
                    0 if self.handed.load(Ordering::Relaxed) == 0 => {
                        Some(idle(hears, last.elapsed()))
                    }
                    0 => Some(awaits(hears, last.elapsed())),
                    waiting if waiting == turn.refused => Some(FULL),
                    // A job was handed over just now.
                    _ => None,
                };
                let begun = Instant::now();
                if let Some(limit) = limit {
                    self.sleeper.sleep(limit);
                }
                self.asleep.store(false, Ordering::Relaxed);
                // A thread that was woken will soon have something to do.
                if limit.is_none_or(|limit| begun.elapsed() < limit) {
                    last = Instant::now();
                }
            }
        }
    }

    /// Takes everything as far as possible, but posts at most `most`. Moves finished jobs to `posted`, because a job
    /// may be the last to hold its queue.
    fn turn(&self, hands: &mut Hands<W>, most: usize, posted: &mut Vec<Job>) -> Turn {
        let before = posted.len();
        let refused = match self.waiting.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.post(hands, most, posted),
        };
        self.hear(hands);
        Turn {
            happened: self.tell(hands) || posted.len() > before,
            refused,
        }
    }

    /// Posts jobs as far as the wire accepts them. Returns how many it does not accept. A peer that accepts nothing
    /// delays only its own jobs.
    fn post(&self, hands: &mut Hands<W>, most: usize, posted: &mut Vec<Job>) -> usize {
        let (mut refused, mut count) = (VecDeque::new(), 0);
        while !hands.broken && count < most {
            // Take them one by one, because the engine needs the lock to hand over.
            let mut jobs = lock(&self.jobs);
            let Some(job) = jobs.queue.pop_front() else {
                break;
            };
            self.waiting.store(jobs.queue.len(), Ordering::Relaxed);
            drop(jobs);
            let peer = job.queue.peer;
            let behind = |before: &Job| before.queue.peer == peer;
            if refused.iter().any(behind) {
                refused.push_back(job);
                continue;
            }
            let piece = &script::<W>(&job.program).pieces[job.piece];
            let (op, bytes) = (
                piece.op(self.number, job.odd, piece.at(job.odd), job.notice),
                piece.bytes as u64,
            );
            // SAFETY: `hand`'s caller promised it.
            let unsent = match unsafe { hands.wire.post(peer, op, job.cookie) } {
                Ok(Posted::Taken) => {
                    let is_adrift = false;
                    let taken = Taken {
                        peer,
                        bytes,
                        is_adrift,
                    };
                    lock(&self.taken).insert(job.cookie, taken);
                    hands.refusing.remove(&peer);
                    None
                }
                Ok(Posted::Full) => {
                    let taken = lock(&self.taken);
                    // As for the engine's own endpoint.
                    let has_too_much = taken.len() >= hands.wire.limits().depth
                        && taken.values().any(|taken| !taken.is_adrift);
                    drop(taken);
                    let Some(why) = hands.refused(&job, has_too_much) else {
                        refused.push_back(job);
                        continue;
                    };
                    Some(why)
                }
                Err(error) => Some(error.to_string()),
            };
            hands.unsent.extend(unsent.map(|why| (job.cookie, why)));
            posted.push(job);
            count += 1;
        }
        let count = refused.len();
        if count == 0 && hands.refusing.is_empty() {
            return 0;
        }
        let mut jobs = lock(&self.jobs);
        if jobs.closed {
            drop(jobs);
            posted.extend(refused);
            return 0;
        }
        refused.append(&mut jobs.queue);
        jobs.queue = refused;
        self.waiting.store(jobs.queue.len(), Ordering::Relaxed);
        // If no job waits for a peer any more, the next one gets its full time.
        let waits = |peer: &usize| jobs.queue.iter().any(|job| job.queue.peer == *peer);
        hands.refusing.retain(|peer, _| waits(peer));
        count
    }

    /// Polls the wire for operations that are over.
    fn hear(&self, hands: &mut Hands<W>) {
        if hands.broken {
            return;
        }
        if let Err(error) = hands.wire.poll(&mut hands.events) {
            hands.broken = true;
            lock(&self.over).broken = Some(error);
            self.has_over.store(true, Ordering::Release);
        }
        if hands.events.is_empty() {
            return;
        }
        // No peer has a reason to write to this endpoint, but any peer may.
        let mut taken = lock(&self.taken);
        let is_own = |event: &Event| match event {
            Event::Done(cookie) | Event::Failed(cookie, _) => taken.remove(cookie).is_some(),
            _ => false,
        };
        let before = hands.events.len();
        hands.events.retain(is_own);
        for _ in hands.events.len()..before {
            self.strays
                .drops("a rail has heard of what it has not sent");
        }
    }

    /// Passes the results to the engine.
    fn tell(&self, hands: &mut Hands<W>) -> bool {
        if hands.events.is_empty() && hands.unsent.is_empty() {
            return false;
        }
        let mut over = lock(&self.over);
        over.events.append(&mut hands.events);
        over.unsent.append(&mut hands.unsent);
        self.has_over.store(true, Ordering::Release);
        true
    }
}

impl<W: Wire> Hands<W> {
    /// The failure of a write that the wire did not accept, if it has failed. `has_too_much` says that as much is in
    /// progress as the wire accepts, and that some of it will end.
    fn refused(&mut self, job: &Job, has_too_much: bool) -> Option<String> {
        if job.queue.is_abandoned() {
            return Some("it was given up before it was sent".into());
        }
        if job.queue.departure() != Stage::Here {
            return Some("its peer is not there any more".into());
        }
        if has_too_much {
            // This is no fault of the peer.
            return None;
        }
        let refused = self.refusing.entry(job.queue.peer);
        let refused = refused.or_insert_with(Silence::new);
        let too_long = refused.look(Instant::now(), self.limit);
        too_long.then(|| format!("nothing was taken for {:?}", self.limit))
    }
}
