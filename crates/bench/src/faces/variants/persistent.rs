//! All shares in one kernel, which owns both halves of the window.

use super::block::{self, Block, Inside};
use super::kit::{Kit, lost, synchronize, urgent};
use super::setup::Goal;
use crate::faces::device::{FacesDevice, FacesKernels, Inbox, Message, Outbox, Values};
use crate::faces::schedule::Exchange;
use crate::faces::timeline::Lane;
use tidegate_core::{Error, Region, Result, Stream, stream};

struct Persistent<'a, 's, 't, D: FacesDevice> {
    kit: &'a Kit<'a, D>,
    stream: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
    lent: Option<Lent<'s, 't, D>>,
}

/// What shares are made with.
struct Lent<'s, 't, D: FacesDevice> {
    block: Block<'s, D>,
    inside: Inside<'t, D>,
    packed: Values<'s, D>,
    messages: Vec<Message>,
    inbox: Inbox<'s, D>,
    outbox: Outbox<'s, D>,
}

pub(super) fn run<D: FacesDevice>(kit: &Kit<'_, D>, goal: Goal<'_>) -> Result<()> {
    let world = kit.setup.world;
    stream!(let s = urgent(world)?);
    let persistent = Persistent {
        kit,
        stream: &s,
        side: None,
        lent: None,
    };
    if !kit.setup.params.compute {
        return kit.measured(&mut { persistent }, goal);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut persistent = Persistent {
        side: Some(&side),
        ..persistent
    };
    kit.measured(&mut persistent, goal)
}

impl<D: FacesDevice> Exchange for Persistent<'_, '_, '_, D> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.lent = None;
        let (kit, s) = (self.kit, self.stream);
        let (block, inside) = block::new(kit, s, self.side)?;
        let packed = Region::zeroed(kit.setup.world, kit.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = kit.window_for_kernels(s)?;
        let slots = outbox.slots().zip(&kit.neighbours);
        let messages = slots.map(|(slot, to)| (slot, kit.geometry.slot(to.direction)));
        self.lent = Some(Lent {
            messages: messages.collect(),
            block,
            inside,
            packed,
            inbox,
            outbox,
        });
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let lent = self.lent.as_mut().ok_or_else(lost)?;
        let inside = (&mut lent.block, &mut lent.inside);
        block::initialise(self.kit, self.stream, self.side, inside)?;
        self.kit.settle(self.stream, self.side, &lent.packed)
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let (kit, s) = (self.kit, self.stream);
        let lent = self.lent.as_mut().ok_or_else(lost)?;
        kit.launched(1);
        let begun = kit.begin(|| D::moment(s, &lent.packed))?;
        let halves = (lent.inbox.lend(), lent.outbox.lend());
        let packed = (&mut lent.packed, &lent.messages[..]);
        match &mut lent.block {
            (Some(u), _) => kit.kernels.shares(s, u, packed, halves, count)?,
            (None, Some(surface)) => kit.kernels.shares_part(s, surface, packed, halves, count)?,
            (None, None) => unreachable!("a block has a surface"),
        }
        kit.end(begun, Lane::Stream, "shares", || D::moment(s, &lent.packed))?;
        for _ in 0..count {
            kit.next_share();
            block::compute(kit, self.side, &mut lent.inside)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        synchronize(self.stream, self.side)
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let lent = self.lent.take().ok_or_else(lost)?;
        let block = (lent.block, lent.inside);
        let (block, inside) = block::inspect(self.kit, self.stream, self.side, block, check)?;
        self.lent = Some(Lent {
            block,
            inside,
            ..lent
        });
        Ok(())
    }
}
