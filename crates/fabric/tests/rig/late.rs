//! A control plane whose news of one rank comes late.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::control::{Control, ControlError, Decision, Event, Proposal, Sink};
use tidegate_hal::ids::TeamId;

/// Passes everything on to another control plane. Only events about the rank `of` wait until the test lets them go.
pub(crate) struct Late<C> {
    pub(crate) control: C,
    of: usize,
    held: Arc<Held>,
    /// How often a message went to that rank alone.
    asked: AtomicUsize,
}

#[derive(Default)]
struct Held {
    is_holding: AtomicBool,
    /// Held while events are handed on, so that they stay in order.
    state: Mutex<(Option<Sink>, Vec<Event>)>,
}

impl<C: Control> Late<C> {
    pub(crate) fn new(control: C, of: usize) -> Self {
        Late {
            control,
            of,
            held: Arc::default(),
            asked: AtomicUsize::new(0),
        }
    }

    /// Holds back events about the rank from now on.
    pub(crate) fn hold(&self) {
        self.held.is_holding.store(true, Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        let mut state = self.held.state.lock().unwrap();
        self.held.is_holding.store(false, Ordering::SeqCst);
        let sink = state.0.clone().expect("somebody listens");
        state.1.drain(..).for_each(|event| sink(event));
    }

    /// Whether it holds back an event about the rank's end.
    pub(crate) fn knows_of_its_end(&self) -> bool {
        let is_end = |event: &Event| !matches!(event, Event::Message { .. });
        self.held.state.lock().unwrap().1.iter().any(is_end)
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl<C: Control> Control for Late<C> {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn size(&self) -> usize {
        self.control.size()
    }

    fn node(&self, rank: usize) -> usize {
        self.control.node(rank)
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        self.control.exchange_in(team, label, bytes)
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        self.control.confer_in(team, label, proposal)
    }

    fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError> {
        self.control.found(name, ranks)
    }

    fn dissolve(&self, team: TeamId) {
        self.control.dissolve(team);
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        if to == Some(&[self.of]) && self.held.is_holding.load(Ordering::SeqCst) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.control.notify(to, bytes)
    }

    fn subscribe(&self, sink: Sink) {
        let (held, of) = (self.held.clone(), self.of);
        held.state.lock().unwrap().0 = Some(sink.clone());
        self.control.subscribe(Arc::new(move |event| {
            let rank = match &event {
                Event::Lost { rank, .. } | Event::Left { rank } => *rank,
                Event::Message { from, .. } => *from,
            };
            let mut state = held.state.lock().unwrap();
            if rank == of && held.is_holding.load(Ordering::SeqCst) {
                return state.1.push(event);
            }
            sink(event);
        }));
    }

    fn leave(&self) {
        self.control.leave();
    }

    fn fail(&self, reason: &str) {
        self.control.fail(reason);
    }
}
