//! Host-synchronised, on one stream: the calling thread enqueues kernels and messages, and waits for both.
//!
//! For devices whose streams are queues: a second stream for the messages would only add hand-offs. The
//! first synchronisation proves that the messages are packed and that the last unpack is over; the second is
//! the point at which host-synchronised calls (a wait, a receive) would return.

use super::block::{self, Block, Inside};
use super::host::{Epochs, groups};
use super::kit::{Kit, lost, synchronize, urgent};
use super::setup::Goal;
use crate::faces::device::{FacesDevice, Inbox, Outbox, Values};
use crate::faces::schedule::Exchange;
use crate::faces::timeline::Lane;
use tidegate_core::window::{Group, exchange};
use tidegate_core::{Error, Region, Result, Stream, stream};

/// The arguments of a share.
type Lent<'s, 't, D> = (
    Block<'s, D>,
    Inside<'t, D>,
    Values<'s, D>,
    Inbox<'s, D>,
    Outbox<'s, D>,
);

struct Waiting<'a, 's, 't, D: FacesDevice> {
    kit: &'a Kit<'a, D>,
    epochs: Epochs,
    /// A group for each neighbour, which names that rank alone.
    groups: Vec<Group>,
    stream: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
    lent: Option<Lent<'s, 't, D>>,
}

pub(super) fn run<D: FacesDevice>(kit: &Kit<'_, D>, epochs: Epochs, goal: Goal<'_>) -> Result<()> {
    let setup = kit.setup;
    let world = setup.world;
    stream!(let s = urgent(world)?);
    let waiting = Waiting {
        kit,
        epochs,
        groups: groups(kit),
        stream: &s,
        side: None,
        lent: None,
    };
    if !setup.params.compute {
        let mut waiting = waiting;
        return kit.measured(&mut waiting, goal);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut waiting = Waiting {
        side: Some(&side),
        ..waiting
    };
    kit.measured(&mut waiting, goal)
}

impl<'s, 't, D: FacesDevice> Waiting<'_, 's, 't, D> {
    fn lent(&mut self) -> Result<Lent<'s, 't, D>> {
        self.lent.take().ok_or_else(lost)
    }

    fn share(
        &self,
        (mut block, mut inside, mut packed, inbox, outbox): Lent<'s, 't, D>,
    ) -> Result<Lent<'s, 't, D>> {
        let (kit, s) = (self.kit, self.stream);
        kit.next_share();
        block::compute(kit, self.side, &mut inside)?;
        block::pack(kit, s, &block, &mut packed)?;
        kit.on_host("wait", || s.synchronize())?;
        let begun = kit.begin(|| D::moment(s, &packed))?;
        let (inbox, outbox) = self.messages(&packed, inbox, outbox)?;
        kit.end(begun, Lane::Stream, "exchange", || D::moment(s, &packed))?;
        kit.on_host("wait", || s.synchronize())?;
        block::unpack(kit, s, &mut block, &inbox)?;
        Ok((block, inside, packed, inbox, outbox))
    }

    /// Sends and receives all messages. One epoch is one launch; epochs for each message cannot be.
    fn messages(
        &self,
        packed: &Values<'s, D>,
        inbox: Inbox<'s, D>,
        mut outbox: Outbox<'s, D>,
    ) -> Result<(Inbox<'s, D>, Outbox<'s, D>)> {
        let (kit, s) = (self.kit, self.stream);
        let messages = outbox.slots().zip(&kit.neighbours);
        let range = |direction| kit.geometry.slot(direction);
        match self.epochs {
            Epochs::One => {
                let mut epoch = outbox.start();
                for (slot, to) in messages {
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                }
                kit.launched(1);
                kit.make_room(s, 2 * kit.by_nic)?;
                Ok(exchange(s, inbox, epoch)?)
            }
            Epochs::Each => {
                kit.make_room(s, kit.by_nic)?;
                let exposed = inbox.post(s)?;
                for ((slot, to), group) in messages.zip(&self.groups) {
                    let mut epoch = outbox.start_with(group)?;
                    epoch.put(packed.slice(range(to.direction))?, slot)?;
                    kit.launched(1);
                    kit.make_room(s, usize::from(to.by_nic))?;
                    outbox = epoch.complete(s)?;
                }
                kit.launched(2);
                Ok((exposed.wait(s)?, outbox))
            }
        }
    }
}

impl<D: FacesDevice> Exchange for Waiting<'_, '_, '_, D> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.lent = None;
        let (kit, s) = (self.kit, self.stream);
        let (block, inside) = block::new(kit, s, self.side)?;
        let packed = Region::zeroed(kit.setup.world, kit.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = kit.window(s)?;
        self.lent = Some((block, inside, packed, inbox, outbox));
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let mut lent = self.lent()?;
        let (block, inside, packed, ..) = &mut lent;
        block::initialise(self.kit, self.stream, self.side, (block, inside))?;
        let settled = self.kit.settle(self.stream, self.side, packed);
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
        synchronize(self.stream, self.side)
    }

    fn launches(&self) -> u64 {
        self.kit.launches()
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let (block, inside, packed, inbox, outbox) = self.lent()?;
        let (block, inside) =
            block::inspect(self.kit, self.stream, self.side, (block, inside), check)?;
        self.lent = Some((block, inside, packed, inbox, outbox));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::device::Shape;
    use crate::faces::params::{Counts, Grid, Init, Params, Size, Variant};
    use crate::faces::variants::Setup;
    use crate::faces::verify::Verifier;
    use crate::results::RankSample;
    use std::sync::Arc;
    use tidegate_core::World;
    use tidegate_host::Host;

    /// The host has a better form, but this one is right there too.
    #[test]
    fn on_the_host_too() {
        for compute in [false, true] {
            let params = Params {
                grid: Grid([3, 2, 1]),
                size: Size { m: [2, 3, 2], n: 4 },
                counts: Counts {
                    nk: 2,
                    nj: 1,
                    ni: 3,
                },
                init: Init::Global,
                compute,
                variants: vec![Variant::Rma],
            };
            let verifiers = Verifier::all(&params).unwrap();
            World::<Host>::local(6, |world| {
                let verifier = &verifiers[world.rank()];
                let setup = Setup {
                    world: &world,
                    params: &params,
                    verifier,
                    throttle: Default::default(),
                    omit: None,
                };
                let shape = Shape::new(verifier.geometry().clone(), params.init, None);
                // SAFETY: the kit makes all of the same geometry.
                let kernels = unsafe { Host::kernels(&world, Arc::new(shape)) }.unwrap();
                let kit = Kit::new(&setup, &kernels, None).unwrap();
                for epochs in [Epochs::One, Epochs::Each] {
                    let mut sample = RankSample::new(world.rank());
                    let goal = Goal::Measure {
                        sample: &mut sample,
                        step: &mut || (),
                    };
                    run(&kit, epochs, goal).unwrap();
                    assert!(sample.passed(), "{sample:?}");
                    let neighbours = kit.neighbours.len() as f64;
                    let messages = match epochs {
                        Epochs::One => 1.0,
                        Epochs::Each => 2.0 + neighbours,
                    };
                    let kernels = if compute { 3.0 } else { 2.0 };
                    assert_eq!(sample.launches, Some(kernels + messages));
                }
            });
        }
    }
}
