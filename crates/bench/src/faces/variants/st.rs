//! One stream for kernels and messages. Stream-triggered: everything is enqueued, and the host waits once, after all
//! shares. Host-synchronised, for devices whose streams are queues: the calling thread also waits twice in each share. The
//! first synchronisation proves that the messages are packed and that the last unpack is over. The second is the point at
//! which host-synchronised calls (a wait, a receive) would return.

use super::block::{self, Block, Inside};
use super::host::groups;
use super::kit::{Kit, Neighbour, lost, synchronize, urgent};
use super::setup::Goal;
use crate::faces::device::{FacesDevice, Inbox, Outbox, Values};
use crate::faces::schedule::Exchange;
use crate::faces::timeline::{Lane, SHARES};
use tidegate_core::window::{Group, exchange};
use tidegate_core::{Error, Graph, PairGraph, Region, Result, Stream, stream};

/// The form of a share.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The puts gather out of the block; else a kernel packs the messages first.
    strided: bool,
    /// Post, complete and wait are one work item; else there is one for the post, one for each message, and one for the wait.
    merged: bool,
    /// A kernel puts the messages by itself.
    inside: bool,
    /// The host waits before the messages and after them, and posts only then.
    waits: bool,
}

impl Form {
    /// The form that was measured to be fastest, if only just: one work item less is one less to be
    /// enqueued, and windows have two buffers, so that no put waits for the post of its own share.
    pub(super) const BEST: Form = Form {
        strided: false,
        merged: true,
        inside: false,
        waits: false,
    };
    pub(super) const INSIDE: Form = Form {
        inside: true,
        ..Form::BEST
    };
    pub(super) const SEPARATE: Form = Form {
        merged: false,
        ..Form::BEST
    };
    pub(super) const STRIDED: Form = Form {
        strided: true,
        ..Form::BEST
    };
    pub(super) const RMA: Form = Form {
        waits: true,
        ..Form::BEST
    };
    pub(super) const P2P: Form = Form {
        waits: true,
        ..Form::SEPARATE
    };
}

/// The arguments of a share on the first stream.
type Lent<'s, D> = (Block<'s, D>, Values<'s, D>, Inbox<'s, D>, Outbox<'s, D>);

/// Its arguments on both streams.
type Both<'s, 't, D> = (Lent<'s, D>, Inside<'t, D>);

/// A share that was recorded, on one stream or on two.
enum Recorded<'s, 't, D: FacesDevice> {
    One(Graph<'s, D>),
    Two(PairGraph<'s, 't, D>),
}

struct St<'a, 's, 't, D: FacesDevice> {
    kit: &'a Kit<'a, D>,
    form: Form,
    /// A group for each neighbour, which names that rank alone.
    groups: Vec<Group>,
    stream: &'a mut Stream<'s, D>,
    side: Option<&'a mut Stream<'t, D>>,
    graph: bool,
    recorded: Option<Recorded<'s, 't, D>>,
    /// How many shares a graph holds: one, but for a timeline.
    in_graph: u64,
    lent: Option<Both<'s, 't, D>>,
}

/// As many shares as a graph holds.
fn shares<'s, 't, D: FacesDevice>(
    (kit, groups): (&Kit<'_, D>, &[Group]),
    s: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    (form, count): (Form, u64),
    mut lent: Both<'s, 't, D>,
) -> Result<Both<'s, 't, D>> {
    if let Some(timeline) = kit.timeline() {
        timeline.start(true);
    }
    for _ in 0..count {
        lent = share((kit, groups), s, side, form, lent)?;
    }
    if let Some(timeline) = kit.timeline() {
        timeline.stop();
    }
    Ok(lent)
}

pub(super) fn run<D: FacesDevice>(
    kit: &Kit<'_, D>,
    form: Form,
    graph: bool,
    goal: Goal<'_>,
) -> Result<()> {
    let setup = kit.setup;
    let world = setup.world;
    stream!(let s = urgent(world)?);
    let mut st = St {
        kit,
        form,
        groups: groups(kit),
        stream: &mut s,
        side: None,
        graph,
        recorded: None,
        in_graph: if kit.timeline().is_some() { SHARES } else { 1 },
        lent: None,
    };
    if !setup.params.compute {
        return kit.measured(&mut st, goal);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut st = St {
        side: Some(&mut side),
        ..st
    };
    kit.measured(&mut st, goal)
}

/// One share. Only forms that wait do so here.
fn share<'s, 't, D: FacesDevice>(
    (kit, groups): (&Kit<'_, D>, &[Group]),
    s: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    form: Form,
    ((mut block, mut packed, inbox, outbox), mut inside): Both<'s, 't, D>,
) -> Result<Both<'s, 't, D>> {
    kit.next_share();
    block::compute(kit, side, &mut inside)?;
    if form.inside {
        let message = |(slot, to): (_, &Neighbour<D>)| (slot, kit.geometry.slot(to.direction));
        let messages: Vec<_> = outbox.slots().zip(&kit.neighbours).map(message).collect();
        kit.launched(2);
        let opened = outbox.open(s)?;
        let all = opened.last_of_all()?;
        block::send(kit, s, &block, (&mut packed, &messages), all)?;
        let begun = kit.begin(|| D::moment(s, &packed))?;
        let (inbox, outbox) = opened.exchange(s, inbox)?;
        kit.end(begun, Lane::Stream, "exchange", || D::moment(s, &packed))?;
        block::unpack(kit, s, &mut block, &inbox)?;
        return Ok(((block, packed, inbox, outbox), inside));
    }
    let post = |inbox: Inbox<'s, D>| -> Result<_> {
        kit.make_room(s, kit.by_nic)?;
        Ok((None, Some(inbox.post(s)?)))
    };
    let wait = || match form.waits {
        true => kit.on_host("wait", || s.synchronize()),
        false => Ok(()),
    };
    // Exposed before the pack kernel, so that the neighbours' puts need not wait for it.
    let (inbox, exposed) = match form.merged || form.waits {
        true => (Some(inbox), None),
        false => post(inbox)?,
    };
    if !form.strided {
        block::pack(kit, s, &block, &mut packed)?;
    }
    wait()?;
    let begun = kit.begin(|| D::moment(s, &packed))?;
    let (inbox, exposed) = match inbox {
        Some(inbox) if !form.merged => post(inbox)?,
        inbox => (inbox, exposed),
    };
    let message = |to: &'_ Neighbour<D>| packed.slice(kit.geometry.slot(to.direction));
    let messages = outbox.slots().zip(&kit.neighbours);
    let (inbox, outbox) = match (inbox, exposed) {
        (Some(inbox), _) => {
            let mut epoch = outbox.start();
            for (slot, to) in messages {
                if form.strided {
                    epoch.put(block::source(&block, to)?, slot)?;
                } else {
                    epoch.put(message(to)?, slot)?;
                }
            }
            kit.launched(1);
            kit.make_room(s, 2 * kit.by_nic)?;
            exchange(s, inbox, epoch)?
        }
        (None, Some(exposed)) => {
            let mut outbox = outbox;
            for ((slot, to), group) in messages.zip(groups) {
                let mut epoch = outbox.start_to(group)?;
                epoch.put(message(to)?, slot)?;
                kit.launched(1);
                kit.make_room(s, usize::from(to.by_nic))?;
                outbox = epoch.complete(s)?;
            }
            kit.launched(2);
            (exposed.wait(s)?, outbox)
        }
        (None, None) => unreachable!("the inbox is one or the other"),
    };
    kit.end(begun, Lane::Stream, "exchange", || D::moment(s, &packed))?;
    wait()?;
    block::unpack(kit, s, &mut block, &inbox)?;
    Ok(((block, packed, inbox, outbox), inside))
}

impl<'s, 't, D: FacesDevice> St<'_, 's, 't, D> {
    /// How many times the recorded shares are replayed, and then again, for so many shares: at once, unless an
    /// application throttles by itself.
    fn turns(&self, count: u64) -> impl Iterator<Item = Result<usize>> {
        let (kit, stream) = (self.kit, &*self.stream);
        let (mut left, in_graph) = (count / self.in_graph, self.in_graph);
        std::iter::from_fn(move || {
            let times = left.min((kit.at_a_time() / in_graph).max(1));
            left -= times;
            kit.launched(times);
            let operations = 2 * kit.by_nic * (times * in_graph) as usize;
            (times > 0).then(|| kit.make_room(stream, operations).map(|()| times as usize))
        })
    }

    /// The result of [`Exchange::build`], unless an error has lost it.
    fn lent(&mut self) -> Result<Both<'s, 't, D>> {
        self.lent.take().ok_or_else(lost)
    }
}

impl<D: FacesDevice> Exchange for St<'_, '_, '_, D> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        (self.lent, self.recorded) = (None, None);
        let (form, s) = ((self.form, self.in_graph), &mut *self.stream);
        let kit = (self.kit, &self.groups[..]);
        let (block, inside) = block::new(self.kit, s, self.side.as_deref())?;
        let packed = Region::zeroed(self.kit.setup.world, self.kit.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = self.kit.window(s)?;
        let lent = ((block, packed, inbox, outbox), inside);
        // The first opening of an outbox cannot be recorded.
        let lent = match self.form.inside {
            true => share(kit, s, self.side.as_deref(), self.form, lent)?,
            false => lent,
        };
        self.lent = Some(match &mut self.side {
            _ if !self.graph => lent,
            None => {
                let (graph, here) = s.capture(lent.0, |s, lent| {
                    kit.0
                        .recorded(|| Ok(shares(kit, s, None, form, (lent, None))?.0))
                })?;
                graph.verify(s)?.proof()?;
                self.recorded = Some(Recorded::One(graph));
                (here, None)
            }
            Some(side) => {
                let (graph, lent) = s.capture_with(side, lent, |s, side, lent| {
                    kit.0.recorded(|| shares(kit, s, Some(side), form, lent))
                })?;
                graph.verify(s, side)?.proof()?;
                self.recorded = Some(Recorded::Two(graph));
                lent
            }
        });
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let mut lent = self.lent()?;
        let ((block, packed, ..), inside) = &mut lent;
        block::initialise(self.kit, self.stream, self.side.as_deref(), (block, inside))?;
        let settled = self.kit.settle(self.stream, self.side.as_deref(), packed);
        self.lent = Some(lent);
        settled
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent()?;
        lent = match (&self.recorded, &self.side) {
            (None, side) => {
                for _ in 0..count {
                    lent = share(
                        (self.kit, &self.groups),
                        self.stream,
                        side.as_deref(),
                        self.form,
                        lent,
                    )?;
                }
                lent
            }
            (Some(Recorded::One(graph)), _) => {
                let mut lent = lent.0;
                for times in self.turns(count) {
                    let times = times?;
                    let replay = || -> Result<_> { graph.replay(self.stream, lent, times) };
                    lent = self.kit.on_host("launch", replay)?;
                }
                (lent, None)
            }
            (Some(Recorded::Two(graph)), Some(side)) => {
                for times in self.turns(count) {
                    let times = times?;
                    let replay = || -> Result<_> { graph.replay(self.stream, side, lent, times) };
                    lent = self.kit.on_host("launch", replay)?;
                }
                lent
            }
            (Some(Recorded::Two(_)), None) => unreachable!("it was recorded with a second stream"),
        };
        self.lent = Some(lent);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        synchronize(self.stream, self.side.as_deref())
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let ((block, packed, inbox, outbox), inside) = self.lent()?;
        let side = self.side.as_deref();
        let (block, inside) = block::inspect(self.kit, self.stream, side, (block, inside), check)?;
        self.lent = Some(((block, packed, inbox, outbox), inside));
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

    /// The host has better forms that wait, but these are right there too.
    #[test]
    fn forms_that_wait_on_the_host_too() {
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
                for form in [Form::RMA, Form::P2P] {
                    let mut sample = RankSample::new(world.rank());
                    let goal = Goal::Measure {
                        sample: &mut sample,
                        step: &mut || (),
                    };
                    run(&kit, form, false, goal).unwrap();
                    assert!(sample.passed(), "{sample:?}");
                    let neighbours = kit.neighbours.len() as f64;
                    let messages = match form.merged {
                        true => 1.0,
                        false => 2.0 + neighbours,
                    };
                    let kernels = if compute { 3.0 } else { 2.0 };
                    assert_eq!(sample.launches, Some(kernels + messages));
                }
            });
        }
    }
}
