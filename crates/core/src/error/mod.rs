//! Errors.
//!
//! Calls fail with an [`Error`]. Each call that takes a token by value has a twin whose name begins with `try_`, such
//! as `post` and `try_post`. The twin returns the token together with the error, in a [`Rejected`].

mod cause;
mod epoch;
mod misuse;
mod open;
mod other;
mod put_fault;
mod rejected;
mod room;
mod slot_name;
mod team;
mod window_name;

pub use cause::{Cause, WaitFailed};
pub use epoch::EpochError;
pub use misuse::{
    CaptureError, KernelError, LayoutFault, MeetError, RegionError, SettingError, StreamError,
};
pub use open::{Declared, Disagreement, Property, WindowError};
pub use put_fault::PutFault;
pub use rejected::Rejected;
pub(crate) use room::{no_memory, push, reserved};
pub use slot_name::SlotName;
pub use team::TeamError;
pub use window_name::WindowName;

use std::fmt;

pub use tidegate_hal::batch::Awaited;
pub use tidegate_hal::control::ControlError;
pub use tidegate_hal::device::DeviceError;
pub use tidegate_hal::nic::NicError;
use tidegate_hal::process::Forked;
pub use tidegate_hal::site::CallSite;

/// A `Result` with this crate's [`Error`].
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// fn main() -> Result<()> {
///     let world = World::init()?;
///     println!("{} ranks", world.size());
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of every call. The variant tells what a program can do about it. Most variants contain an enum with the
/// details. `Debug` prints the same text as `Display`; to print the parts, match the variant.
///
/// In a function that returns this error, `?` takes errors of other libraries if [`Error::other`] wraps them.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::Wait(_) | Error::Revoked { .. } => "see the cause: save what there is, and end",
///         Error::Stream(_) => "the stream cannot be used any more",
///         Error::Device(_) | Error::Nic(_) => "a resource is exhausted: free some, or ask for less",
///         _ => "correct the program, or its environment",
///     }
/// }
/// # tidegate::doc::stream(|world, s| {
/// let error = Region::<f64>::zeroed(world, usize::MAX).unwrap_err();
/// println!("{error}: {}", advice(&error));
/// # assert!(matches!(error, Error::Device(_)));
/// # Ok(()) });
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A wait ended before the peer did what was awaited.
    #[error(transparent)]
    Wait(Box<WaitFailed>),
    /// The window was revoked: a rank died, a limit passed, a call failed, or a token was dropped in the middle of its
    /// epoch, perhaps by a panic.
    #[error("window {window} is revoked: {cause}")]
    Revoked {
        /// The window that is revoked.
        window: WindowName,
        /// Why it is revoked: the first cause.
        cause: Cause,
    },
    /// A stream has failed. It skips all later work.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// An epoch, or an operation in it, does not fit the declaration of its window, or cannot be enqueued.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// A region, a part, a set of indices or a layout is invalid, or belongs to another device or world.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A window or a collective was not opened.
    #[error(transparent)]
    Open(#[from] WindowError),
    /// A recording could not be made, was replayed with other things, or does not allow the call.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A kernel was not bound or launched.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An environment variable or an option cannot be parsed, or names a folder that cannot be made.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The ranks have met, but cannot form a job together.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The job, or the team, has no such rank.
    #[error("rank {rank} does not exist: there {} {size} {}", if *.size == 1 { "is" } else { "are" }, if *.size == 1 { "rank" } else { "ranks" })]
    NoSuchRank {
        /// The rank that was named.
        rank: usize,
        /// The size of the job or the team.
        size: usize,
    },
    /// A team was not made, or cannot do what was asked.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// This process is a child that `fork` made of the process that joined the job. The call did nothing, and does not
    /// affect the parent.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The device refused the call.
    #[error(transparent)]
    Device(DeviceError),
    /// The NIC refused the call.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The job could not be joined.
    #[error(transparent)]
    Join(#[from] tidegate_boot::BootError),
    /// The control plane failed. In a collective call, the usual reason is that a rank has ended.
    #[error(transparent)]
    Control(ControlError),
    /// Another library (MPI, say) should have started the job, and failed. Its error is inside.
    #[error(transparent)]
    Bootstrap(Box<dyn std::error::Error + Send + Sync>),
    /// An error of the program's own, wrapped by [`Error::other`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// Prints the same text as `Display`, since `fn main() -> Result<()>`, `unwrap` and `expect` print `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Wraps an error of the program's own, or of another library. Use it in a function that returns this crate's
    /// error, such as a step that [`capture`](crate::Stream::capture) runs.
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// fn load(world: &World, path: &str) -> Result<Region<u8>> {
    ///     let bytes = std::fs::read(path).map_err(Error::other)?;
    ///     Region::from_slice(world, &bytes)
    /// }
    /// # tidegate::doc::ranks(1, |world| {
    /// let Err(Error::Other(inner)) = load(&world, "no such file") else { panic!("it is not there") };
    /// assert!(inner.is::<std::io::Error>());
    /// # Ok(()) });
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// Whether the call may succeed once this rank has freed something.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(
            self,
            Error::Device(DeviceError::Exhausted { .. })
                | Error::Nic(
                    NicError::Exhausted { .. } | NicError::Memory(DeviceError::Exhausted { .. })
                )
        )
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Capturing(what) => CaptureError::Inside { what }.into(),
            DeviceError::Forked(forked) => Error::Forked(forked),
            other => Error::Device(other),
        }
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Forked(forked) => Error::Forked(forked),
            other => Error::Control(other),
        }
    }
}
