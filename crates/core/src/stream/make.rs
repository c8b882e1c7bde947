//! Making streams.

use tidegate_hal::device::{Device, DeviceError, Priority, Stream as _, StreamConfig};

use super::queue::UnboundStream;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::world::World;

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
        self.process().check()?;
        let StreamOptions {
            name,
            inline,
            priority,
        } = options;
        let config = StreamConfig {
            inline,
            priority,
            ..self.stream_config(&name)
        };
        let raw = make(self.device(), config)?;
        self.knows_stream(&name, raw.reclaim());
        Ok(UnboundStream::new(raw, self.clone(), name))
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
