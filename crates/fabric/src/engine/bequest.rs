//! What an engine leaves to its wires when it goes.
//!
//! # Model
//!
//! The network may access memory that operations name for as long as it has the endpoint open, and that may be for
//! longer than there is a wire: registrations may belong to the endpoint, and hold it (those that are
//! [kept](super::agent::Agent::kept) for peers among them), and so do deferred works that cannot be taken back. So what is under
//! way when the engine goes is handed over to the wires, which keep it until their endpoints are closed: programs, with
//! all that they keep, and what belongs to operations alone (buffers, words that are read to).

use std::sync::{Arc, Mutex};

use tidegate_hal::nic::Keep;

use super::state::Engine;
use crate::wire::Wire;

impl<W: Wire> Drop for Engine<W> {
    fn drop(&mut self) {
        let (mut flights, mut programs) = self.wreck.take().unwrap_or_default();
        flights.extend(self.flights.take_all());
        let firings = self.queues.all.iter().filter_map(|one| one.firing());
        let under_way = firings.filter(|firing| firing.under_way > 0);
        programs.extend(under_way.map(|firing| firing.program.clone()));
        if flights.is_empty() && programs.is_empty() {
            return;
        }
        // Each has all of it: a rail may have posted what the engine has not heard of. (Nobody locks it: what is kept
        // must be fit to be shared.)
        let kept: Keep = Arc::new(Mutex::new((flights, programs)));
        for rail in &self.rails {
            rail.with(|wire| wire.keep(kept.clone()));
        }
        self.wire.keep(kept);
    }
}
