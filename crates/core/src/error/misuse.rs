//! What is wrong with regions, recordings, kernels and settings.

use std::ops::Range;

use tidegate_hal::device::Parameters;

/// A region, a part of one, a set of indices or a layout is not as it must be.
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
    /// More elements than there are.
    #[error("elements {first}..{end} do not fit in {what} of {len} elements")]
    OutOfBounds {
        /// What was addressed: "a region" or "a block".
        what: &'static str,
        /// The first element.
        first: usize,
        /// One past the last.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// Parts are joined that are not neighbours, or not of one region.
    #[error("only neighbouring parts of one region can be joined")]
    NotNeighbours,
    /// Other parts of the region exist.
    #[error("other parts of the region still exist")]
    Shared,
    /// An empty region has no memory.
    #[error("an empty region has no block")]
    Empty,
    /// Two sets of indices overlap, or an index is in one set twice.
    #[error("index sets must be disjoint, but {one:?} and {other:?} overlap")]
    Overlap {
        /// The one range.
        one: Range<usize>,
        /// The other.
        other: Range<usize>,
    },
    /// `usize::MAX` is no index.
    #[error("usize::MAX is no index")]
    NoIndex,
    /// Parts are put together that are not all parts of one partition, in their order.
    #[error("only all parts of one partition, in their order, make a region")]
    NotOnePartition,
    /// A layout chooses elements that the part does not hold.
    #[error("elements {first}..{end} of the layout are not in the part")]
    NotInPart {
        /// The first such element.
        first: usize,
        /// One past the last of its run.
        end: usize,
    },
    /// A strided layout cannot be.
    #[error("strided layout {first} {loops:?}: {fault}")]
    Layout {
        /// Its first element.
        first: usize,
        /// Its loops.
        loops: Box<[(u32, i32)]>,
        /// What is wrong with it.
        fault: Box<LayoutFault>,
    },
    /// A box of an array cannot be.
    #[error("subarray {ranges:?} of {dims:?}: {fault}")]
    Subarray {
        /// The elements of the array in each dimension.
        dims: Box<[usize]>,
        /// The ranges of the box.
        ranges: Box<[Range<usize>]>,
        /// What is wrong with it.
        fault: Box<LayoutFault>,
    },
    /// The stream is one of another device than the memory.
    #[error("the stream is one of another device than the memory")]
    OtherDevice,
    /// The two streams belong to different worlds.
    #[error("the two streams belong to different worlds")]
    OtherWorld,
}

/// What is wrong with a strided layout, or with a box of an array.
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
    /// It has no loop, or too many.
    #[error("a strided layout has 1 to {most} loops")]
    Loops {
        /// The most.
        most: usize,
    },
    /// The array has no dimension.
    #[error("an array has at least one dimension")]
    NoDimension,
    /// There is not one range for each dimension.
    #[error("{ranges} ranges for {dims} dimensions")]
    Ranges {
        /// How many dimensions.
        dims: usize,
        /// How many ranges.
        ranges: usize,
    },
    /// A range does not lie within its dimension.
    #[error("range {k}, {range:?}, does not lie within 0..{dim}")]
    NotWithin {
        /// Which dimension.
        k: usize,
        /// The range.
        range: Range<usize>,
        /// The elements of the dimension.
        dim: usize,
    },
    /// The array has more elements than memory can have.
    #[error("the array is larger than memory can be")]
    ArrayTooLarge,
    /// It is a nest of too many loops.
    #[error("it is {deep} loops deep, and {most} is the most: make a layout of the indices")]
    Deep {
        /// How many.
        deep: usize,
        /// The most.
        most: usize,
    },
    /// Its elements lie too far apart.
    #[error("its elements lie {stride} apart, and 2^31 - 1 is the most")]
    Apart {
        /// How far.
        stride: i64,
    },
    /// It reaches below element 0.
    #[error("it reaches down to element {low}")]
    Negative {
        /// Down to which.
        low: i128,
    },
    /// It reaches beyond what can be addressed.
    #[error("it reaches beyond what can be addressed")]
    TooFar,
    /// It has too many elements, or reaches too far, for one of several pieces.
    #[error(
        "it has {count} elements up to number {high}, and where these are not one piece, a layout has fewer than 2^32 elements below number 2^32 - 1"
    )]
    TooMany {
        /// How many elements it has.
        count: u128,
        /// The highest.
        high: i128,
    },
    /// It has too many pieces.
    #[error("it has {pieces} pieces: 2^26 is the most")]
    Pieces {
        /// How many.
        pieces: usize,
    },
}

/// A recording was not made, or does not fit.
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
    /// The steps of a recording do not end with what they began with, in the same places.
    #[error(
        "not replayable: the step got {lent} things and gave back {returned}; {} differs \
         (a captured step gives back all that it was lent, in the same places; \
         where buffers are swapped, capture two steps)",
        named(.name, *.position)
    )]
    NotReplayable {
        /// How many regions and window halves went in.
        lent: usize,
        /// How many came out.
        returned: usize,
        /// The first place in which they differ, from 0.
        position: usize,
        /// The field there, as in `energy.inbox`, if there is one.
        name: Option<String>,
    },
    /// What is replayed is not what was recorded.
    #[error(
        "this recording was made with other regions or windows ({} differs)",
        named(.name, *.position)
    )]
    OtherGraph {
        /// The first place that differs, from 0.
        position: usize,
        /// The field there, as in `energy.inbox`, if there is one.
        name: Option<String>,
    },
    /// The call is not possible while its stream is captured.
    #[error("not possible inside a capture: {what}")]
    Inside {
        /// What was to be done.
        what: &'static str,
    },
}

/// A kernel was not bound or launched.
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
    /// There is no room for the parameters of a function.
    #[error(
        "function `{function}`: {} parameters of {sizes:?} bytes: there is room for {} of {} bytes in all, each rounded up to 16",
        .sizes.len(), Parameters::MAX, Parameters::MAX_BYTES
    )]
    Signature {
        /// Its name.
        function: String,
        /// The bytes of each parameter.
        sizes: Vec<usize>,
    },
    /// There is no room for the arguments.
    #[error(
        "the arguments are too much for a kernel: there is room for {} parameters (a slice is two) of {} bytes in all",
        Parameters::MAX,
        Parameters::MAX_BYTES
    )]
    TooManyArguments,
    /// Device code would look for a slot in a table that it is not of.
    #[error(
        "the handle of inbound slot {slot} is of another window than the slots that it stands behind"
    )]
    ForeignSlot {
        /// The number of the slot.
        slot: u32,
    },
}

/// A variable of the environment, or an option, cannot be read.
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
    /// It does not say how staged puts are cut.
    #[error("`{text}` is no length of chunks: {variable} is never, BYTES, or BYTES:FROM")]
    Chunks {
        /// The variable that says it.
        variable: &'static str,
        /// What it says.
        text: String,
    },
    /// It does not say which ranks are reached by the NIC.
    #[error("`{text}` is no route: {variable} is auto, mapped, nic, or nic:RANK,RANK,…")]
    Route {
        /// The variable that says it.
        variable: &'static str,
        /// What it says.
        text: String,
    },
    /// It is no number.
    #[error("{variable} is `{text}`: a number is wanted")]
    Number {
        /// The variable.
        variable: &'static str,
        /// What it says.
        text: String,
    },
}

/// The ranks have met, and cannot make a job together.
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
        /// The rank.
        rank: usize,
        /// Its device.
        theirs: String,
        /// This rank's.
        mine: &'static str,
    },
    /// A rank has another kind of NIC.
    #[error("rank {rank} uses the NIC `{theirs}`, this rank `{mine}`")]
    OtherNic {
        /// The rank.
        rank: usize,
        /// Its NIC.
        theirs: String,
        /// This rank's.
        mine: String,
    },
    /// What a rank said could not be read: it has another version of tidegate, perhaps.
    #[error("what rank {rank} said: {reason}")]
    Unreadable {
        /// The rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The ranks are on several nodes, or a rank's route asks for a NIC, and a rank could not open its NIC. All ranks get
    /// this.
    #[error("rank {rank} could not open the NIC that the job needs: {reason}")]
    NoNic {
        /// The lowest such rank.
        rank: usize,
        /// What it has met.
        reason: String,
    },
}

/// A stream has failed, and everything behind that was passed over.
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
        /// This rank: who sees only what is printed by all cannot know.
        rank: usize,
        /// The stream.
        stream: String,
        /// The panic's message.
        message: String,
    },
    /// What carries messages to peers has failed.
    #[error("stream `{stream}` of rank {rank} cannot reach its peers any more: {detail}")]
    Transport {
        /// This rank.
        rank: usize,
        /// The stream.
        stream: String,
        /// What was being done, and what was said.
        detail: String,
    },
    /// The stream was told to stop, or another stream that it waited for had failed.
    #[error("stream `{stream}` was aborted")]
    Aborted {
        /// The stream.
        stream: String,
    },
}

/// "`energy.inbox` (place 3)", or "place 3".
fn named(name: &Option<String>, position: usize) -> String {
    match name {
        Some(name) => format!("`{name}` (place {position})"),
        None => format!("place {position}"),
    }
}
