//! A stream of a rank, with its bag and its recordings.

use std::collections::HashMap;

use tidegate::generic::{Graph, PairGraph, Stream};
use tidegate::host::prelude::*;

use super::bag::Bag;
use super::context::Context;
use super::device::Bench;
use super::exec::enqueue;
use super::job::{Op, Res};

/// A stream and the things that are at home on it.
pub(crate) struct Lane<'s, D: Bench> {
    pub(crate) bag: Bag<'s, D>,
    pub(crate) graphs: HashMap<usize, Recorded<Graph<'s, D>>>,
    pub(crate) stream: Stream<'s, D>,
}

/// A recording, and how often each of its regions had been made again.
pub(crate) struct Recorded<G> {
    pub(crate) graph: G,
    pub(crate) versions: Vec<u64>,
}

impl<'s, D: Bench> Lane<'s, D> {
    pub(crate) fn new(stream: Stream<'s, D>) -> Self {
        Lane {
            bag: Bag::default(),
            graphs: HashMap::new(),
            stream,
        }
    }

    pub(crate) fn hand<'t>(
        &mut self,
        cx: &Context<'_, D>,
        what: &[Res],
        to: &mut Lane<'t, D>,
    ) -> Result<()> {
        let lent = self.bag.lend(cx.job, cx.rank, what);
        let mut handed = self.stream.hand_off(lent, &to.stream)?;
        handed.shift(cx.job, cx.rank, what, &mut to.bag);
        Ok(())
    }

    /// Records a step that uses only things of this stream.
    pub(crate) fn record(
        &mut self,
        cx: &Context<'_, D>,
        body: &[Op],
        what: &[Res],
    ) -> Result<Graph<'s, D>> {
        let lent = self.bag.lend(cx.job, cx.rank, what);
        let (graph, mut back) = self.stream.capture(lent, |s, mut bag| {
            for op in body {
                enqueue(cx, s, &mut bag, op)?;
            }
            Ok(bag)
        })?;
        back.shift(cx.job, cx.rank, what, &mut self.bag);
        Ok(graph)
    }

    /// Records a step that hands things over to a second stream and back. The things in `stay` are there, and return
    /// there.
    pub(crate) fn record_with<'t>(
        &mut self,
        cx: &Context<'_, D>,
        side: &mut Lane<'t, D>,
        indices: (usize, usize),
        body: &[Op],
        (what, stay): (&[Res], &[Res]),
    ) -> Result<PairGraph<'s, 't, D>> {
        let lent = self.bag.lend(cx.job, cx.rank, what);
        let over = side.bag.lend(cx.job, cx.rank, stay);
        let step = self.stream.capture_with(
            &mut side.stream,
            (lent, over),
            |s, t, (mut bag, mut over)| {
                let mut there: Vec<Res> = stay.to_vec();
                for op in body {
                    let needs = op.what.needs();
                    if op.on == Some(indices.1) {
                        let go: Vec<_> = needs.into_iter().filter(|r| !there.contains(r)).collect();
                        let lent = bag.lend(cx.job, cx.rank, &go);
                        s.hand_off(lent, t)?.shift(cx.job, cx.rank, &go, &mut over);
                        there.extend(go);
                        enqueue(cx, t, &mut over, op)?;
                    } else {
                        let go: Vec<_> = needs.into_iter().filter(|r| there.contains(r)).collect();
                        let lent = over.lend(cx.job, cx.rank, &go);
                        t.hand_off(lent, s)?.shift(cx.job, cx.rank, &go, &mut bag);
                        there.retain(|r| !go.contains(r));
                        enqueue(cx, s, &mut bag, op)?;
                    }
                }
                let (homeless, away) = (
                    there
                        .iter()
                        .copied()
                        .filter(|r| !stay.contains(r))
                        .collect::<Vec<_>>(),
                    stay.iter()
                        .copied()
                        .filter(|r| !there.contains(r))
                        .collect::<Vec<_>>(),
                );
                if !homeless.is_empty() {
                    let lent = over.lend(cx.job, cx.rank, &homeless);
                    t.hand_off(lent, s)?
                        .shift(cx.job, cx.rank, &homeless, &mut bag);
                }
                if !away.is_empty() {
                    let lent = bag.lend(cx.job, cx.rank, &away);
                    s.hand_off(lent, t)?
                        .shift(cx.job, cx.rank, &away, &mut over);
                }
                Ok((bag, over))
            },
        );
        let (graph, (mut back, mut over)) = step?;
        back.shift(cx.job, cx.rank, what, &mut self.bag);
        over.shift(cx.job, cx.rank, stay, &mut side.bag);
        Ok(graph)
    }
}
