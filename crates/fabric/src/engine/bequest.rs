//! What an engine leaves to its wires when it is dropped.
//!
//! # Model
//!
//! The network may access the memory that operations name for as long as it has the endpoint open. That may be longer
//! than the wire exists: registrations may belong to the endpoint and hold it, among them those that are
//! [kept](super::agent::Agent::kept) for peers. So may deferred works that cannot be taken back. So everything that is
//! in progress when the engine is dropped goes to the wires, which keep it until their endpoints are closed. This is
//! programs, with all that they keep, and the memory of single operations (buffers, words that are read into).

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
        // Each wire keeps everything, because a rail may have posted operations that the engine does not know of.
        // (Nobody locks the mutex. It is there because kept values must be `Sync`.)
        let kept: Keep = Arc::new(Mutex::new((flights, programs)));
        for rail in &self.rails {
            rail.with(|wire| wire.keep(kept.clone()));
        }
        self.wire.keep(kept);
    }
}
