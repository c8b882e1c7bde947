//! The rounds of a barrier, as one batch.
//!
//! # Model
//!
//! A barrier uses a window without data. In each round a rank signals its target like a complete: the stream or the NIC
//! adds to the target's *done* word. Then the rank waits for its origin of the round, like an inbox. No epoch is
//! opened: nothing is written, so nothing has to be exposed.
//!
//! The first signal and the last wait are lanes of their own. (Each wait has a word of its own.) A GPU knows such lanes
//! without reading their steps, and lets the next batch begin before the signal has arrived. Between them is one lane, so
//! that it can have gates.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Batch, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::describe::rounds;
use super::exposure::{signal_arms, signal_steps};
use super::shape::index_of;
use super::{BySlot, Half, Inbox, Link, Outbox, submit_armed};
use crate::epochs::Epochs;
use crate::error::Result;
use crate::half_kind::HalfKind;
use crate::observe::EpochCall;
use crate::stream::{Arm, Stream};
use crate::world::Watched;

/// All rounds of a barrier, as one batch.
pub(crate) struct Rounds<D: Device> {
    batch: Arc<Batch>,
    arms: Vec<Arm<D>>,
    /// The count of epochs; each barrier is one.
    epochs: Arc<Epochs>,
    window: Arc<Watched<D>>,
}

impl<D: Device> Rounds<D> {
    /// Makes the rounds from the halves of a [window for a barrier](super::Window::of_barrier).
    pub(crate) fn new(
        inbox: &Inbox<'_, u8, D, BySlot>,
        outbox: &Outbox<'_, u8, D, BySlot>,
    ) -> Result<Self> {
        let (inbound, outbound) = (inbox.half(), &outbox.held.half);
        let roster = &outbound.roster;
        let (rank, ranks) = (roster.rank, roster.size());
        let of = |half: &Half<D>| -> Vec<_> { half.peers.iter().map(|peer| peer.rank).collect() };
        let (origins, targets) = (of(inbound), of(outbound));
        let (mut signals, mut waits, mut by_nic) = (Vec::new(), Vec::new(), false);
        for step in rounds(ranks) {
            let target = roster.in_job((rank + step) % ranks)?;
            let origin = roster.in_job((rank + ranks - step) % ranks)?;
            let target = &outbound.peers[index_of(target, &targets)];
            let origin = &inbound.peers[index_of(origin, &origins)];
            signals.push(signal_steps(target, outbound.window.id, Awaited::Barrier));
            let tag = Tag {
                window: Some(inbound.window.id),
                peer: origin.rank as u32,
                awaited: Awaited::Barrier,
            };
            waits.push(Step::Wait(Wait {
                word: origin.word,
                operand: origin.operand,
                quantum: QUANTUM,
                tag,
                landed: None,
                ring: None,
            }));
            by_nic |= [target, origin]
                .map(|peer| &peer.link)
                .iter()
                .any(|link| matches!(link, Link::Nic(_)));
        }
        let arms = signal_arms(outbound, outbound.peers.iter())?;
        let last = waits.pop();
        let mut signals = signals.into_iter();
        let first = signals.next().unwrap_or_default();
        let between = waits.into_iter().zip(signals);
        let between = between.flat_map(|(wait, signal)| [wait].into_iter().chain(signal));
        let lanes = [first, between.collect(), last.into_iter().collect()];
        let lanes = lanes.into_iter().filter(|lane: &Vec<_>| !lane.is_empty());
        // SAFETY: words, operands and bells lie in blocks that the halves hold, and these are retired in stream order.
        // Only this rank adds to the peers' done words and to the doorbells. No epoch of these halves is ever opened,
        // so only this batch advances the operands, on the stream that the barrier is at home on.
        let batch = unsafe { Batch::new(lanes, Vec::new()) }.helped(by_nic);
        Ok(Rounds {
            batch: Arc::new(batch),
            arms,
            epochs: inbound.epochs.clone(),
            window: inbound.window.clone(),
        })
    }

    /// Enqueues all rounds.
    pub(crate) fn submit(&self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        self.window.waits_at(HalfKind::Inbox, site);
        self.epochs.enqueue(stream, None, || {
            submit_armed(stream, &[&self.arms], &self.batch, EpochCall::Barrier, site)
        })
    }
}
