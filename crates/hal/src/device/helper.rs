//! What the threads of a device's streams do for a NIC. It has a module of its own because both contracts name it.

/// Work that a thread of a stream can do for a NIC while it waits, or when it has rung a doorbell, so that no other
/// thread must wake for it. Called for batches that are [helped](crate::batch::Batch::helped), and for no other.
pub trait Helper: Send + Sync {
    /// Doorbells may have been rung (or poisoned) since the last call. It may come late, when several batches have rung
    /// that follow each other at once, but it comes before the thread does anything that takes its time: before a
    /// kernel, a wait, a move.
    fn rung(&self);

    /// The thread waits: whatever can be done now, if nobody else is doing it. Returns whether something was, so that
    /// it looks again at once.
    fn waiting(&self) -> bool;

    /// The thread has waited long, and goes to sleep until its bell is rung: somebody else must see to it that this
    /// comes to be.
    fn leaving(&self);
}
