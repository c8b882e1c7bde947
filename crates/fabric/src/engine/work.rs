//! What is under way, and how it goes on.

use std::sync::atomic::Ordering;

use super::agenda::Agenda;
use super::departure::{Stage, never_comes};
use super::firing::{Fate, Firing, Flight};
use super::program::script;
use super::queue::{Ring, Seen};
use super::state::Engine;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::wire::{Event, Wire};

impl<W: Wire> Engine<W> {
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
