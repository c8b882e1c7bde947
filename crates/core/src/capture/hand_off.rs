//! Handing regions and window halves over to another stream.

use std::panic::Location;

use tidegate_hal::device::{Device, Stream as _};

use super::lent::{rebrand, settle, settle_tickets};
use crate::carry::{Carry, given_up, own_halves};
#[cfg(doc)]
use crate::error::Cause;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result};
use crate::ground::fresh_id;
use crate::myself::Act;
use crate::stream::{NotedStep, Stream};

impl<'s, D: Device> Stream<'s, D> {
    /// Hands regions and window halves over to another stream. The later work of that stream comes after everything
    /// that is enqueued on this stream now. Neither the host nor this stream waits.
    ///
    /// # Errors
    ///
    /// - [`CaptureError::Inside`](crate::error::CaptureError::Inside) if one of the two streams is being captured
    ///   without the other.
    /// - [`RegionError::OtherWorld`] if the streams belong to different worlds.
    /// - [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) for a window of this rank to itself.
    ///   Either both halves come to one stream, and one of the two streams waits for what the other half has still to
    ///   do. Or a half comes to a stream where the other half has left such a wait behind.
    /// - [`Error::Device`] if the device refuses; [`Error::Forked`].
    ///
    /// The value is then lost, and the windows whose halves it contains are revoked on all ranks
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

    /// Like [`Stream::hand_off`], but has no effect if it fails, and returns the value.
    ///
    /// # Errors
    ///
    /// The same as [`Stream::hand_off`].
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
            // A rank that adds to a word rings one rank's bell, and a stream of another world listens to another bell.
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
        // The tickets stay here: the other stream is ordered after the wait for them.
        let handed = admitted
            .and_then(|()| settle_tickets(&mut value, self, site))
            .and_then(|()| {
                if let (Some(one), Some(other)) = (self.observed(), to.observed())
                    && !self.raw().capturing()
                {
                    one.hands_off(other);
                }
                let event = self.raw().record()?;
                to.raw().wait_event(&event)?;
                if self.raw().capturing() {
                    let number = fresh_id();
                    self.note_step(NotedStep::Signal(number));
                    to.note_step(NotedStep::Await(number));
                }
                Ok(())
            });
        if let Err(error) = handed {
            return Err(Rejected::new(error, value));
        }
        let capturing = self.raw().capturing();
        for (side, myself) in own {
            myself.done(to, &[Act::Come(side)]);
            match capturing {
                true => myself.moved(side, to.raw().reclaim()),
                false => myself.leaves(side, self.raw().reclaim()),
            }
        }
        // In a recording nothing has happened yet, and the thing comes back before its end. So its first stream, which may
        // have work with it, keeps it, also if the step fails and drops it.
        Ok(match capturing {
            true => rebrand(value),
            false => settle(value, to),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tidegate_host::Host;

    use crate::error::Error;
    use crate::{Region, World, stream};

    /// How a step gets rid of what it has handed over.
    #[derive(Clone, Copy, PartialEq)]
    enum How {
        Fails,
        Panics,
        LeavesItThere,
    }

    #[test]
    fn what_a_step_has_handed_over_and_drops_is_kept_for_earlier_work() {
        World::<Host>::local(1, |world| {
            for how in [How::Fails, How::Panics, How::LeavesItThere] {
                let used = Arc::new(());
                let kept = Arc::downgrade(&used);
                {
                    stream!(let mut s = world.stream().unwrap());
                    stream!(let mut t = world.stream().unwrap());
                    let whole = Region::<u64, _>::zeroed(&world, 8).unwrap();
                    let x = Region::<u64, _>::from_body(whole.body.share(used));
                    let mut x = x.on(&s).unwrap();
                    let go = Arc::new(AtomicBool::new(false));
                    let told = go.clone();
                    let kernel = move |x: &mut [u64]| {
                        while !told.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                        x.fill(1);
                    };
                    s.launch(kernel, &mut x).unwrap();
                    let none = None.filter(|_: &Region<u64, _>| true);
                    let step = catch_unwind(AssertUnwindSafe(|| {
                        s.try_capture_with(&mut t, (Some(x), none), |s, t, (x, _)| {
                            let x = s.hand_off(x.expect("it is lent"), t)?;
                            match how {
                                How::Fails => Err(Error::other("no")),
                                How::Panics => panic!("on purpose"),
                                How::LeavesItThere => Ok((None, Some(x))),
                            }
                        })
                        .map(drop)
                    }));
                    let is_kept = kept.upgrade().is_some();
                    go.store(true, Ordering::Release);
                    s.synchronize().unwrap();
                    assert!(step.map_or(true, |step| step.is_err()));
                    assert!(is_kept, "the kernel of `s` still used it");
                }
                assert!(kept.upgrade().is_none());
            }
        });
    }
}
