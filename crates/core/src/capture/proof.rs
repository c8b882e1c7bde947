//! `verify`: from a recording to what this rank tells the others of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::{Batch, Step};
use tidegate_hal::device::Device;
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::site::CallSite;

use super::graph::{Graph, PairGraph};
use crate::epochs::Epochs;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Result, WindowName};
use crate::half_kind::HalfKind;
use crate::members::Members;
use crate::observe::EpochCall;
use crate::stream::{NotedStep, Stream, home_number};
use crate::verify::{Act, Before, Item, NotPut, Op, Operation, Record, Verdict, Work, verdict};
use crate::world::Team;

impl<'s, D: Device> Graph<'s, D> {
    /// Proves that all ranks can replay their recordings together, any number of times; or finds the calls that wait
    /// for each other. Nothing is executed. The call is collective: each rank gives the recording of the same step, and
    /// all ranks get the same verdict. Call it where you would replay: after all steps that come before the first
    /// replay have been enqueued, on all ranks.
    ///
    /// With `&team.on(&s)`, the call is collective over the ranks of a team. The step must use no window with other
    /// ranks.
    ///
    /// What it relies on, and what it cannot tell, stands in the guide: `tidegate::guide::verify`.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if a rank has ended, or is in another collective call; [`Error::Forked`]. A step that cannot
    /// be replayed is no error of this call: it is a [`Verdict`].
    /// [`TeamError::Outside`](crate::error::TeamError::Outside), on all ranks of the team, if a recording waits for
    /// another rank. [`TeamError::OtherWorld`](crate::error::TeamError::OtherWorld), on all ranks of the team, if a
    /// stream belongs to another world.
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
    pub fn verify(&self, on: &impl Members<'s, D>) -> Result<Verdict> {
        let stream = on.stream();
        let streams = [(stream.name(), home_number(stream))];
        let team = on.team();
        let elsewhere = !stream.world().is(team.world());
        self.agree(&team, &streams, elsewhere, Location::caller())
    }

    /// Tells the ranks of the team what this one has recorded on streams of these names and numbers, and makes the
    /// check. If the streams are those of another world than the team's, it tells that instead: the other ranks must
    /// not wait.
    fn agree(
        &self,
        team: &Team<D>,
        streams: &[(&str, usize)],
        elsewhere: bool,
        site: CallSite,
    ) -> Result<Verdict> {
        let mut builder = Builder::default();
        builder.record.elsewhere = elsewhere;
        if !elsewhere {
            builder.record.streams = streams.iter().map(|(name, _)| (*name).to_owned()).collect();
            // A half whose batches were recorded has epochs in the recording.
            (self.epochs.halves()).for_each(|half| builder.window(half.window()));
            for (stream, step) in &self.steps {
                builder.step(*stream, step);
            }
            self.epochs.halves().for_each(|half| builder.half(half));
        }
        let bytes = postcard::to_stdvec(&builder.record).expect("plain data can be encoded");
        let what = "verifying a recording";
        let (world, roster) = (team.world(), &*team.roster);
        let agreement = world.agreement(roster, what.to_owned())?;
        let told = agreement.gather(what, &bytes)?;
        let verdict = verdict(
            (&roster.name, world.size()),
            roster.members.iter().zip(told),
        )?;
        tidegate_hal::tell(|| tracing::info!(%site, %verdict, "a recording was verified"));
        if matches!(verdict, Verdict::Proved(_)) && roster.id == TeamId::WORLD {
            // Reports compare what all ranks have replayed. No other thread verifies at this time, so the number is the
            // same on all ranks.
            let numbers: Vec<_> = streams.iter().map(|(_, number)| *number).collect();
            let proved = world.proved(&numbers, site);
            self.proved.get_or_init(|| proved);
        }
        Ok(verdict)
    }
}

impl<'s, 't, D: Device> PairGraph<'s, 't, D> {
    /// Like [`Graph::verify`], for a step of two streams. The call is collective over all ranks of the job; there is
    /// none for a team. A replay may run ahead on one of the streams, or a device may hold both until a replay has
    /// ended. The verdict is right for either.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if a rank has ended, or is in another collective call; [`Error::Forked`].
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
        let streams = [
            (stream.name(), home_number(stream)),
            (other.name(), home_number(other)),
        ];
        (self.one).agree(
            &stream.world().everyone(),
            &streams,
            false,
            Location::caller(),
        )
    }
}

/// Makes the record of a rank.
#[derive(Default)]
struct Builder {
    record: Record,
    windows: HashMap<WindowId, u32>,
    sites: HashMap<CallSite, u32>,
    /// The batches that are known, by address. The graph keeps them. None for a batch that neither adds nor waits.
    batches: HashMap<*const Batch, Option<u32>>,
    /// The same, by what they do.
    lanes: HashMap<Vec<Vec<Op>>, u32>,
    /// The lines that leave slots as they were, with the numbers of those slots.
    unput: HashSet<(WindowId, CallSite, Vec<u32>)>,
    /// For each window and peer, whether the inbox waits in the recording before it posts: then it was exposed at
    /// first.
    unwaited: HashMap<(WindowId, u32), bool>,
    /// For each barrier, the ranks that this one tells that it has come, or that it waits for.
    arrives: BTreeSet<(WindowId, u32)>,
}

impl Builder {
    /// Notes the window of a half, for it and for all steps.
    fn window(&mut self, window: &WindowName) {
        let windows = &mut self.record.windows;
        self.windows.entry(window.id).or_insert_with(|| {
            windows.push((window.id, window.name.to_string()));
            windows.len() as u32 - 1
        });
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
                let Some(batch) = self.batch(batch) else {
                    return;
                };
                let (call, site) = (*call, self.site(site));
                Work::Batch { call, site, batch }
            }
            NotedStep::ByKernel(batch, site) => {
                let Some(batch) = self.batch(batch) else {
                    return;
                };
                let (call, site) = (EpochCall::Complete, self.site(site));
                Work::Batch { call, site, batch }
            }
            NotedStep::Unput(window, slots, site) => {
                let numbers = slots.iter().map(|slot| slot.index).collect();
                if !self.unput.insert((*window, site, numbers)) {
                    return;
                }
                let unput = NotPut {
                    window: self.windows[window],
                    slots: slots.iter().map(ToString::to_string).collect(),
                    site: self.site(site),
                };
                return self.record.unput.push(unput);
            }
            NotedStep::Kernel(_) => return,
            NotedStep::Signal(number) => Work::Signal(*number),
            NotedStep::Await(number) => Work::Await(*number),
        };
        let stream = stream as u32;
        self.record.items.push(Item { stream, work });
    }

    /// The index of what a batch does, unless it does nothing with peers.
    fn batch(&mut self, batch: &Arc<Batch>) -> Option<u32> {
        let at = Arc::as_ptr(batch);
        if let Some(known) = self.batches.get(&at) {
            return *known;
        }
        let lanes = self.lanes(batch);
        let batches = &mut self.record.batches;
        let number = (!lanes.is_empty()).then(|| {
            *self.lanes.entry(lanes).or_insert_with_key(|lanes| {
                batches.push(lanes.clone());
                batches.len() as u32 - 1
            })
        });
        self.batches.insert(at, number);
        number
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
                let awaited = Operation::of_stream(tag.awaited)?;
                // The first thing that an inbox does with an origin.
                let first = match (act, awaited) {
                    (Act::Add, Operation::Post) => Some(false),
                    (Act::Wait, Operation::Complete) => Some(true),
                    _ => None,
                };
                if let Some(first) = first {
                    self.unwaited.entry((window, peer)).or_insert(first);
                }
                if awaited == Operation::Arrive {
                    self.arrives.insert((window, peer));
                }
                let window = self.windows[&window];
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
        let window = self.windows[&id];
        if half.is_lent() {
            self.record.lent.push(window);
        }
        let arrives = self.arrives.range((id, 0)..=(id, u32::MAX));
        let barriers = half.with_each().map(|(_, count, _)| count).next();
        for (_, peer) in arrives {
            self.record.before.push(Before {
                window,
                peer: *peer,
                given: Operation::Arrive,
                count: barriers.unwrap_or(0),
                waited: barriers,
            });
        }
        for (rank, epochs, early) in half.with_each() {
            let peer = rank as u32;
            let (given, waited) = match half.half {
                HalfKind::Outbox => (Operation::Complete, None),
                HalfKind::Inbox => {
                    let open = self.unwaited.get(&(id, peer)).is_some_and(|open| *open);
                    (Operation::Post, Some(epochs - u64::from(open)))
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
