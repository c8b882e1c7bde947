//! The software engine: what NICs with triggered operations do by themselves, done by an agent over any wire.
//!
//! # Model
//!
//! One engine a rank. A *turn* polls the wire, does what notices say, and takes every queue as far as it goes. Who turns it: the *listener*, a thread that sleeps on the wire; streams that are
//! threads, when they have rung and while they wait, so that nobody must wake for it; and where streams are none, the *ringer*, a thread that sleeps on the doorbells' bell. A queue has one firing at a time:
//!
//! 1. all pieces but the last are posted, as the wire takes them;
//! 2. when all these are done, the last one is posted, with the signal as its notice (if it is a write; else the signal follows alone);
//! 3. when that is done, the firing is through: the sent word says so.
//!
//! So a program with one piece, which is what a put of contiguous elements is, is one operation. A signal is never on its way before all data that it stands for has arrived: see
//! [`crate::wire`].
//!
//! Where the wire's hardware fires programs by itself, a queue has a [chain](crate::wire::chain) instead of firings, and a turn only watches: see [`chained`].
//!
//! # Failure
//!
//! A piece that fails ends its queue: the signal is not posted, and the peer gets a poisoning notice instead, for this program and every other that is armed. A wire that fails ends all queues
//! of the rank; peers cannot be told then, and wait until a limit, or until this rank ends. What is under way when the engine is dropped is dropped with the wire, before the memory is let go.

pub(crate) mod chained;
pub(crate) mod program;
pub(crate) mod queue;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tidegate_hal::batch::POISON;
use tidegate_hal::device::Helper;
use tidegate_hal::nic::{Connection, Direction, Prepared};
use tidegate_words::{Bell, Patience};

use crate::lock;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::wire::chain::Signals;
use crate::wire::{Event, Limits, Op, Posted, Sleeper, Wire};
use chained::Chained;
use program::{Piece, Script, script};
use queue::{Queue, Seen};

/// The byte of a word in which [`POISON`] stands alone.
static POISONED: u8 = 1 << (POISON.trailing_zeros() % 8);
/// A little patience: a stream that has rung once often rings again at once.
const PATIENCE: Patience = Patience {
    spins: 0,
    yields: 4,
};
/// How long the listener sleeps at most while something is under way: not every provider says by its descriptor that it wants to go on.
const ACTIVE: Duration = Duration::from_millis(1);
/// While the wire has no room.
const FULL: Duration = Duration::from_micros(50);
/// And while nothing is under way.
const IDLE: Duration = Duration::from_secs(1);
/// Between looks when the wire is broken.
const BROKEN: Duration = Duration::from_millis(10);
/// How long the listener is waited for, before a peer's departure counts.
const ROUNDS: Duration = Duration::from_millis(50);
/// How often the listener looks again before it sleeps.
const LOOKS: u32 = 20;

/// What the endpoint, its queues and the two threads share.
pub(crate) struct Shared<W: Wire> {
    pub(crate) limits: Limits,
    pub(crate) regions: Arc<Regions>,
    pub(crate) connection: OnceLock<Connection>,
    pub(crate) engine: Mutex<Engine<W>>,
    sleeper: Box<dyn Sleeper>,
    /// Whether the listener sleeps until it is woken, more or less.
    asleep: AtomicBool,
    /// How often the listener has turned the engine.
    rounds: AtomicU64,
    pub(crate) stop: AtomicBool,
}

/// What is under way.
pub(crate) struct Engine<W: Wire> {
    /// First, so that it is dropped first: nothing is read or written any more when the programs go.
    pub(crate) wire: W,
    queues: Vec<Agenda<W>>,
    /// By cookie.
    flights: Vec<Option<Flight>>,
    /// Poisonings that are to be sent: to whom, what the notice is, and a program that names the word.
    notices: VecDeque<(usize, u64, Prepared)>,
    events: Vec<Event>,
    broken: bool,
    /// What was under way when the wire broke: its memory is kept until the wire is closed.
    dead: Vec<Prepared>,
    /// How much has happened: operations were posted, events came.
    heard: u64,
    /// The wire has refused something for now.
    full: bool,
}

/// A queue, and how far its firing is.
struct Agenda<W: Wire> {
    queue: Arc<Queue>,
    firing: Option<Firing>,
    /// Instead of firings, where hardware has them.
    chained: Option<Arc<Mutex<Chained<W>>>>,
    /// Whether hardware has something to do.
    busy: bool,
    gone: bool,
}

struct Firing {
    program: Prepared,
    odd: bool,
    /// The next piece.
    next: usize,
    under_way: usize,
    signalled: bool,
    failed: bool,
}

/// An operation that is under way.
enum Flight {
    Of(Arc<Queue>),
    Poisoning,
}

impl<W: Wire> Shared<W> {
    pub(crate) fn new(wire: W) -> Self {
        Shared {
            limits: wire.limits(),
            regions: Arc::default(),
            connection: OnceLock::new(),
            sleeper: wire.sleeper(),
            engine: Mutex::new(Engine {
                wire,
                queues: Vec::new(),
                flights: Vec::new(),
                notices: VecDeque::new(),
                events: Vec::new(),
                broken: false,
                dead: Vec::new(),
                heard: 0,
                full: false,
            }),
            asleep: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Takes everything as far as it goes, from another thread than the listener's.
    fn turn(&self, mut engine: MutexGuard<'_, Engine<W>>) -> bool {
        let before = engine.heard;
        engine.turn(&self.regions);
        // Who listens must know that there is something to listen for, or to try again. If it sleeps but shortly, it finds that out.
        let listen = engine.heard != before || engine.full;
        drop(engine);
        if listen && self.asleep.swap(false, Ordering::SeqCst) {
            self.sleeper.wake();
        }
        listen
    }

    /// Does what has arrived by now.
    pub(crate) fn hear(&self) {
        // The listener may have taken something from the wire in its sleep, and not have come to it yet.
        let (round, since) = (self.rounds.load(Ordering::SeqCst), Instant::now());
        while self.rounds.load(Ordering::SeqCst) < round + 2 && since.elapsed() < ROUNDS {
            self.sleeper.wake();
            std::thread::sleep(Duration::from_micros(50));
        }
        while self.turn(lock(&self.engine)) && since.elapsed() < 2 * ROUNDS {}
    }

    /// A number that changes when something has happened.
    pub(crate) fn heard(&self) -> u64 {
        lock(&self.engine).heard
    }

    fn bell(&self) -> Option<&Bell> {
        // SAFETY: `Nic::connect` promises a live bell for as long as `connection.keep`, which this holds; bells are only accessed atomically.
        self.connection
            .get()
            .map(|connection| unsafe { &*connection.bell.0.cast::<Bell>() })
    }

    /// Wakes both threads.
    pub(crate) fn wake(&self) {
        if let Some(bell) = self.bell() {
            bell.wake_all();
        }
        self.sleeper.wake();
    }

    pub(crate) fn add(&self, queue: Arc<Queue>, chained: Option<Arc<Mutex<Chained<W>>>>) {
        lock(&self.engine).queues.push(Agenda {
            queue,
            firing: None,
            chained,
            busy: false,
            gone: false,
        });
    }

    /// Whether everything that was rung for is through; and, if that is asked for, every peer is told that is to be told of a failure.
    pub(crate) fn is_idle(&self, told: bool) -> bool {
        let engine = lock(&self.engine);
        let telling = |flight: &Option<Flight>| matches!(flight, Some(Flight::Poisoning));
        let all_told = engine.notices.is_empty() && !engine.flights.iter().any(telling);
        engine.broken
            || ((all_told || !told) && engine.queues.iter().all(|agenda| agenda.queue.is_idle()))
    }

    /// The thread that sleeps on the doorbells.
    pub(crate) fn ring(&self) {
        let bell = self.bell().expect("the threads begin when it is connected");
        bell.wait(
            PATIENCE,
            || {
                _ = self.turn(lock(&self.engine));
                self.stop.load(Ordering::SeqCst).then_some(())
            },
            || {},
        );
    }

    /// The thread that sleeps on the wire.
    pub(crate) fn listen(&self) {
        let mut quiet = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let mut engine = lock(&self.engine);
            let heard = engine.heard;
            engine.turn(&self.regions);
            self.rounds.fetch_add(1, Ordering::SeqCst);
            if engine.broken {
                // There is nothing to listen to any more; queues that are made or closed are looked at now and then.
                drop(engine);
                std::thread::sleep(BROKEN);
                continue;
            }
            let active = engine.is_active();
            if engine.heard != heard {
                quiet = 0;
                continue;
            }
            quiet += 1;
            if active && quiet < LOOKS {
                drop(engine);
                std::thread::yield_now();
                continue;
            }
            let may_sleep = engine.wire.may_sleep();
            let limit = match (engine.full, active) {
                (true, _) => FULL,
                (false, true) => ACTIVE,
                (false, false) => IDLE,
            };
            if limit == IDLE {
                // Under the lock: whoever posts after this sees it.
                self.asleep.store(true, Ordering::SeqCst);
            }
            drop(engine);
            if may_sleep {
                self.sleeper.sleep(limit);
                self.asleep.store(false, Ordering::SeqCst);
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl<W: Wire> Helper for Shared<W> {
    fn rung(&self) {
        self.turn(lock(&self.engine));
    }

    fn waiting(&self) {
        // Not `try_lock`: who holds it may have looked at a doorbell before it was rung.
        self.turn(lock(&self.engine));
    }
}

impl<W: Wire> Engine<W> {
    /// Something is under way, or is to be.
    fn is_active(&self) -> bool {
        let fires = |agenda: &Agenda<W>| agenda.firing.is_some() || agenda.busy;
        !self.notices.is_empty()
            || self.flights.iter().any(Option::is_some)
            || self.queues.iter().any(fires)
    }

    /// Takes everything as far as it goes.
    pub(crate) fn turn(&mut self, regions: &Regions) {
        self.full = false;
        if !self.broken {
            self.poll(regions);
        }
        for index in 0..self.queues.len() {
            match self.queues[index].chained.clone() {
                Some(chained) => self.watch(index, &chained),
                None => self.work(index),
            }
        }
        self.queues.retain(|agenda| !agenda.gone);
        self.send_notices();
    }

    fn poll(&mut self, regions: &Regions) {
        let mut events = std::mem::take(&mut self.events);
        let polled = self.wire.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Notice(bits) => {
                    self.heard += 1;
                    if !regions.hear(Notice::decode(bits)) {
                        tracing::warn!("a notice named memory that is not registered (any more)");
                    }
                }
                Event::Done(cookie) => self.landed(cookie, None),
                Event::Failed(cookie, why) => self.landed(cookie, Some(why)),
                Event::Moved => self.heard += 1,
                Event::Broken(context, why) => self.broke(context, &why),
                Event::Written => self.written(),
            }
        }
        self.events = events;
        if let Err(error) = polled {
            tracing::error!("{}: {error}", self.wire.name());
            self.broken = true;
            self.flights.clear();
            self.notices.clear();
        }
    }

    /// An operation is over.
    fn landed(&mut self, cookie: u64, failed: Option<String>) {
        let flight = self.flights.get_mut(cookie as usize).and_then(Option::take);
        self.heard += 1;
        match flight {
            Some(Flight::Of(queue)) => {
                let agenda = self
                    .queues
                    .iter_mut()
                    .find(|agenda| Arc::ptr_eq(&agenda.queue, &queue));
                let firing = agenda.and_then(|agenda| agenda.firing.as_mut());
                if let Some(firing) = firing {
                    firing.under_way -= 1;
                    if let Some(why) = failed {
                        tracing::error!("a transfer to rank {} failed: {why}", queue.peer);
                        firing.failed = true;
                    }
                }
            }
            Some(Flight::Poisoning) => {
                if let Some(why) = failed {
                    tracing::warn!("a peer could not be told of a failure: {why}");
                }
            }
            None => debug_assert!(self.broken, "an event for nothing"),
        }
    }

    /// Takes a queue as far as it goes.
    fn work(&mut self, index: usize) {
        loop {
            let agenda = &mut self.queues[index];
            if self.broken {
                if let Some(firing) = agenda.firing.take() {
                    self.dead.push(firing.program);
                }
                self.dead.extend(agenda.queue.give_up());
                agenda.gone = agenda.queue.closed.load(Ordering::Acquire);
                return;
            }
            let Some(firing) = &mut agenda.firing else {
                match agenda.queue.look() {
                    Seen::Nothing => return,
                    Seen::Rung(program) => {
                        let number = agenda.queue.fired.fetch_add(1, Ordering::Relaxed);
                        agenda.firing = Some(Firing {
                            program,
                            odd: number % 2 == 1,
                            next: 0,
                            under_way: 0,
                            signalled: false,
                            failed: false,
                        });
                        continue;
                    }
                    Seen::Poisoned => {
                        self.give_up(index);
                        return;
                    }
                    Seen::Over => {
                        self.give_up(index);
                        self.queues[index].gone = true;
                        return;
                    }
                }
            };
            // Nobody waits for it any more: it is not tried for ever.
            let refused = firing.under_way == 0 && !firing.signalled && agenda.queue.is_abandoned();
            if firing.failed || refused {
                if firing.under_way > 0 {
                    return;
                }
                agenda.firing = None;
                self.give_up(index);
                continue;
            }
            if firing.signalled && firing.under_way == 0 {
                agenda.firing = None;
                agenda.queue.through();
                continue;
            }
            if firing.signalled || !self.advance(index) {
                return;
            }
        }
    }

    /// Posts the next operation of a firing; `false` if it must wait.
    fn advance(&mut self, index: usize) -> bool {
        let agenda = &mut self.queues[index];
        let firing = agenda.firing.as_mut().expect("there is one");
        let script: &Script<W> = script(&firing.program);
        let left = script.pieces.len() - firing.next;
        let piece = script.pieces.get(firing.next);
        let brings = left == 1 && piece.is_some_and(|piece| piece.direction == Direction::Put);
        // Whatever brings the signal is posted when all else is done.
        let signals = left == 0 || brings;
        if signals && firing.under_way > 0 {
            return false;
        }
        let op = match piece {
            None => Op::Notify(script.signal),
            Some(piece) => operation(piece, firing.odd, brings.then_some(script.signal)),
        };
        let (free, queue) = (free(&mut self.flights), agenda.queue.clone());
        // SAFETY: `NicQueue::prepare` promised this for the time between the ring, which was acquired when the doorbell was read, and the signal, which is posted last; the program keeps the
        // memory, and stands in its queue until this is over, or the wire is dropped.
        match unsafe { self.wire.post(queue.peer, op, free as u64) } {
            Ok(Posted::Taken) => {
                self.flights[free] = Some(Flight::Of(queue));
                self.heard += 1;
                firing.under_way += 1;
                firing.next += usize::from(left > 0);
                firing.signalled = signals;
                true
            }
            Ok(Posted::Full) => {
                self.full = true;
                false
            }
            Err(error) => {
                tracing::error!("a transfer to rank {} was refused: {error}", queue.peer);
                firing.failed = true;
                true
            }
        }
    }

    /// Ends a queue: nothing of it is under way.
    fn give_up(&mut self, index: usize) {
        let queue = &self.queues[index].queue;
        let peer = queue.peer;
        let mut poisons: Vec<(u64, Prepared)> = queue
            .give_up()
            .into_iter()
            .map(|program| (script::<W>(&program).poison, program))
            .collect();
        // Poisoning twice is no different from once.
        poisons.sort_unstable_by_key(|(notice, _)| *notice);
        poisons.dedup_by_key(|(notice, _)| *notice);
        let poisons = poisons.into_iter();
        self.notices
            .extend(poisons.map(|(notice, program)| (peer, notice, program)));
    }

    fn send_notices(&mut self) {
        while let Some((peer, notice, program)) = self.notices.front() {
            let (peer, free) = (*peer, free(&mut self.flights));
            let (region, offset) = &script::<W>(program).word;
            let op = match self.wire.signals() {
                Signals::Notice => Op::Notify(*notice),
                // Behind all adds of this end to the word, which nobody else adds to.
                Signals::Add => Op::Write {
                    from: &POISONED,
                    bytes: 1,
                    to: &region.remote,
                    offset: offset + POISON.trailing_zeros() as usize / 8,
                    notice: None,
                },
            };
            // SAFETY: a notice names no memory of this end, and the byte lives for ever. The word is the program's, by the promise of `NicQueue::prepare`.
            match unsafe { self.wire.post(peer, op, free as u64) } {
                Ok(Posted::Taken) => {
                    self.flights[free] = Some(Flight::Poisoning);
                    self.heard += 1;
                }
                Ok(Posted::Full) => {
                    self.full = true;
                    return;
                }
                Err(error) => tracing::warn!("rank {peer} could not be told of a failure: {error}"),
            }
            self.notices.pop_front();
        }
    }
}

/// A place among the flights.
fn free(flights: &mut Vec<Option<Flight>>) -> usize {
    flights.iter().position(Option::is_none).unwrap_or_else(|| {
        flights.push(None);
        flights.len() - 1
    })
}

fn operation<W: Wire>(piece: &Piece<W>, odd: bool, notice: Option<u64>) -> Op<'_, W> {
    let offset = piece.offset + if odd { piece.flip } else { 0 };
    match piece.direction {
        Direction::Put => Op::Write {
            from: piece.local.cast_const(),
            bytes: piece.bytes,
            to: &piece.remote.remote,
            offset,
            notice,
        },
        Direction::Get => Op::Read {
            to: piece.local,
            bytes: piece.bytes,
            from: &piece.remote.remote,
            offset,
        },
    }
}
