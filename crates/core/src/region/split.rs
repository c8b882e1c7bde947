//! Splitting a region into two, and joining the parts.

use std::mem::size_of;
use std::sync::Arc;

use tidegate_hal::device::Device;

use super::{Region, bounds};
use crate::element::Element;
use crate::error::{RegionError, Rejected, Result};
use crate::ground::fresh_id;
use crate::place::Place;

impl<T: Element, P: Place> Region<T, P> {
    /// Splits the region in two; the second part begins at element `at`. The parts may move to different streams.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if `at > len`. The region is then lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let (low, high) = Region::from_slice(world, &[1, 2, 3])?.split_at(1)?;
    /// assert_eq!((&low[..], &high[..]), (&[1][..], &[2, 3][..]));
    /// # Ok(()) });
    /// ```
    pub fn split_at(self, at: usize) -> Result<(Self, Self)> {
        self.try_split_at(at).map_err(Rejected::into_error)
    }

    /// Like [`Region::split_at`], but returns the region if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::split_at`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let refused = Region::from_slice(world, &[1, 2, 3])?.try_split_at(4).unwrap_err();
    /// assert_eq!(refused.value[..], [1, 2, 3]);
    /// # Ok(()) });
    /// ```
    pub fn try_split_at(mut self, at: usize) -> Result<(Self, Self), Rejected<Self>> {
        let len = self.len();
        if at > len {
            return Err(Rejected::new(bounds("a region", at..at, len), self));
        }
        let mut second = self.body.whole();
        second.base = second.base.byte_add(at * size_of::<T>());
        second.len = len - at;
        self.body.len = at;
        // The first part gets a new number, so that a recording or plan of the whole does not take it for the whole.
        self.body.id = fresh_id();
        Ok((self, Self::from_body(second)))
    }

    /// Joins two parts that [`Region::split_at`] made, in their order.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotNeighbours`] if `next` does not begin where `self` ends. Both are then lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let (low, high) = Region::from_slice(world, &[1, 2, 3])?.split_at(1)?;
    /// assert_eq!(low.join(high)?[..], [1, 2, 3]);
    /// # Ok(()) });
    /// ```
    pub fn join(self, next: Self) -> Result<Self> {
        self.try_join(next).map_err(Rejected::into_error)
    }

    /// Like [`Region::join`], but returns both parts if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::join`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let (low, high) = Region::from_slice(world, &[1, 2, 3])?.split_at(1)?;
    /// let (high, low) = high.try_join(low).unwrap_err().value; // the other way round
    /// assert_eq!(low.join(high)?.len(), 3);
    /// # Ok(()) });
    /// ```
    pub fn try_join(mut self, next: Self) -> Result<Self, Rejected<(Self, Self)>> {
        let same = match (&self.body.block, &next.body.block) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            // Empty regions and their parts have no memory.
            (None, None) => self.body.device.same(&next.body.device),
            _ => false,
        };
        let end = self.body.base.byte_add(self.len() * size_of::<T>());
        if !same || end != next.body.base {
            return Err(Rejected::new(RegionError::NotNeighbours, (self, next)));
        }
        self.body.len += next.len();
        self.body.id = fresh_id();
        self.body.inherit(&next.body);
        Ok(self)
    }
}
