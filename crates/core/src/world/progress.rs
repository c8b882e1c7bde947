//! How far a rank has come in what all ranks do together.

use std::time::{Duration, Instant};

use tidegate_hal::control::ControlError;

use crate::message::Inside;

/// Where a rank is among what all ranks do together.
#[derive(Default)]
pub(super) struct Progress {
    /// How many exchanges it has come to.
    come: u64,
    /// What it does, since when, and whether it is in an exchange.
    inside: Option<(String, Instant, bool)>,
}

impl Progress {
    /// The program begins a collective call.
    pub(super) fn begin(&mut self, what: String) {
        self.inside = Some((what, Instant::now(), false));
    }

    /// The call is over.
    pub(super) fn end(&mut self) {
        self.inside = None;
    }

    /// Whether the program has been in a collective call for so long.
    pub(super) fn is_in_a_call_for(&self, long: Duration) -> bool {
        let inside = self.inside.as_ref();
        inside.is_some_and(|(_, since, _)| since.elapsed() >= long)
    }

    /// How many exchanges this rank has come to, and the collective call that it is in.
    pub(super) fn said(&self) -> (u64, Option<Inside>) {
        let inside = self.inside.as_ref();
        let inside = inside.map(|(what, since, waits)| Inside {
            what: what.clone(),
            millis: since.elapsed().as_millis() as u64,
            waits: *waits,
        });
        (self.come, inside)
    }

    pub(super) fn enter(&mut self) {
        self.come += 1;
        self.waits(true);
    }

    pub(super) fn leave(&mut self, refused: bool) {
        // The others wait for this rank's next one: that is the same to them.
        self.come -= u64::from(refused);
        self.waits(false);
    }

    /// Names what this rank does, window and all. Labels name none: where they differ no exchange comes after, and ranks
    /// that open different windows stay in step.
    pub(super) fn named(&self, mut error: ControlError) -> ControlError {
        if let (
            Some((what, ..)),
            ControlError::PeerLost { label: mine, .. }
            | ControlError::TooLarge { label: mine, .. }
            | ControlError::Mismatch { mine, .. },
        ) = (&self.inside, &mut error)
        {
            mine.clone_from(what);
        }
        error
    }

    fn waits(&mut self, does: bool) {
        if let Some((_, _, waits)) = &mut self.inside {
            *waits = does;
        }
    }
}
