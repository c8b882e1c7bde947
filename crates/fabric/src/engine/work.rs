//! Turns of the engine: everything goes on as far as it goes.

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
    /// Whether everything that was rung for is through, and has come; and, if that is asked for, every peer is told
    /// that is to be told of a failure.
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

    /// Takes everything as far as it goes. `look`: doorbells may have been rung, or queues closed, since the last turn
    /// that looked.
    pub(super) fn turn(&mut self, regions: &Regions, look: bool) {
        self.full = false;
        self.pool.turn();
        let mut stalled = std::mem::take(&mut self.queues.stalled);
        if !stalled.is_empty() {
            // Another is the first each time: it may take all of what a turn copies.
            stalled.rotate_left(1);
        }
        for index in stalled.drain(..) {
            self.queues.make_ready(index);
        }
        self.queues.stalled = stalled;
        self.watch_chains();
        if look || self.is_broken() {
            // What was rung for goes out before anything else is looked at: a look at the wire takes as long as a post.
            self.look_at_doorbells();
            let before = self.heard;
            self.go_on();
            // But where much was copied, what has come has waited for as long.
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
    }

    /// Looks how far the queues are that hardware fires.
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

    /// Takes what is ready as far as it goes.
    pub(super) fn go_on(&mut self) {
        self.go_on_with_slots();
        // A slot that has come back is another queue's, which may have been looked at before.
        while self.slots.take_again() {
            self.watch_chains();
            self.look_at_doorbells();
            self.go_on_with_slots();
        }
        self.send_poisonings();
    }

    /// As far as queues have trigger slots.
    fn go_on_with_slots(&mut self) {
        while !self.queues.ready.is_empty() || !self.queues.signals.is_empty() {
            let mut ready = std::mem::take(&mut self.queues.ready);
            for index in ready.drain(..) {
                if let Some(agenda) = self.queues.all.get(index) {
                    agenda.is_ready = false;
                    while self.work(index) {}
                }
            }
            // With those that have become ready meanwhile.
            ready.append(&mut self.queues.ready);
            self.queues.ready = ready;
            // Now that all signals are known that could go along.
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

    /// Hears what has happened on the wires. Whether something of a chain may be through.
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
        for (cookie, why) in unsent {
            self.unsent(cookie, &why);
        }
        if let Err(error) = polled {
            self.failure = Some(format!("{}: {error}", self.wire.name()));
            self.wreck = Some((self.flights.take_all(), Vec::new()));
            // Those that are broken off have failed: nothing more of them goes out, but what is being posted.
            let jobs = self.rails.iter().map(|rail| rail.close());
            self.ended.1.extend(jobs.flatten());
            self.queues.signals.clear();
            self.queues.asking.clear();
            self.poisonings.clear();
        }
        moved
    }

    /// Takes a queue a step on. Whether there may be another.
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
                // A poison is to come last.
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

    /// The wire is broken, so a queue gives up. What was under way may be accessed still.
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

    /// Begins what an idle queue has been rung for. Whether there is something.
    fn begin(&mut self, index: usize) -> bool {
        let agenda = self.queues.get(index);
        match agenda.queue.look() {
            Seen::Nothing => return false,
            Seen::Rung(program, ring) => {
                let firing = Firing::begin(program, agenda.queue.fires(), ring);
                self.queues.begins(index, firing);
                return true;
            }
            // A poison is to come last, and memory to stay until then.
            Seen::Poisoned | Seen::Over if agenda.is_in_doubt() => self.ask(index),
            Seen::Poisoned => self.give_up(index),
            Seen::Over => {
                self.give_up(index);
                self.end(index);
            }
        }
        false
    }

    /// Takes a firing a step on. Whether there may be another.
    fn fire(&mut self, index: usize) -> bool {
        let (firing, queue) = self.queues.firing(index).expect("it is firing");
        let departure = queue.departure();
        firing.look_at_ring(queue);
        let only_sends = firing.only_sends::<W>();
        if firing.ring() == Ring::Broken || departure == Stage::Lost {
            firing.fate = Fate::Failed;
        }
        if let Fate::Asked(what, question) = &firing.fate {
            // What fails while the peer leaves waits for that: the end of its connections is heard of first.
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
        // Its peer has left, in good order: it has got all that it waited for. Nothing more goes out, so what was to
        // be asked for does not come; what else has failed since is no failure.
        let has_left = departure == Stage::Left;
        if has_left && !firing.has_failed() && firing.is_to_ask::<W>() {
            departure.says(false, &never_comes(queue.peer));
            firing.fate = Fate::Failed;
        }
        let nobody = has_left && (only_sends || !firing.has_failed());
        let is_over = firing.under_way == 0;
        let has_signalled = firing.has_signalled();
        if nobody && is_over && firing.ring() == Ring::Whole {
            self.is_through(index);
            return true;
        }
        if firing.has_failed() {
            // What had failed before the peer left waits for that, too; and when it has left, for the rest of the ring,
            // unless that has failed itself.
            let waits = match departure {
                Stage::Here | Stage::Lost => false,
                Stage::Leaving => only_sends,
                Stage::Left => nobody && firing.ring() != Ring::Broken,
            };
            if waits {
                return false;
            }
        }
        // What nobody waits for any more is not tried for ever.
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

    /// A firing is through: the sent word says so.
    fn is_through(&mut self, index: usize) -> Option<Firing> {
        let firing = self.queues.ends(index, QueueState::Idle);
        self.queues.get(index).queue.through();
        firing
    }
}
