//! Making streams.

use tidegate_hal::device::{Device, DeviceError, Priority, Stream as _, StreamConfig, StreamName};

use super::queue::UnboundStream;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::world::World;

/// The properties of a stream, for [`World::stream_with`].
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
/// use tidegate::StreamOptions;
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream_with(StreamOptions::new().name("halo"))?);
/// assert_eq!(s.name(), "halo");
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    name: Option<String>,
    inline: bool,
    priority: Priority,
}

impl StreamOptions {
    /// Options for a stream like that of [`World::stream`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::StreamOptions;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream_with(StreamOptions::new())?); // as `world.stream()`
    /// # Ok(()) });
    /// ```
    pub fn new() -> Self {
        StreamOptions::default()
    }

    /// Sets the name that threads, errors and reports use. Without it, the stream is named as by [`World::stream`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::StreamOptions;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream_with(StreamOptions::new().name("interior"))?);
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the calling thread carry out all work at once: see [`World::inline_stream`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::StreamOptions;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream_with(StreamOptions::new().inline())?);
    /// # let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?; // is done when the call returns
    /// assert!(s.is_idle());
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Sets the priority of the stream's work over that of other streams. Host streams, which are threads, ignore it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{Priority, StreamOptions};
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream_with(StreamOptions::new().priority(Priority::High))?);
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

impl<D: Device> World<D> {
    /// Makes a stream. Give it a brand with [`stream!`](crate::stream!), which also names it after its variable. (The
    /// thread of a host stream exists before, and is called `stream`.)
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device has no room for another stream, or [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.stream()?);
    /// assert_eq!(s.name(), "s"); // in errors and reports, too
    /// # Ok(()) });
    /// ```
    pub fn stream(&self) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new())
    }

    /// Makes a stream without a queue: the calling thread carries out all work at once, including waits. Use it for
    /// communication that the host synchronises. A wait for this rank itself is refused if its signal could only come
    /// later on this stream ([`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock)). If the other half
    /// of the window is on another stream, signal there first: the call blocks until the signal comes.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device has no inline streams, or [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.inline_stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?; // is done when the call returns
    /// assert!(s.is_idle());
    /// # Ok(()) });
    /// ```
    pub fn inline_stream(&self) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new().inline())
    }

    /// Like [`World::stream`], with a name for threads, errors and reports.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device has no room for another stream, or [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.named_stream("interior")?);
    /// assert_eq!(s.name(), "interior");
    /// # Ok(()) });
    /// ```
    pub fn named_stream(&self, name: &str) -> Result<UnboundStream<D>> {
        self.stream_with(StreamOptions::new().name(name))
    }

    /// Adopts a stream that was made by other means, by another library, say.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] from `make`, or [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// `make` returns a stream of the given device, with the given configuration. As long as the result lives, other
    /// work on the underlying stream leaves the memory alone that is at home on the stream, unless it is ordered like
    /// work that is enqueued here. No such work ends before the work that precedes it on the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Device;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// // SAFETY: the stream is new, and has the configuration; nothing else is done with it.
    /// stream!(let s = unsafe { world.adopt_stream("adopted", |device, config| device.stream(config)) }?);
    /// s.synchronize()?;
    /// # Ok(()) });
    /// ```
    pub unsafe fn adopt_stream(
        &self,
        name: &str,
        make: impl FnOnce(&D, StreamConfig) -> Result<D::Stream, DeviceError>,
    ) -> Result<UnboundStream<D>> {
        self.make_stream(StreamOptions::new().name(name), make)
    }

    /// Like [`World::stream`], with options.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device has no such streams, or [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{Priority, StreamOptions};
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// let options = StreamOptions::new().name("halo").priority(Priority::High);
    /// stream!(let s = world.stream_with(options)?);
    /// # Ok(()) });
    /// ```
    pub fn stream_with(&self, options: StreamOptions) -> Result<UnboundStream<D>> {
        // SAFETY: the configuration keeps a block that was allocated for the bell.
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
        let name = name.map_or_else(StreamName::default, |name| name.as_str().into());
        let config = StreamConfig {
            inline,
            priority,
            ..self.stream_config(name.clone())
        };
        let raw = make(self.device(), config)?;
        self.knows_stream(name.clone(), raw.reclaim());
        let observed = self.observed();
        let observed = observed.map(|observed| observed.stream(raw.stamps(), raw.reclaim()));
        Ok(UnboundStream::new(raw, self.clone(), name, observed))
    }
}

#[cfg(test)]
mod tests {
    use super::StreamOptions;
    use crate::{Region, World};
    use tidegate_host::Host;

    #[test]
    fn a_stream_without_a_name_has_that_of_its_variable() {
        World::<Host>::local(1, |world| {
            let options = StreamOptions::new();
            crate::stream!(let one = world.stream_with(options.clone()).unwrap());
            crate::stream!(let mut two = world.stream_with(options).unwrap());
            assert_eq!((one.name(), two.name()), ("one", "two"));
            let x = Region::from_slice(&world, &[1.0]).unwrap();
            let x = x.on(&two).unwrap();
            two.launch(|_: &[f64]| panic!("over"), &x).unwrap();
            let error = two.synchronize().unwrap_err().to_string();
            assert!(error.contains("on stream `two` panicked: over"), "{error}");
        });
    }

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
