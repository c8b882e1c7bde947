//! The streams of a rank: making them, ending them, and saying why one has failed.

use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::Tag;
use tidegate_hal::device::{Device, DeviceError, Fault, Priority, Reclaim as _, StreamConfig};
use tidegate_hal::memory::Block as _;

use super::{Inner, World};
use crate::error::{Cause, Error, Result, WaitFailed};
use crate::ground::{ReclaimOf, lock};
use crate::message::Message;
use crate::stream::UnboundStream;

/// How a stream is to be, for [`World::stream_with`].
#[derive(Clone, Debug)]
pub struct StreamOptions {
    name: String,
    inline: bool,
    priority: Priority,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            name: "stream".into(),
            inline: false,
            priority: Priority::Normal,
        }
    }
}

impl StreamOptions {
    /// A stream like that of [`World::stream`].
    pub fn new() -> Self {
        StreamOptions::default()
    }

    /// A name for threads, errors and reports.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// What is enqueued is done by the calling thread at once: see [`World::inline_stream`].
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// What its work is worth against that of other streams. Host streams, which are threads, have none.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

impl<D: Device> World<D> {
    /// Makes a stream; give it a brand with [`stream!`](crate::stream!).
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn stream(&self) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new())
    }

    /// A stream without a queue: what is enqueued is done by the calling thread at once, waits included. For host-synchronised
    /// communication; enqueueing a wait for oneself before what it waits for blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device has no such streams.
    pub fn inline_stream(&self) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new().name("inline").inline())
    }

    /// As [`World::stream`], with a name for threads, errors and reports.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn named_stream(&self, name: &str) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new().name(name))
    }

    /// Takes a stream that was made by other means (one of another library, say).
    ///
    /// # Errors
    ///
    /// [`Error::Device`], from `make`.
    ///
    /// # Safety
    ///
    /// `make` returns a stream of the device that it is given, with that configuration; as long as the result lives,
    /// what else is done with the stream beneath leaves alone the memory that is at home on it, or is ordered with what
    /// is enqueued here as if it were enqueued here; and it is over no earlier than what stands before it on the stream.
    pub unsafe fn adopt_stream(
        &self,
        name: &str,
        make: impl FnOnce(&D, StreamConfig) -> Result<D::Stream, DeviceError>,
    ) -> Result<UnboundStream<D>> {
        self.make_stream(StreamOptions::new().name(name), make)
    }

    /// As [`World::stream`], with options.
    ///
    /// # Errors
    ///
    /// [`Error::Device`], if the device has no such streams.
    pub fn stream_with(&self, options: StreamOptions) -> Result<UnboundStream<D>> {
        // SAFETY: the block that the configuration keeps was allocated for a bell.
        self.make_stream(options, |device, config| unsafe { device.stream(config) })
    }

    fn make_stream(
        &self,
        options: StreamOptions,
        make: impl FnOnce(&D, StreamConfig) -> Result<D::Stream, DeviceError>,
    ) -> Result<UnboundStream<D>> {
        use tidegate_hal::device::Stream as _;
        self.inner.process.check()?;
        let (inner, rank) = (&self.inner, self.rank());
        let node = inner.control.node(rank);
        let StreamOptions {
            name,
            inline,
            priority,
        } = options;
        let config = StreamConfig {
            name: name.clone(),
            bell: inner.own_bell.base(),
            keep: inner.own_bell.clone(),
            inline,
            ranks_on_node: (0..self.size())
                .filter(|rank| inner.control.node(*rank) == node)
                .count(),
            priority,
            helper: inner
                .nic
                .as_ref()
                .and_then(|attached| attached.nic.helper()),
        };
        let raw = make(&inner.device, config)?;
        let mut events = lock(&inner.events);
        events
            .streams
            .retain(|(_, stream)| stream.strong_count() > 0);
        events
            .streams
            .push((name.clone(), Arc::downgrade(raw.reclaim())));
        drop(events);
        Ok(UnboundStream::new(raw, self.clone(), name))
    }

    /// Ends the waits of all streams of this rank, and tells the others that it is of no more use.
    #[cold]
    pub(crate) fn abort_streams(&self) {
        if !self.inner.process.is_this() {
            return;
        }
        let streams: Vec<_> = {
            let events = lock(&self.inner.events);
            let alive = events
                .streams
                .iter()
                .filter_map(|(_, stream)| stream.upgrade());
            alive.collect()
        };
        // Others must not go on waiting for ranks that wait for this one.
        let _ = self.inner.control.notify(None, &Message::Panicked.encode());
        streams.iter().for_each(|stream| stream.abort());
    }

    /// The error for a fault of a stream.
    #[cold]
    pub(crate) fn explain(&self, fault: Fault, stream: &str) -> Error {
        let (tag, epoch) = match fault {
            Fault::Kernel(ref message) => {
                let (cause, message) = (self.inner.cause_of_fault(stream, &fault), message.clone());
                cause
                    .into_iter()
                    .for_each(|cause| self.inner.tell_failed(cause));
                return Error::KernelPanicked {
                    rank: self.rank(),
                    stream: stream.to_owned(),
                    message,
                };
            }
            Fault::Transport(detail) => {
                return Error::Transport {
                    rank: self.rank(),
                    stream: stream.to_owned(),
                    detail,
                };
            }
            Fault::Aborted => return Error::Aborted(stream.to_owned()),
            Fault::Wait { tag, epoch } => (tag, epoch),
        };
        let cause = self.cause_of(tag);
        self.inner.tell_failed(cause.clone());
        let window = lock(&self.inner.events)
            .windows
            .get(tag.window)
            .map(|entry| entry.name.clone());
        Error::Wait(Box::new(WaitFailed {
            window: window.unwrap_or_else(|| "-".into()),
            epoch,
            waiting: self.rank(),
            rank: tag.peer as usize,
            awaited: tag.awaited,
            cause,
        }))
    }

    /// Why this rank cannot go on, if it is by a kernel of its own.
    pub(crate) fn cause_of_kernel(&self, fault: &Fault) -> Cause {
        let rank = self.rank();
        let first = lock(&self.inner.events).failed.get(&rank).cloned();
        first
            .or_else(|| self.inner.cause_of_fault("-", fault))
            .unwrap_or(Cause::PeerFailed { rank })
    }

    /// Why a wait failed.
    pub(crate) fn cause_of(&self, tag: Tag) -> Cause {
        // A peer that failed because a third one died may have been quicker than the news of the death; and that of a
        // kernel that panicked waits for the watch, where the peer's program does not look. An interpreter takes its time.
        let looks = if cfg!(miri) {
            1000
        } else {
            3 * crate::watch::TICK.as_millis() / 5
        };
        for _ in 0..looks {
            if let Some(cause) = self.inner.cause(tag) {
                return cause;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let rank = tag.peer as usize;
        Cause::PeerFailed { rank }
    }
}

impl<D: Device> Inner<D> {
    /// The streams of this rank that are alive, with their names.
    pub(crate) fn named_streams(&self) -> Vec<(String, Arc<ReclaimOf<D>>)> {
        let events = lock(&self.events);
        let alive = events
            .streams
            .iter()
            .filter_map(|(name, stream)| Some((name.clone(), stream.upgrade()?)));
        alive.collect()
    }

    /// Tells the others if this stream has failed by a kernel, though nobody here may have asked it yet.
    pub(crate) fn look_at_fault(&self, stream: &Arc<ReclaimOf<D>>) {
        let Some(fault) = stream.fault() else { return };
        let name = lock(&self.events)
            .streams
            .iter()
            .find(|(_, known)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(stream)))
            .map(|(name, _)| name.clone());
        let cause = name.and_then(|name| self.cause_of_fault(&name, &fault));
        cause.into_iter().for_each(|cause| self.tell_failed(cause));
    }

    /// The streams of this rank that are alive, into a list that may be used again.
    pub(crate) fn streams(&self, into: &mut Vec<Arc<ReclaimOf<D>>>) {
        let events = lock(&self.events);
        into.extend(
            events
                .streams
                .iter()
                .filter_map(|(_, stream)| stream.upgrade()),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::World;
    use tidegate_host::Host;

    #[test]
    fn any_text_is_a_name() {
        World::<Host>::local(1, |world| {
            for name in [
                "",
                "\0",
                "a\0b",
                "a name that is longer than those of threads \u{1f30a}",
            ] {
                crate::stream!(let s = world.named_stream(name).unwrap());
                assert_eq!(s.name(), name);
                s.synchronize().unwrap();
            }
        });
    }
}
