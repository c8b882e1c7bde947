//! Why ranks cannot be bound.

use super::numbers::NumberSet;
use std::io;
use std::path::PathBuf;

/// Why ranks cannot be bound as asked for.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Bind, BindError, Job, LaunchError};
///
/// let job = Job::new("true", 2).bind(Bind::Device);
/// match job.run() {
///     Ok(outcome) => assert!(outcome.success()),
///     Err(LaunchError::Bind(BindError::NoDevice)) => println!("this machine has neither GPU nor NIC"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There are more ranks than processors.
    #[error(
        "--bind core needs a processor for each of the {ranks} ranks on this machine, and this process may use only processors {allowed}"
    )]
    TooFew {
        /// How many ranks the machine has.
        ranks: usize,
        /// The processors that this process may use.
        allowed: NumberSet,
    },
    /// There is no device on this machine.
    #[error("--bind device finds neither an NVIDIA GPU nor an InfiniBand NIC on this machine")]
    NoDevice,
    /// `CUDA_VISIBLE_DEVICES` hides all GPUs, or names one that does not exist.
    #[error("--bind device cannot tell which GPUs CUDA_VISIBLE_DEVICES={value:?} means: {reason}")]
    Visible {
        /// The value of the variable.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This process may not use any of the processors near a device.
    #[error(
        "--bind device: the processors near {device} are {near}, and this process may use only processors {allowed}"
    )]
    NotAllowed {
        /// The name of the device.
        device: String,
        /// The processors near it.
        near: NumberSet,
        /// The processors that this process may use.
        allowed: NumberSet,
    },
    /// A file that describes the machine cannot be read.
    #[error("--bind needs {}: {reason}", path.display())]
    Unread {
        /// The path of the file.
        path: PathBuf,
        /// Why it cannot be read.
        reason: String,
    },
    /// The kernel refuses the binding.
    #[error("--bind: the kernel refuses {what}: {source}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
