//! Host-synchronised: kernels run on a stream; the calling thread waits for them and does the
//! messaging itself.
//!
//! Kernels and messages are two streams: one with a thread, one *inline*, which does what it is
//! given on the calling thread. The packed messages and the inbox change hands twice a share, and
//! the way to the inline stream is the synchronisation: waiting for the kernels' stream blocks the
//! caller. It proves that the messages are packed and that the last unpack is over.

use super::block::{self, Block};
use super::shape::Shape;
use super::{Inbox, Outbox, Region, Setup, Stream};
use crate::faces::schedule::{self, Exchange};
use crate::results::RankSample;
use std::sync::Arc;
use tidegate_core::window::Slot;
use tidegate_core::{Error, Result, stream};

/// How many epochs a share has.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Epochs {
    /// One with all neighbours.
    One,
    /// One for each message, as two-sided messages have a handshake each.
    Each,
}

/// What a share needs: for the kernels, and for the messages.
struct Lent<'s, 'h> {
    block: Block<'s>,
    packed: Region<'s>,
    inbox: Inbox<'s>,
    outbox: Outbox<'h>,
}

struct HostSynchronised<'a, 's, 't, 'h> {
    setup: &'a Setup<'a>,
    shape: Arc<Shape>,
    epochs: Epochs,
    /// One neighbour each.
    groups: Vec<tidegate_core::window::Group>,
    kernels: &'a Stream<'s>,
    side: Option<&'a Stream<'t>>,
    messages: &'a Stream<'h>,
    lent: Option<Lent<'s, 'h>>,
}

pub(super) fn run(
    setup: &Setup<'_>,
    shape: Arc<Shape>,
    epochs: Epochs,
    step: &mut dyn FnMut(),
) -> Result<RankSample> {
    let world = setup.world;
    stream!(let messages = world.inline_stream()?);
    stream!(let kernels = world.named_stream("faces")?);
    let group = |rank| tidegate_core::window::Group::new([rank]);
    let host = HostSynchronised {
        setup,
        groups: shape.neighbours.iter().map(|to| group(to.rank)).collect(),
        shape,
        epochs,
        kernels: &kernels,
        side: None,
        messages: &messages,
        lent: None,
    };
    if !setup.params.compute {
        let mut host = host;
        return schedule::measure(setup.params.counts, setup.verifier, &mut host, step);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut host = HostSynchronised {
        side: Some(&side),
        ..host
    };
    schedule::measure(setup.params.counts, setup.verifier, &mut host, step)
}

impl<'s, 'h> HostSynchronised<'_, 's, '_, 'h> {
    fn lent(&mut self) -> Result<Lent<'s, 'h>> {
        self.lent
            .take()
            .ok_or_else(|| Error::Invalid("an earlier error has ended this variant".into()))
    }

    fn share(&self, lent: Lent<'s, 'h>) -> Result<Lent<'s, 'h>> {
        let (kernels, messages, shape) = (self.kernels, self.messages, &self.shape);
        let Lent {
            mut block,
            mut packed,
            inbox,
            outbox,
        } = lent;
        let interior = block::fork(kernels, self.side, shape, &mut block)?;
        block::pack(kernels, shape, &block, &mut packed)?;
        // Blocks until the kernels are done.
        let (packed, inbox) = kernels.hand_off((packed, inbox), messages)?;
        // From here on every call is done when it returns.
        let exposed = inbox.post(messages)?;
        let outbox = self.put(&packed, outbox)?;
        let inbox = exposed.wait(messages)?;
        let (packed, inbox) = messages.hand_off((packed, inbox), kernels)?;
        block::unpack(kernels, shape, &mut block, &inbox)?;
        block::join(kernels, self.side, interior, &mut block)?;
        Ok(Lent {
            block,
            packed,
            inbox,
            outbox,
        })
    }

    /// Sends all messages.
    fn put(&self, packed: &Region<'h>, mut outbox: Outbox<'h>) -> Result<Outbox<'h>> {
        let messages = (0..).map(Slot).zip(&self.shape.neighbours);
        let range = |direction| self.shape.geometry.slot(direction);
        match self.epochs {
            Epochs::One => {
                let mut epoch = outbox.start();
                for (slot, to) in messages {
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                }
                Ok(epoch.complete(self.messages)?)
            }
            Epochs::Each => {
                for ((slot, to), group) in messages.zip(&self.groups) {
                    let mut epoch = outbox.start_with(group)?;
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                    outbox = epoch.complete(self.messages)?;
                }
                Ok(outbox)
            }
        }
    }
}

impl Exchange for HostSynchronised<'_, '_, '_, '_> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.lent = None;
        let (world, s) = (self.setup.world, self.kernels);
        let block = block::new(world, s, &self.shape, self.setup.params.compute)?;
        let packed =
            tidegate_core::Region::zeroed(world, self.shape.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = self.shape.window(self.messages)?;
        self.lent = Some(Lent {
            block,
            packed,
            inbox: self.messages.hand_off(inbox, s)?,
            outbox,
        });
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let mut lent = self.lent()?;
        block::initialise(self.kernels, &self.shape, &mut lent.block)?;
        self.lent = Some(lent);
        self.kernels.synchronize()
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent()?;
        for _ in 0..count {
            lent = self.share(lent)?;
        }
        self.lent = Some(lent);
        self.kernels.synchronize()
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let mut lent = self.lent()?;
        lent.block = block::inspect(self.setup.world, self.kernels, lent.block, check)?;
        self.lent = Some(lent);
        Ok(())
    }
}
