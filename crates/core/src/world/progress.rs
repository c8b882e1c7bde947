//! How far a rank has come in its exchanges with all ranks.

use std::time::{Duration, Instant};

use tidegate_hal::control::ControlError;

use crate::message::Inside;

/// The number of exchanges of a rank, and its current collective call.
#[derive(Default)]
pub(super) struct Progress {
    /// How many exchanges the rank has come to.
    come: u64,
    /// The collective call that the program is in.
    call: Option<Call>,
}

struct Call {
    /// What the call does, for people.
    what: String,
    since: Instant,
    state: CallState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// The program is between two exchanges.
    Works,
    /// The program is in an exchange, and waits for the other ranks.
    Waits,
}

impl Progress {
    /// Notes that the program begins a collective call.
    pub(super) fn begin(&mut self, what: String) {
        self.call = Some(Call {
            what,
            since: Instant::now(),
            state: CallState::Works,
        });
    }

    /// Notes that the call has ended.
    pub(super) fn end(&mut self) {
        self.call = None;
    }

    /// Whether the program has been in a collective call for at least this time.
    pub(super) fn is_in_a_call_for(&self, long: Duration) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| call.since.elapsed() >= long)
    }

    /// The number of exchanges, and the current collective call, for an answer to the reporter.
    pub(super) fn said(&self) -> (u64, Option<Inside>) {
        let inside = self.call.as_ref().map(|call| Inside {
            what: call.what.clone(),
            millis: call.since.elapsed().as_millis() as u64,
            waits: call.state == CallState::Waits,
        });
        (self.come, inside)
    }

    /// Notes that the rank comes to an exchange.
    pub(super) fn enter(&mut self) {
        self.come += 1;
        self.set(CallState::Waits);
    }

    /// Notes that the exchange has ended. `refused` says that the control plane did not even begin it.
    pub(super) fn leave(&mut self, refused: bool) {
        // The exchange did not happen, so the others wait for this rank's next one instead.
        self.come -= u64::from(refused);
        self.set(CallState::Works);
    }

    /// Adds to an error what this rank does, with the window. Labels do not name windows: if labels differed, there
    /// would be no further exchange, but ranks that open different windows stay in step.
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
