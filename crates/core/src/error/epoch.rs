//! What is wrong with how an epoch is used.

use tidegate_hal::batch::{Awaited, Op};

use super::window_name::WindowName;

/// An epoch, or an operation of one, does not fit the declaration of its window, or cannot be enqueued. Correct the program,
/// except for [`EpochError::LastEpoch`].
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
    /// A rank is not a neighbour of this rank in the window, in the direction asked for.
    #[error("rank {rank} is not {role} of this rank in window {window}")]
    NotInGroup {
        /// The window of the group.
        window: WindowName,
        /// The rank that is no neighbour.
        rank: usize,
        /// "an origin" or "a target".
        role: &'static str,
    },
    /// A handle belongs to another window than the epoch's, or to another rank.
    #[error(
        "window {window}: the handle of outbound slot {slot} belongs to another window: use a handle that this window's declaration returned on this rank"
    )]
    ForeignSlot {
        /// The window of the epoch.
        window: WindowName,
        /// The number that the slot has in the other window.
        slot: u32,
    },
    /// A handle was taken twice in one epoch.
    #[error("window {window}: outbound slot {slot}, to rank {rank}, is taken twice in one epoch")]
    SlotTaken {
        /// The window of the epoch.
        window: WindowName,
        /// The rank that the slot leads to.
        rank: usize,
        /// The slot's number.
        slot: u32,
    },
    /// A handle that was taken in one epoch is used in another one.
    #[error(
        "window {window}: outbound slot {slot}, to rank {rank}, was taken in another epoch: take it again in each epoch"
    )]
    SlotExpired {
        /// The window of the epoch.
        window: WindowName,
        /// The rank that the slot leads to.
        rank: usize,
        /// The slot's number.
        slot: u32,
    },
    /// More elements than there is room for.
    #[error("window {window}: elements {first}..{end} do not fit in {what} of {len} elements")]
    OutOfBounds {
        /// The window of the epoch.
        window: WindowName,
        /// What was addressed: which slot, or whose memory.
        what: String,
        /// The first element.
        first: usize,
        /// One past the last.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// Source and destination differ in the number of elements.
    #[error("window {window}: {src} elements cannot go where {dst} are expected")]
    CountMismatch {
        /// The window, or the all-reduce.
        window: WindowName,
        /// Elements of the source.
        src: usize,
        /// Elements of the destination.
        dst: usize,
    },
    /// One epoch uses a slot (or range) twice: two operations touch the same elements, and not both only read or
    /// accumulate alike.
    #[error(
        "window {window}: outbound slot {slot}, to rank {rank}, is used twice in one epoch: two operations touch its elements {first}..{end}"
    )]
    Overlap {
        /// The window of the epoch.
        window: WindowName,
        /// The rank that the slot leads to.
        rank: usize,
        /// The slot's number.
        slot: u32,
        /// The first element of the overlap, in elements of the slot.
        first: usize,
        /// One past the last.
        end: usize,
    },
    /// The count of a put is not one element.
    #[error(
        "window {window}: the count of a put must be one element, but has {count}: pass a region of one element, or a slice"
    )]
    NotOneCount {
        /// The window of the epoch.
        window: WindowName,
        /// How many it has.
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
    /// The slot was declared as a layout, and the operation chooses elements of it by another layout.
    #[error(
        "window {window}: outbound slot {slot} was declared as a layout, so a put to it cannot choose elements by another layout: declare that layout instead"
    )]
    LayoutOfLayout {
        /// The window of the epoch.
        window: WindowName,
        /// The slot's number.
        slot: u32,
    },
    /// The slot was declared as a layout, and the put is counted.
    #[error(
        "window {window}: outbound slot {slot} was declared as a layout, but counted elements lie side by side: declare a range"
    )]
    CountedToLayout {
        /// The window of the epoch.
        window: WindowName,
        /// The slot's number.
        slot: u32,
    },
    /// An operand, the result or the destination of an atomic operation has a layout.
    #[error(
        "window {window}: the {what} of an atomic operation has a layout, but its elements must lie side by side: pass the whole, or a slice"
    )]
    NotSideBySide {
        /// The window of the epoch.
        window: WindowName,
        /// Which of them: "result", "comparand", "desired value" or "destination".
        what: &'static str,
    },
    /// An element occurs twice in what is to be written.
    #[error("a layout in which an element occurs twice cannot be a destination")]
    NotDistinct,
    /// A layout is of another device than the window.
    #[error("a layout's table is in memory of another device than the window")]
    OtherDevice,
    /// The operation is not defined for floats.
    #[error("window {window}: {op:?} is not defined for floats")]
    NotForFloats {
        /// The window of the epoch, or the all-reduce.
        window: WindowName,
        /// The operation that was asked for.
        op: Op,
    },
    /// The device cannot carry the operation out on elements of this type.
    #[error("window {window}: {reason}")]
    NotByDevice {
        /// The window of the epoch.
        window: WindowName,
        /// What the device says.
        reason: String,
    },
    /// The target is reached by a NIC through staged memory, and the operation is no put.
    #[error("window {window}: only puts can be staged for the NIC to rank {rank}")]
    NotStaged {
        /// The window of the epoch.
        window: WindowName,
        /// The rank that the operation goes to.
        rank: usize,
    },
    /// A rank that is its own peer would wait for ever. The call that it waits for could only come later on the same stream,
    /// or not at all, because the other half of the window was dropped.
    #[error(
        "window {window}: this rank would wait for itself for ever ({awaited}): on this stream that could only come after the wait"
    )]
    SelfDeadlock {
        /// The window of the epoch.
        window: WindowName,
        /// What the rank would wait for.
        awaited: Awaited,
    },
    /// A window (or a barrier) has had as many epochs with a peer as its counters hold, or would have more after this call.
    /// Epochs that were enqueued before are carried out. Ranks that enqueue the same epochs, in the same calls and groups, are
    /// refused at the same epoch.
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
