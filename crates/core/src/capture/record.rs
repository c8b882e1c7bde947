//! Recording a step.

use std::panic::Location;

use tidegate_hal::device::{Device, DeviceError, Stream as _};

use super::graph::{Graph, PairGraph, RawGraph, name_in_pair, same_pair};
use super::lent::{rebrand, rebrand_ref, settle_tickets};
use crate::carry::{self, Carry, compare, given_up, identify, name_of, pair_given_up};
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{CaptureError, Error, RegionError, Rejected, Result};
use crate::stake::Stake;
use crate::stream::{Noted, Stream};

/// A recording, and what was lent to it; or an error, and what was lent, if it has come back.
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

/// What a capture has failed by whose step has not given back what it was lent: the windows of that are revoked.
fn lost<D: Device, R>(stakes: &[Stake<D>], error: Error) -> Rejected<Option<R>> {
    stakes.iter().for_each(|stake| stake.give_up(&error));
    Rejected::new(error, None)
}

impl<'s, D: Device> Stream<'s, D> {
    /// Records one step: runs `step` with what it is lent, executing nothing. What `step` does besides (counting, say)
    /// is done once, and not by replays.
    ///
    /// What a step uses it must be lent, and give back. "Borrowed data escapes outside of closure" (E0521), and "does not
    /// live long enough" (E0597), say that it uses something that it was not lent, or the stream that records instead of
    /// the one that it is given. The closure stands in the call itself: of one that is bound to a name first the
    /// compiler does not see that it fits all streams. (`tidegate::guide::when_the_compiler_says_no` has both errors, with a mend.)
    ///
    /// A step returns this crate's [`Result`], and no type of the caller's choice: with such a choice the compiler could not
    /// tell what `?` makes of an error in the closure, and each step would have to write its type out. Another error goes
    /// through by [`Error::other`]: `read_table().map_err(Error::other)?`, also where it is an `anyhow::Error`.
    ///
    /// # Errors
    ///
    /// What `step` returns; [`CaptureError::NotReplayable`](crate::error::CaptureError::NotReplayable); [`Error::Device`] if the device cannot make a recording; what made
    /// the stream fail. What was lent is gone then, and the windows that it had halves of are revoked for all ranks ([`Cause::NotEnqueued`]).
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

    /// As [`Stream::capture`], but what was lent comes back with the error, and no window is revoked; unless `step` has not
    /// given it back, or not as it was: that is lost, as it is by `capture`.
    ///
    /// # Errors
    ///
    /// As [`Stream::capture`].
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
            // What is still under way at the end of the step must be over where the next replay writes it; no replay,
            // and nothing else, lies between. So the wait is recorded here, and no ticket leaves the recording.
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
    /// As [`Stream::capture`]; [`RegionError::OtherWorld`] if the two streams belong to different worlds;
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

    /// As [`Stream::capture_with`], but what was lent comes back with the error, as by [`Stream::try_capture`].
    ///
    /// # Errors
    ///
    /// As [`Stream::capture`].
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
        let graph = PairGraph::new(Graph::new(graph, noted, ids), apart);
        Ok((graph, returned))
    }
}

/// A capture under way: ends it whatever the step does.
struct Recording<'a, 's, 't, D: Device> {
    stream: &'a Stream<'s, D>,
    side: Option<&'a Stream<'t, D>>,
    /// Of what was lent.
    stakes: &'a [Stake<D>],
}

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
        // Only when the step panics. What it was lent is gone, as if it had failed.
        drop(self.end());
        self.stakes.iter().for_each(Stake::panicked);
    }
}
