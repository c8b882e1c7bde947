//! Errors about the use of an epoch.

use tidegate_hal::batch::{Awaited, Op};

use super::slot_name::SlotName;
use super::window_name::WindowName;

/// An epoch, or an operation of one, does not fit the declaration of its window, or cannot be enqueued. Correct the
/// program, except for [`EpochError::LastEpoch`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::EpochError;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// let error = epoch.put(&src, to.at(1)).unwrap_err(); // 4 elements from the second on, to a slot of 4
/// assert!(matches!(error, Error::Epoch(EpochError::OutOfBounds { first: 1, end: 5, len: 4, .. })));
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// The rank is not a neighbour of this rank in the window, in that direction.
    #[error("rank {rank} is not {role} of this rank in window {window}")]
    NotInGroup {
        /// The window of the epoch.
        window: WindowName,
        /// The rank that is not a neighbour.
        rank: usize,
        /// The role it should have: "an origin" or "a target".
        role: &'static str,
    },
    /// An operation goes to a rank that is not in the group of the epoch.
    #[error(
        "window {window}: an operation goes to rank {rank}, which is not in the group of the epoch"
    )]
    OutsideGroup {
        /// The window of the epoch.
        window: WindowName,
        /// The target of the operation.
        rank: usize,
    },
    /// The handle belongs to another window, or was declared on another rank.
    #[error(
        "window {window}: the handle of outbound slot {slot} belongs to another window: use a handle that this window's declaration returned on this rank"
    )]
    ForeignSlot {
        /// The window of the epoch.
        window: WindowName,
        /// The number of the handle's slot in its own window.
        slot: u32,
    },
    /// One epoch takes a handle twice.
    #[error("window {window}: {slot} is taken twice in one epoch")]
    SlotTaken {
        /// The window of the epoch.
        window: WindowName,
        /// The slot.
        slot: Box<SlotName>,
    },
    /// A handle that was taken in one epoch is used in another.
    #[error("window {window}: {slot} was taken in another epoch: take it again in each epoch")]
    SlotExpired {
        /// The window of the epoch.
        window: WindowName,
        /// The slot.
        slot: Box<SlotName>,
    },
    /// The operation has more elements than fit.
    #[error(
        "window {window}: elements {first}..{end} do not fit in {slot}, which has {len} {}", if *.len == 1 { "element" } else { "elements" }
    )]
    OutOfBounds {
        /// The window of the epoch.
        window: WindowName,
        /// The slot, range, layout or memory of a rank that was addressed.
        slot: Box<SlotName>,
        /// The first element of the operation.
        first: usize,
        /// One past the last element of the operation.
        end: usize,
        /// How many elements it has.
        len: usize,
    },
    /// Source and destination differ in the number of elements.
    #[error("window {window}: {src} elements cannot go where {dst} are expected")]
    CountMismatch {
        /// The window, or the collective.
        window: WindowName,
        /// How many elements the source has.
        src: usize,
        /// How many elements the destination has.
        dst: usize,
    },
    /// Two operations of one epoch touch the same elements. That is allowed only if both read, or if both accumulate
    /// with the same operation.
    #[error(
        "window {window}: {slot} is used twice in one epoch: two operations touch its elements {first}..{end}"
    )]
    Overlap {
        /// The window of the epoch.
        window: WindowName,
        /// The slot.
        slot: Box<SlotName>,
        /// The first element of the overlap, in elements of the slot.
        first: usize,
        /// One past the last element of the overlap.
        end: usize,
    },
    /// The count of a put is not one element.
    #[error(
        "window {window}: the count of a put must be one element, but has {count}: pass a region of one element, or a slice"
    )]
    NotOneCount {
        /// The window of the epoch.
        window: WindowName,
        /// How many elements it has.
        count: usize,
    },
    /// A counted put has a layout.
    #[error(
        "window {window}: a counted put cannot have a layout: counted elements lie side by side"
    )]
    CountedLayout {
        /// The window of the epoch.
        window: WindowName,
    },
    /// The slot was declared as a layout, and the operation has a second layout for its destination.
    #[error(
        "window {window}: a put to {slot} cannot choose elements by another layout: declare that layout instead"
    )]
    LayoutOfLayout {
        /// The window of the epoch.
        window: WindowName,
        /// The declared layout.
        slot: Box<SlotName>,
    },
    /// The slot was declared as a layout, and the put is counted.
    #[error(
        "window {window}: a put to {slot} cannot be counted, since counted elements lie side by side: declare a range"
    )]
    CountedToLayout {
        /// The window of the epoch.
        window: WindowName,
        /// The declared layout.
        slot: Box<SlotName>,
    },
    /// An operand, the result or the destination of an atomic operation has a layout. Their elements must lie side by
    /// side.
    #[error(
        "window {window}: the {what} of an atomic operation has a layout, but its elements must lie side by side: pass the whole, or a slice"
    )]
    NotSideBySide {
        /// The window of the epoch.
        window: WindowName,
        /// The one that has the layout: "result", "comparand", "desired value" or "destination".
        what: &'static str,
    },
    /// A destination contains an element twice.
    #[error("a layout in which an element occurs twice cannot be a destination")]
    NotDistinct,
    /// A layout's table lies in memory of another device than the window.
    #[error("a layout's table is in memory of another device than the window")]
    OtherDevice,
    /// The operation is not defined for floating-point numbers.
    #[error("window {window}: {op:?} is not defined for floats")]
    NotForFloats {
        /// The window of the epoch.
        window: WindowName,
        /// The operation that was asked for.
        op: Op,
    },
    /// The device cannot carry the operation out on elements of this type.
    #[error("window {window}: {reason}")]
    NotByDevice {
        /// The window of the epoch.
        window: WindowName,
        /// The device's reason.
        reason: String,
    },
    /// Kernels cannot do this with the rank, which may be this rank itself.
    #[error("window {window}: kernels cannot {what} rank {rank}: {reason}")]
    NotByKernels {
        /// The window of the epoch.
        window: WindowName,
        /// A target, or an origin.
        rank: usize,
        /// What they cannot do: "put to", "reach", "complete" or "make epochs with".
        what: &'static str,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// `Opened::last` was called for this target before, and what it returned was launched, or still exists.
    #[error("window {window}: `last` of rank {rank} was taken before in this epoch")]
    LastTaken {
        /// The window of the epoch.
        window: WindowName,
        /// The target.
        rank: usize,
    },
    /// A rank that is its own peer would wait for ever. The call that it waits for could come only later on the same
    /// stream, or not at all, because the other half of the window was dropped.
    #[error(
        "window {window}: this rank would wait for itself for ever ({awaited}): on this stream that could only come after the wait"
    )]
    SelfDeadlock {
        /// The window of the epoch.
        window: WindowName,
        /// The call that the rank would wait for.
        awaited: Awaited,
    },
    /// A window (or a barrier) has had all the epochs with a peer that its counters hold, or would exceed them by this
    /// call. Epochs that were enqueued before are still carried out. Ranks that enqueue the same epochs, in the same
    /// calls and groups, are refused at the same epoch.
    #[error(
        "window {window} can have {most} epochs, and this call would begin more: replay fewer times, or drop the window on all ranks and open a new one"
    )]
    LastEpoch {
        /// The window that can have no more epochs.
        window: WindowName,
        /// How many there can be.
        most: u64,
    },
}
