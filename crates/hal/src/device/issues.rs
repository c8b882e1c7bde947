//! What a kernel that is a closure may ask of its stream.

use crate::batch::Batch;
use crate::site::CallSite;

/// The stream of a kernel that is a closure. It carries out batches in the middle of the kernel, on the kernel's
/// thread. So a kernel that owns halves of windows makes epochs by the same batches as the host.
pub trait Issues {
    /// Carries out a batch, after all that the kernel has done so far, and returns when it is over. `site` is the call
    /// that has launched the kernel.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if the stream has failed, by this batch or before. The batch was given up, like a batch in the queue
    /// of a stream that has failed.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold. The batch is for this stream.
    unsafe fn issue(&self, batch: &Batch, site: CallSite) -> Result<(), Stopped>;
}

/// The stream has failed, so its kernel must not go on.
#[derive(Clone, Copy, Debug)]
pub struct Stopped;

impl Stopped {
    /// Ends the kernel by unwinding. The stream knows this payload, and keeps its first fault. Nothing is printed.
    pub fn unwind(self) -> ! {
        std::panic::resume_unwind(Box::new(self))
    }
}
