//! The work of a device's streams for a NIC. It has a module of its own because both contracts name it.

/// Work that a thread of a stream can do for a NIC while it waits, or after it has rung a doorbell, so that no other
/// thread must wake up. It is called only for batches that are [helped](crate::batch::Batch::helped).
pub trait Helper: Send + Sync {
    /// Says that doorbells may have been rung (or poisoned) since the last call. If several batches ring in direct
    /// succession, one call may come for all of them. But it comes before the thread does anything that takes time: a
    /// kernel, a wait, a move.
    fn rung(&self);

    /// Says that the thread waits. Does what can be done now, unless another thread is doing it. Returns whether it did
    /// something: then the thread looks again at once.
    fn waiting(&self) -> bool;

    /// Says that the thread goes to sleep after a long wait, until its bell is rung. From now on another thread must do
    /// the work that leads to that ring.
    fn leaving(&self);
}
