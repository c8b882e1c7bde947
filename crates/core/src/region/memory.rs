//! Regions over existing memory: a block, or a vector.

use std::sync::{Arc, OnceLock};

use tidegate_hal::device::Device;
use tidegate_hal::memory::{Allocation, Block as _};

use super::{Region, RegionBody, bounds};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result};
use crate::place::OnHost;
use crate::world::World;

impl<T, D: Device> Region<T, OnHost<D>> {
    /// Makes a region of a vector's elements. On the host it takes over the vector's memory without a copy, and
    /// [`Region::into_vec`] returns that memory. On devices with memory of their own it copies.
    ///
    /// Memory that [`Region::zeroed`] allocates begins at a page; a vector's memory has only the alignment of its
    /// elements. A vector without elements is dropped, together with its spare capacity.
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
    /// The same as [`Region::zeroed`]. There are none on the host.
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
                // SAFETY: the memory holds these elements.
                let values = unsafe { memory.into_vec(len) };
                Self::from_slice(world, &values.expect("it was a vector of these"))
            }
        }
    }
}

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// Makes a region of the first `len` elements of a block that was allocated by other means.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if the block has fewer elements. [`RegionError::Alignment`] if the block's address
    /// is not aligned for the elements, because it was a vector of smaller elements, say. The block is then dropped.
    ///
    /// # Safety
    ///
    /// The block belongs to the world's device. Nothing else accesses its memory while the region, or a stream's work
    /// with it, exists.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Device;
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
        let (address, align) = (block.base().0.addr(), align_of::<T>());
        if !address.is_multiple_of(align) {
            return Err(RegionError::Alignment { address, align }.into());
        }
        Ok(Self::over(
            (len != 0).then(|| Arc::new(block)),
            world.device(),
            len,
        ))
    }

    /// Returns the block of the region.
    ///
    /// # Errors
    ///
    /// [`RegionError::Shared`] if something else uses the block (another part of the region, or a NIC that may send
    /// from it again), and [`RegionError::Empty`] if the region has no elements. The region is then lost.
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

    /// Like [`Region::into_block`], but returns the region if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::into_block`].
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
        if self.body.block.is_none() {
            return Err(Rejected::new(RegionError::Empty, self));
        }
        match self.body.take_block() {
            Some(block) => Ok(block),
            None => Err(Rejected::new(RegionError::Shared, self)),
        }
    }

    /// Returns the elements as a vector. If the region came from [`Region::from_vec`], this is the same vector, with
    /// its memory and capacity. That needs the whole region or its first part, and that nothing else uses the memory
    /// (another part, or a NIC that may send from it again). Otherwise it is a copy.
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
    /// [`Error::Device`] if the device cannot be read, or if a copy is needed for which there is no memory. The region is
    /// then lost.
    pub fn into_vec(self) -> Result<Vec<T>> {
        self.try_into_vec().map_err(Rejected::into_error)
    }

    /// Like [`Region::into_vec`], but returns the region if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::into_vec`].
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
        if self.body.begins_its_block()
            && let Some(block) = self.body.take_block()
        {
            let block = match D::into_allocation(block) {
                // SAFETY: the block begins with the region's elements, for which all bytes are valid.
                Ok(memory) => match unsafe { memory.into_vec(len) } {
                    Ok(values) => return Ok(values),
                    // The device allocated this memory, or it was adopted as other elements. It becomes a block again,
                    // since there may be no memory for a copy.
                    Err(memory) => {
                        let block = self.body.device.adopt(memory);
                        block.expect("the device had this memory before")
                    }
                },
                Err(block) => block,
            };
            self.body.block = Some(Arc::new(block));
        }
        self.first(len).map_err(|error| Rejected::new(error, self))
    }
}

impl<D: Device> RegionBody<D> {
    /// Whether there is a block that begins with this region's first element.
    fn begins_its_block(&self) -> bool {
        let block = self.block.as_ref();
        block.is_some_and(|block| block.base() == self.base)
    }

    /// Takes the block, if there is one and nothing else uses it.
    fn take_block(&mut self) -> Option<D::Block> {
        if self.outstanding().is_none() {
            // Tickets keep the memory alive. All of these have ended.
            self.tickets = OnceLock::new();
        }
        match Arc::try_unwrap(self.block.take()?) {
            Ok(block) => Some(block),
            Err(shared) => {
                self.block = Some(shared);
                None
            }
        }
    }
}
