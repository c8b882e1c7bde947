//! Recording a step.

use std::panic::Location;

use tidegate_hal::device::{Device, DeviceError, Stream as _};
use tidegate_hal::site::CallSite;

use super::graph::{Graph, PairGraph, RawGraph, name_in_pair, same_pair};
use super::lent::{rebrand, rebrand_ref, settle_tickets};
use crate::carry::{self, Carry, compare, given_up, identify, name_of, pair_given_up};
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{CaptureError, Error, RegionError, Rejected, Result};
use crate::stake::Stake;
use crate::stream::{Noted, Stream};

/// The result of a `try_capture`: the recording and what was lent, or an error and what was lent, unless the step lost
/// it.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::capture::Captured;
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// /// Records a step that changes nothing.
/// fn record<'s>(s: &mut Stream<'s>, x: Region<f64, On<'s>>) -> Captured<Graph<'s>, Region<f64, On<'s>>> {
///     s.try_capture(x, |_, x| Ok(x))
/// }
/// # let x = Region::zeroed(&world, 1)?.on(&s)?;
/// # record(&mut s, x).unwrap();
/// # Ok(()) });
/// ```
pub type Captured<G, R> = Result<(G, R), Rejected<Option<R>>>;

/// The error of a capture whose step did not return what it was lent. The windows of the lost things are revoked.
fn lost<D: Device, R>(stakes: &[Stake<D>], error: Error) -> Rejected<Option<R>> {
    stakes.iter().for_each(|stake| stake.give_up(&error));
    Rejected::new(error, None)
}

fn tell_recorded<D: Device>(stream: &Stream<'_, D>, site: CallSite) {
    let stream = stream.name();
    tidegate_hal::tell(|| tracing::info!(stream, %site, "a step was recorded"));
}

impl<'s, D: Device> Stream<'s, D> {
    /// Records a step: runs `step` with what it is lent, and executes nothing. Other effects of `step` (counting, say)
    /// happen once, and not in replays.
    ///
    /// Lend the step everything that it uses; it must return everything. If it uses something that it was not lent, the
    /// compiler says "borrowed data escapes outside of closure" (E0521) or "does not live long enough" (E0597). It says
    /// the same if the step uses the stream that records, and not the stream that it is given. Write the closure in the
    /// call itself: if it is bound to a name first, the compiler does not see that it fits all streams.
    /// `tidegate::guide::when_the_compiler_says_no` shows both errors, and how to correct them.
    ///
    /// A step returns this crate's [`Result`]. If the error type were generic, the compiler could not infer it from
    /// `?`, and each step would have to name it. Wrap other errors by [`Error::other`]:
    /// `read_table().map_err(Error::other)?`. This also works with `anyhow::Error`.
    ///
    /// # Errors
    ///
    /// The error that `step` returns, [`CaptureError::NotReplayable`](crate::error::CaptureError::NotReplayable),
    /// [`Error::Device`] if the device cannot make a recording, [`Error::Forked`], or the error that made the stream
    /// fail. What was lent is then lost, and the windows whose halves it contained are revoked on all ranks
    /// ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// let (graph, x) = s.capture(x, |s, mut x| {
    ///     s.launch(|x: &mut [f64]| x[0] += 0.5, &mut x)?; // recorded, and not executed
    ///     Ok(x)
    /// })?;
    /// let x = graph.replay(&s, x, 2)?;
    /// assert_eq!(x.into_host(&s)?[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn capture<R, F>(&mut self, lent: R, step: F) -> Result<(Graph<'s, D>, R)>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        F: for<'c> FnOnce(&Stream<'c, D>, R::At<'c>) -> Result<R::At<'c>>,
    {
        self.try_capture(lent, step).map_err(given_up)
    }

    /// Like [`Stream::capture`]. But if the capture cannot begin, or the device cannot make the recording, this returns
    /// what was lent, and revokes no window. If `step` fails or returns other things, all that was lent is lost, as with
    /// `capture`.
    ///
    /// # Errors
    ///
    /// The same as [`Stream::capture`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// let refused = s.try_capture(x, |_, _| Err(Error::other("no table"))).unwrap_err();
    /// assert_eq!(refused.error.to_string(), "no table");
    /// assert!(refused.value.is_none()); // the step has not given it back
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_capture<R, F>(&mut self, lent: R, step: F) -> Captured<Graph<'s, D>, R>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        F: for<'c> FnOnce(&Stream<'c, D>, R::At<'c>) -> Result<R::At<'c>>,
    {
        let mut lent = lent;
        let (ids, stakes) = (identify(&mut lent), carry::stakes(&mut lent));
        let site = Location::caller();
        let begun = (self.healthy())
            .and_then(|()| settle_tickets(&mut lent, self, site))
            .and_then(|()| Ok(self.raw().begin_capture(&[])?));
        if let Err(error) = begun {
            return Err(Rejected::new(error, Some(lent)));
        }
        let stream = &*self;
        let recording = Recording {
            stream,
            side: None::<&Stream<'s, D>>,
            stakes: &stakes,
        };
        let (recorded, returned) = recording.run(|| {
            // Operations of a NIC that have not ended at the end of the step must end before the next replay writes
            // their regions. Nothing but that replay comes between. So the wait is recorded here, and no ticket leaves
            // the recording.
            let mut value = step(rebrand_ref(stream), rebrand(lent))?;
            settle_tickets(&mut value, stream, site)?;
            Ok(value)
        });
        let mut returned = returned.map_err(|error| lost(&stakes, error))?;
        let (count, differs) = compare(&mut returned, &ids);
        if let Some(position) = differs {
            let error = Error::Capture(CaptureError::NotReplayable {
                lent: ids.len(),
                returned: count,
                position,
                name: name_of(&mut returned, position),
            });
            return Err(lost(&stakes, error));
        }
        // Nothing has been executed, so everything is as it was when it was lent.
        let returned = rebrand(returned);
        match recorded {
            Ok((graph, noted)) => {
                tell_recorded(stream, site);
                let observed = [self.observed()];
                Ok((Graph::new(graph, noted, ids, &observed), returned))
            }
            Err(error) => Err(Rejected::new(error, Some(returned))),
        }
    }

    /// Like [`Stream::capture`], on two streams. It lends a pair: things at home on the first stream, and things at
    /// home on the second. The step may hand things over between the streams, and must return each to its place.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::capture`], [`RegionError::OtherWorld`] if the two streams belong to different worlds, and
    /// [`CaptureError::Inside`] if both are inline streams.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// # let y = Region::from_slice(&world, &[1.0])?.on(&t)?;
    /// let (graph, (x, y)) = s.capture_with(&mut t, (x, y), |s, t, (mut x, mut y)| {
    ///     s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    ///     t.launch(|y: &mut [f64]| y[0] *= 2.0, &mut y)?; // beside the kernel on `s`
    ///     Ok((x, y))
    /// })?;
    /// let (x, y) = graph.replay(&s, &t, (x, y), 3)?;
    /// assert_eq!((x.into_host(&s)?[0], y.into_host(&t)?[0]), (4.0, 8.0));
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn capture_with<'t, R, Q, F>(
        &mut self,
        other: &mut Stream<'t, D>,
        lent: (R, Q),
        step: F,
    ) -> Result<(PairGraph<'s, 't, D>, (R, Q))>
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
        let captured = self.try_capture_with(other, lent, step);
        captured.map_err(|Rejected { error, value }| match value {
            Some(pair) => pair_given_up(Rejected::new(error, pair)),
            None => error,
        })
    }

    /// Like [`Stream::capture_with`], but if it fails it returns what was lent, like [`Stream::try_capture`].
    ///
    /// # Errors
    ///
    /// The same as [`Stream::capture_with`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// let lent = (x, ());
    /// match s.try_capture_with(&mut t, lent, |_, _, lent| Ok(lent)) {
    ///     Ok((graph, lent)) => drop(graph.replay(&s, &t, lent, 1)?),
    ///     Err(refused) => eprintln!("{}; what was lent: {:?}", refused.error, refused.value),
    /// }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_capture_with<'t, R, Q, F>(
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
        let mut stakes = carry::stakes(&mut here);
        stakes.extend(carry::stakes(&mut there));
        let one_world = if self.world().is(other.world()) {
            Ok(())
        } else {
            Err(RegionError::OtherWorld.into())
        };
        let site = Location::caller();
        let begun = (self.healthy())
            .and_then(|()| other.healthy())
            .and(one_world)
            .and_then(|()| settle_tickets(&mut here, self, site))
            .and_then(|()| settle_tickets(&mut there, other, site))
            .and_then(|()| Ok(self.raw().begin_capture(&[other.raw()])?));
        if let Err(error) = begun {
            return Err(Rejected::new(error, Some((here, there))));
        }
        let (stream, side) = (&*self, &*other);
        let recording = Recording {
            stream,
            side: Some(side),
            stakes: &stakes,
        };
        let (recorded, returned) = recording.run(|| {
            let lent = (rebrand(here), rebrand(there));
            let (mut here, mut there) = step(rebrand_ref(stream), rebrand_ref(side), lent)?;
            settle_tickets(&mut here, stream, site)?;
            settle_tickets(&mut there, side, site)?;
            Ok((here, there))
        });
        let (mut here, mut there) = returned.map_err(|error| lost(&stakes, error))?;
        if let Err((returned, position)) = same_pair(&mut here, &mut there, &ids, apart) {
            let error = Error::Capture(CaptureError::NotReplayable {
                lent: ids.len(),
                returned,
                position,
                name: name_in_pair(&mut here, &mut there, apart, position),
            });
            return Err(lost(&stakes, error));
        }
        let returned = (rebrand(here), rebrand(there));
        let (graph, noted) = match recorded {
            Ok(recorded) => recorded,
            Err(error) => return Err(Rejected::new(error, Some(returned))),
        };
        tell_recorded(stream, site);
        let observed = [self.observed(), other.observed()];
        let graph = PairGraph::new(Graph::new(graph, noted, ids, &observed), apart);
        Ok((graph, returned))
    }
}

/// A capture in progress. Dropping it ends the capture, whatever the step does.
struct Recording<'a, 's, 't, D: Device> {
    stream: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
    /// What peers may wait for from the things that were lent.
    stakes: &'a [Stake<D>],
}

/// The results of a capture: the recording with the programs that NICs must be armed with, and what the step returned.
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
        // This runs only if the step panicked. What it was lent is lost, as if the step had failed.
        drop(self.end());
        self.stakes.iter().for_each(Stake::panicked);
    }
}
