//! Submitting a batch: the one way by which messaging comes to a stream.

use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::site::CallSite;

use super::noted::NotedStep;
use super::queue::Stream;
use crate::error::{Result, SlotName};
use crate::observe::{EpochCall, ObservedStream};

impl<D: Device> Stream<'_, D> {
    /// Submits a batch. `call` is what the program called, and `site` the place of the call. If the stream is captured,
    /// the batch is noted for [`verify`](crate::verify).
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold until the stream has passed the batch, and at each replay if it is recorded.
    #[inline]
    pub(crate) unsafe fn submit(
        &self,
        batch: &Arc<Batch>,
        call: EpochCall,
        site: CallSite,
    ) -> Result<()> {
        if let Some(observed) = self.observed() {
            // SAFETY: the caller's promise.
            return unsafe { self.submit_observed(observed, batch, call, site) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.raw().submit(batch, site) }?;
        if self.raw().capturing() {
            self.note_step(NotedStep::Batch(batch.clone(), call, site));
        }
        Ok(())
    }

    /// Submits a batch, and tells observers. It is a function of its own, so that the other path stays short.
    ///
    /// # Safety
    ///
    /// The same as [`Stream::submit`].
    #[cold]
    #[inline(never)]
    unsafe fn submit_observed(
        &self,
        observed: &ObservedStream,
        batch: &Arc<Batch>,
        call: EpochCall,
        site: CallSite,
    ) -> Result<()> {
        let capturing = self.raw().capturing();
        match capturing {
            true => observed.declares(batch, call, site),
            false => observed.enqueues(batch, call, site),
        }
        // SAFETY: the caller's promise.
        let submitted = unsafe { self.raw().submit(batch, site) };
        if !capturing {
            observed.returned();
        }
        submitted?;
        if capturing {
            self.note_step(NotedStep::Batch(batch.clone(), call, site));
        }
        Ok(())
    }

    /// Notes that the next kernel completes an epoch by itself, if the stream is captured. `batch` would do the same.
    pub(crate) fn note_by_kernel(&self, batch: &Arc<Batch>, site: CallSite) {
        if self.raw().capturing() {
            self.note_step(NotedStep::ByKernel(batch.clone(), site));
        }
    }

    /// Notes the slots that a submitted epoch leaves as they were, if the stream is captured.
    #[inline]
    pub(crate) fn note_unput(
        &self,
        window: WindowId,
        slots: impl FnOnce() -> Arc<[SlotName]>,
        site: CallSite,
    ) {
        if !self.raw().capturing() {
            return;
        }
        let slots = slots();
        if !slots.is_empty() {
            self.note_step(NotedStep::Unput(window, slots, site));
        }
    }
}
