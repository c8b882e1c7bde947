//! Copying a region to the host while it stays on its stream.

use std::panic::Location;

use tidegate_hal::device::{Call, Device};

use super::Region;
use crate::element::Element;
use crate::error::Result;
use crate::place::{On, OnHost};
use crate::stream::Stream;

impl<'s, T: Element, D: Device> Region<T, On<'s, D>> {
    /// Waits until the stream has passed everything that is enqueued, and copies the elements to the host. The region
    /// stays on the stream. Use it to look at a value now and then, such as a residual.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream()?);
    /// let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
    /// s.launch(|x: &mut [f64]| x[0] = 7.0, &mut x)?;
    /// assert_eq!(x.to_vec(&s)?, [7.0, 2.0]);
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?; // it is still there
    /// assert_eq!(x.to_vec(&s)?[0], 8.0);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// The error that made the stream fail, [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the
    /// stream is captured, [`Error::Device`](crate::Error::Device), or [`Error::Forked`](crate::Error::Forked).
    #[track_caller]
    pub fn to_vec(&self, stream: &Stream<'s, D>) -> Result<Vec<T>> {
        let site = Location::caller();
        self.body.leave(stream, site)?;
        stream.synchronize_in(Call::ToVec, site)?;
        self.passed().first(self.len())
    }

    /// Like [`Region::to_vec`], without blocking the thread. The future is `Send`, like that of
    /// [`Stream::synchronized`].
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// async fn solve(world: World) -> Result<f64> {
    ///     stream!(let s = world.stream()?);
    ///     let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    ///     while x.to_vec_async(&s).await?[0] < 100.0 {
    ///         s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?;
    ///     }
    ///     Ok(x.to_vec_async(&s).await?[0])
    /// }
    ///
    /// # use std::task::{Context, Poll, Waker};
    /// # fn is_send<F: Send>(future: F) -> F { future }
    /// # tidegate::doc::ranks(1, |world| {
    /// # let mut solved = Box::pin(is_send(solve(world)));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # loop {
    /// #     if let Poll::Ready(x) = solved.as_mut().poll(&mut context) { break assert_eq!(x?, 128.0) }
    /// # }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`Region::to_vec`].
    #[track_caller]
    pub fn to_vec_async<'a>(
        &'a self,
        stream: &'a Stream<'s, D>,
    ) -> impl Future<Output = Result<Vec<T>>> + Send + use<'a, 's, T, D> {
        let left = match self.body.leave(stream, Location::caller()) {
            Ok(()) => Ok(stream.synchronized()),
            Err(error) => Err(error),
        };
        let passed = self.passed();
        async move {
            left?.await?;
            passed.first(passed.len())
        }
    }

    /// The same memory as a region of the host. It may be read when the stream has passed all work that may write it,
    /// and while `self` is borrowed, so that no new work can.
    fn passed(&self) -> Region<T, OnHost<D>> {
        let mut body = self.body.whole();
        body.home = None;
        Region::from_body(body)
    }
}
