//! `verify`: from a recording to what this rank tells the others of it.

use std::collections::HashMap;
use std::panic::Location;

use tidegate_hal::batch::{Batch, Step};
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::site::CallSite;

use super::graph::{Graph, PairGraph};
use crate::epochs::Epochs;
use crate::error::Result;
use crate::half_kind::HalfKind;
use crate::stream::{NotedStep, Stream};
use crate::verify::{Act, Before, Item, NotPut, Op, Record, Signal, Verdict, Work, verdict};
use crate::world::World;

impl<'s, D: Device> Graph<'s, D> {
    /// Proves that all ranks can replay their recordings together, any number of times; or finds the calls that wait for
    /// each other. Nothing is executed. The call is collective: each rank gives the recording of the same step, and all
    /// ranks get the same verdict. Call it where you would replay: after all steps that come before the first replay
    /// have been enqueued, on all ranks.
    ///
    /// What it relies on, and what it cannot tell, stands in the guide: `tidegate::guide::verify`.
    ///
    /// # Errors
    ///
    /// The errors of [`World::all_gather`]. A step that cannot be replayed is no error of this call: it is a
    /// [`Verdict`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut window = SlotWindow::<f64>::new("halo");
    /// # let other = 1 - world.rank();
    /// # window.slot_from(other, 0, 4);
    /// # let to = window.slot_to(other, 0);
    /// # let (inbox, outbox) = window.open(&s)?;
    /// # let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    /// let (graph, _) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
    ///     let exposed = inbox.post(s)?;
    ///     let mut epoch = outbox.start();
    ///     epoch.put(&src, to)?;
    ///     let outbox = epoch.complete(s)?;
    ///     Ok((exposed.wait(s)?, outbox, src))
    /// })?;
    /// let proof = graph.verify(&s)?.proof()?; // if `complete` stood before `post`, this would name both
    /// assert!(proof.unput.is_empty());
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn verify(&self, stream: &Stream<'s, D>) -> Result<Verdict> {
        self.agree(stream.world(), &[stream.name()], Location::caller())
    }

    /// Tells all ranks what this one has recorded on streams of these names, and makes the check.
    fn agree(&self, world: &World<D>, streams: &[&str], site: CallSite) -> Result<Verdict> {
        let mut builder = Builder {
            world,
            record: Record::default(),
            windows: HashMap::new(),
            sites: HashMap::new(),
            unwaited: HashMap::new(),
        };
        builder.record.streams = streams.iter().map(|&name| name.to_owned()).collect();
        for (stream, step) in &self.steps {
            builder.step(*stream, step);
        }
        self.epochs.halves().for_each(|half| builder.half(half));
        let bytes = postcard::to_stdvec(&builder.record).expect("plain data can be encoded");
        let verdict = verdict(&world.all_gather("verifying a recording", bytes)?)?;
        if matches!(verdict, Verdict::Proved(_)) {
            // All ranks come here in the same order, so the number is the same.
            let proved = world.proved(site);
            self.proved.get_or_init(|| proved);
        }
        Ok(verdict)
    }
}

impl<'s, 't, D: Device> PairGraph<'s, 't, D> {
    /// Like [`Graph::verify`], for a step of two streams. A replay may run ahead on one of them; the check assumes that
    /// it does not, so it refuses nothing that could end.
    ///
    /// # Errors
    ///
    /// Those of [`Graph::verify`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let x = Region::from_slice(&world, &[0])?.on(&s)?;
    /// let (graph, (x, ())) = s.capture_with(&mut t, (x, ()), |s, t, (x, ())| {
    ///     let x = s.hand_off(x, t)?;
    ///     Ok((t.hand_off(x, s)?, ()))
    /// })?;
    /// graph.verify(&s, &t)?.proof()?;
    /// # drop(x);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn verify(&self, stream: &Stream<'s, D>, other: &Stream<'t, D>) -> Result<Verdict> {
        let streams = [stream.name(), other.name()];
        (self.one).agree(stream.world(), &streams, Location::caller())
    }
}

/// Makes the record of a rank.
struct Builder<'a, D: Device> {
    world: &'a World<D>,
    record: Record,
    windows: HashMap<WindowId, u32>,
    sites: HashMap<CallSite, u32>,
    /// For each window and peer, whether the inbox waits in the recording before it posts: then it was exposed at first.
    unwaited: HashMap<(WindowId, u32), bool>,
}

impl<D: Device> Builder<'_, D> {
    fn window(&mut self, id: WindowId) -> u32 {
        let (world, windows) = (self.world, &mut self.record.windows);
        *self.windows.entry(id).or_insert_with(|| {
            windows.push((id, world.window_name(id).to_string()));
            windows.len() as u32 - 1
        })
    }

    fn site(&mut self, site: CallSite) -> u32 {
        let sites = &mut self.record.sites;
        *self.sites.entry(site).or_insert_with(|| {
            sites.push(site.to_string());
            sites.len() as u32 - 1
        })
    }

    fn step(&mut self, stream: usize, step: &NotedStep) {
        let work = match step {
            NotedStep::Batch(batch, call, site) => {
                let lanes = self.lanes(batch);
                if lanes.is_empty() {
                    return;
                }
                let (call, site) = (*call, self.site(site));
                Work::Batch { call, site, lanes }
            }
            NotedStep::Unput(window, slots, site) => {
                let unput = NotPut {
                    window: self.window(*window),
                    slots: slots.iter().map(ToString::to_string).collect(),
                    site: self.site(site),
                };
                return self.record.unput.push(unput);
            }
            NotedStep::Signal(number) => Work::Signal(*number),
            NotedStep::Await(number) => Work::Await(*number),
        };
        let stream = stream as u32;
        self.record.items.push(Item { stream, work });
    }

    /// The lanes of a batch, as far as peers are concerned.
    fn lanes(&mut self, batch: &Batch) -> Vec<Vec<Op>> {
        let mut lanes: Vec<Vec<Op>> = Vec::new();
        for lane in batch.lanes() {
            let ops = batch.steps(*lane).iter().filter_map(|step| {
                let (act, tag) = match step {
                    Step::Wait(wait) => (Act::Wait, wait.tag),
                    Step::Add(add) => (Act::Add, add.tag?),
                    _ => return None,
                };
                let (window, peer) = (tag.window?, tag.peer);
                let awaited = Signal::of(tag.awaited)?;
                // The first thing that an inbox does with an origin.
                let first = match (act, awaited) {
                    (Act::Add, Signal::Post) => Some(false),
                    (Act::Wait, Signal::Complete) => Some(true),
                    _ => None,
                };
                if let Some(first) = first {
                    self.unwaited.entry((window, peer)).or_insert(first);
                }
                let window = self.window(window);
                Some(Op {
                    act,
                    window,
                    peer,
                    awaited,
                })
            });
            let ops: Vec<_> = ops.collect();
            if !ops.is_empty() {
                lanes.push(ops);
            }
        }
        lanes
    }

    /// Notes how many epochs a half has had.
    fn half(&mut self, half: &Epochs) {
        let id = half.window().id;
        let window = self.window(id);
        for (rank, epochs, early) in half.with_each() {
            let peer = rank as u32;
            let (given, waited) = match half.half {
                HalfKind::Outbox => (Signal::Complete, None),
                HalfKind::Inbox => {
                    let open = self.unwaited.get(&(id, peer)).is_some_and(|open| *open);
                    (Signal::Post, Some(epochs - u64::from(open)))
                }
            };
            self.record.before.push(Before {
                window,
                peer,
                given,
                count: epochs + early,
                waited,
            });
        }
    }
}
