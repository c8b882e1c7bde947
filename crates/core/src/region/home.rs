//! Moving a region from the host to a stream, and back.

use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::device::{Call, Device, Stream as _};

use super::Region;
use crate::element::Element;
#[cfg(doc)]
use crate::error::{Error, RegionError};
use crate::error::{Rejected, Result};
use crate::place::{On, OnHost};
use crate::stream::Stream;

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// Hands the region to a stream: from now on, only work of that stream can touch it.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the stream is captured,
    /// [`RegionError::OtherDevice`] if the stream belongs to another device, or [`Error::Forked`]. The region is then
    /// lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// # Ok(()) });
    /// ```
    pub fn on<'s>(self, stream: &Stream<'s, D>) -> Result<Region<T, On<'s, D>>> {
        self.try_on(stream).map_err(Rejected::into_error)
    }

    /// Like [`Region::on`], but returns the region if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::on`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0])?;
    /// match x.try_on(s) {
    ///     Ok(x) => s.launch(|x: &[f64]| println!("{}", x[0]), &x)?,
    ///     Err(refused) => println!("{}", refused.value[0]), // the host still has it
    /// }
    /// # Ok(()) });
    /// ```
    pub fn try_on<'s>(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Region<T, On<'s, D>>, Rejected<Self>> {
        if let Err(error) = self.body.may_be_on(stream) {
            return Err(Rejected::new(error, self));
        }
        self.body.home = Some(stream.raw().reclaim().clone());
        Ok(Region {
            body: self.body,
            marker: PhantomData,
        })
    }
}

impl<'s, T: Element, D: Device> Region<T, On<'s, D>> {
    /// Waits until the stream has done everything that is enqueued, and gives the region to the host.
    ///
    /// # Errors
    ///
    /// The error that made the stream fail, [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the
    /// stream is captured, [`Error::Device`] if the device refuses, or [`Error::Forked`]. The region is then lost, and
    /// its memory is freed when the stream has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// let x = x.into_host(s)?; // waits for the kernel
    /// assert_eq!(x[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn into_host(self, stream: &Stream<'s, D>) -> Result<Region<T, OnHost<D>>> {
        self.try_into_host(stream).map_err(Rejected::into_error)
    }

    /// Like [`Region::into_host`], but if it fails it returns the region, still on the stream.
    ///
    /// # Errors
    ///
    /// The same as [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|_: &mut [f64]| panic!("no number"), &mut x)?;
    /// let refused = x.try_into_host(s).unwrap_err();
    /// println!("{}; {:?} is still on the stream", refused.error, refused.value);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_into_host(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<Region<T, OnHost<D>>, Rejected<Self>> {
        let site = Location::caller();
        let left = self.body.leave(stream, site);
        match left.and_then(|()| stream.synchronize_in(Call::IntoHost, site)) {
            Ok(()) => Ok(self.at_host()),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Like [`Region::into_host`], without blocking the thread. The future is `Send`, like that of
    /// [`Stream::synchronized`]. If it is dropped early, the region is dropped with it, and its memory is freed when
    /// the stream has passed.
    ///
    /// # Errors
    ///
    /// The same as [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// async fn double(world: World, value: f64) -> Result<f64> {
    ///     stream!(let s = world.stream()?);
    ///     let mut x = Region::from_slice(&world, &[value])?.on(&s)?;
    ///     s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?;
    ///     Ok(x.into_host_async(&s).await?[0])
    /// }
    /// # use std::task::{Context, Poll, Waker};
    /// # tidegate::doc::ranks(1, |world| {
    /// # let mut future = Box::pin(double(world, 1.5));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # loop {
    /// #     if let Poll::Ready(x) = future.as_mut().poll(&mut context) { break assert_eq!(x?, 3.0) }
    /// # }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn into_host_async<'a>(
        self,
        stream: &'a Stream<'s, D>,
    ) -> impl Future<Output = Result<Region<T, OnHost<D>>>> + Send + use<'a, 's, T, D> {
        let host = self.try_into_host_async(stream);
        async move { host.await.map_err(Rejected::into_error) }
    }

    /// Like [`Region::into_host_async`], but if it fails it returns the region, still on the stream.
    ///
    /// # Errors
    ///
    /// The same as [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// async fn see<'s>(s: &Stream<'s>, x: Region<f64, On<'s>>) {
    ///     match x.try_into_host_async(s).await {
    ///         Ok(x) => println!("{}", x[0]),
    ///         Err(refused) => println!("{}; {:?}", refused.error, refused.value),
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn try_into_host_async<'a>(
        self,
        stream: &'a Stream<'s, D>,
    ) -> impl Future<Output = Result<Region<T, OnHost<D>>, Rejected<Self>>> + Send + use<'a, 's, T, D>
    {
        let left = match self.body.leave(stream, Location::caller()) {
            Ok(()) => Ok(stream.synchronized()),
            Err(error) => Err(error),
        };
        async move {
            let left = match left {
                Ok(synchronized) => synchronized.await,
                Err(error) => Err(error),
            };
            match left {
                Ok(()) => Ok(self.at_host()),
                Err(error) => Err(Rejected::new(error, self)),
            }
        }
    }

    fn at_host(mut self) -> Region<T, OnHost<D>> {
        self.body.home = None;
        Region {
            body: self.body,
            marker: PhantomData,
        }
    }
}
