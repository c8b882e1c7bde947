//! Turns of the engine, in which everything goes on as far as possible.

use std::sync::atomic::Ordering;

use super::departure::{Stage, never_comes};
use super::firing::{Fate, Firing, Flight};
use super::program::script;
use super::queue::{Ring, Seen};
use super::queues::{Agenda, QueueState};
use super::state::Engine;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::wire::{Event, Wire};

impl<W: Wire> Engine<W> {
    /// Whether everything that was rung for is through, and has arrived. With `told`, also whether every peer that must
    /// be told of a failure has been told.
    pub(super) fn is_idle(&mut self, told: bool) -> bool {
        if self.is_broken() {
            return true;
        }
        self.ask_all();
        let telling = |flight: &Flight<W>| matches!(flight, Flight::Poisoning(..));
        let all_told = self.poisonings.is_empty() && !self.flights.iter().any(telling);
        let over = |agenda: &Agenda<W>| agenda.queue.is_idle() && !agenda.is_in_doubt();
        (all_told || !told) && self.queues.all.iter().all(over)
    }

    /// Takes everything as far as possible. `look` says that doorbells may have been rung, or queues closed, since the
    /// last turn that looked.
    pub(super) fn turn(&mut self, regions: &Regions, look: bool) {
        self.full = false;
        self.pool.turn();
        if regions.has_letters() {
            self.read_letters(regions);
        }
        let mut stalled = std::mem::take(&mut self.queues.stalled);
        if !stalled.is_empty() {
            // A different queue comes first each time, because it may use up all that a turn copies.
            stalled.rotate_left(1);
        }
        for index in stalled.drain(..) {
            self.queues.make_ready(index);
        }
        self.queues.stalled = stalled;
        self.watch_chains();
        if look || self.is_broken() {
            // Rung programs go out before the look at the wire, because that takes as long as a post.
            self.look_at_doorbells();
            let before = self.heard;
            self.go_on();
            self.end_served(regions);
            // But if much was copied, events have waited for as long.
            if self.heard != before && !self.pool.is_spent() {
                return;
            }
        }
        if !self.is_broken() && self.poll(regions) {
            self.watch_chains();
        }
        for peer in self.peers.departures.overdue(self.peers.silence) {
            self.takes_up(peer);
        }
        if let Some((peer, limit)) = self.peers.contact.unanswered() {
            self.peers.falls_silent(peer, limit);
        }
        if let Some(why) = self.peers.judge_silent() {
            self.failure.get_or_insert(why);
        }
        self.ask_again();
        self.go_on();
        self.end_served(regions);
    }

    /// Looks at the queues that hardware fires.
    pub(super) fn watch_chains(&mut self) {
        let mut chains = std::mem::take(&mut self.queues.chains);
        chains.retain(|index| {
            let stays = self.watch(*index);
            if !stays {
                self.end(*index);
            }
            stays
        });
        self.queues.chains = chains;
    }

    fn look_at_doorbells(&mut self) {
        for index in 0..self.queues.all.numbers() {
            let Some(agenda) = self.queues.all.get(index) else {
                continue;
            };
            let calls = match &agenda.state {
                QueueState::Chained { .. } => false,
                _ if self.wreck.is_some() => true,
                QueueState::Firing(firing) => firing.is_called(&agenda.queue),
                QueueState::Idle | QueueState::Failing => agenda.queue.calls(),
            };
            if calls {
                self.queues.make_ready(index);
            }
        }
    }

    /// Takes the ready queues as far as possible.
    pub(super) fn go_on(&mut self) {
        self.go_on_with_slots();
        // A slot that came back may have gone to a queue that this turn had already passed.
        while self.slots.take_again() {
            self.watch_chains();
            self.look_at_doorbells();
            self.go_on_with_slots();
        }
        self.send_poisonings();
    }

    /// Takes the ready queues as far as they have trigger slots.
    fn go_on_with_slots(&mut self) {
        while !self.queues.ready.is_empty() || !self.queues.signals.is_empty() {
            let mut ready = std::mem::take(&mut self.queues.ready);
            for index in ready.drain(..) {
                if let Some(agenda) = self.queues.all.get(index) {
                    agenda.is_ready = false;
                    while self.work(index) {}
                }
            }
            // Include queues that have become ready meanwhile.
            ready.append(&mut self.queues.ready);
            self.queues.ready = ready;
            // By now all signals are known that could go along.
            let mut late = std::mem::take(&mut self.queues.late);
            for index in late.drain(..) {
                self.bring(index);
            }
            self.queues.late = late;
            if !self.send_signals() && self.queues.ready.is_empty() {
                break;
            }
        }
    }

    /// Polls the wires, and handles their events. Returns whether something of a chain may be through.
    fn poll(&mut self, regions: &Regions) -> bool {
        let mut moved = false;
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
                    moved = true;
                }
                Event::Broken(context, why) => {
                    moved = true;
                    self.broke(context, &why);
                }
                Event::Written => self.written(),
            }
        }
        self.events = events;
        if regions.has_letters() {
            self.read_letters(regions);
        }
        for (cookie, why) in unsent {
            self.unsent(cookie, &why);
        }
        if let Err(error) = polled {
            self.failure = Some(format!("{}: {error}", self.wire.name()));
            self.wreck = Some((self.flights.take_all(), Vec::new()));
            // Firings that are broken off have failed. Nothing more of them goes out, except what is being posted.
            let jobs = self.rails.iter().map(|rail| rail.close());
            self.ended.1.extend(jobs.flatten());
            self.queues.signals.clear();
            self.queues.asking.clear();
            self.poisonings.clear();
        }
        moved
    }

    /// Takes a queue one step on. Returns whether there may be another.
    fn work(&mut self, index: usize) -> bool {
        if self.is_broken() {
            self.breaks_off(index);
            return false;
        }
        let Some(agenda) = self.queues.all.get(index) else {
            return false;
        };
        match &agenda.state {
            QueueState::Chained { .. } => false,
            QueueState::Firing(_) => self.fire(index),
            QueueState::Idle => self.begin(index),
            QueueState::Failing => {
                // A poison must come last.
                if agenda.is_in_doubt() {
                    self.ask(index);
                    return false;
                }
                agenda.state = QueueState::Idle;
                self.give_up(index);
                true
            }
        }
    }

    /// Gives up a queue because the wire is broken. Operations in progress may still access memory.
    fn breaks_off(&mut self, index: usize) {
        let (Some(agenda), Some((_, programs))) = (self.queues.all.get(index), &mut self.wreck)
        else {
            return;
        };
        if agenda.chained().is_some() {
            return;
        }
        programs.extend(agenda.queue.give_up());
        let closed = agenda.queue.closed.load(Ordering::Acquire);
        let firing = self.queues.ends(index, QueueState::Idle);
        programs.extend(firing.map(|firing| firing.program));
        if closed {
            self.end(index);
        }
    }

    /// Begins the next firing of an idle queue, if it was rung for. Returns whether it was.
    fn begin(&mut self, index: usize) -> bool {
        let agenda = self.queues.get(index);
        match agenda.queue.look() {
            Seen::Nothing => return false,
            Seen::Rung(program, ring) => {
                let firing = Firing::begin(program, agenda.queue.fires(), ring);
                self.queues.begins(index, firing);
                return true;
            }
            // A poison must come last, and memory must stay until then.
            Seen::Poisoned | Seen::Over if agenda.is_in_doubt() => self.ask(index),
            Seen::Poisoned => self.give_up(index),
            Seen::Over => {
                self.give_up(index);
                self.end(index);
            }
        }
        false
    }

    /// Takes a firing one step on. Returns whether there may be another.
    fn fire(&mut self, index: usize) -> bool {
        let (firing, queue) = self.queues.firing(index).expect("it is firing");
        let departure = queue.departure();
        firing.look_at_ring(queue);
        let only_sends = firing.only_sends::<W>();
        if firing.ring() == Ring::Broken || departure == Stage::Lost {
            firing.fate = Fate::Failed;
        }
        if let Fate::Asked(what, question) = &firing.fate {
            // A failure while the peer leaves waits until it has left, because this end sees the end of connections
            // first.
            let waits = match departure {
                Stage::Here => !self.peers.departures.is_answered(*question),
                Stage::Leaving => only_sends,
                Stage::Left | Stage::Lost => false,
            };
            if waits {
                return false;
            }
            departure.says(only_sends, what);
            firing.fate = Fate::Failed;
        }
        // The peer has left in good order, and has received everything that it waited for. Nothing more goes out, so
        // data that was yet to be asked for will not come. No other failure since then counts.
        let has_left = departure == Stage::Left;
        if has_left && !firing.has_failed() && firing.is_to_ask::<W>() {
            departure.says(false, &never_comes(queue.peer));
            firing.fate = Fate::Failed;
        }
        // A stranded firing is never through, because its queue has given up.
        let nobody = has_left && !firing.is_stranded && (only_sends || !firing.has_failed());
        let is_over = firing.under_way == 0;
        let has_signalled = firing.has_signalled();
        if nobody && is_over && firing.ring() == Ring::Whole {
            self.is_through(index);
            return true;
        }
        if firing.has_failed() {
            // A failure from before the peer left waits until it has left. After that, it waits for the rest of the
            // ring, unless the ring has failed itself.
            let waits = match departure {
                Stage::Here | Stage::Lost => false,
                Stage::Leaving => only_sends,
                Stage::Left => nobody && firing.ring() != Ring::Broken,
            };
            if waits {
                return false;
            }
        }
        // An operation that nobody waits for any more is not tried for ever.
        let refused = is_over && !has_signalled && queue.is_abandoned();
        if firing.has_failed() || refused {
            if is_over {
                self.queues.ends(index, QueueState::Failing);
            }
            return is_over;
        }
        if has_signalled && is_over {
            if let Some(firing) = self.is_through(index) {
                self.signalled(index, || script(&firing.program).signalled());
            }
            return true;
        }
        !nobody && !has_signalled && self.advance(index)
    }

    /// Ends a firing that is through, and adds to the sent word.
    fn is_through(&mut self, index: usize) -> Option<Firing> {
        let firing = self.queues.ends(index, QueueState::Idle);
        self.queues.get(index).queue.through();
        firing
    }
}
