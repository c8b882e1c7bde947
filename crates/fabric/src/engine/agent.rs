//! The agent of an endpoint: the engine behind its lock, and the state shared by the threads that turn the engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tidegate_hal::device::Helper;
use tidegate_hal::nic::{Connection, Keep, NicError};
use tidegate_hal::slots::TriggerSlots;
use tidegate_hal::tell;
use tidegate_words::Bell;

use super::chained::Chained;
use super::departure::{Departure, Parting};
use super::ear::Ear;
use super::queue::Queue;
use super::queues::Agenda;
use super::rail::Rail;
use super::rest::{Need, Needs, Slumber};
use super::state::Engine;
use crate::base::{Chair, Yielding};
use crate::regions::Regions;
use crate::strays::Strays;
use crate::wire::{Limits, Sleeper, Wire};

/// Notices when a thread panics while it works for this endpoint: a thread of the NIC, or of a stream that turns the
/// engine. The panic breaks its work off, and may lose events. So the wire counts as failed, and that ends all waits.
/// (The report of a panic in a stream is about that stream only.)
pub(crate) struct Watched<'a, W: Wire> {
    agent: &'a Agent<W>,
    /// Whether the thread was already panicking for another reason, and calls this in a destructor.
    is_other: bool,
}

impl<'a, W: Wire> Watched<'a, W> {
    pub(crate) fn new(agent: &'a Agent<W>) -> Self {
        Watched {
            agent,
            is_other: std::thread::panicking(),
        }
    }
}

impl<W: Wire> Drop for Watched<'_, W> {
    fn drop(&mut self) {
        if !self.is_other && std::thread::panicking() {
            self.agent
                .say(Some("what works for the NIC has panicked".into()));
        }
    }
}

/// The engine behind its lock, and everything else that the endpoint, its queues and the threads share.
pub(crate) struct Agent<W: Wire> {
    pub(crate) limits: Limits,
    pub(super) silence: Duration,
    pub(crate) regions: Arc<Regions>,
    pub(super) strays: Arc<Strays>,
    pub(crate) connection: OnceLock<Connection>,
    /// The other endpoints that send. They stand before the engine, because the engine is dropped after them: it leaves
    /// them their operations in progress, and is the last to hold them.
    pub(super) rails: OnceLock<Vec<Arc<Rail<W>>>>,
    pub(super) engine: Yielding<Engine<W>>,
    /// The endpoints that peers write to, if that is not the engine's.
    pub(super) ears: OnceLock<Vec<Ear<W>>>,
    /// Trigger slots, for all queues.
    pub(crate) slots: Arc<TriggerSlots>,
    /// Whether doorbells may have been rung, or queues closed, since the engine last looked at them.
    pub(super) rung: AtomicBool,
    /// Whether core knows that the wire can no longer be used.
    pub(super) said: AtomicBool,
    /// How often streams have turned the engine.
    pub(super) visits: AtomicU64,
    pub(super) needs: Needs,
    pub(super) sleeper: Box<dyn Sleeper>,
    pub(super) slumber: Slumber,
    /// Where the listener sits while streams do its work.
    pub(super) chair: Chair,
    /// How often the listener has turned the engine.
    pub(super) rounds: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// Peers that have left, while the listener still carries out what they have sent. `has_partings` says whether
    /// there are any.
    pub(super) partings: Mutex<Vec<Parting>>,
    pub(super) has_partings: AtomicBool,
    /// Registrations that peers may still use. The field is last, because the endpoints are closed by then, unless
    /// registrations hold them. An endpoint that registrations hold is closed with the last of them, and before its
    /// memory is freed. (The memory of earlier registrations is freed while such an endpoint is open. The provider must
    /// see to it that nobody reaches memory by a closed registration.)
    pub(crate) kept: Mutex<Vec<Keep>>,
}

impl<W: Wire> Agent<W> {
    pub(crate) fn new(mut wire: W, budget: usize, silence: Duration) -> Self {
        wire.set_silence(silence);
        let slots = Arc::new(TriggerSlots::new(budget));
        let strays = Arc::<Strays>::default();
        Agent {
            limits: wire.limits(),
            regions: Arc::new(Regions::new(strays.clone())),
            connection: OnceLock::new(),
            rails: OnceLock::new(),
            sleeper: wire.sleeper(),
            engine: Yielding::new(Engine::new(wire, slots.clone(), strays.clone(), silence)),
            strays,
            ears: OnceLock::new(),
            silence,
            slots,
            rung: AtomicBool::new(false),
            said: AtomicBool::new(false),
            visits: AtomicU64::new(0),
            needs: Needs::default(),
            slumber: Slumber::none(),
            chair: Chair::default(),
            rounds: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            partings: Mutex::default(),
            has_partings: AtomicBool::new(false),
            kept: Mutex::default(),
        }
    }

    /// Makes `ears` endpoints for peers to write to, if the wire can.
    pub(crate) fn grow_ears(&self, ears: usize) -> Result<(), NicError> {
        let first = self.with(|engine| engine.wire.twin())?;
        let more = self.twins(if first.is_some() { ears - 1 } else { 0 });
        let ears = first.into_iter().chain(more).map(Ear::new);
        let grown = self.ears.set(ears.collect()).is_ok();
        debug_assert!(grown, "they are grown once");
        Ok(())
    }

    /// Makes `count` further endpoints, or as many as possible. Nothing depends on them.
    pub(super) fn twins(&self, count: usize) -> Vec<W> {
        let twin = |_| match self.with(|engine| engine.wire.twin()) {
            Ok(twin) => twin,
            Err(error) => {
                tell(|| tracing::warn!("fewer rails than {}: {error}", count + 1));
                None
            }
        };
        (0..count).map_while(twin).collect()
    }

    /// The thread that serves an ear.
    pub(crate) fn hear_peers(&self, ear: usize) {
        let says = |why| self.say(Some(why));
        // Only the engine reads letters.
        let reads = || {
            self.look();
            self.tell_listener();
        };
        self.ears()[ear].serve(&self.stop, (&self.regions, &self.strays), reads, says);
    }

    pub(crate) fn ears(&self) -> &[Ear<W>] {
        self.ears.get().map_or(&[], Vec::as_slice)
    }

    /// Calls `act` with each endpoint that peers write to.
    pub(crate) fn with_ears<T>(&self, mut act: impl FnMut(&mut W) -> T) -> Vec<T> {
        match self.ears() {
            [] => vec![self.with(|engine| act(&mut engine.wire))],
            ears => ears.iter().map(|ear| ear.with(&mut act)).collect(),
        }
    }

    /// Calls `act` with the first of these endpoints.
    pub(crate) fn with_first_ear<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        match self.ears().first() {
            None => self.with(|engine| act(&mut engine.wire)),
            Some(ear) => ear.with(act),
        }
    }

    /// Notes the addresses of the peers' ears, and makes as many rails as there are ears here.
    pub(crate) fn lay(&self, addresses: &[Vec<Vec<u8>>]) -> Result<(), NicError> {
        let of_ear = |number: usize| -> Vec<_> {
            let address = |ears: &Vec<Vec<u8>>| ears.get(number).cloned().unwrap_or_default();
            addresses.iter().map(address).collect()
        };
        self.with(|engine| engine.wire.connect(&of_ear(0)))?;
        let mut rails = Vec::new();
        let wires = self.twins(self.ears().len().saturating_sub(1));
        for (number, mut wire) in (1..).zip(wires) {
            wire.connect(&of_ear(number))?;
            let rail = Rail::new(number, wire, self.strays.clone(), self.silence);
            rails.push(Arc::new(rail));
        }
        self.with(|engine| engine.rails.clone_from(&rails));
        let laid = self.rails.set(rails).is_ok();
        debug_assert!(laid, "they are laid once");
        Ok(())
    }

    pub(crate) fn rails(&self) -> &[Arc<Rail<W>>] {
        self.rails.get().map_or(&[], Vec::as_slice)
    }

    /// Calls `act` with the engine. Waits for the thread that turns it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Engine<W>) -> T) -> T {
        // The failure is reported after the engine has been let go.
        let _watched = Watched::new(self);
        let mut engine = self.engine.lock();
        let result = act(&mut engine);
        self.release(engine);
        if self.called() {
            self.turn();
        }
        result
    }

    /// Whether no bell is rung for doorbells.
    pub(super) fn is_polled(&self) -> bool {
        let connection = self.connection.get();
        connection.is_some_and(|connection| connection.polled)
    }

    /// Notes that programs have been armed. If doorbells are polled, this wakes the thread that polls.
    pub(crate) fn armed(&self) {
        if self.is_polled() && self.slumber.is_to_end(Need::Work) {
            self.sleeper.wake();
        }
    }

    /// Whether another thread has found the engine taken, and had work for it. To be asked after the engine was let go.
    ///
    /// A thread that rings sets the flag, then tries to take the engine; the one that has it lets it go, then looks at
    /// the flag. With a fence in between on both sides, one of the two sees the other.
    pub(super) fn called(&self) -> bool {
        fence(Ordering::SeqCst);
        self.rung.load(Ordering::Relaxed)
    }

    /// Takes everything as far as possible. If another thread has the engine, that thread does it instead. Returns
    /// whether something has happened.
    pub(super) fn turn(&self) -> bool {
        let _watched = Watched::new(self);
        let mut happened = false;
        loop {
            let Some(mut engine) = self.engine.try_lock() else {
                return happened;
            };
            let before = engine.heard;
            let failure = self.turn_locked(&mut engine, false);
            happened |= engine.heard != before;
            let more = engine.pool.is_spent();
            self.release(engine);
            self.say(failure);
            if more {
                // Streams have other work than to copy everything that other ranks put.
                self.wake_listener();
                return true;
            }
            if !self.called() {
                return happened;
            }
        }
    }

    /// Turns the engine. With `look`, it looks at the doorbells even if none was reported as rung.
    #[must_use = "it is to be said when the engine has been let go"]
    pub(super) fn turn_locked(&self, engine: &mut Engine<W>, look: bool) -> Option<String> {
        let rung = self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst);
        engine.turn(&self.regions, rung || look);
        if engine.pool.is_spent() {
            // The next thread that turns the engine must copy more.
            self.rung.store(true, Ordering::SeqCst);
        }
        self.needs.set(engine.needs());
        engine.failure.take()
    }

    /// Reports a failure of the wire to core, once.
    pub(crate) fn say(&self, failure: Option<String>) {
        if let (Some(why), Some(connection)) = (failure, self.connection.get())
            && !self.said.swap(true, Ordering::SeqCst)
        {
            (connection.failed)(why);
        }
    }

    /// Wakes the listener if something is in progress or in doubt that it does not know of. A listener that sleeps only
    /// for a short time finds that out by itself.
    pub(super) fn tell_listener(&self) {
        if self.slumber.is_to_end(self.needs.get()) {
            self.sleeper.wake();
        }
    }

    /// Notes that doorbells may have been rung, or queues closed, and looks at them.
    pub(super) fn look(&self) {
        self.rung.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.turn();
    }

    /// A number that changes when something has happened.
    pub(crate) fn heard(&self) -> u64 {
        let of_ears = self.ears().iter().map(|ear| &ear.heard);
        let of_ears: u64 = of_ears.map(|heard| heard.load(Ordering::Relaxed)).sum();
        self.with(|engine| engine.heard) + of_ears
    }

    /// Lets the engine go. Then drops queues that have ended: what they keep may be the last to hold the endpoint, or
    /// may call it. Then asks the control plane the engine's questions about peers.
    pub(super) fn release(&self, mut engine: MutexGuard<'_, Engine<W>>) {
        let ended = std::mem::take(&mut engine.ended);
        let questions = engine.peers.departures.take_due();
        drop(engine);
        drop(ended);
        if let Some(connection) = self.connection.get() {
            let ask = |(peer, number)| (connection.asks)(peer, number);
            questions.into_iter().for_each(ask);
        }
    }

    pub(super) fn bell(&self) -> Option<&Bell> {
        // SAFETY: `Nic::connect` promises a live bell for as long as `connection.keep`, which this holds; bells are
        // only accessed atomically.
        self.connection
            .get()
            .map(|connection| unsafe { &*connection.bell.0.cast::<Bell>() })
    }

    pub(super) fn wake_listener(&self) {
        self.chair.call();
        self.sleeper.wake();
    }

    /// Wakes all threads.
    pub(crate) fn wake(&self) {
        if let Some(bell) = self.bell() {
            bell.wake_all();
        }
        self.wake_listener();
        self.ears().iter().for_each(Ear::wake);
        self.rails().iter().for_each(|rail| rail.wake());
    }

    /// The state of a peer's departure, for a queue towards it.
    pub(crate) fn departure(&self, peer: usize) -> Arc<Departure> {
        self.with(|engine| engine.peers.departures.of(peer).clone())
    }

    pub(crate) fn add(&self, queue: Arc<Queue>, chained: Option<Arc<Mutex<Chained<W>>>>) {
        let agenda = Agenda::new(queue, chained);
        self.with(|engine| engine.queues.add(agenda));
    }

    /// Notes that a queue's owner has been dropped.
    pub(crate) fn closed(&self) {
        self.look();
        self.tell_listener();
    }

    /// How long nothing at all may happen while a rank waits for its last messages.
    pub(crate) fn patience(&self) -> Duration {
        let extra = self.with(|engine| {
            // The next tick may be a while away.
            engine.await_answers();
            // Queues that have given up thereby have given back their trigger slots, which others may wait for.
            engine.go_on();
            engine.peers.contact.extra()
        });
        self.silence.saturating_add(extra)
    }

    /// Whether everything that was rung for is through, and has arrived. With `told`, also whether every peer that must
    /// be told of a failure has been told.
    pub(crate) fn is_idle(&self, told: bool) -> bool {
        let idle = self.with(|engine| {
            let idle = engine.is_idle(told);
            self.needs.set(engine.needs());
            idle
        });
        self.tell_listener();
        idle
    }
}

impl<W: Wire> Helper for Agent<W> {
    fn rung(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.look();
        self.tell_listener();
    }

    fn waiting(&self) -> bool {
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.turn()
    }

    fn leaving(&self) {
        self.chair.call();
        self.tell_listener();
    }
}
