//! Stream-triggered: everything is enqueued, and the host waits once, after all shares.

use super::block::{self, Block};
use super::shape::Shape;
use super::{Inbox, Outbox, Region, Setup, Stream};
use crate::faces::schedule::{self, Exchange};
use crate::results::RankSample;
use std::sync::Arc;
use tidegate_core::window::{Slot, exchange};
use tidegate_core::{Error, Graph, PairGraph, Result, stream};
use tidegate_host::Host;

/// What a share is made of.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The puts gather out of the block; else a kernel packs the messages first.
    strided: bool,
    /// Post, complete and wait are one work item.
    fused: bool,
}

impl Form {
    /// The form that was measured to be fastest, if only just: one work item less is one less to be
    /// enqueued, and windows have two buffers, so that no put waits for the post of its own share.
    pub(super) const BEST: Form = Form {
        strided: false,
        fused: true,
    };
    pub(super) const SEPARATE: Form = Form {
        strided: false,
        fused: false,
    };
    pub(super) const STRIDED: Form = Form {
        strided: true,
        fused: true,
    };
}

/// What a share needs; at home on the first stream in between.
type Lent<'s> = (Block<'s>, Region<'s>, Inbox<'s>, Outbox<'s>);

/// A recorded share.
enum Recorded<'s, 't> {
    One(Graph<'s, Host>),
    Two(PairGraph<'s, 't, Host>),
}

struct St<'a, 's, 't> {
    setup: &'a Setup<'a>,
    shape: Arc<Shape>,
    form: Form,
    stream: &'a mut Stream<'s>,
    side: Option<&'a mut Stream<'t>>,
    graph: bool,
    recorded: Option<Recorded<'s, 't>>,
    lent: Option<Lent<'s>>,
}

pub(super) fn run(
    setup: &Setup<'_>,
    shape: Arc<Shape>,
    form: Form,
    graph: bool,
    step: &mut dyn FnMut(),
) -> Result<RankSample> {
    let world = setup.world;
    stream!(let s = world.named_stream("faces")?);
    let mut st = St {
        setup,
        shape,
        form,
        stream: &mut s,
        side: None,
        graph,
        recorded: None,
        lent: None,
    };
    if !setup.params.compute {
        return schedule::measure(setup.params.counts, setup.verifier, &mut st, step);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut st = St {
        side: Some(&mut side),
        ..st
    };
    schedule::measure(setup.params.counts, setup.verifier, &mut st, step)
}

/// One share. Nothing here waits.
fn share<'s, 't>(
    s: &Stream<'s>,
    side: Option<&Stream<'t>>,
    shape: &Arc<Shape>,
    form: Form,
    (mut block, mut packed, inbox, outbox): Lent<'s>,
) -> Result<Lent<'s>> {
    let interior = block::fork(s, side, shape, &mut block)?;
    // Exposed before the pack kernel, so that the neighbours' puts need not wait for it.
    let (inbox, exposed) = if form.fused {
        (Some(inbox), None)
    } else {
        (None, Some(inbox.post(s)?))
    };
    if !form.strided {
        block::pack(s, shape, &block, &mut packed)?;
    }
    let mut epoch = outbox.start();
    for (slot, to) in (0..).map(Slot).zip(&shape.neighbours) {
        if form.strided {
            epoch.put(block::source(&block, &to.layout)?, slot)?;
        } else {
            epoch.put(packed.slice(shape.geometry.slot(to.direction))?, slot)?;
        }
    }
    let (inbox, outbox) = match (inbox, exposed) {
        (Some(inbox), _) => exchange(s, inbox, epoch)?,
        (None, Some(exposed)) => {
            let outbox = epoch.complete(s)?;
            (exposed.wait(s)?, outbox)
        }
        (None, None) => unreachable!("the inbox is one or the other"),
    };
    block::unpack(s, shape, &mut block, &inbox)?;
    block::join(s, side, interior, &mut block)?;
    Ok((block, packed, inbox, outbox))
}

impl<'s> St<'_, 's, '_> {
    /// What [`Exchange::build`] made, unless an error has lost it.
    fn lent(&mut self) -> Result<Lent<'s>> {
        self.lent
            .take()
            .ok_or_else(|| Error::Invalid("an earlier error has ended this variant".into()))
    }
}

impl Exchange for St<'_, '_, '_> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        (self.lent, self.recorded) = (None, None);
        let (world, s) = (self.setup.world, &mut *self.stream);
        let block = block::new(world, s, &self.shape, self.setup.params.compute)?;
        let packed =
            tidegate_core::Region::zeroed(world, self.shape.geometry.packed_len())?.on(s)?;
        let (inbox, outbox) = self.shape.window(s)?;
        let lent = (block, packed, inbox, outbox);
        let (shape, form) = (&self.shape, self.form);
        self.lent = Some(match &mut self.side {
            _ if !self.graph => lent,
            None => {
                let (graph, lent) = s.capture(lent, |s, lent| share(s, None, shape, form, lent))?;
                self.recorded = Some(Recorded::One(graph));
                lent
            }
            Some(side) => {
                let (graph, lent) = s.capture_with(side, lent, |s, side, lent| {
                    share(s, Some(side), shape, form, lent)
                })?;
                self.recorded = Some(Recorded::Two(graph));
                lent
            }
        });
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let mut lent = self.lent()?;
        block::initialise(self.stream, &self.shape, &mut lent.0)?;
        self.lent = Some(lent);
        self.stream.synchronize()
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent()?;
        lent = match (&self.recorded, &self.side) {
            (None, side) => {
                for _ in 0..count {
                    lent = share(self.stream, side.as_deref(), &self.shape, self.form, lent)?;
                }
                lent
            }
            (Some(Recorded::One(graph)), _) => graph.replay(self.stream, lent, count)?,
            (Some(Recorded::Two(graph)), Some(side)) => {
                graph.replay(self.stream, side, lent, count)?
            }
            (Some(Recorded::Two(_)), None) => unreachable!("it was recorded with a second stream"),
        };
        self.lent = Some(lent);
        self.stream.synchronize()
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let (block, packed, inbox, outbox) = self.lent()?;
        let block = block::inspect(self.setup.world, self.stream, block, check)?;
        self.lent = Some((block, packed, inbox, outbox));
        Ok(())
    }
}
