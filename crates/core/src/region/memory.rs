//! Regions of memory that was there before: a block's, or a vector's.

use std::sync::{Arc, OnceLock};

use tidegate_hal::device::Device;
use tidegate_hal::memory::{Allocation, Block as _};

use super::{Region, bounds};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result};
use crate::place::OnHost;
use crate::world::World;

impl<T, D: Device> Region<T, OnHost<D>> {
    /// Makes a region of a vector's elements. On the host it takes over the vector's memory, without a copy, and
    /// [`Region::into_vec`] gives that back; on devices with memory of their own it copies.
    ///
    /// (Memory that [`Region::zeroed`] allocates begins at a page; a vector's is aligned as its elements need. A vector
    /// without elements is dropped, its spare room, too.)
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// let values = vec![1.0f64, 2.0, 3.0];
    /// let address = values.as_ptr();
    /// stream!(let s = world.stream()?);
    /// let mut x = Region::from_vec(&world, values)?.on(&s)?;
    /// s.launch(|x: &mut [f64]| x.reverse(), &mut x)?;
    /// let values = x.into_host(&s)?.into_vec()?;
    /// assert_eq!(values, [3.0, 2.0, 1.0]);
    /// assert_eq!(values.as_ptr(), address);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Region::zeroed`]; on the host none.
    pub fn from_vec(world: &World<D>, values: Vec<T>) -> Result<Self>
    where
        T: Element,
    {
        let len = values.len();
        if len == 0 {
            return Ok(Self::over(None, world.device(), 0));
        }
        let memory = Allocation::of(values).expect("elements have a size other than 0");
        match world.device().adopt(memory) {
            Ok(block) => Ok(Self::over(Some(Arc::new(block)), world.device(), len)),
            Err(memory) => {
                // SAFETY: these are its elements.
                let values = unsafe { memory.into_vec(len) };
                Self::from_slice(world, &values.expect("it was a vector of these"))
            }
        }
    }
}

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// A region of the first `len` elements of a block that was made by other means.
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if the block has not so many. The block is dropped then.
    ///
    /// # Safety
    ///
    /// The block is of the world's device, and nothing else accesses its memory as long as the region, or a stream's
    /// work with it, lasts.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::hal::device::Device;
    /// use tidegate::hal::memory::Sharing;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// let block = world.device().alloc(64, Sharing::Private)?;
    /// // SAFETY: it is of the world's device, and nothing else has it.
    /// let x = unsafe { Region::<f64>::adopt(world, block, 8) }?;
    /// assert_eq!(x.len(), 8);
    /// # Ok(()) });
    /// ```
    pub unsafe fn adopt(world: &World<D>, block: D::Block, len: usize) -> Result<Self> {
        let room = block.bytes() / size_of::<T>();
        if len > room {
            return Err(bounds("a block", 0..len, room));
        }
        Ok(Self::over(
            (len != 0).then(|| Arc::new(block)),
            world.device(),
            len,
        ))
    }

    /// The block that the region is of.
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if other parts of it still exist, or the region is empty. The region is gone then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::hal::memory::Block;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// let block = Region::<f64>::zeroed(world, 8)?.into_block()?;
    /// assert!(block.bytes() >= 64);
    /// # Ok(()) });
    /// ```
    pub fn into_block(self) -> Result<D::Block> {
        self.try_into_block().map_err(Rejected::into_error)
    }

    /// As [`Region::into_block`], but the region comes back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Region::into_block`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let (low, high) = Region::<f64>::zeroed(world, 8)?.split_at(4)?;
    /// let low = low.try_into_block().unwrap_err().value; // `high` is another part of the block
    /// let block = low.join(high)?.into_block()?;
    /// # Ok(()) });
    /// ```
    pub fn try_into_block(mut self) -> Result<D::Block, Rejected<Self>> {
        let block = self.body.block.take().map(Arc::try_unwrap);
        match block {
            Some(Ok(block)) => Ok(block),
            Some(Err(shared)) => {
                self.body.block = Some(shared);
                Err(Rejected::new(RegionError::Shared, self))
            }
            None => Err(Rejected::new(RegionError::Empty, self)),
        }
    }

    /// The elements as a vector. It is the one that [`Region::from_vec`] took, with its memory and capacity, if the region
    /// is the whole of it or its first part, and nothing else uses the memory any more (another part of it, or a NIC
    /// that may send from there again); otherwise it is a copy.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// let mut region = Region::<u32>::zeroed(&world, 3)?;
    /// region[1] = 7;
    /// assert_eq!(region.into_vec()?, [0, 7, 0]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`], if the device cannot be read. The region is gone then. On the host none.
    pub fn into_vec(self) -> Result<Vec<T>> {
        self.try_into_vec().map_err(Rejected::into_error)
    }

    /// As [`Region::into_vec`], but the region comes back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Region::into_vec`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1, 2, 3])?;
    /// match x.try_into_vec() {
    ///     Ok(values) => assert_eq!(values, [1, 2, 3]),
    ///     Err(refused) => println!("{}; the region is there: {:?}", refused.error, refused.value),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn try_into_vec(mut self) -> Result<Vec<T>, Rejected<Self>> {
        let len = self.len();
        if self.body.offset == 0 && self.body.outstanding().is_none() {
            // They keep the memory, and stand for nothing any more.
            self.body.tickets = OnceLock::new();
            match self.body.block.take().map(Arc::try_unwrap) {
                Some(Ok(block)) => match D::into_allocation(block) {
                    // SAFETY: the block begins with the region's elements; all bytes are valid ones.
                    Ok(memory) => match unsafe { memory.into_vec(len) } {
                        Ok(values) => return Ok(values),
                        // It was allocated by the device, or adopted as other elements.
                        Err(memory) => {
                            // SAFETY: as above; it is aligned as the region was, and lives until the end of this block.
                            let values = unsafe {
                                std::slice::from_raw_parts(memory.base().0.cast::<T>(), len)
                            };
                            return Ok(values.to_vec());
                        }
                    },
                    Err(block) => self.body.block = Some(Arc::new(block)),
                },
                Some(Err(shared)) => self.body.block = Some(shared),
                None => {}
            }
        }
        self.first(len).map_err(|error| Rejected::new(error, self))
    }
}
