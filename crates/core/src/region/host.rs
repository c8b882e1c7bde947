//! Access of the host to the elements of a region.

use std::mem::size_of;
use std::ops::{Deref, DerefMut};

use tidegate_hal::device::{Device, HostAccess};
use tidegate_hal::memory::Ptr;

use super::{Region, bounds};
use crate::bytes::bytes_of;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::place::OnHost;

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// Copies `values` to the elements from `first` on.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`](crate::error::RegionError::OutOfBounds) if the region has too few elements,
    /// [`Error::Device`] if the device refuses, and [`Error::Forked`]. The host device never refuses.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let mut x = Region::<u32>::zeroed(world, 4)?;
    /// x.write(2, &[7, 8])?; // on the host `x[2..].copy_from_slice(&[7, 8])` does the same
    /// assert_eq!(x[..], [0, 0, 7, 8]);
    /// # Ok(()) });
    /// ```
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<()> {
        let at = self.at(first, values.len())?;
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the range was checked. The region is at home on the host, so no stream has work for it. It is
        // borrowed exclusively.
        unsafe { self.body.device.write(at, bytes_of(values)) }?;
        Ok(())
    }

    /// Copies the elements from `first` on to `values`.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`](crate::error::RegionError::OutOfBounds) if the region has too few elements,
    /// [`Error::Device`] if the device refuses, and [`Error::Forked`]. The host device never refuses.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1, 2, 3])?;
    /// let mut values = [0; 2];
    /// x.read(1, &mut values)?; // on the host `x[1..3]` is the same
    /// assert_eq!(values, [2, 3]);
    /// # Ok(()) });
    /// ```
    pub fn read(&self, first: usize, values: &mut [T]) -> Result<()> {
        let at = self.at(first, values.len())?;
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: any bytes are a valid element, so an element may be written as bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), size_of_val(values))
        };
        // SAFETY: the range was checked. The region is at home on the host, so no stream has work for it. It is not
        // written while it is borrowed.
        unsafe { self.body.device.read(at, bytes) }?;
        Ok(())
    }

    /// The address of element `first`, if the region has `count` elements from there on.
    fn at(&self, first: usize, count: usize) -> Result<Ptr> {
        let end = first.saturating_add(count);
        if end > self.len() {
            return Err(bounds("a region", first..end, self.len()));
        }
        Ok(self.body.ptr().byte_add(first * size_of::<T>()))
    }
}

impl<T: Element, D: HostAccess> Deref for Region<T, OnHost<D>> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block is ordinary memory (`HostAccess`), alive and aligned, with `len` elements for which all
        // bytes are valid. The region is at home on the host, so no stream has work for it. (Without a block, `len` is
        // 0, and the address is valid for an empty slice.)
        unsafe { std::slice::from_raw_parts(self.body.ptr().0.cast::<T>(), self.body.len) }
    }
}

impl<T: Element, D: HostAccess> DerefMut for Region<T, OnHost<D>> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`. Split parts are disjoint, and this one is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.body.ptr().0.cast::<T>(), self.body.len) }
    }
}
