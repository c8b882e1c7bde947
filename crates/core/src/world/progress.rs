//! How far a rank has come in what all ranks do together.

use std::time::{Duration, Instant};

use tidegate_hal::control::ControlError;

use crate::message::Inside;

/// Where a rank is among what all ranks do together.
#[derive(Default)]
pub(super) struct Progress {
    /// How many exchanges it has come to.
    come: u64,
    /// The collective call that its program is in.
    call: Option<Call>,
}

struct Call {
    /// What it does, for people.
    what: String,
    since: Instant,
    state: CallState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// Between two exchanges.
    Works,
    /// In an exchange: it waits for the other ranks.
    Waits,
}

impl Progress {
    /// The program begins a collective call.
    pub(super) fn begin(&mut self, what: String) {
        self.call = Some(Call {
            what,
            since: Instant::now(),
            state: CallState::Works,
        });
    }

    /// The call is over.
    pub(super) fn end(&mut self) {
        self.call = None;
    }

    /// Whether the program has been in a collective call for so long.
    pub(super) fn is_in_a_call_for(&self, long: Duration) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| call.since.elapsed() >= long)
    }

    /// How many exchanges this rank has come to, and the collective call that it is in.
    pub(super) fn said(&self) -> (u64, Option<Inside>) {
        let inside = self.call.as_ref().map(|call| Inside {
            what: call.what.clone(),
            millis: call.since.elapsed().as_millis() as u64,
            waits: call.state == CallState::Waits,
        });
        (self.come, inside)
    }

    /// It comes to an exchange.
    pub(super) fn enter(&mut self) {
        self.come += 1;
        self.set(CallState::Waits);
    }

    /// The exchange is over; `refused` if the control plane did not even make it.
    pub(super) fn leave(&mut self, refused: bool) {
        // The others wait for this rank's next one: that is the same to them.
        self.come -= u64::from(refused);
        self.set(CallState::Works);
    }

    /// Names what this rank does, window and all. Labels name none: where they differ no exchange comes after, and ranks
    /// that open different windows stay in step.
    pub(super) fn named(&self, mut error: ControlError) -> ControlError {
        if let (
            Some(call),
            ControlError::PeerLost { label: mine, .. }
            | ControlError::TooLarge { label: mine, .. }
            | ControlError::Mismatch { mine, .. },
        ) = (&self.call, &mut error)
        {
            mine.clone_from(&call.what);
        }
        error
    }

    fn set(&mut self, state: CallState) {
        if let Some(call) = &mut self.call {
            call.state = state;
        }
    }
}
