//! The choice of a device on the command line.

use clap::ValueEnum;

/// The devices whose ranks join a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceChoice {
    /// GPUs if there are any, else host streams
    #[default]
    Auto,
    /// Host streams
    Host,
    /// NVIDIA's GPUs
    Cuda,
    /// AMD's GPUs
    #[cfg(feature = "hip")]
    Hip,
}
