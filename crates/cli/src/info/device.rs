//! The choice of a device on the command line.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tidegate_cuda::Cuda;
use tidegate_hal::device::Device;
#[cfg(feature = "hip")]
use tidegate_hip::Hip;
use tidegate_host::Host;

/// The devices whose ranks join a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
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

/// What is done on the device that was chosen.
pub(crate) trait OnDevice {
    /// The result.
    type Out;

    fn run<D: Described>(self) -> Self::Out;
}

impl DeviceChoice {
    /// Does it on this device.
    pub(crate) fn run<J: OnDevice>(self, job: J) -> J::Out {
        match self {
            DeviceChoice::Host => job.run::<Host>(),
            DeviceChoice::Cuda => job.run::<Cuda>(),
            #[cfg(feature = "hip")]
            DeviceChoice::Hip => job.run::<Hip>(),
            DeviceChoice::Auto if DeviceChoice::Cuda.gpus() > 0 => job.run::<Cuda>(),
            #[cfg(feature = "hip")]
            DeviceChoice::Auto if DeviceChoice::Hip.gpus() > 0 => job.run::<Hip>(),
            DeviceChoice::Auto => job.run::<Host>(),
        }
    }

    /// How many GPUs of this kind this process sees.
    pub(crate) fn gpus(self) -> usize {
        match self {
            DeviceChoice::Host => 0,
            DeviceChoice::Cuda => Cuda::count().unwrap_or(0),
            #[cfg(feature = "hip")]
            DeviceChoice::Hip => Hip::count().unwrap_or(0),
            DeviceChoice::Auto => match DeviceChoice::Cuda.gpus() {
                #[cfg(feature = "hip")]
                0 => DeviceChoice::Hip.gpus(),
                gpus => gpus,
            },
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A device that can be described.
pub(crate) trait Described: Device {
    fn words(&self) -> String {
        self.describe()
    }

    /// What processes of one GPU must know of each other.
    fn shared(&self) -> Option<SharedGpu> {
        None
    }
}

/// A GPU that several processes may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedGpu {
    /// Its number in this process.
    pub(crate) number: usize,
    /// Its name in the machine: the same in each process.
    pub(crate) uuid: [u8; 16],
    /// Whether kernels of several processes run on it at the same time.
    pub(crate) mps: bool,
    /// How many hardware queues this process has.
    pub(crate) queues: usize,
}

impl Described for Host {}

impl Described for Cuda {
    fn words(&self) -> String {
        let mps = if self.mps() { ", MPS" } else { "" };
        format!(
            "{}, {} hardware queues{mps}",
            self.describe(),
            self.queues()
        )
    }

    fn shared(&self) -> Option<SharedGpu> {
        Some(SharedGpu {
            number: self.ordinal(),
            uuid: self.uuid(),
            mps: self.mps(),
            queues: self.queues(),
        })
    }
}

#[cfg(feature = "hip")]
impl Described for Hip {}
