//! The rounds of a barrier, as one batch.
//!
//! # Model
//!
//! A barrier is made of a window without elements. In each round a rank tells its target of the round as a complete does,
//! by adding to that rank's *done* word, itself or by the NIC; and waits for its origin of the round as an inbox does. No
//! epoch is opened: nothing is written, so nothing need be exposed.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Batch, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::describe::rounds;
use super::exposure::{signal_arms, signal_steps};
use super::shape::index_of;
use super::{BySlot, Inbox, Outbox, Way, submit_armed};
use crate::epochs::Epochs;
use crate::error::Result;
use crate::side::Side;
use crate::stream::{Arm, Stream};
use crate::world::Watched;

/// All rounds of a barrier: one lane of one batch.
pub(crate) struct Rounds<D: Device> {
    batch: Arc<Batch>,
    arms: Vec<Arm<D>>,
    /// Each barrier counts as an epoch.
    epochs: Arc<Epochs>,
    window: Arc<Watched<D>>,
}

impl<D: Device> Rounds<D> {
    /// The rounds over the halves of a [window that was made for it](super::Window::of_barrier).
    pub(crate) fn new(
        inbox: &Inbox<'_, u8, D, BySlot>,
        outbox: &Outbox<'_, u8, D, BySlot>,
    ) -> Result<Self> {
        let (inbound, outbound) = (inbox.half(), &outbox.held.half);
        let (rank, ranks) = (outbound.world.rank(), outbound.world.size());
        let origins: Vec<_> = inbox.origins().collect();
        let targets: Vec<_> = outbox.targets().collect();
        let (mut steps, mut by_nic) = (Vec::new(), false);
        for step in rounds(ranks) {
            let target = &outbound.peers[index_of((rank + step) % ranks, &targets)];
            let origin = &inbound.peers[index_of((rank + ranks - step) % ranks, &origins)];
            steps.extend(signal_steps(target));
            let tag = Tag {
                window: Some(inbound.window.id),
                peer: origin.rank as u32,
                awaited: Awaited::Barrier,
            };
            steps.push(Step::Wait(Wait {
                word: origin.word,
                operand: origin.operand,
                quantum: QUANTUM,
                tag,
                landed: None,
            }));
            by_nic |= [target, origin]
                .map(|peer| &peer.way)
                .iter()
                .any(|way| matches!(way, Way::Nic(_)));
        }
        let arms = signal_arms(outbound, outbound.peers.iter())?;
        // SAFETY: words, operands and bells lie in blocks that the halves hold, and these are retired in stream order; the
        // peers' done words and the doorbells are this rank's alone to add to; no epoch of these halves is ever opened, so
        // this batch alone advances the operands, on the stream that the barrier is at home on.
        let batch = unsafe { Batch::new([steps], Vec::new()) }.helped(by_nic);
        Ok(Rounds {
            batch: Arc::new(batch),
            arms,
            epochs: inbound.epochs.clone(),
            window: inbound.window.clone(),
        })
    }

    /// Enqueues all rounds.
    pub(crate) fn submit(&self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        self.window.waits_at(Side::Inbox, site);
        self.epochs.enqueue(stream, None, || {
            submit_armed(stream, &[&self.arms], &self.batch, site)
        })
    }
}
