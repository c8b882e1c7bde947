//! Times at which a GPU comes to points of a stream.
//!
//! # Model
//!
//! [`GpuStream::timed_event`] enqueues an event that records a time. [`TimedEvent::us_since`] is the time between two
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

use tidegate_hal::device::{DeviceError, Stream as _};

use crate::driver::{Doing, Event};
use crate::gpu::Gpu;
use crate::stream::GpuStream;

/// A point of a stream, which has a time once the GPU has come there.
pub struct TimedEvent {
    event: Event,
    gpu: Arc<Gpu>,
}

impl GpuStream {
    /// Enqueues an event that records a time.
    ///
    /// # Errors
    ///
    /// If the driver refuses.
    pub fn timed_event(&self) -> Result<Arc<TimedEvent>, DeviceError> {
        let (gpu, stream) = (&self.shared.gpu, self.shared.raw);
        gpu.enter()?;
        let what = "recording an event that has a time";
        let event = gpu.driver.event_create(true).doing(what)?;
        let event = Arc::new(TimedEvent {
            event,
            gpu: gpu.clone(),
        });
        // A recording keeps the event, because its replays record it again. Otherwise the stream keeps it until it has
        // passed it.
        self.hold(event.clone(), self.shared.submitted() + 1);
        let recorded = match self.capturing() {
            // SAFETY: both are live, and the recording holds the event.
            true => unsafe { gpu.driver.event_record_in_graph(event.event, stream) },
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
    pub fn us_since(&self, earlier: &TimedEvent) -> Result<Option<f64>, DeviceError> {
        if self.gpu.limits.vendor != earlier.gpu.limits.vendor {
            return Err(DeviceError::BadHandle(
                "the events are of two vendors' streams".into(),
            ));
        }
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
