//! Addresses and blocks of memory.

use crate::control::Handle;
use crate::error::DeviceError;

/// An address that a device can reach; on the host an ordinary pointer.
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

    /// The address `bytes` further on. Whether there is anything is the user's affair.
    #[must_use]
    #[inline]
    pub fn byte_add(self, bytes: usize) -> Ptr {
        Ptr(self.0.wrapping_add(bytes))
    }
}

/// Who may map a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only this process.
    Private,
    /// Peers of the node, by a [`Handle`].
    Peers,
    /// This process, and NICs that work with memory of the host: it is memory of the host, at one address for the
    /// process's own threads and for streams of the device.
    Nics,
}

/// A piece of memory that the holder keeps alive: an allocation, or a mapping of a peer's.
///
/// # Safety
///
/// `base..base + bytes` is memory that the device's streams can read and write until the block is dropped, aligned
/// to at least 64 bytes, zero when it was allocated; dropping it while a stream may still touch it is prevented
/// by the holder (core retires blocks through [`crate::device::Reclaim`]).
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
    /// Hears that no more handles will be asked for: what they are made of is let go.
    fn share_no_more(&self) {}
}
