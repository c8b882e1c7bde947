//! How far a rank has come in its calls with others.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use tidegate_hal::control::ControlError;
use tidegate_hal::ids::TeamId;

use super::members::Members;
use crate::message::Inside;

/// Names those that come together: a team, or the ranks that make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gathering(u64);

impl Gathering {
    pub(super) fn of(team: TeamId) -> Self {
        Gathering(u64::from(team.number()))
    }

    /// The ranks that make a team. Equal teams have equal numbers, and no team has the number of another gathering.
    pub(super) fn making(name: &str, ranks: &[usize]) -> Self {
        let mut hash = DefaultHasher::new();
        (name, ranks).hash(&mut hash);
        Gathering(hash.finish() | 1 << 63)
    }
}

/// For each team, the number of exchanges of this rank, and its current collective call.
#[derive(Default)]
pub(super) struct Progress(BTreeMap<Gathering, Standing>);

struct Standing {
    /// How many exchanges the rank has come to.
    come: u64,
    /// The collective call that the program is in.
    call: Option<Call>,
    members: Members,
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
    /// Notes that the program begins a collective call of these ranks.
    pub(super) fn begin(&mut self, gathering: Gathering, members: &Members, what: String) {
        let standing = self.0.entry(gathering).or_insert_with(|| Standing {
            come: 0,
            call: None,
            members: members.clone(),
        });
        standing.call = Some(Call {
            what,
            since: Instant::now(),
            state: CallState::Works,
        });
    }

    /// Notes that the call has ended.
    pub(super) fn end(&mut self, gathering: Gathering) {
        if let Some(standing) = self.0.get_mut(&gathering) {
            standing.call = None;
        }
    }

    /// Forgets a team, or ranks that have made one.
    pub(super) fn forget(&mut self, gathering: Gathering) {
        self.0.remove(&gathering);
    }

    fn calls(&self) -> impl Iterator<Item = (&Gathering, &Standing, &Call)> {
        let standings = self.0.iter();
        standings.filter_map(|(key, standing)| Some((key, standing, standing.call.as_ref()?)))
    }

    /// Whether the program has been in a collective call for at least this time.
    pub(super) fn is_in_a_call_for(&self, long: Duration) -> bool {
        self.calls()
            .any(|(_, _, call)| call.since.elapsed() >= long)
    }

    /// The numbers of exchanges, and the current collective calls, for an answer to the reporter.
    pub(super) fn said(&self) -> (Vec<(u64, u64)>, Vec<Inside>) {
        let come = self.0.iter();
        let come = come.map(|(key, standing)| (key.0, standing.come));
        let inside = self.calls().map(|(key, standing, call)| Inside {
            what: call.what.clone(),
            millis: call.since.elapsed().as_millis() as u64,
            waits: call.state == CallState::Waits,
            gathering: key.0,
            members: standing.members.listed(),
        });
        (come.collect(), inside.collect())
    }

    /// Notes that the rank comes to an exchange.
    pub(super) fn enter(&mut self, gathering: Gathering) {
        if let Some(standing) = self.0.get_mut(&gathering) {
            standing.come += 1;
            standing.set(CallState::Waits);
        }
    }

    /// Notes that the exchange has ended. `refused` says that the control plane did not even begin it.
    pub(super) fn leave(&mut self, gathering: Gathering, refused: bool) {
        if let Some(standing) = self.0.get_mut(&gathering) {
            // The exchange did not happen, so the others wait for this rank's next one instead.
            standing.come -= u64::from(refused);
            standing.set(CallState::Works);
        }
    }

    /// Adds to an error what this rank does, with the window. Labels do not name windows: if labels differed, there
    /// would be no further exchange, but ranks that open different windows stay in step.
    pub(super) fn named(&self, gathering: Gathering, mut error: ControlError) -> ControlError {
        let call = self.0.get(&gathering);
        if let (
            Some(call),
            ControlError::PeerLost { label: mine, .. }
            | ControlError::TooLarge { label: mine, .. }
            | ControlError::Mismatch { mine, .. },
        ) = (call.and_then(|standing| standing.call.as_ref()), &mut error)
        {
            mine.clone_from(&call.what);
        }
        error
    }
}

impl Standing {
    fn set(&mut self, state: CallState) {
        if let Some(call) = &mut self.call {
            call.state = state;
        }
    }
}
