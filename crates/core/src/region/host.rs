//! What the host reads and writes of a region that is at home there.

use std::mem::size_of;
use std::ops::{Deref, DerefMut};

use tidegate_hal::device::{Device, HostAccess};

use super::{Region, bounds};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::place::OnHost;

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// Copies `values` to elements `first..`.
    ///
    /// # Errors
    ///
    /// [`Error::Region`], [`Error::Device`].
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
        let end = first.saturating_add(values.len());
        if end > self.len() {
            return Err(bounds("a region", first..end, self.len()));
        }
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: elements have no padding, so their bytes are initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        // SAFETY: the range was checked; the region is with the host, so no stream has work for it, and it is exclusive.
        unsafe {
            self.body
                .device
                .write(self.body.ptr().byte_add(first * size_of::<T>()), bytes)
        }?;
        Ok(())
    }

    /// Copies elements `first..` to `values`.
    ///
    /// # Errors
    ///
    /// [`Error::Region`], [`Error::Device`].
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
        let end = first.saturating_add(values.len());
        if end > self.len() {
            return Err(bounds("a region", first..end, self.len()));
        }
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: any bytes are a valid element, so they may be written as bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), size_of_val(values))
        };
        // SAFETY: the range was checked; the region is with the host, so no stream has work for it, and is not written
        // while it is borrowed.
        unsafe {
            self.body
                .device
                .read(self.body.ptr().byte_add(first * size_of::<T>()), bytes)
        }?;
        Ok(())
    }
}

impl<T: Element, D: HostAccess> Deref for Region<T, OnHost<D>> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block is ordinary memory (`HostAccess`), live, aligned, of `len` elements for which all bytes are
        // valid; it is with the host, so no stream has work for it. Where there is no block, there are no elements.
        unsafe { std::slice::from_raw_parts(self.body.ptr().0.cast::<T>(), self.body.len) }
    }
}

impl<T: Element, D: HostAccess> DerefMut for Region<T, OnHost<D>> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; split parts are disjoint, and this one is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.body.ptr().0.cast::<T>(), self.body.len) }
    }
}
