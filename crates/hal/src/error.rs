//! Why a device refuses, and why a GPU's driver does.

use crate::process::Forked;

/// Why a device refused something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is not enough memory, or not enough of some other resource.
    #[error("out of {what}: {detail}")]
    Exhausted {
        /// What ran out.
        what: &'static str,
        /// What was asked for and what was said.
        detail: String,
    },
    /// The device cannot do this.
    #[error("not supported by the {device} device: {what}")]
    Unsupported {
        /// Which kind of device.
        device: &'static str,
        /// What it cannot do.
        what: String,
    },
    /// A handle does not fit.
    #[error("a memory handle was refused: {0}")]
    BadHandle(String),
    /// The call is not possible while the stream is being captured.
    #[error("not possible while the stream is captured: {0}")]
    Capturing(&'static str),
    /// The call comes from within the work of the same stream, which executes on the submitting thread: a kernel of an
    /// inline stream has called back into the stream. Nothing was done.
    #[error("not possible from within the work of the same inline stream: {0}")]
    Inside(&'static str),
    /// The stream's queue is full. Nothing was enqueued, and nothing is lost: the call is possible again when the
    /// stream has done some items.
    #[error(
        "the queue of stream `{stream}` is full: it holds up to {most} items that have not been done; wait for some of them \
         (`synchronize`) before you enqueue more"
    )]
    QueueFull {
        /// The name of the stream.
        stream: String,
        /// How many items its queue holds at most.
        most: u64,
    },
    /// The device does not take this code, or the code does not have the function asked for.
    #[error("device code was refused: {0}")]
    Code(String),
    /// The call could block behind a wait of a stream of the device; it is possible when its streams are idle.
    #[error("not possible while a stream of the device may be waiting: {0}")]
    Busy(&'static str),
    /// This process was forked from the one that the device, or the stream, belongs to.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// This machine lacks something that the kind of device needs.
    #[error("there is no {device} device here: {detail}")]
    Missing {
        /// Which kind of device.
        device: &'static str,
        /// What was looked for.
        detail: String,
    },
    /// The operating system or driver refused something.
    #[error("{what}: {detail}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What was said.
        detail: String,
    },
}

/// What to decide by when a GPU's driver has refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The process was forked from the one that started the driver, and the call was not made.
    Forked,
    /// There is too little memory, of the device or of the host.
    OutOfMemory,
    /// The driver or the device cannot do this.
    Unsupported,
    /// An argument is not valid.
    Invalid,
    /// The memory is registered with the driver already.
    AlreadyRegistered,
    /// The call is not possible in a capture, or has spoiled it.
    Capture,
    /// The device's work was torn down, and every later call fails.
    ContextLost,
    /// Anything else.
    Other,
}

/// A GPU's driver refused a call, or reports an error that happened earlier on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The vendor's name: that of its device module.
    pub device: &'static str,
    /// What to decide by.
    pub kind: ErrorKind,
    /// The call, and what the driver says.
    pub text: String,
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DriverError {}

impl DriverError {
    /// The device's error, for a call that was made while doing `what`.
    pub fn doing(self, what: &'static str) -> DeviceError {
        let DriverError { device, kind, text } = self;
        match kind {
            ErrorKind::Forked => DeviceError::Forked(Forked),
            ErrorKind::OutOfMemory => DeviceError::Exhausted {
                what: "memory of the device",
                detail: format!("{what}: {text}"),
            },
            ErrorKind::Unsupported => DeviceError::Unsupported {
                device,
                what: format!("{what}: {text}"),
            },
            _ => DeviceError::System { what, detail: text },
        }
    }
}
