//! Graphs: recorded steps, and their replay.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::site::CallSite;

use super::lent::{settle_tickets, touch};
use crate::carry::{Carry, LeafState, compare, given_up, name_of, pair_given_up};
use crate::epochs::RecordedEpochs;
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{CaptureError, Error, Rejected, Result};
use crate::ground::fresh_id;
use crate::myself::Script;
use crate::observe::{ObservedStream, RecordedStep};
use crate::place::Brand;
use crate::replays::Proved;
use crate::stream::{Noted, NotedStep, RecordedArms, Stream, home_number};

pub(super) type RawGraph<D> = <<D as Device>::Stream as tidegate_hal::device::Stream>::Graph;

/// A recorded step. It belongs to the stream with the brand `'s`.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream()?);
/// let x = Region::from_slice(&world, &[0.0])?.on(&s)?;
/// let (graph, x) = s.capture(x, |s, mut x| {
///     s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
///     Ok(x)
/// })?;
/// let x = graph.replay(&s, x, 100)?;
/// assert_eq!(x.into_host(&s)?[0], 100.0);
/// # Ok(()) });
/// ```
pub struct Graph<'s, D: Device> {
    raw: Arc<RawGraph<D>>,
    /// The NIC's programs, which must be armed for each replay.
    arms: RecordedArms<D>,
    /// What each replay does towards this rank itself.
    script: Script<D>,
    /// The epochs of each replay.
    pub(super) epochs: RecordedEpochs,
    /// Set once all ranks have proved that it can be replayed.
    pub(super) proved: OnceLock<Proved>,
    /// What each replay does, in the order of the calls; the first number is that of the stream.
    pub(super) steps: Vec<(usize, NotedStep)>,
    /// The number by which observers know it.
    number: u64,
    ids: Vec<(u64, LeafState)>,
    brand: Brand<'s>,
}

/// A step that was recorded on two streams.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream()?);
/// stream!(let t = world.stream()?);
/// let x = Region::from_slice(&world, &[0.0])?.on(&s)?;
/// let y = Region::from_slice(&world, &[0.0])?.on(&t)?;
/// let (graph, pair) = s.capture_with(&mut t, (x, y), |s, t, (mut x, mut y)| {
///     s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
///     t.launch(|y: &mut [f64]| y[0] += 2.0, &mut y)?;
///     Ok((x, y))
/// })?;
/// let (x, y) = graph.replay(&s, &t, pair, 10)?;
/// assert_eq!((x.into_host(&s)?[0], y.into_host(&t)?[0]), (10.0, 20.0));
/// # Ok(()) });
/// ```
pub struct PairGraph<'s, 't, D: Device> {
    pub(super) one: Graph<'s, D>,
    /// How many of the listed things are at home on the first stream. The others are on the second one.
    apart: usize,
    other: Brand<'t>,
}

/// Compares two values with one list; the first `apart` entries belong to the first value. If they differ: the number
/// of things in both values, and the index of the first difference.
pub(super) fn same_pair<'s, 't, D: Device>(
    here: &mut impl Carry<'s, D>,
    there: &mut impl Carry<'t, D>,
    ids: &[(u64, LeafState)],
    apart: usize,
) -> Result<(), (usize, usize)> {
    let (one, differs) = compare(here, &ids[..apart]);
    let (two, differs_there) = compare(there, &ids[apart..]);
    let position = differs.or(differs_there.map(|position| apart + position));
    position.map_or(Ok(()), |position| Err((one + two, position)))
}

/// Like [`name_of`], for two values; the first `apart` things belong to the first one.
pub(super) fn name_in_pair<'s, 't, D: Device>(
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

/// What a recording does, for observers.
fn told(
    steps: &[(usize, NotedStep)],
    observed: &[Option<&ObservedStream>],
) -> Vec<(u32, RecordedStep)> {
    let told = steps.iter().filter_map(|(stream, step)| {
        let step = match step {
            NotedStep::Batch(batch, ..) => RecordedStep::Batch(batch.id()),
            NotedStep::Kernel(name) => RecordedStep::Kernel(name.clone()),
            NotedStep::Signal(number) => RecordedStep::Signal(*number),
            NotedStep::Await(number) => RecordedStep::Await(*number),
            NotedStep::Unput(..) | NotedStep::ByKernel(..) => return None,
        };
        Some((observed[*stream]?.number(), step))
    });
    told.collect()
}

impl<'s, D: Device> Graph<'s, D> {
    /// The graph of what was recorded on these streams.
    pub(super) fn new(
        raw: RawGraph<D>,
        mut noted: Noted<D>,
        ids: Vec<(u64, LeafState)>,
        observed: &[Option<&ObservedStream>],
    ) -> Self {
        noted.steps.sort_by_key(|(number, ..)| *number);
        let steps = noted.steps.into_iter();
        let steps: Vec<_> = steps.map(|(_, stream, step)| (stream, step)).collect();
        let number = fresh_id();
        if let [Some(first), ..] = observed {
            first.records(number, told(&steps, observed));
        }
        Graph {
            steps,
            number,
            raw: Arc::new(raw),
            proved: OnceLock::new(),
            arms: RecordedArms::new(noted.arms),
            epochs: noted.epochs,
            script: Script::new(noted.acts, |half| ids.iter().any(|(id, _)| *id == half)),
            ids,
            brand: PhantomData,
        }
    }

    /// Enqueues the recorded step `times` times, with the things that it was recorded with.
    ///
    /// # Errors
    ///
    /// - [`CaptureError::OtherGraph`](crate::error::CaptureError::OtherGraph) if `lent` contains other things.
    /// - [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch) if a window in it would have more epochs than
    ///   its counters hold.
    /// - [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if a replay would wait for a call of this
    ///   rank that could only come behind it.
    /// - [`Error::Revoked`] if a NIC reaches a peer of a window, and that window is revoked.
    /// - [`Error::Nic`] if the NIC refuses: with [`Throttle::Application`](crate::Throttle::Application), for want of
    ///   trigger slots.
    /// - [`Error::Device`], [`Error::Forked`], or the error that made the stream fail.
    ///
    /// `lent` is then lost, and the windows whose halves it contains are revoked on all ranks ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// let (graph, x) = s.capture(x, |s, mut x| {
    ///     s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?;
    ///     Ok(x)
    /// })?;
    /// let x = graph.replay(&s, x, 3)?;
    /// assert_eq!(x.into_host(&s)?[0], 8.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn replay<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        lent: R,
        times: usize,
    ) -> Result<R> {
        self.try_replay(stream, lent, times).map_err(given_up)
    }

    /// Like [`Graph::replay`], but returns `lent` if it fails, and then usually has no effect. There is an exception
    /// where a NIC reaches a peer: if the NIC or the device refuses after some of the work was armed or enqueued, the
    /// windows are revoked ([`Cause::NotEnqueued`]).
    ///
    /// # Errors
    ///
    /// The same as [`Graph::replay`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let [x, other] = [1.0, 2.0].map(|x| Region::from_slice(&world, &[x]).unwrap());
    /// # let (x, other) = (x.on(&s)?, other.on(&s)?);
    /// let (graph, x) = s.capture(x, |_, x| Ok(x))?;
    /// let refused = graph.try_replay(&s, other, 1).unwrap_err(); // it was recorded with `x`
    /// let other = refused.value.into_host(&s)?;
    /// assert_eq!(other[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_replay<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        lent: R,
        times: usize,
    ) -> Result<R, Rejected<R>> {
        let mut lent = lent;
        if let (_, Some(position)) = compare(&mut lent, &self.ids) {
            let name = name_of(&mut lent, position);
            return Err(Rejected::new(
                Error::Capture(CaptureError::OtherGraph { position, name }),
                lent,
            ));
        }
        let site = Location::caller();
        stream.called_at(site);
        let replayed = stream
            .healthy()
            .and_then(|()| settle_tickets(&mut lent, stream, site))
            .and_then(|()| {
                // SAFETY: everything that the recording touches is in `lent` (its brand let in nothing else), which the
                // caller holds, at home on this stream. The caller gets it back on the same stream, so later work is
                // ordered after the replay.
                unsafe { self.submit(stream, &[], times, site) }
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
    /// The caller holds what was lent to the recording, at home on the streams that it was lent on, which are these.
    unsafe fn submit(
        &self,
        stream: &Stream<'_, D>,
        others: &[&D::Stream],
        times: usize,
        site: CallSite,
    ) -> Result<()> {
        let times = times as u64;
        self.script.admit(times)?;
        self.epochs.admit(times)?;
        let prepare = || Ok(stream.raw().prepare_replay(others, &self.raw)?);
        self.arms.replay(stream, times, prepare, |times| {
            if let Some(observed) = stream.observed() {
                observed.replays(self.number, times, site);
            }
            // SAFETY: the recording touches only what was lent to it, since its brands let in nothing else. Each thing
            // is ordered by the stream that it is at home on, or by hand-offs that are recorded. The caller holds it,
            // as promised. The NIC has been armed for what the recording rings for.
            let replayed = unsafe { stream.raw().replay(others, &self.raw, times) };
            if let Some(observed) = stream.observed() {
                observed.returned();
            }
            replayed?;
            self.script.done(times);
            self.epochs.took(times);
            if let Some(proved) = self.proved.get() {
                let stream_number = home_number(stream);
                (stream.world()).replayed(*proved, stream_number, times);
            }
            Ok(())
        })
    }
}

impl<'s, 't, D: Device> PairGraph<'s, 't, D> {
    pub(super) fn new(one: Graph<'s, D>, apart: usize) -> Self {
        PairGraph {
            one,
            apart,
            other: PhantomData,
        }
    }

    /// Like [`Graph::replay`], on both streams.
    ///
    /// A device may hold both streams until both have finished a replay, or one of its repetitions (GPUs do). So the
    /// work of one stream in a step must not depend, through a peer, on work of the other stream in a later step. It
    /// must not depend on work behind the replay on either stream, either.
    ///
    /// # Errors
    ///
    /// The same as [`Graph::replay`].
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
    ///     let mut x = s.hand_off(x, t)?;
    ///     t.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
    ///     Ok((t.hand_off(x, s)?, ()))
    /// })?;
    /// let (x, ()) = graph.replay(&s, &t, (x, ()), 10)?;
    /// assert_eq!(x.into_host(&s)?[0], 10);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn replay<R: Carry<'s, D>, Q: Carry<'t, D>>(
        &self,
        stream: &Stream<'s, D>,
        other: &Stream<'t, D>,
        lent: (R, Q),
        times: usize,
    ) -> Result<(R, Q)> {
        (self.try_replay(stream, other, lent, times)).map_err(pair_given_up)
    }

    /// Like [`PairGraph::replay`], but returns `lent` if it fails, and then usually has no effect. There is an
    /// exception where a NIC reaches a peer: if the NIC or the device refuses after some of the work was armed or
    /// enqueued, the windows are revoked ([`Cause::NotEnqueued`]).
    ///
    /// # Errors
    ///
    /// The same as [`Graph::replay`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1])?.on(&s)?;
    /// let (graph, ((), ())) = s.capture_with(&mut t, ((), ()), |_, _, pair| Ok(pair))?;
    /// let refused = graph.try_replay(&s, &t, (x, ()), 1).unwrap_err(); // it was recorded without `x`
    /// let (x, ()) = refused.value;
    /// assert_eq!(x.into_host(&s)?[0], 1);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_replay<R: Carry<'s, D>, Q: Carry<'t, D>>(
        &self,
        stream: &Stream<'s, D>,
        other: &Stream<'t, D>,
        lent: (R, Q),
        times: usize,
    ) -> Result<(R, Q), Rejected<(R, Q)>> {
        let (mut here, mut there) = lent;
        if let Err((_, position)) = same_pair(&mut here, &mut there, &self.one.ids, self.apart) {
            let name = name_in_pair(&mut here, &mut there, self.apart, position);
            let error = Error::Capture(CaptureError::OtherGraph { position, name });
            return Err(Rejected::new(error, (here, there)));
        }
        let site = Location::caller();
        stream.called_at(site);
        let replayed = (stream.healthy())
            .and_then(|()| other.healthy())
            .and_then(|()| settle_tickets(&mut here, stream, site))
            .and_then(|()| settle_tickets(&mut there, other, site))
            // SAFETY: what was lent is in the two values, each at home on the stream that it was lent on. The caller
            // gets it back there, so later work is ordered after the replay.
            .and_then(|()| unsafe { self.one.submit(stream, &[other.raw()], times, site) });
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
