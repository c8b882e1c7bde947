//! What is under way, and how it goes on.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::nic::Prepared;
use tidegate_hal::slots::Slots;

use super::chained::Chained;
use super::contact::{Contact, Silent};
use super::departure::{Departures, Stage};
use super::doubt::Doubt;
use super::firing::{Fate, Firing, Flight, Held};
use super::gather::Pool;
use super::program::script;
use super::queue::{Queue, Ring, Seen};
use super::rail::{Job, Rail};
use super::slab::Slab;
use super::tell::Poisoning;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::strays::Strays;
use crate::wire::{Event, Wire};

/// What is under way.
pub(crate) struct Engine<W: Wire> {
    /// First, so that it is dropped first; what may be read or written even then has been [handed over](super::bequest).
    pub(crate) wire: W,
    /// What sends besides it; likewise.
    pub(crate) rails: Vec<Arc<Rail<W>>>,
    /// Counts what has come that is over for nobody.
    pub(super) strays: Arc<Strays>,
    /// Trigger slots, for all queues.
    slots: Arc<Slots>,
    pub(super) contact: Contact,
    pub(super) queues: Slab<Agenda<W>>,
    /// Those that have come to their end, to be dropped when the engine has been let go.
    pub(super) ended: Vec<Agenda<W>>,
    /// What rails were to post, likewise.
    pub(super) ended_jobs: Vec<Job<W>>,
    /// The queues that hardware fires.
    chains: Vec<usize>,
    /// Something of a chain may be through.
    moved: bool,
    /// By cookie.
    pub(super) flights: Slab<Flight<W>>,
    /// How many of these were handed to rails.
    pub(super) handed: usize,
    /// Where some of these read, and write.
    pub(super) pool: Pool,
    /// Queues to be taken as far as they go.
    ready: Vec<usize>,
    /// Those that could not go on because the wire had no room.
    pub(super) stalled: Vec<usize>,
    /// Those whose next operation brings the signal with its data.
    pub(super) late: Vec<usize>,
    /// Signals that have no data, and are not posted yet.
    pub(super) held: Vec<Held>,
    /// How many queues have a firing.
    firing: usize,
    /// Those of which that is stranded, and the cookies of what is under way for nobody: whoever listens need not stay
    /// awake for them.
    pub(super) stranded: usize,
    pub(super) adrift: HashSet<usize>,
    /// Queues whose signals are in doubt; also some where they are not any more.
    pub(super) doubtful: Vec<usize>,
    /// Those that are to be asked for again.
    pub(super) asking: Vec<usize>,
    /// How long a signal may take to come.
    pub(super) silence: Duration,
    pub(super) departures: Departures,
    /// Peers that may be gone, or have failed by their silence.
    pub(super) silent: Vec<Silent>,
    /// Poisonings that are to be sent.
    pub(super) notices: VecDeque<Poisoning<W>>,
    events: Vec<Event>,
    pub(super) broken: bool,
    /// Why, until that has been said.
    pub(super) failure: Option<String>,
    /// What was under way when the wire broke, and whose: its memory is kept until the endpoint is closed.
    pub(super) dead: Vec<Flight<W>>,
    pub(super) dead_programs: Vec<Prepared>,
    /// How much has happened: operations were posted, events came.
    pub(super) heard: u64,
    /// The wire has refused something for now.
    pub(super) full: bool,
}

/// A queue, and how far its firing is.
pub(super) struct Agenda<W: Wire> {
    pub(super) queue: Arc<Queue>,
    pub(super) firing: Option<Firing>,
    pub(super) doubt: Doubt<W>,
    /// Instead of firings, where hardware has them.
    pub(super) chained: Option<Arc<Mutex<Chained<W>>>>,
    /// Whether hardware has something to do.
    pub(super) busy: bool,
    /// Whether it is among the ready ones.
    ready: bool,
    /// It is to give up, when nothing of it is under way or in doubt.
    pub(super) fails: bool,
}

/// Why a get fails that is rung for when its peer has left.
pub(super) fn never_comes(peer: usize) -> String {
    format!("a transfer from rank {peer} failed: it has left")
}

impl<W: Wire> Engine<W> {
    pub(super) fn new(wire: W, slots: Arc<Slots>, strays: Arc<Strays>, silence: Duration) -> Self {
        Engine {
            wire,
            strays,
            rails: Vec::new(),
            slots,
            contact: Contact::new(silence),
            queues: Slab::new(),
            ended: Vec::new(),
            chains: Vec::new(),
            moved: false,
            flights: Slab::new(),
            handed: 0,
            pool: Pool::new(),
            ready: Vec::new(),
            stalled: Vec::new(),
            late: Vec::new(),
            held: Vec::new(),
            firing: 0,
            stranded: 0,
            adrift: HashSet::new(),
            doubtful: Vec::new(),
            asking: Vec::new(),
            silence,
            departures: Departures::default(),
            silent: Vec::new(),
            notices: VecDeque::new(),
            events: Vec::new(),
            broken: false,
            failure: None,
            dead: Vec::new(),
            dead_programs: Vec::new(),
            ended_jobs: Vec::new(),
            heard: 0,
            full: false,
        }
    }

    pub(super) fn add(&mut self, queue: Arc<Queue>, chained: Option<Arc<Mutex<Chained<W>>>>) {
        let is_chained = chained.is_some();
        let number = self.queues.add(Agenda {
            queue,
            firing: None,
            doubt: Doubt::new(),
            fails: false,
            chained,
            busy: false,
            ready: false,
        });
        self.chains.extend(is_chained.then_some(number));
    }

    /// Something is under way, or is to be.
    pub(super) fn is_active(&self) -> bool {
        self.firing > self.stranded
            || !self.notices.is_empty()
            || self.flights.len() > self.adrift.len()
            || !self.asking.is_empty()
            || self.departures.is_asking()
            || (!self.chains.is_empty() && self.queues.iter().any(|agenda| agenda.busy))
    }

    /// How many programs are armed that somebody may still ring for.
    pub(super) fn armed(&self) -> usize {
        let armed = self.slots.armed();
        if armed == 0 || self.stranded == 0 {
            return armed;
        }
        let is_stranded = |agenda: &&Agenda<W>| {
            let firing = agenda.firing.as_ref();
            firing.is_some_and(|firing| firing.is_stranded)
        };
        let stranded = self.queues.iter().filter(is_stranded);
        let theirs: u64 = stranded.map(|agenda| agenda.queue.armed_now()).sum();
        armed.saturating_sub(theirs as usize)
    }

    /// A queue's firing is over.
    fn ends(&mut self, is_stranded: bool) {
        self.firing -= 1;
        self.stranded -= usize::from(is_stranded);
    }

    /// Whether everything that was rung for is through, and has come; and, if that is asked for, every peer is told
    /// that is to be told of a failure.
    pub(super) fn is_idle(&mut self, told: bool) -> bool {
        let telling = |flight: &Flight<W>| matches!(flight, Flight::Poisoning(..));
        let all_told = self.notices.is_empty() && !self.flights.iter().any(telling);
        if self.broken {
            return true;
        }
        self.ask_all();
        let over = |agenda: &Agenda<W>| agenda.queue.is_idle() && !agenda.is_in_doubt();
        (all_told || !told) && self.queues.iter().all(over)
    }

    /// How many operations are under way by the engine's own endpoint.
    pub(super) fn posted(&self) -> usize {
        self.flights.len() - self.handed
    }

    /// Takes everything as far as it goes. `look`: doorbells may have been rung, or queues closed, since the last turn
    /// that looked.
    pub(super) fn turn(&mut self, regions: &Regions, look: bool) {
        self.full = false;
        self.pool.turn();
        let mut stalled = std::mem::take(&mut self.stalled);
        if !stalled.is_empty() {
            // Another is the first each time: it may take all of what a turn copies.
            stalled.rotate_left(1);
        }
        for index in stalled.drain(..) {
            self.make_ready(index);
        }
        self.stalled = stalled;
        self.watch_chains();
        if look || self.broken {
            // What was rung for goes out before anything else is looked at: a look at the wire takes as long as a post.
            self.look_at_doorbells();
            let before = self.heard;
            self.go_on();
            // But where much was copied, what has come has waited for as long.
            if self.heard != before && !self.pool.is_spent() {
                return;
            }
        }
        if !self.broken {
            self.poll(regions);
        }
        if std::mem::take(&mut self.moved) {
            self.watch_chains();
        }
        for peer in self.departures.overdue(self.silence) {
            self.takes_up(peer);
        }
        if let Some((peer, limit)) = self.contact.unanswered() {
            self.falls_silent(peer, limit);
        }
        if !self.silent.is_empty() {
            self.judge_silent();
        }
        self.ask_again();
        self.go_on();
    }

    /// Looks how far the queues are that hardware fires.
    pub(super) fn watch_chains(&mut self) {
        let mut chains = std::mem::take(&mut self.chains);
        chains.retain(|index| {
            let stays = self.watch(*index);
            if !stays {
                self.end(*index);
            }
            stays
        });
        self.chains = chains;
    }

    /// A queue has come to its end.
    fn end(&mut self, index: usize) {
        self.ended.extend(self.queues.take(index));
    }

    fn look_at_doorbells(&mut self) {
        for index in 0..self.queues.numbers() {
            let Some(agenda) = self.queues.get(index) else {
                continue;
            };
            let calls = |agenda: &Agenda<W>| match &agenda.firing {
                None => agenda.queue.calls(),
                Some(firing) => firing
                    .rung
                    .is_some_and(|parts| agenda.queue.rings_on(firing.number, parts)),
            };
            if agenda.chained.is_none() && (self.broken || calls(agenda)) {
                self.make_ready(index);
            }
        }
    }

    /// Takes what is ready as far as it goes.
    pub(super) fn go_on(&mut self) {
        self.go_on_with_slots();
        // A slot that has come back is another queue's, which may have been looked at before.
        while self.slots.take_again() {
            self.watch_chains();
            self.look_at_doorbells();
            self.go_on_with_slots();
        }
        self.send_notices();
    }

    /// As far as queues have trigger slots.
    fn go_on_with_slots(&mut self) {
        while !self.ready.is_empty() || !self.held.is_empty() {
            let mut ready = std::mem::take(&mut self.ready);
            for index in ready.drain(..) {
                if let Some(agenda) = self.queues.get(index) {
                    agenda.ready = false;
                    self.work(index);
                }
            }
            // With those that have become ready meanwhile.
            ready.append(&mut self.ready);
            self.ready = ready;
            // Now that all signals are known that could go along.
            let mut late = std::mem::take(&mut self.late);
            for index in late.drain(..) {
                self.bring(index);
            }
            self.late = late;
            if !self.send_held() && self.ready.is_empty() {
                break;
            }
        }
    }

    pub(super) fn make_ready(&mut self, index: usize) {
        if let Some(agenda) = self.queues.get(index)
            && !std::mem::replace(&mut agenda.ready, true)
        {
            self.ready.push(index);
        }
    }

    fn poll(&mut self, regions: &Regions) {
        let mut events = std::mem::take(&mut self.events);
        let mut polled = self.wire.poll(&mut events);
        let mut unsent = Vec::new();
        for rail in &self.rails {
            rail.help();
            polled = polled.and(rail.collect(&mut events, &mut unsent));
        }
        for event in events.drain(..) {
            match event {
                Event::Notice(bits) => {
                    self.heard += 1;
                    regions.hear(Notice::decode(bits));
                }
                Event::Done(cookie) => self.landed(cookie, None),
                Event::Failed(cookie, why) => self.landed(cookie, Some(why)),
                Event::Moved => {
                    self.heard += 1;
                    self.moved = true;
                }
                Event::Broken(context, why) => {
                    self.moved = true;
                    self.broke(context, &why);
                }
                Event::Written => self.written(),
            }
        }
        self.events = events;
        for (cookie, why) in unsent {
            self.unsent(cookie, &why);
        }
        if let Err(error) = polled {
            self.broken = true;
            self.failure = Some(format!("{}: {error}", self.wire.name()));
            self.dead.extend(self.flights.take_all());
            self.adrift.clear();
            self.handed = 0;
            // Those that are broken off have failed: nothing more of them goes out, but what is being posted.
            let jobs = self.rails.iter().map(|rail| rail.close());
            self.ended_jobs.extend(jobs.flatten());
            self.held.clear();
            self.asking.clear();
            self.notices.clear();
        }
    }

    /// Takes a queue as far as it goes.
    fn work(&mut self, index: usize) {
        loop {
            let Some(agenda) = self.queues.get(index) else {
                return;
            };
            if agenda.chained.is_some() {
                return;
            }
            if self.broken {
                self.dead_programs.extend(agenda.queue.give_up());
                let (firing, closed) = (
                    agenda.firing.take(),
                    agenda.queue.closed.load(Ordering::Acquire),
                );
                if let Some(firing) = firing {
                    self.ends(firing.is_stranded);
                    self.dead_programs.push(firing.program);
                }
                if closed {
                    self.end(index);
                }
                return;
            }
            if agenda.fails && agenda.firing.is_none() {
                // A poison is to come last.
                if agenda.is_in_doubt() {
                    self.ask(index);
                    return;
                }
                agenda.fails = false;
                self.give_up(index);
                continue;
            }
            let Some(firing) = &mut agenda.firing else {
                match agenda.queue.look() {
                    Seen::Nothing => return,
                    Seen::Rung(program, rung) => {
                        let number = agenda.queue.fires();
                        self.firing += 1;
                        agenda.firing = Some(Firing::begin(program, number, rung));
                        continue;
                    }
                    // A poison is to come last, and memory to stay until then.
                    Seen::Poisoned | Seen::Over if agenda.is_in_doubt() => {
                        self.ask(index);
                        return;
                    }
                    Seen::Poisoned => {
                        self.give_up(index);
                        return;
                    }
                    Seen::Over => {
                        self.give_up(index);
                        self.end(index);
                        return;
                    }
                }
            };
            let mut broken = false;
            if firing.rung.is_some() {
                match agenda.queue.ring_of(firing.number) {
                    Ring::Whole => firing.rung = None,
                    Ring::Parts(parts) => firing.rung = Some(parts),
                    Ring::Broken => broken = true,
                }
            }
            let (departure, only_sends) = (agenda.queue.departure(), firing.only_sends::<W>());
            if broken || departure == Stage::Lost {
                firing.fate = Fate::Failed;
            }
            if let Fate::Held(what, question) = &firing.fate {
                // What fails while the peer leaves waits for that: the end of its connections is heard of first.
                let is_held = match departure {
                    Stage::Here => !self.departures.is_answered(*question),
                    Stage::Leaving => only_sends,
                    Stage::Left | Stage::Lost => false,
                };
                if is_held {
                    return;
                }
                departure.says(only_sends, what);
                firing.fate = Fate::Failed;
            }
            // Its peer has left, in good order: it has got all that it waited for. Nothing more goes out, so what was to
            // be asked for does not come; what else has failed since is no failure.
            let has_left = departure == Stage::Left;
            if has_left && !firing.has_failed() && firing.is_to_ask::<W>() {
                departure.says(false, &never_comes(agenda.queue.peer));
                firing.fate = Fate::Failed;
            }
            let nobody = has_left && (only_sends || !firing.has_failed());
            let is_stranded = firing.is_stranded;
            if nobody && firing.under_way == 0 && firing.rung.is_none() {
                agenda.firing = None;
                agenda.queue.through();
                self.ends(is_stranded);
                continue;
            }
            // What had failed before it left waits for that, too; and when it has left, for the rest of the ring, unless
            // that has failed itself.
            let waits = match departure {
                Stage::Here | Stage::Lost => false,
                Stage::Leaving => only_sends,
                Stage::Left => nobody && firing.rung.is_some() && !broken,
            };
            if firing.has_failed() && waits {
                return;
            }
            // Nobody waits for it any more: it is not tried for ever.
            let refused = firing.under_way == 0 && !firing.signalled && agenda.queue.is_abandoned();
            if firing.has_failed() || refused {
                if firing.under_way > 0 {
                    return;
                }
                agenda.firing = None;
                agenda.fails = true;
                self.ends(is_stranded);
                continue;
            }
            if firing.signalled && firing.under_way == 0 {
                let firing = agenda.firing.take();
                agenda.queue.through();
                self.ends(is_stranded);
                self.signalled(index, || {
                    script(&firing.expect("there is one").program).signalled()
                });
                continue;
            }
            if nobody || firing.signalled || !self.advance(index) {
                return;
            }
        }
    }
}
