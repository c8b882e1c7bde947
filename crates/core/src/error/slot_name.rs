//! The name of an outbound slot in messages.

use std::fmt;

use tidegate_hal::site::CallSite;

/// An outbound slot, range or layout: memory of a target that this rank may access. A handle
/// ([`Out`](crate::window::Out)) leads to it.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::EpochError;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// let error = epoch.put(&src, to.at(1)).unwrap_err();
/// let Error::Epoch(EpochError::OutOfBounds { slot, .. }) = error else { panic!("{error}") };
/// assert_eq!((slot.rank, slot.key, slot.index), (1 - s.world().rank(), Some(0), to.index()));
/// println!("{}", slot.declared); // the line with `window.slot_to(…)`
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotName {
    /// The kind of memory: "slot", "range", "layout", or "memory", which is all memory of the target.
    pub what: &'static str,
    /// The target.
    pub rank: usize,
    /// The key of a slot.
    pub key: Option<u64>,
    /// The number of the handle: see [`Out::index`](crate::window::Out::index).
    pub index: u32,
    /// The call by which this rank declared it.
    pub declared: CallSite,
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of rank {}", self.what, self.rank)?;
        if let Some(key) = self.key {
            write!(f, " with key {key}")?;
        }
        write!(f, " (declared at {})", self.declared)
    }
}
