//! Access of the host to an inbox.

use std::panic::Location;

use tidegate_hal::device::{Call, HostAccess};

use super::inbox::Inbox;
use super::view::Slots;
use super::{Atomic, ByRange, BySlot};
use crate::element::Element;
use crate::error::Result;
use crate::stream::Stream;

impl<'s, T: Element, D: HostAccess> Inbox<'s, T, D, BySlot> {
    /// Waits until the stream has carried out everything that is enqueued, and lends the host the slots for reading.
    ///
    /// # Errors
    ///
    /// The error that made the stream fail, or [`CaptureError::Inside`](crate::error::CaptureError::Inside).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// let slots = inbox.read(s)?; // waits for the stream
    /// assert_eq!(slots[from], [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn read<'b>(&'b mut self, stream: &Stream<'s, D>) -> Result<Slots<'b, T>> {
        stream.synchronize_in(Call::Read, Location::caller())?;
        // SAFETY: the stream has passed everything that was enqueued, including the last wait. The inbox is borrowed
        // exclusively, so while the slots are read nothing can be enqueued with it, and it cannot be posted.
        Ok(unsafe { Slots::new(self.held.table.slots(), self.held.half.declaration) })
    }
}

macro_rules! host_memory {
    ($kind:ty) => {
        impl<'s, T: Element, D: HostAccess> Inbox<'s, T, D, $kind> {
            /// Waits until the stream has carried out everything that is enqueued, and lends the host the memory for
            /// reading and writing.
            ///
            /// # Errors
            ///
            /// The error that made the stream fail, or [`CaptureError::Inside`](crate::error::CaptureError::Inside).
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
            /// let mut epoch = outbox.start();
            /// epoch.put(&src, to)?;
            /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
            /// let memory = inbox.host_mut(s)?; // waits for the stream
            /// assert_eq!(memory[..], [7, 7, 7, 7, 0, 0, 0, 0]);
            /// memory.fill(0);
            /// # Ok(()) });
            /// ```
            #[track_caller]
            pub fn host_mut<'b>(&'b mut self, stream: &Stream<'s, D>) -> Result<&'b mut [T]> {
                stream.synchronize_in(Call::HostMut, Location::caller())?;
                let table = &self.held.table;
                let (memory, len) = (table.memory.0.cast::<T>(), table.len);
                // SAFETY: `memory` has `len` elements, for which all bytes are valid, and is aligned to a cache line.
                // The stream has passed everything that was enqueued, including the last wait. The inbox is borrowed
                // exclusively, so meanwhile nothing can be enqueued with it, and it cannot be posted. Origins access
                // the memory only while it is exposed.
                let memory = unsafe { std::slice::from_raw_parts_mut(memory, len) };
                Ok(memory)
            }
        }
    };
}
host_memory!(ByRange);
host_memory!(Atomic);
