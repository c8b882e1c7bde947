//! Broadcasts: one rank's vector, on all ranks.

use tidegate_hal::device::Device;

use super::handle::{collective, once};
use crate::element::Element;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{EpochError, Error, WindowError};
use crate::members::Members;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;
use crate::window::JointKind;

collective! {
    /// Brings the vector of one rank, the root, to all ranks.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut news = Broadcast::open(&s, "news", 1, 4)?; // from rank 1
    /// let mut x = Region::from_slice(&world, &[world.rank() as f64; 4])?.on(&s)?;
    /// news.enqueue(&s, &mut x)?; // the host does not wait here
    /// assert_eq!(x.into_host(&s)?[..], [1.0; 4]);
    /// # Ok(()) });
    /// ```
    Broadcast of Element, "a broadcast of `len` elements from rank `root`", (root) "0, ", () "" => JointKind::Broadcast { root }
}

impl<'s, T: Element, D: Device> Broadcast<'s, T, D> {
    /// Enqueues a broadcast: `x` is replaced by the root's.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` has another length.
    /// - [`Error::Revoked`], [`EpochError::LastEpoch`], or the error that made the stream fail.
    /// - [`Error::Device`] and [`Error::Nic`].
    ///
    /// The call has then enqueued nothing. If a device or NIC refuses only a later part of the call, the collective is
    /// revoked, since the other ranks count on the rest.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut news = Broadcast::open(&s, "news", 0, 1)?;
    /// let mut x = Region::from_slice(&world, &[world.rank() + 7].map(|x| x as u32))?.on(&s)?;
    /// news.enqueue(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 7);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        let x = (&x.body, self.0.vector());
        self.0.run(stream, None, Some(x))
    }

    /// Opens a broadcast, enqueues one call, and drops the broadcast. A program that calls more than once saves time with
    /// [`Broadcast::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Broadcast::open`] and [`Broadcast::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// Broadcast::once(&s, 0, &mut x)?;
    /// # assert_eq!(x.into_host(&s)?[0], 0.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(on: &impl Members<'s, D>, root: usize, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        Self::open(on, &once("broadcast"), root, x.len())?.enqueue(on.stream(), x)
    }
}
