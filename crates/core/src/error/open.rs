//! Why a window or a collective was not opened.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Op;

use super::window_name::WindowName;
use tidegate_boot::starter::in_words;

/// A window, or a collective, was not opened, on any rank. If the ranks had agreed on an id for it, the error contains
/// the id; no other window of that team gets the same one.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::WindowError;
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// let first = SlotWindow::<f64>::new("halo").open(&s)?;
/// let error = SlotWindow::<f64>::new("halo").open(&s).unwrap_err(); // `first` still has the name
/// assert!(matches!(error, Error::Open(WindowError::NameTaken { .. })));
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The ranks' declarations do not fit together.
    #[error("window {window}: {disagreement}")]
    Disagreement {
        /// The window, by this rank's name for it: other ranks may have given other names.
        window: WindowName,
        /// Which ranks disagree, and about what.
        disagreement: Box<Disagreement>,
    },
    /// A rank does not have the resources for its part of the window: memory, descriptors, or queues of its NIC. All
    /// ranks get this error. The job goes on, and the window can be opened once the rank has freed some.
    #[error("window {window} was not created: rank {rank} could not create its part: {reason}")]
    NotCreated {
        /// The window that was not created.
        window: WindowName,
        /// That rank, or the lowest one if there are several.
        rank: usize,
        /// The error of that rank, with the name of the limit.
        reason: String,
    },
    /// A window (or a collective) with this name is still open on some ranks. All ranks get this error. If two windows
    /// could have one name, tidegate would not notice when ranks open them in different orders.
    #[error(
        "window {window}: another one with this name is still open on {}; drop it there first (both halves), \
         or give this one another name",
        in_words(.ranks)
    )]
    NameTaken {
        /// The window that is refused.
        window: WindowName,
        /// The lowest ranks that still hold a half or an epoch of the earlier window; at most 16.
        ranks: Vec<usize>,
    },
    /// A collective needs a length for each rank.
    #[error("collective `{name}`: {counts} lengths were given for {ranks} ranks")]
    Counts {
        /// The name of the collective. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// How many lengths were given.
        counts: usize,
        /// How many ranks the job has, or the team.
        ranks: usize,
    },
    /// The vector or a block of a collective takes too many pieces.
    #[error(
        "collective `{name}`: a vector or block takes more than {most} pieces: choose longer pieces (`Choice::piece`), or \
         divide the data"
    )]
    TooLong {
        /// The name of the collective. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// The most pieces.
        most: usize,
    },
    /// The rows of a counted all-to-all have no elements or are too long, or there are too many of them.
    #[error(
        "collective `{name}`, in rows of {row} bytes: a row must have at least 1 byte and less than 4 GiB, and all blocks \
         of a rank together must fit into memory"
    )]
    Rows {
        /// The name of the collective. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// The length of a row, in bytes.
        row: usize,
    },
    /// A collective would reduce floats by an operation for integers.
    #[error("collective `{name}`: `Op::{op:?}` is not defined for floats")]
    NotForFloats {
        /// The name of the collective. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// The operation that was asked for.
        op: Op,
    },
    /// Elements of several numbers that belong together, such as complex numbers, can only be added.
    #[error(
        "collective `{name}`: `Op::{op:?}` does not work on the numbers of an element one by one; only sums do"
    )]
    OnlySums {
        /// The name of the collective. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// The operation that was asked for.
        op: Op,
    },
    /// The layouts that a rank declares have too many runs.
    #[error(
        "window `{name}`: the declared layouts have {runs} runs in all, and at most {most} are allowed: use a box or a nest of strides, which can have any size"
    )]
    TooManyRuns {
        /// The name of the window. It was refused before the ranks agreed on an id.
        name: Arc<str>,
        /// How many runs the layouts have.
        runs: usize,
        /// The most runs that the layouts of a rank may have together.
        most: usize,
    },
    /// A rank is on another node, but the program or `TIDEGATE_ROUTE` asks to map its memory.
    #[error(
        "window {window}: rank {rank} is on another node, so its memory cannot be mapped, as the route `mapped` asks"
    )]
    NotMapped {
        /// The window that was not opened.
        window: WindowName,
        /// The rank that is on another node.
        rank: usize,
    },
    /// Two ranks can reach each other only by NICs, but one of them has none.
    #[error(
        "window {window}: rank {rank} must be reached by a NIC, but {} has none \
         (`WorldOptions::nic` brings one)",
        if *.this_rank { "this rank" } else { "it" }
    )]
    NoNic {
        /// The window that was not opened.
        window: WindowName,
        /// The rank that is to be reached.
        rank: usize,
        /// Whether this rank is the one without a NIC.
        this_rank: bool,
    },
    /// A rank has a NIC, but said that it had none when the ranks met.
    #[error("window {window}: rank {rank} has a NIC now, but said before that it had none")]
    NewNic {
        /// The window that was not opened.
        window: WindowName,
        /// The rank whose NIC is new.
        rank: usize,
    },
}

/// How the ranks' declarations of a window do not fit together. All ranks come to the same result. Ranks are named by
/// their numbers in the job, also if a team opens the window.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::{Disagreement, WindowError};
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// let mut window = SlotWindow::<f64>::new("halo");
/// window.slot_to(0, 7); // but rank 0 declares no slot for this one
/// let error = window.open(&s).unwrap_err();
/// let Error::Open(WindowError::Disagreement { disagreement, .. }) = error else { panic!("{error}") };
/// assert_eq!(*disagreement, Disagreement::NoSlot { rank: 0, target: 0, key: 7 });
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Disagreement {
    /// Two ranks open different windows.
    #[error(
        "ranks {lowest} and {rank} open different windows: {first} and {other}; all ranks must open their windows in the same order"
    )]
    Windows {
        /// Rank 0, or the lowest rank of the team.
        lowest: usize,
        /// The window that this one opens.
        first: WindowName,
        /// The lowest rank that opens another one.
        rank: usize,
        /// The window that the other rank opens.
        other: WindowName,
    },
    /// Two ranks declare a property of the window differently.
    #[error("ranks {lowest} and {rank} disagree about {what}: {first} and {other}")]
    Differs {
        /// The property.
        what: Property,
        /// Rank 0, or the lowest rank of the team.
        lowest: usize,
        /// What this one declares.
        first: String,
        /// The other rank.
        rank: usize,
        /// What the other rank declares.
        other: String,
    },
    /// A rank could not create its part.
    #[error("rank {rank} could not create its part: {reason}")]
    Part {
        /// The rank that could not.
        rank: usize,
        /// The message of its error.
        reason: String,
    },
    /// The message of a rank could not be read.
    #[error("the message of rank {rank} could not be read: {reason}")]
    Unreadable {
        /// The rank that sent the message.
        rank: usize,
        /// What is wrong with the message.
        reason: String,
    },
    /// The window would have had too many epochs before its first.
    #[error("the window would have had {before} epochs, and can have no more than {most}")]
    Epochs {
        /// How many epochs it would have had.
        before: u64,
        /// The most epochs that a window can have.
        most: u64,
    },
    /// Two ranks reach each other through staged memory, which atomic windows cannot use: all operations on an element
    /// have one executor, and those of near GPUs are made in the target's own memory.
    #[error(
        "ranks {rank} and {other} reach each other by NICs through staged memory, which atomic windows cannot use"
    )]
    Staged {
        /// One of the two ranks.
        rank: usize,
        /// The other rank.
        other: usize,
    },
    /// A rank names a rank that does not exist.
    #[error(
        "rank {rank} names rank {named}, but {} has {size} {}{}",
        in_team(.team), if *.size == 1 { "rank" } else { "ranks" }, hint(*.alone)
    )]
    NoSuchRank {
        /// The rank that names it.
        rank: usize,
        /// The rank that it names: a number in the team, if a team opens the window.
        named: usize,
        /// The size of the job or of the team.
        size: usize,
        /// The name of the team, if a team opens the window.
        team: Option<String>,
        /// Whether the process was started without a launcher, as a job of one rank.
        alone: bool,
    },
    /// A rank declares two slots for one origin and key.
    #[error("rank {rank} has two slots for rank {origin} with key {key}")]
    TwoSlots {
        /// The rank that has the slots.
        rank: usize,
        /// The origin that both slots are for.
        origin: usize,
        /// The key of both slots.
        key: u64,
    },
    /// A rank declares a slot (`slot_from`), but the origin does not declare a put into it (`slot_to`).
    #[error(
        "rank {rank} has a slot for rank {origin} with key {key} (`slot_from`), but rank {origin} has no `slot_to` for it"
    )]
    NotNamed {
        /// The rank that has the slot.
        rank: usize,
        /// The origin without a `slot_to`.
        origin: usize,
        /// The key of the slot.
        key: u64,
    },
    /// A rank declares `slot_to` twice for one slot.
    #[error("rank {rank} names the slot of rank {target} with key {key} twice")]
    NamedTwice {
        /// The rank that declares it twice.
        rank: usize,
        /// The rank whose slot it is.
        target: usize,
        /// The key of the slot.
        key: u64,
    },
    /// A rank declares a put into a slot (`slot_to`), but the target does not declare the slot (`slot_from`).
    #[error(
        "rank {rank} names the slot of rank {target} with key {key} (`slot_to`), but rank {target} has no such `slot_from`"
    )]
    NoSlot {
        /// The rank that declares the put.
        rank: usize,
        /// The target without such a slot.
        target: usize,
        /// The key of the put.
        key: u64,
    },
    /// A slot has another length than its origin expects.
    #[error(
        "rank {rank} expects the slot of rank {target} with key {key} to have {expected} elements, but it has {len}"
    )]
    Length {
        /// The origin, which expects a length.
        rank: usize,
        /// The target, which has the slot.
        target: usize,
        /// The key of the slot.
        key: u64,
        /// How many elements the origin expects.
        expected: usize,
        /// How many elements the slot has.
        len: usize,
    },
    /// A declared range or layout does not lie within the target's memory.
    #[error("rank {rank} declares {declared} of rank {target}, which has {len} elements")]
    Range {
        /// The origin, which declared it.
        rank: usize,
        /// The target, whose memory it is.
        target: usize,
        /// The range or layout.
        declared: Declared,
        /// How many elements the target has.
        len: usize,
    },
    /// Two ranges or layouts that origins declared overlap in one target's memory.
    #[error(
        "of rank {target}'s memory, {} and {} overlap in elements {at:?}{}", one_of(.one), one_of(.other), interleaved([.one, .other])
    )]
    Overlap {
        /// The target.
        target: usize,
        /// One of them, and its origin.
        one: (Declared, usize),
        /// The other one, and its origin.
        other: (Declared, usize),
        /// Elements that lie in both.
        at: Range<usize>,
    },
    /// The memory of a rank is larger than its addresses reach.
    #[error("the memory of rank {rank} exceeds what can be addressed")]
    Memory {
        /// The rank whose memory it is.
        rank: usize,
    },
}

/// The elements of a target's memory that an origin has declared.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::{Declared, Disagreement, WindowError};
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// let mut window = RangeWindow::<f64>::new("block", 8);
/// window.range_to(0, 4..12); // of 8 elements
/// let error = window.open(&s).unwrap_err();
/// let Error::Open(WindowError::Disagreement { disagreement, .. }) = error else { panic!("{error}") };
/// let Disagreement::Range { declared, .. } = *disagreement else { panic!() };
/// assert_eq!(declared, Declared::Range(4..12));
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Declared {
    /// A range.
    Range(Range<usize>),
    /// A layout, whose elements lie within this range.
    Layout(Range<usize>),
    /// The declaration arrived damaged, and is not a layout.
    Nothing,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declared::Range(range) => write!(f, "{range:?}"),
            Declared::Layout(extent) => write!(f, "a layout of elements {extent:?}"),
            Declared::Nothing => f.write_str("a damaged layout"),
        }
    }
}

/// A property of a window that must be the same on all ranks.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::{Disagreement, Property, WindowError};
///
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// let buffers = [Buffers::Single, Buffers::Double][world.rank()];
/// let error = SlotWindow::<f64>::new("halo").buffers(buffers).open(&s).unwrap_err();
/// let Error::Open(WindowError::Disagreement { disagreement, .. }) = error else { panic!("{error}") };
/// assert!(matches!(*disagreement, Disagreement::Differs { what: Property::Buffers, .. }));
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Property {
    /// How the window keeps origins apart.
    Discipline,
    /// The element type.
    Elements,
    /// Whether it is a window, and if not, which collective.
    Purpose,
    /// How many buffers its slots have.
    Buffers,
    /// How many epochs it counts as having had before its first.
    Epochs,
    /// Whether data that goes through NICs is staged.
    Staging,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Property::Discipline => "its discipline",
            Property::Elements => "the element type",
            Property::Purpose => "what it is",
            Property::Buffers => "buffers",
            Property::Epochs => "epochs before the first",
            Property::Staging => "staging",
        })
    }
}

/// The job or the team of a window.
fn in_team(team: &Option<String>) -> String {
    match team {
        None => "the job".into(),
        Some(team) => format!("team `{team}`"),
    }
}

/// A hint for a user who may have forgotten the launcher.
fn hint(alone: bool) -> &'static str {
    match alone {
        true => {
            " (this process was started alone: `tidegate run -n N PROGRAM` starts a job of N ranks)"
        }
        false => "",
    }
}

/// What a rank has declared of a target's memory, in the message on an overlap.
fn one_of((declared, rank): &(Declared, usize)) -> String {
    match declared {
        Declared::Range(range) => format!("{range:?} of rank {rank}"),
        _ => format!("a layout of rank {rank}"),
    }
}

/// A hint for ranks that declare ranges around elements of each other.
fn interleaved(both: [&(Declared, usize); 2]) -> &'static str {
    match both {
        [(Declared::Range(_), _), (Declared::Range(_), _)] => {
            " (ranks whose elements interleave declare them by `layout_to`)"
        }
        _ => "",
    }
}
