//! Graphs: recorded steps.

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::device::{Device, DeviceError, Stream as _};

use super::lent::{rebrand, rebrand_ref, settle_tickets, touch};
use crate::carry::{Carry, State, compare, identify, name_of};
use crate::epochs::RecordedEpochs;
use crate::error::{Error, Rejected, Result};
use crate::myself::Script;
use crate::place::Brand;
use crate::stream::{Noted, RecordedArms, Stream};

/// A recorded step. It belongs to the stream with the brand `'s` (and the second one, if it was recorded with two).
pub struct Graph<'s, D: Device> {
    raw: Arc<<D::Stream as tidegate_hal::device::Stream>::Graph>,
    /// What must be armed at NICs for each replay.
    arms: RecordedArms<D>,
    /// What each replay does towards this rank itself.
    script: Script<D>,
    /// The epochs of each replay.
    epochs: RecordedEpochs,
    ids: Vec<(u64, State)>,
    brand: Brand<'s>,
}

/// A recorded step of two streams.
pub struct PairGraph<'s, 't, D: Device> {
    one: Graph<'s, D>,
    /// How many of the listed things are at home on the first stream.
    apart: usize,
    other: Brand<'t>,
}

/// A recording, and what was lent to it; or an error, and what was lent, if it has come back.
pub type Captured<G, R> = Result<(G, R), Rejected<Option<R>>>;

impl<'s, D: Device> Stream<'s, D> {
    /// Records one step: runs `step` with what it is lent, executing nothing. What `step` does besides (counting, say)
    /// is done once, and not by replays.
    ///
    /// What a step uses it must be lent, and give back. "Borrowed data escapes outside of closure" (E0521), and "does not
    /// live long enough" (E0597), say that it uses something that it was not lent, or the stream that records instead of
    /// the one that it is given. The closure stands in the call itself: of one that is bound to a name first the
    /// compiler does not see that it fits all streams.
    ///
    /// # Errors
    ///
    /// What `step` returns; [`Error::NotReplayable`]; [`Error::Device`] if the device cannot make a recording. What was
    /// lent comes back, unless `step` has not given it back, or not as it was: that is lost, as if it had been dropped.
    /// An epoch that was open revokes its window, and peers of a half that was not in an epoch wait for it until this
    /// rank leaves, or a limit passes.
    pub fn capture<R, F>(&mut self, lent: R, step: F) -> Captured<Graph<'s, D>, R>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        F: for<'c> FnOnce(&Stream<'c, D>, R::At<'c>) -> Result<R::At<'c>>,
    {
        let mut lent = lent;
        let ids = identify(&mut lent);
        let begun = (self.healthy())
            .and_then(|()| settle_tickets(&mut lent, self))
            .and_then(|()| Ok(self.raw().begin_capture(&[])?));
        if let Err(error) = begun {
            return Err(Rejected::new(error, Some(lent)));
        }
        let stream = &*self;
        let recording = Recording {
            stream,
            side: None::<&Stream<'s, D>>,
        };
        let (recorded, returned) = recording.run(|| {
            // What is still under way at the end of the step must be over where the next replay writes it; no replay,
            // and nothing else, lies between. So the wait is recorded here, and no ticket leaves the recording.
            let mut value = step(rebrand_ref(stream), rebrand(lent))?;
            settle_tickets(&mut value, stream)?;
            Ok(value)
        });
        let mut returned = returned.map_err(|error| Rejected::new(error, None))?;
        let (count, differs) = compare(&mut returned, &ids);
        if let Some(position) = differs {
            let error = Error::NotReplayable {
                lent: ids.len(),
                returned: count,
                position,
                name: name_of(&mut returned, position),
            };
            return Err(Rejected::new(error, None));
        }
        // Nothing has been executed, and all is as it was lent.
        let returned = rebrand(returned);
        match recorded {
            Ok((graph, noted)) => Ok((Graph::new(graph, noted, ids), returned)),
            Err(error) => Err(Rejected::new(error, Some(returned))),
        }
    }

    /// As [`Stream::capture`], on two streams: a pair is lent, of what is at home on the one and on the other. The step
    /// may hand things over between them; each must be back at its end.
    ///
    /// # Errors
    ///
    /// As [`Stream::capture`].
    pub fn capture_with<'t, R, Q, F>(
        &mut self,
        other: &mut Stream<'t, D>,
        lent: (R, Q),
        step: F,
    ) -> Captured<PairGraph<'s, 't, D>, (R, Q)>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        Q: Carry<'t, D>,
        for<'d> Q::At<'d>: Carry<'d, D, At<'t> = Q>,
        F: for<'c, 'd> FnOnce(
            &Stream<'c, D>,
            &Stream<'d, D>,
            (R::At<'c>, Q::At<'d>),
        ) -> Result<(R::At<'c>, Q::At<'d>)>,
    {
        let (mut here, mut there) = lent;
        let mut ids = identify(&mut here);
        let apart = ids.len();
        ids.extend(identify(&mut there));
        let one_world = if self.world().is(other.world()) {
            Ok(())
        } else {
            let what = "the two streams belong to different worlds".to_owned();
            Err(Error::Invalid(what))
        };
        let begun = (self.healthy())
            .and_then(|()| other.healthy())
            .and(one_world)
            .and_then(|()| settle_tickets(&mut here, self))
            .and_then(|()| settle_tickets(&mut there, other))
            .and_then(|()| Ok(self.raw().begin_capture(&[other.raw()])?));
        if let Err(error) = begun {
            return Err(Rejected::new(error, Some((here, there))));
        }
        let (stream, side) = (&*self, &*other);
        let recording = Recording {
            stream,
            side: Some(side),
        };
        let (recorded, returned) = recording.run(|| {
            let lent = (rebrand(here), rebrand(there));
            let (mut here, mut there) = step(rebrand_ref(stream), rebrand_ref(side), lent)?;
            settle_tickets(&mut here, stream)?;
            settle_tickets(&mut there, side)?;
            Ok((here, there))
        });
        let (mut here, mut there) = returned.map_err(|error| Rejected::new(error, None))?;
        if let Err((returned, position)) = same_pair(&mut here, &mut there, &ids, apart) {
            let error = Error::NotReplayable {
                lent: ids.len(),
                returned,
                position,
                name: name_in_pair(&mut here, &mut there, apart, position),
            };
            return Err(Rejected::new(error, None));
        }
        let returned = (rebrand(here), rebrand(there));
        let (graph, noted) = match recorded {
            Ok(recorded) => recorded,
            Err(error) => return Err(Rejected::new(error, Some(returned))),
        };
        let graph = PairGraph {
            one: Graph::new(graph, noted, ids),
            apart,
            other: PhantomData,
        };
        Ok((graph, returned))
    }
}

/// A capture under way: ends it whatever the step does.
struct Recording<'a, 's, 't, D: Device> {
    stream: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
}

type RawGraph<D> = <<D as Device>::Stream as tidegate_hal::device::Stream>::Graph;

/// What came of a capture: the recording, with what NICs must be armed with, and what the step gave back.
type Outcome<D, X> = (Result<(RawGraph<D>, Noted<D>), DeviceError>, Result<X>);

impl<D: Device> Recording<'_, '_, '_, D> {
    fn run<X>(self, step: impl FnOnce() -> Result<X>) -> Outcome<D, X> {
        let value = step();
        let (graph, noted) = self.end();
        std::mem::forget(self);
        (graph.map(|graph| (graph, noted)), value)
    }

    fn end(&self) -> (Result<RawGraph<D>, DeviceError>, Noted<D>) {
        let others: Vec<_> = self.side.iter().map(|side| side.raw()).collect();
        let graph = self.stream.raw().end_capture(&others);
        let mut noted = self.stream.noted();
        if let Some(side) = self.side {
            noted.extend(side.noted());
        }
        (graph, noted)
    }
}

impl<D: Device> Drop for Recording<'_, '_, '_, D> {
    fn drop(&mut self) {
        // Only when the step panics.
        drop(self.end());
    }
}

/// Compares two values with one list, of which the first's part ends `apart`. If they differ: how many things there are
/// in both, and where the first is that differs.
fn same_pair<'s, 't, D: Device>(
    here: &mut impl Carry<'s, D>,
    there: &mut impl Carry<'t, D>,
    ids: &[(u64, State)],
    apart: usize,
) -> Result<(), (usize, usize)> {
    let (one, differs) = compare(here, &ids[..apart]);
    let (two, differs_there) = compare(there, &ids[apart..]);
    let position = differs.or(differs_there.map(|position| apart + position));
    position.map_or(Ok(()), |position| Err((one + two, position)))
}

/// As [`name_of`], of two values of which the first's part ends `apart`.
fn name_in_pair<'s, 't, D: Device>(
    here: &mut impl Carry<'s, D>,
    there: &mut impl Carry<'t, D>,
    apart: usize,
    position: usize,
) -> Option<String> {
    match position.checked_sub(apart) {
        None => name_of(here, position).map(|name| format!("0.{name}")),
        Some(position) => name_of(there, position).map(|name| format!("1.{name}")),
    }
}

impl<'s, D: Device> Graph<'s, D> {
    fn new(raw: RawGraph<D>, noted: Noted<D>, ids: Vec<(u64, State)>) -> Self {
        Graph {
            raw: Arc::new(raw),
            arms: RecordedArms::new(noted.arms),
            epochs: noted.epochs,
            script: Script::new(noted.acts, |half| ids.iter().any(|(id, _)| *id == half)),
            ids,
            brand: PhantomData,
        }
    }

    /// Enqueues the recorded step, `times` times, with what it was recorded with.
    ///
    /// # Errors
    ///
    /// [`Error::OtherGraph`] if `lent` is something else; [`Error::LastEpoch`] if a window in it would have more epochs than its
    /// counters hold; [`Error::SelfDeadlock`] if one of the replays would wait for what
    /// this rank could only do behind it; what made the stream fail. `lent` comes back.
    pub fn replay<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        lent: R,
        times: u64,
    ) -> Result<R, Rejected<R>> {
        let mut lent = lent;
        if let (_, Some(position)) = compare(&mut lent, &self.ids) {
            let name = name_of(&mut lent, position);
            return Err(Rejected::new(Error::OtherGraph { position, name }, lent));
        }
        let replayed = stream
            .healthy()
            .and_then(|()| settle_tickets(&mut lent, stream))
            .and_then(|()| {
                // SAFETY: everything that the recording touches is in `lent` (its brand let in nothing else), which the
                // caller holds, at home on this stream; it is given back on the same stream, so that what follows is
                // ordered after the replay.
                unsafe { self.submit(stream, &[], times) }
            });
        match replayed {
            Ok(()) => {
                touch(&mut lent, stream);
                Ok(lent)
            }
            Err(error) => Err(Rejected::new(error, lent)),
        }
    }

    /// # Safety
    ///
    /// What was lent to the recording is held by the caller, at home on the streams that it was lent on, which are
    /// these.
    unsafe fn submit(
        &self,
        stream: &Stream<'_, D>,
        others: &[&D::Stream],
        times: u64,
    ) -> Result<()> {
        self.script.admit(times)?;
        self.epochs.admit(times)?;
        let prepare = || Ok(stream.raw().prepare_replay(others, &self.raw)?);
        self.arms.replay(stream, times, prepare, |times| {
            // SAFETY: the recording touches what was lent to it and nothing else (its brands let in nothing), each
            // thing ordered by the stream that it is at home on or by hand-offs that are recorded; the caller's
            // promise. What it rings for has been armed.
            unsafe { stream.raw().replay(others, &self.raw, times) }?;
            self.script.done(times);
            self.epochs.took(times);
            Ok(())
        })
    }
}

impl<'s, 't, D: Device> PairGraph<'s, 't, D> {
    /// As [`Graph::replay`], on both streams.
    ///
    /// A device may let neither stream go on before both are through a replay, or through one of its times (GPUs do).
    /// So nothing that one stream does in a step may depend, by way of a peer, on what the other does in a later one, nor
    /// on what is enqueued behind the replay on either: a device may hold that back until the recording is over.
    ///
    /// # Errors
    ///
    /// As [`Graph::replay`].
    pub fn replay<R: Carry<'s, D>, Q: Carry<'t, D>>(
        &self,
        stream: &Stream<'s, D>,
        other: &Stream<'t, D>,
        lent: (R, Q),
        times: u64,
    ) -> Result<(R, Q), Rejected<(R, Q)>> {
        let (mut here, mut there) = lent;
        if let Err((_, position)) = same_pair(&mut here, &mut there, &self.one.ids, self.apart) {
            let name = name_in_pair(&mut here, &mut there, self.apart, position);
            let error = Error::OtherGraph { position, name };
            return Err(Rejected::new(error, (here, there)));
        }
        let replayed = (stream.healthy())
            .and_then(|()| other.healthy())
            .and_then(|()| settle_tickets(&mut here, stream))
            .and_then(|()| settle_tickets(&mut there, other))
            // SAFETY: what was lent is in the two values, each at home on the stream that it was lent on; it is given
            // back there, so that what follows is ordered after the replay.
            .and_then(|()| unsafe { self.one.submit(stream, &[other.raw()], times) });
        match replayed {
            Ok(()) => {
                touch(&mut here, stream);
                touch(&mut there, other);
                Ok((here, there))
            }
            Err(error) => Err(Rejected::new(error, (here, there))),
        }
    }
}

impl<D: Device> std::fmt::Debug for Graph<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("device", &D::NAME)
            .field("lent", &self.ids.len())
            .finish_non_exhaustive()
    }
}

impl<D: Device> std::fmt::Debug for PairGraph<'_, '_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lent = [self.apart, self.one.ids.len() - self.apart];
        f.debug_struct("PairGraph")
            .field("device", &D::NAME)
            .field("lent", &lent)
            .finish_non_exhaustive()
    }
}
