//! Errors about regions, recordings, kernels and settings.

use std::ops::Range;

use tidegate_hal::device::Parameters;

use super::put_fault::PutFault;
use super::window_name::WindowName;

/// A region, a part, a set of indices or a layout is invalid.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::RegionError;
///
/// # tidegate::doc::stream(|world, s| {
/// let error = Region::<f64>::zeroed(world, 4)?.split_at(5).unwrap_err();
/// assert!(matches!(error, Error::Region(RegionError::OutOfBounds { end: 5, len: 4, .. })));
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A range reaches beyond the region or block.
    #[error("elements {first}..{end} do not fit in {what} of {len} elements")]
    OutOfBounds {
        /// The memory that was addressed: "a region" or "a block".
        what: &'static str,
        /// The first element of the range.
        first: usize,
        /// One past the last element of the range.
        end: usize,
        /// How many elements the memory has.
        len: usize,
    },
    /// Two parts cannot be joined: they are not neighbours, or belong to different regions.
    #[error("only neighbouring parts of one region can be joined")]
    NotNeighbours,
    /// The region's memory is still in use: by another part of the region, or by a NIC that may send from it again.
    #[error(
        "the region's memory cannot be taken out: another part of the region exists, or a NIC may send from it again"
    )]
    Shared,
    /// The block's first byte has an address where no element may begin.
    #[error("elements are aligned to {align} bytes, and the block begins at {address:#x}")]
    Alignment {
        /// The address of the block's first byte.
        address: usize,
        /// The alignment of an element, in bytes.
        align: usize,
    },
    /// An empty region has no memory.
    #[error("an empty region has no block")]
    Empty,
    /// Two sets of indices overlap, or an index is in one set twice.
    #[error("index sets must be disjoint, but {one:?} and {other:?} overlap")]
    Overlap {
        /// One range.
        one: Range<usize>,
        /// The other range, which overlaps the first.
        other: Range<usize>,
    },
    /// `usize::MAX` was given as an index.
    #[error("usize::MAX is not an index")]
    NoIndex,
    /// The parts are not all the parts of one partition, in their order.
    #[error("only all parts of one partition, in their order, make a region")]
    NotOnePartition,
    /// A layout chooses elements that the part does not hold.
    #[error("elements {first}..{end} of the layout are not in the part")]
    NotInPart {
        /// The first such element.
        first: usize,
        /// One past the last element of its run.
        end: usize,
    },
    /// A strided layout is invalid.
    #[error("strided layout {first} {loops:?}: {fault}")]
    Layout {
        /// The layout's first element.
        first: usize,
        /// For each loop the number of rounds, and the stride in elements.
        loops: Box<[(u32, i32)]>,
        /// What is wrong with it.
        fault: Box<LayoutFault>,
    },
    /// A box of an array is invalid.
    #[error("subarray {ranges:?} of {dims:?}: {fault}")]
    Subarray {
        /// The size of the array in each dimension.
        dims: Box<[usize]>,
        /// The ranges of the box.
        ranges: Box<[Range<usize>]>,
        /// What is wrong with it.
        fault: Box<LayoutFault>,
    },
    /// The stream and the memory belong to different devices.
    #[error("the stream and the memory belong to different devices")]
    OtherDevice,
    /// The two streams belong to different worlds.
    #[error("the two streams belong to different worlds")]
    OtherWorld,
}

/// The fault of a strided layout, or of a box of an array.
///
/// # Examples
///
/// ```
/// use tidegate::error::{LayoutFault, RegionError};
/// use tidegate::host::prelude::*;
///
/// let Err(Error::Region(RegionError::Layout { fault, .. })) = Layout::strided(0, &[(3, -1)]) else { panic!() };
/// assert_eq!(*fault, LayoutFault::Negative { low: -2 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutFault {
    /// The layout has no loop, or too many.
    #[error("a strided layout has 1 to {most} loops")]
    Loops {
        /// The most loops that a layout may have.
        most: usize,
    },
    /// The array has no dimension.
    #[error("an array has at least one dimension")]
    NoDimension,
    /// The number of ranges is not the number of dimensions.
    #[error("{ranges} ranges for {dims} dimensions")]
    Ranges {
        /// How many dimensions the array has.
        dims: usize,
        /// How many ranges were given.
        ranges: usize,
    },
    /// A range does not lie within its dimension.
    #[error("range {k}, {range:?}, does not lie within 0..{dim}")]
    NotWithin {
        /// The number of the dimension, from 0.
        k: usize,
        /// The range that does not fit.
        range: Range<usize>,
        /// The size of the array in that dimension.
        dim: usize,
    },
    /// The array has more elements than memory can hold.
    #[error("the array is larger than memory can be")]
    ArrayTooLarge,
    /// The loops are nested too deeply.
    #[error("it is {deep} loops deep, and at most {most} are allowed: use `Layout::indexed`")]
    Deep {
        /// How deeply they are nested.
        deep: usize,
        /// The deepest nest that is allowed.
        most: usize,
    },
    /// Two neighbouring elements of the layout lie too far apart.
    #[error("its elements lie {stride} apart, and at most 2^31 - 1 is allowed")]
    Apart {
        /// Their distance, in elements.
        stride: i64,
    },
    /// The layout reaches below element 0.
    #[error("it reaches down to element {low}")]
    Negative {
        /// The lowest element, as a negative number.
        low: i128,
    },
    /// The layout reaches beyond the addresses of this machine.
    #[error("it reaches beyond what can be addressed")]
    TooFar,
    /// A layout of several pieces has too many elements, or an element with too high a number.
    #[error(
        "it has {count} elements up to number {high}, but a layout of several pieces has fewer than 2^32 elements, all below number 2^32 - 1"
    )]
    TooMany {
        /// How many elements it has.
        count: u128,
        /// The number of its highest element.
        high: i128,
    },
    /// The layout has too many pieces.
    #[error("it has {pieces} pieces, and at most 2^26 are allowed")]
    Pieces {
        /// How many pieces it has.
        pieces: usize,
    },
}

/// A recording could not be made, or was replayed with other things.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::CaptureError;
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// let refused = s.capture((), |s, ()| s.synchronize()).unwrap_err();
/// assert!(matches!(refused, Error::Capture(CaptureError::Inside { .. })));
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The step did not return what was lent to it, in the same places.
    #[error(
        "not replayable: the step was lent {lent} things and returned {returned}; {} differs \
         (a captured step returns everything that was lent to it, in the same places; \
         if it swaps buffers, capture two steps)",
        named(.name, *.position)
    )]
    NotReplayable {
        /// How many regions and window halves the step was lent.
        lent: usize,
        /// How many the step returned.
        returned: usize,
        /// The first place in which they differ, from 0.
        position: usize,
        /// The name of the field there, such as `energy.inbox`, if it has one.
        name: Option<String>,
    },
    /// A replay was given other regions or window halves than those of the recording.
    #[error(
        "this recording was made with other regions or windows ({} differs)",
        named(.name, *.position)
    )]
    OtherGraph {
        /// The first place that differs, from 0.
        position: usize,
        /// The name of the field there, such as `energy.inbox`, if it has one.
        name: Option<String>,
    },
    /// The call is not possible while its stream is captured.
    #[error("not possible inside a capture: {what}")]
    Inside {
        /// What the call would do.
        what: &'static str,
    },
}

/// A kernel could not be bound or launched.
///
/// # Examples
///
/// ```
/// use tidegate::error::KernelError;
///
/// let error = KernelError::Signature { function: "scale".into(), sizes: vec![8; 40] };
/// assert!(error.to_string().starts_with("function `scale`: 40 parameters"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A function has too many parameters, or too large ones.
    #[error(
        "function `{function}`: {} parameters of {sizes:?} bytes: there is room for {} of {} bytes in all, each rounded up to 16",
        .sizes.len(), Parameters::MAX, Parameters::MAX_BYTES
    )]
    Signature {
        /// The name of the function.
        function: String,
        /// The size of each parameter, in bytes.
        sizes: Vec<usize>,
    },
    /// A kernel has too many arguments.
    #[error(
        "a kernel has too many arguments: there is room for {} parameters (a slice counts as two) of {} bytes in all",
        Parameters::MAX,
        Parameters::MAX_BYTES
    )]
    TooManyArguments,
    /// The handle of a slot was passed to device code with the slots of another window.
    #[error(
        "the handle of inbound slot {slot} belongs to another window than the slots that were passed before it"
    )]
    ForeignSlot {
        /// The number of the slot.
        slot: u32,
    },
}

/// An environment variable or an option cannot be parsed, or names a folder that cannot be made.
///
/// # Examples
///
/// ```
/// use tidegate::error::SettingError;
/// use tidegate::{Error, Route};
///
/// let error = Route::parse("by air").unwrap_err();
/// assert!(matches!(error, Error::Setting(SettingError::Route { variable: "TIDEGATE_ROUTE", .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The text is not a length of chunks.
    #[error("`{text}` is not a length of chunks: set {variable} to never, BYTES, or BYTES:FROM")]
    Chunks {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        text: String,
    },
    /// The text is not a route.
    #[error("`{text}` is not a route: set {variable} to auto, mapped, nic, or nic:RANK,RANK,…")]
    Route {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        text: String,
    },
    /// A folder for what the ranks write cannot be made.
    #[error("{variable} is `{folder}`, and that folder cannot be made: {error}")]
    Folder {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        folder: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The text is no level of messages.
    #[error("`{text}` is no level of messages: set {variable} to off, warn, info or debug")]
    Log {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        text: String,
    },
    /// The text names no profiler.
    #[error("`{text}` is no profiler: set {variable} to auto, nvtx, roctx or no")]
    Profiler {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        text: String,
    },
    /// The text is not a number.
    #[error("{variable} is `{text}`, which is not a number")]
    Number {
        /// The name of the environment variable.
        variable: &'static str,
        /// What the variable is set to.
        text: String,
    },
}

/// The ranks have met, but cannot form a job together.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::MeetError;
///
/// # fn main() -> Result<()> {
/// let world = match World::init() {
///     Err(Error::Meet(MeetError::NoNic { rank, reason })) => panic!("rank {rank} needs libfabric: {reason}"),
///     world => world?,
/// };
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// A rank has another kind of device.
    #[error("rank {rank} uses the device `{theirs}`, this rank `{mine}`")]
    OtherDevice {
        /// The rank that differs.
        rank: usize,
        /// The device of that rank.
        theirs: String,
        /// The device of this rank.
        mine: &'static str,
    },
    /// A rank has another kind of NIC.
    #[error("rank {rank} uses the NIC `{theirs}`, this rank `{mine}`")]
    OtherNic {
        /// The rank that differs.
        rank: usize,
        /// Its NIC.
        theirs: String,
        /// The NIC of this rank.
        mine: String,
    },
    /// The message of a rank could not be read. Perhaps the rank has another version of tidegate.
    #[error("the message of rank {rank} could not be read: {reason}")]
    Unreadable {
        /// The rank that sent the message.
        rank: usize,
        /// What is wrong with the message.
        reason: String,
    },
    /// A rank could not open its NIC, and the job needs NICs: the ranks are on several nodes, or the route of a rank
    /// asks for one. All ranks get this error.
    #[error("rank {rank} could not open the NIC that the job needs: {reason}")]
    NoNic {
        /// The lowest rank that has no NIC.
        rank: usize,
        /// The error of that rank.
        reason: String,
    },
}

/// A stream has failed. It skips all later work.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::StreamError;
///
/// # tidegate::doc::stream(|world, s| {
/// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
/// s.launch(|_: &mut [f64]| panic!("no number"), &mut x)?;
/// let error = s.synchronize().unwrap_err();
/// let Error::Stream(StreamError::KernelPanicked { message, .. }) = error else { panic!("{error}") };
/// assert_eq!(message, "no number");
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A kernel panicked.
    #[error("a kernel of rank {rank} on stream `{stream}` panicked: {message}")]
    KernelPanicked {
        /// This rank. The message names it, because the output of all ranks may be mixed.
        rank: usize,
        /// The name of the stream.
        stream: String,
        /// The panic's message.
        message: String,
    },
    /// A kernel has written a number of elements, to be sent to a rank, that there is no room for. Nothing was sent to
    /// that rank.
    #[error(
        "stream `{stream}` of rank {rank} has failed: window {window}: its count for rank {target} is {count}, which is \
         more than a block has room for"
    )]
    CountTooGreat {
        /// This rank, whose kernel has written the number.
        rank: usize,
        /// The name of the stream.
        stream: String,
        /// The window of the collective.
        window: WindowName,
        /// The rank that so much should have been sent to.
        target: usize,
        /// The number.
        count: u64,
    },
    /// A kernel broke its contract in an epoch. There are two cases:
    ///
    /// - A kernel of a GPU filled an open epoch ([`Outbox::open`]). The fault was found when the epoch was to be
    ///   completed.
    /// - A kernel owned a half of a window ([`Inbox::lend`]), and ended in the middle of an epoch.
    ///
    /// All peers of the half get an error, too. Those that the kernel had completed keep their data, and get the error
    /// in their next epoch.
    ///
    /// [`Outbox::open`]: crate::window::Outbox::open
    /// [`Inbox::lend`]: crate::window::Inbox::lend
    #[error(
        "a kernel of rank {rank} on stream `{stream}` broke its contract: window {window}: {fault}"
    )]
    KernelFault {
        /// This rank, whose kernel it was.
        rank: usize,
        /// The name of the stream.
        stream: String,
        /// The window.
        window: WindowName,
        /// What the kernel did. It is the first of its faults that was recorded.
        fault: Box<PutFault>,
    },
    /// The transport to the peers has failed.
    #[error("stream `{stream}` of rank {rank} cannot reach its peers any more: {detail}")]
    Transport {
        /// This rank, whose stream it is.
        rank: usize,
        /// The name of the stream.
        stream: String,
        /// What the stream was doing, and the error.
        detail: String,
    },
    /// A thread of this rank panicked, and unwound past one of the rank's streams. That ends the waits of all of them,
    /// since they may be for what the thread would have enqueued.
    #[error(
        "stream `{stream}` of rank {rank} has given up, because a panic unwound past stream `{past}` of this rank"
    )]
    Unwound {
        /// This rank.
        rank: usize,
        /// The name of the stream.
        stream: String,
        /// The name of the stream that the panic unwound past.
        past: String,
    },
    /// The stream was told to stop, or it waited for a stream that failed.
    #[error("stream `{stream}` was aborted: it was told to stop, or waited for a stream that was")]
    Aborted {
        /// The name of the stream.
        stream: String,
    },
}

/// "`energy.inbox` (place 3)", or "place 3" if there is no name.
fn named(name: &Option<String>, position: usize) -> String {
    match name {
        Some(name) => format!("`{name}` (place {position})"),
        None => format!("place {position}"),
    }
}
