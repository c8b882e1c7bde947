//! Host-synchronised: kernels run on a stream; the calling thread waits for them and does the
//! messaging itself.
//!
//! Kernels and messages are two streams: one with a thread, and one *inline*, which works on the calling
//! thread. The packed messages and the inbox change hands twice a share, and
//! the way to the inline stream is the synchronisation: waiting for the kernels' stream blocks the
//! caller. It proves that the messages are packed and that the last unpack is over.

use super::block::{self, Block, Inside};
use super::kit::{Kit, lost, synchronize, urgent};
use super::setup::Goal;
use crate::faces::device::{FacesDevice, Inbox, Outbox, Values};
use crate::faces::schedule::Exchange;
use crate::faces::timeline::Lane;
use tidegate_core::window::Group;
use tidegate_core::{Error, Region, Result, Stream, stream};

/// How many epochs a share has.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Epochs {
    /// One with all neighbours.
    One,
    /// One for each message, as two-sided messages have a handshake each.
    Each,
}

/// The arguments of a share: for the kernels, and for the messages.
struct Lent<'s, 't, 'h, D: FacesDevice> {
    block: Block<'s, D>,
    inside: Inside<'t, D>,
    packed: Values<'s, D>,
    inbox: Inbox<'s, D>,
    outbox: Outbox<'h, D>,
}

struct HostSynchronised<'a, 's, 't, 'h, D: FacesDevice> {
    kit: &'a Kit<'a, D>,
    epochs: Epochs,
    /// A group for each neighbour, which names that rank alone.
    groups: Vec<Group>,
    kernels: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
    messages: &'a Stream<'h, D>,
    lent: Option<Lent<'s, 't, 'h, D>>,
}

/// Groups of one neighbour each.
pub(super) fn groups<D: FacesDevice>(kit: &Kit<'_, D>) -> Vec<Group> {
    let group = |rank| Group::new([rank]);
    kit.neighbours.iter().map(|to| group(to.rank)).collect()
}

pub(super) fn run<D: FacesDevice>(kit: &Kit<'_, D>, epochs: Epochs, goal: Goal<'_>) -> Result<()> {
    let setup = kit.setup;
    let world = setup.world;
    stream!(let messages = world.inline_stream()?);
    stream!(let kernels = urgent(world)?);
    let host = HostSynchronised {
        kit,
        groups: groups(kit),
        epochs,
        kernels: &kernels,
        side: None,
        messages: &messages,
        lent: None,
    };
    if !setup.params.compute {
        let mut host = host;
        return kit.measured(&mut host, goal);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut host = HostSynchronised {
        side: Some(&side),
        ..host
    };
    kit.measured(&mut host, goal)
}

impl<'s, 't, 'h, D: FacesDevice> HostSynchronised<'_, 's, 't, 'h, D> {
    fn lent(&mut self) -> Result<Lent<'s, 't, 'h, D>> {
        self.lent.take().ok_or_else(lost)
    }

    fn share(&self, lent: Lent<'s, 't, 'h, D>) -> Result<Lent<'s, 't, 'h, D>> {
        let (kit, kernels, messages) = (self.kit, self.kernels, self.messages);
        let Lent {
            mut block,
            mut inside,
            mut packed,
            inbox,
            outbox,
        } = lent;
        kit.next_share();
        block::compute(kit, self.side, &mut inside)?;
        block::pack(kit, kernels, &block, &mut packed)?;
        // Blocks until the kernels are done.
        let (packed, inbox) =
            kit.on_host("wait", || kernels.hand_off((packed, inbox), messages))?;
        let begun = kit.begin(|| D::moment(messages, &packed))?;
        // From here on every call is done when it returns.
        kit.launched(2);
        kit.make_room(messages, kit.by_nic)?;
        let exposed = inbox.post(messages)?;
        let outbox = self.put(&packed, outbox)?;
        let inbox = exposed.wait(messages)?;
        kit.end(begun, Lane::Stream, "exchange", || {
            D::moment(messages, &packed)
        })?;
        let (packed, inbox) = messages.hand_off((packed, inbox), kernels)?;
        block::unpack(kit, kernels, &mut block, &inbox)?;
        Ok(Lent {
            block,
            inside,
            packed,
            inbox,
            outbox,
        })
    }

    /// Puts the messages of all neighbours, in one epoch or in one for each of them.
    fn put(&self, packed: &Values<'h, D>, mut outbox: Outbox<'h, D>) -> Result<Outbox<'h, D>> {
        let messages = outbox.slots().zip(&self.kit.neighbours);
        let range = |direction| self.kit.geometry.slot(direction);
        match self.epochs {
            Epochs::One => {
                self.kit.launched(1);
                self.kit.make_room(self.messages, self.kit.by_nic)?;
                let mut epoch = outbox.start();
                for (slot, to) in messages {
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                }
                Ok(epoch.complete(self.messages)?)
            }
            Epochs::Each => {
                for ((slot, to), group) in messages.zip(&self.groups) {
                    self.kit.launched(1);
                    (self.kit).make_room(self.messages, usize::from(to.by_nic))?;
                    let mut epoch = outbox.start_to(group)?;
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                    outbox = epoch.complete(self.messages)?;
                }
                Ok(outbox)
            }
        }
    }
}

impl<D: FacesDevice> Exchange for HostSynchronised<'_, '_, '_, '_, D> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.lent = None;
        let (kit, s) = (self.kit, self.kernels);
        let (block, inside) = block::new(kit, s, self.side)?;
        let packed = Region::zeroed(kit.setup.world, kit.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = kit.window(self.messages)?;
        self.lent = Some(Lent {
            block,
            inside,
            packed,
            inbox: self.messages.hand_off(inbox, s)?,
            outbox,
        });
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let mut lent = self.lent()?;
        let both = (&mut lent.block, &mut lent.inside);
        block::initialise(self.kit, self.kernels, self.side, both)?;
        let settled = self.kit.settle(self.kernels, self.side, &lent.packed);
        self.lent = Some(lent);
        settled
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent()?;
        for _ in 0..count {
            lent = self.share(lent)?;
        }
        self.lent = Some(lent);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        synchronize(self.kernels, self.side)
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let mut lent = self.lent()?;
        let both = (lent.block, lent.inside);
        (lent.block, lent.inside) = block::inspect(self.kit, self.kernels, self.side, both, check)?;
        self.lent = Some(lent);
        Ok(())
    }
}
