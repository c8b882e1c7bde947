//! Addresses and blocks of memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::control::Handle;
use crate::error::DeviceError;

/// An address that a device can reach. On the host it is an ordinary pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Ptr(pub *mut u8);

// SAFETY: a `Ptr` is an address; nothing in safe code dereferences it.
unsafe impl Send for Ptr {}
// SAFETY: as above.
unsafe impl Sync for Ptr {}

impl Ptr {
    /// No address.
    pub const NULL: Ptr = Ptr(std::ptr::null_mut());

    /// Whether this is [`Ptr::NULL`].
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address `bytes` further on. It may lie outside of all memory.
    #[must_use]
    #[inline]
    pub fn byte_add(self, bytes: usize) -> Ptr {
        Ptr(self.0.wrapping_add(bytes))
    }
}

/// Which processes and devices may reach a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only this process.
    Private,
    /// Peers of the node, by a [`Handle`].
    Peers,
    /// This process, and NICs that work with memory of the host. The block is memory of the host, at the same address
    /// for the process's threads and for streams of the device.
    Nics,
}

/// A piece of memory that its holder keeps alive: an allocation, or a mapping of a peer's memory.
///
/// # Safety
///
/// The device's streams can read and write `base..base + bytes` until the block is dropped. Memory that the device has
/// allocated is aligned to at least 64 bytes, and zero at first. [Adopted](crate::device::Device::adopt) memory keeps
/// its alignment and its contents. The holder does not drop a block while a stream may still touch it (core retires
/// blocks through [`crate::device::Reclaim`]).
pub unsafe trait Block: Send + Sync + 'static {
    /// Its first byte.
    fn base(&self) -> Ptr;
    /// Its length in bytes.
    fn bytes(&self) -> usize;
    /// A handle by which a peer of the node can map it.
    ///
    /// # Errors
    ///
    /// If the block was allocated [`Sharing::Private`], or the system refuses.
    fn share(&self) -> Result<Handle, DeviceError>;
    /// Says that no more handles will be asked for, so that the block can release what it makes them of.
    fn share_no_more(&self) {}
}

/// Memory from this process's allocator, such as that of a vector. Dropping it returns the memory with the layout with
/// which it was allocated.
#[derive(Debug)]
pub struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
    /// How many bytes, from the first on, were elements of a vector, or zeroed.
    bytes: usize,
}

// SAFETY: it is an allocation and nothing else; its users decide which thread accesses its bytes when.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Allocates zeroed memory of this layout. `None` if there is not enough memory, or if the layout has no bytes.
    pub fn zeroed(layout: Layout) -> Option<Self> {
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the layout has a size other than 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Allocation {
            base,
            layout,
            bytes: layout.size(),
        })
    }

    /// Takes over the memory of a vector, with its elements. `None` if the vector has no memory.
    pub fn of<T: Copy>(values: Vec<T>) -> Option<Self> {
        let layout = Layout::array::<T>(values.capacity()).ok()?;
        if layout.size() == 0 {
            return None;
        }
        let bytes = size_of_val(&values[..]);
        let base = NonNull::new(ManuallyDrop::new(values).as_mut_ptr())?.cast();
        Some(Allocation {
            base,
            layout,
            bytes,
        })
    }

    /// Makes a vector of the first `len` elements.
    ///
    /// # Errors
    ///
    /// The allocation, if a vector of such elements would not free it with the layout with which it was allocated.
    ///
    /// # Safety
    ///
    /// The allocation holds `len` valid elements of this type.
    pub unsafe fn into_vec<T: Copy>(self, len: usize) -> Result<Vec<T>, Self> {
        let capacity = self.layout.size().checked_div(size_of::<T>()).unwrap_or(0);
        // Equal layouts have equal alignments, too.
        if Layout::array::<T>(capacity) != Ok(self.layout) || len > capacity {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: this process's allocator allocated it with the layout of `capacity` elements, as was compared, and it
        // has no other owner any more; the caller promises that `len` of them are valid.
        Ok(unsafe { Vec::from_raw_parts(this.base.cast().as_ptr(), len, capacity) })
    }

    /// Its first byte.
    #[inline]
    pub fn base(&self) -> Ptr {
        Ptr(self.base.as_ptr())
    }

    /// How many bytes are in use, from the first on: those of a vector's elements, without its spare capacity.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, by this process's allocator, and has no other owner.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was() {
        let mut values = Vec::with_capacity(100);
        values.extend([1u32, 2, 3]);
        let before = (values.as_ptr(), values.capacity());
        let memory = Allocation::of(values).unwrap();
        assert_eq!(
            (memory.base().0.cast_const().cast(), memory.bytes()),
            (before.0, 12)
        );
        // SAFETY: `before` were elements of this type, or room for them.
        let values = unsafe { memory.into_vec::<u32>(3) }.unwrap();
        assert_eq!((values.as_ptr(), values.capacity()), before);
        assert_eq!(values, [1, 2, 3]);
    }

    #[test]
    fn it_is_no_vector_of_other_elements() {
        let memory = Allocation::of(vec![0u32; 10]).unwrap();
        // SAFETY: so many bytes there are; all are valid.
        let memory = unsafe { memory.into_vec::<u16>(20) }.unwrap_err();
        // SAFETY: as above.
        let memory = unsafe { memory.into_vec::<[u32; 3]>(1) }.unwrap_err();
        // SAFETY: it is refused.
        let memory = unsafe { memory.into_vec::<u32>(11) }.unwrap_err();
        // SAFETY: it is refused.
        let memory = unsafe { memory.into_vec::<()>(1) }.unwrap_err();
        // SAFETY: these five pairs were ten elements.
        let pairs = unsafe { memory.into_vec::<[u32; 2]>(5) }.unwrap();
        assert_eq!(pairs, [[0; 2]; 5]);
        assert!(Allocation::of(Vec::<u64>::new()).is_none());
        assert!(Allocation::of(vec![(); 10]).is_none());
        assert!(Allocation::zeroed(Layout::new::<()>()).is_none());
    }
}
