//! Handing regions and window halves over to another stream.

use std::panic::Location;

use tidegate_hal::device::{Device, Stream as _};

use super::lent::{settle, settle_tickets};
use crate::carry::{Carry, given_up, own_halves};
#[cfg(doc)]
use crate::error::Cause;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result};
use crate::myself::Act;
use crate::stream::Stream;

impl<'s, D: Device> Stream<'s, D> {
    /// Hands regions and window halves over to another stream: its later work on them comes after all that is
    /// enqueued here by now. Neither the host nor this stream waits.
    ///
    /// # Errors
    ///
    /// [`Error::Device`]; [`CaptureError::Inside`](crate::error::CaptureError::Inside) if one of the two is being captured without the other; [`RegionError::OtherWorld`] if they
    /// belong to different worlds; [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if one half of a window joins the other on its stream, and
    /// one of the two streams waits for what the other half has still to do, or if it comes where the other half has
    /// left such a wait behind. The value is gone then, and the windows that it has halves of are revoked for all ranks
    /// ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// let x = s.hand_off(x, &t)?; // `t` goes on with it behind the kernel
    /// assert_eq!(x.into_host(&t)?[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn hand_off<'t, X: Carry<'s, D>>(&self, value: X, to: &Stream<'t, D>) -> Result<X::At<'t>> {
        self.try_hand_off(value, to).map_err(given_up)
    }

    /// As [`Stream::hand_off`], but has no effect if it fails: the value comes back.
    ///
    /// # Errors
    ///
    /// As [`Stream::hand_off`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # stream!(let t = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// let x = match s.try_hand_off(x, &t) {
    ///     Ok(x) => x.into_host(&t)?,
    ///     Err(refused) => refused.value.into_host(&s)?, // it is still at home on `s`
    /// };
    /// assert_eq!(x[0], 1.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_hand_off<'t, X: Carry<'s, D>>(
        &self,
        mut value: X,
        to: &Stream<'t, D>,
    ) -> Result<X::At<'t>, Rejected<X>> {
        if !self.world().is(to.world()) {
            // Whoever adds to a word rings the bell of one rank, and the other stream listens to another.
            return Err(Rejected::new(RegionError::OtherWorld, value));
        }
        if let Err(error) = self.world().process().check() {
            return Err(Rejected::new(error, value));
        }
        let site = Location::caller();
        self.called_at(site);
        to.called_at(site);
        let own = own_halves(&mut value);
        let alive = [self.raw(), to.raw()].map(|stream| stream.fault().is_none());
        let admitted =
            (own.iter()).try_for_each(|(side, myself)| myself.admit_coming(*side, to, alive));
        // Tickets stay here: the other stream is ordered after the wait for them.
        let handed = admitted
            .and_then(|()| settle_tickets(&mut value, self, site))
            .and_then(|()| {
                let event = self.raw().record()?;
                Ok(to.raw().wait_event(&event)?)
            });
        if let Err(error) = handed {
            return Err(Rejected::new(error, value));
        }
        for (side, myself) in own {
            myself.done(to, &[Act::Come(side)]);
            // What is recorded ends where it began.
            if !self.raw().capturing() {
                myself.leaves(side, self.raw().reclaim());
            }
        }
        Ok(settle(value, to))
    }
}
