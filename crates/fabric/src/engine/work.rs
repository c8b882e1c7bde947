//! What is under way, and how it goes on.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::nic::Prepared;
use tidegate_hal::slots::Slots;
use tidegate_hal::tell;

use super::chained::Chained;
use super::contact::{Contact, Way};
use super::departure::{Departures, Stage};
use super::doubt::Doubt;
use super::firing::{Firing, Flight, Held};
use super::gather::{Lent, Pool};
use super::program::script;
use super::queue::{Queue, Ring, Seen};
use super::rail::{Job, Rail};
use super::slab::Slab;
use super::tell::Poisoning;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::wire::{Event, Wire};

/// What is under way.
pub(crate) struct Engine<W: Wire> {
    /// First, so that it is dropped first; what may be read or written even then has been [handed over](super::bequest).
    pub(crate) wire: W,
    /// What sends besides it; likewise.
    pub(crate) rails: Vec<Arc<Rail<W>>>,
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
    pub(super) fn new(wire: W, slots: Arc<Slots>, silence: Duration) -> Self {
        Engine {
            wire,
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
        if let Some(why) = self.contact.unanswered() {
            self.failure.get_or_insert(why);
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
                    if !regions.hear(Notice::decode(bits)) {
                        tell(|| {
                            tracing::warn!(
                                "a notice named memory that is not registered (any more)"
                            )
                        });
                    }
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

    /// An operation is over, whether or not somebody waits for it.
    fn lands(&mut self, cookie: u64) {
        if !self.adrift.is_empty() {
            self.adrift.remove(&(cookie as usize));
        }
    }

    /// An operation is over.
    fn landed(&mut self, cookie: u64, failed: Option<String>) {
        self.heard += 1;
        let came = |lent: Option<Lent>| {
            if let (Some(lent), None) = (lent, &failed) {
                // SAFETY: `NicQueue::prepare` promised where gets write, until the firing is through, which it is not
                // before `over`.
                unsafe { lent.came::<W>() };
            }
        };
        self.lands(cookie);
        match self.flights.take(cookie as usize) {
            Some(Flight::Of(index, lent)) => {
                came(lent);
                self.over(index, failed);
            }
            Some(Flight::With(index, held, lent)) => {
                came(lent);
                // Nor is its signal posted again, though it is not to blame: an operation that is reported as failed
                // may have come all the same, when its connection broke behind it, and a second quantum would expose
                // memory that is in use.
                self.over(held.queue, failed.clone());
                self.over(index, failed);
            }
            Some(Flight::Handed(index, rail)) => {
                self.comes_back(index);
                self.over_by(index, rail, failed);
            }
            Some(Flight::Poisoning(poisoning)) => {
                self.contact.answers(Way::own(poisoning.peer));
                self.told(poisoning, failed.as_deref());
            }
            Some(Flight::Look(look)) => self.looked(&look, failed),
            None => debug_assert!(self.broken, "an event for nothing"),
        }
    }

    /// An operation of a queue is over.
    pub(super) fn over(&mut self, index: usize, failed: Option<String>) {
        self.over_by(index, 0, failed);
    }

    /// Likewise, one that went by this rail.
    fn over_by(&mut self, index: usize, rail: usize, failed: Option<String>) {
        let agenda = self.queues.get(index);
        let of_firing = agenda.and_then(|agenda| Some((agenda.firing.as_mut()?, &agenda.queue)));
        let Some((firing, queue)) = of_firing else {
            debug_assert!(self.broken, "a queue stays as long as it has a firing");
            return;
        };
        let (peer, departure) = (queue.peer, queue.departure());
        let way = Way { peer, rail };
        firing.under_way -= 1;
        let in_parts = script::<W>(&firing.program).parts.is_some();
        if failed.is_some() || !(firing.signalled || in_parts) {
            self.contact.answers(way);
        } else {
            self.contact.is_through(way);
            if firing.under_way > 0 {
                self.contact.asks(peer);
            }
        }
        if let Some(why) = failed {
            let what = format!("a transfer to rank {peer} failed: {why}");
            departure.says(firing.only_sends::<W>(), &what);
            firing.failed = true;
        }
        self.make_ready(index);
    }

    /// What a rail was handed is over, for a firing.
    fn comes_back(&mut self, index: usize) -> &mut Firing {
        self.handed -= 1;
        let agenda = self
            .queues
            .get(index)
            .expect("it stays as long as it has a firing");
        let firing = agenda
            .firing
            .as_mut()
            .expect("it stays until nothing is under way");
        firing.by_rails -= 1;
        firing
    }

    /// A rail has not begun what it was handed, and will not: which is no answer of the peer's.
    fn unsent(&mut self, cookie: u64, why: &str) {
        self.lands(cookie);
        let Some(Flight::Handed(index, _)) = self.flights.take(cookie as usize) else {
            debug_assert!(self.broken, "nothing else is handed over");
            return;
        };
        self.heard += 1;
        self.comes_back(index).under_way -= 1;
        let has_left = |agenda: &Agenda<W>| agenda.queue.departure() == Stage::Left;
        if !self.queues.at(index).is_some_and(has_left) {
            self.spoil(index, why);
        }
        self.make_ready(index);
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
            firing.failed |= broken;
            // Its peer has left, in good order: it has got all that it waited for. Nothing more goes out, so what was to
            // be asked for does not come; what else has failed since is no failure.
            let departure = agenda.queue.departure();
            let has_left = departure == Stage::Left;
            if has_left && !firing.failed && firing.is_to_ask::<W>() {
                departure.says(false, &never_comes(agenda.queue.peer));
                firing.failed = true;
            }
            let nobody = has_left && (firing.only_sends::<W>() || !firing.failed);
            let is_stranded = firing.is_stranded;
            if nobody && firing.under_way == 0 && firing.rung.is_none() {
                agenda.firing = None;
                agenda.queue.through();
                self.ends(is_stranded);
                continue;
            }
            // What fails while it leaves waits for that: the end of its connections is heard of first. And when it has
            // left, for the rest of the ring, unless that has failed itself.
            let waits = match departure {
                Stage::Here => false,
                Stage::Leaving => firing.only_sends::<W>(),
                Stage::Left => nobody && firing.rung.is_some() && !broken,
            };
            if firing.failed && waits {
                return;
            }
            // Nobody waits for it any more: it is not tried for ever.
            let refused = firing.under_way == 0 && !firing.signalled && agenda.queue.is_abandoned();
            if firing.failed || refused {
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
