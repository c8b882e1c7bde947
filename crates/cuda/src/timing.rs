//! Times at which a GPU comes to points of a stream.
//!
//! # Model
//!
//! [`CudaStream::timed_event`] enqueues an event that records a time. [`TimedEvent::us_since`] is the time between two
//! events on the GPU's own clock, even if they are on different streams. In a capture the event is a node of the
//! recording, and each replay sets its time again.
//!
//! An event is a work item of its own, and the driver takes some time to enqueue it. So work with events between its
//! parts is slower than without.
//!
//! # Failure
//!
//! A driver that is too old for events in captures returns an error when one is recorded.

use std::sync::Arc;

use tidegate_ffi::cuda::{Event, EventFlags};
use tidegate_hal::device::{DeviceError, Stream as _};

use crate::error::Doing;
use crate::gpu::Gpu;
use crate::stream::CudaStream;

/// A point of a stream, which has a time once the GPU has come there.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tidegate::cuda::{CudaStream, TimedEvent};
/// use tidegate::error::DeviceError;
///
/// /// Enqueues work between two events.
/// fn timed(stream: &CudaStream, work: impl FnOnce()) -> Result<[Arc<TimedEvent>; 2], DeviceError> {
///     let begin = stream.timed_event()?;
///     work();
///     Ok([begin, stream.timed_event()?])
/// }
/// ```
pub struct TimedEvent {
    event: Event,
    gpu: Arc<Gpu>,
}

impl CudaStream {
    /// Enqueues an event that records a time.
    ///
    /// # Errors
    ///
    /// If the driver refuses.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::cuda::{Cuda, CudaStream, TimedEvent, prelude::*};
    /// use tidegate::kernel::Parameters;
    /// use tidegate::kernel::foreign;
    ///
    /// /// Enqueues an event: the device's stream is had by a foreign kernel.
    /// fn event<'s>(s: &Stream<'s>, x: &Region<f64, On<'s>>) -> Result<Option<Arc<TimedEvent>>> {
    ///     let mut event = None;
    ///     let record = |stream: &CudaStream, _: &Parameters| {
    ///         event = Some(stream.timed_event()?);
    ///         Ok(())
    ///     };
    ///     // SAFETY: an event accesses no memory.
    ///     s.launch(unsafe { foreign(record) }, (x,))?;
    ///     Ok(event)
    /// }
    /// ```
    pub fn timed_event(&self) -> Result<Arc<TimedEvent>, DeviceError> {
        let (gpu, stream) = (&self.shared.gpu, self.shared.raw);
        gpu.enter()?;
        let what = "recording an event that has a time";
        let event = gpu.driver.event_create(EventFlags::DEFAULT).doing(what)?;
        let event = Arc::new(TimedEvent {
            event,
            gpu: gpu.clone(),
        });
        // A recording keeps the event, because its replays record it again. Otherwise the stream keeps it until it has
        // passed it.
        self.hold(event.clone(), self.shared.submitted() + 1);
        let recorded = match self.capturing() {
            // SAFETY: both are live, and the recording holds the event.
            true => unsafe { gpu.driver.event_record_external(event.event, stream) },
            // SAFETY: both are live, and of one context.
            false => unsafe { gpu.driver.event_record(event.event, stream) },
        };
        recorded.doing(what)?;
        Ok(event)
    }
}

impl TimedEvent {
    /// How many microseconds after `earlier` this event happened; `None` while one of the two has not happened.
    ///
    /// # Errors
    ///
    /// If one of them is in a recording that was never replayed, or if the driver refuses.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::TimedEvent;
    /// use tidegate::error::DeviceError;
    ///
    /// fn print(begin: &TimedEvent, end: &TimedEvent) -> Result<(), DeviceError> {
    ///     match end.us_since(begin)? {
    ///         Some(us) => println!("{us} us"),
    ///         None => println!("the GPU has not come there"),
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn us_since(&self, earlier: &TimedEvent) -> Result<Option<f64>, DeviceError> {
        self.gpu.enter()?;
        // SAFETY: both are live.
        let ms = unsafe { self.gpu.driver.event_elapsed_ms(earlier.event, self.event) };
        let ms = ms.doing("asking for the time between two events")?;
        Ok(ms.map(|ms| f64::from(ms) * 1e3))
    }
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: the event is this value's, and everything that records it holds this value.
            let _ = unsafe { self.gpu.driver.event_destroy(self.event) };
        }
    }
}
