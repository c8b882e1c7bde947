//! Ranges for profilers of the host: NVTX and roctx.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use tidegate_ffi::ranges::{Missing, Ranges};
use tidegate_hal::tell;
use tidegate_hal::variables;

use super::Observer;
use super::event::Event;
use super::known::Known;
use crate::error::{Result, SettingError};
use crate::ground::{lock, variable};

/// Shows the calls of a program in a profiler of the host: a range for each call that enqueues an epoch, a kernel or a
/// replay, and for each that waits for a stream. A range is named by its call, its window or kernel, and its stream:
/// `complete halo (s)`.
///
/// `World::init` adds one if a profiler has started the program, as `TIDEGATE_PROFILER` says. A program adds one itself
/// by [`Profiler::nvtx`] or [`Profiler::roctx`]. Streams do not stamp for it.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tidegate::host::prelude::*;
/// use tidegate::observe::Profiler;
/// use tidegate::WorldOptions;
///
/// # fn main() -> Result<()> {
/// let mut options = WorldOptions::new();
/// match Profiler::nvtx() {
///     Ok(profiler) => options = options.observer(Arc::new(profiler)),
///     Err(why) => eprintln!("no ranges: {why}"), // not started by a profiler
/// }
/// let world: World = World::init_with(options)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Profiler {
    ranges: Ranges,
    known: Mutex<Known>,
}

impl Profiler {
    /// Makes ranges of NVTX, for Nsight Systems. Nsight Systems sets `NVTX_INJECTION64_PATH` to a library of its own,
    /// and this call loads that library.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or names no such library.
    pub fn nvtx() -> Result<Self, Missing> {
        Ranges::nvtx().map(Self::of)
    }

    /// Ranges of roctx, for the profilers of ROCm: `librocprofiler-sdk-roctx.so` or `libroctx64.so` is loaded.
    ///
    /// # Errors
    ///
    /// If there is no such library.
    pub fn roctx() -> Result<Self, Missing> {
        Ranges::roctx().map(Self::of)
    }

    fn of(ranges: Ranges) -> Self {
        Profiler {
            ranges,
            known: Mutex::default(),
        }
    }

    /// The profiler that the environment asks for.
    pub(crate) fn from_env() -> Result<Option<Arc<Self>>> {
        const NAME: &str = variables::PROFILER.name;
        let text = variable(NAME);
        let found = match text.as_deref().map(str::trim) {
            None | Some("" | "auto") => match Ranges::attached() {
                Some(found) => found,
                None => return Ok(None),
            },
            Some("nvtx") => Ranges::nvtx(),
            Some("roctx") => Ranges::roctx(),
            Some("no") => return Ok(None),
            Some(text) => {
                let text = text.to_owned();
                Err(SettingError::Profiler {
                    variable: NAME,
                    text,
                })?
            }
        };
        match found {
            Ok(ranges) => {
                tell(|| tracing::debug!(library = ranges.library(), "a profiler gets ranges"));
                Ok(Some(Arc::new(Self::of(ranges))))
            }
            Err(why) => {
                tell(|| tracing::warn!(%why, "no profiler gets ranges"));
                Ok(None)
            }
        }
    }
}

impl Observer for Profiler {
    fn event(&self, event: &Event) {
        let mut known = lock(&self.known);
        known.learn(event);
        let (text, stream) = match event {
            Event::Enqueued { stream, batch, .. } => match known.batch(*batch) {
                Some(batch) => {
                    let window = batch.window().and_then(|window| known.window(window));
                    let window = window.map_or("", |name| name);
                    (format!("{} {window}", batch.call), Some(stream))
                }
                None => return self.ranges.push(c"enqueue"),
            },
            Event::Launched { stream, kernel, .. } => (format!("launch {kernel}"), Some(stream)),
            Event::Replayed {
                recording, times, ..
            } => (format!("replay {recording} ({times} times)"), None),
            Event::Synchronizes { stream, call, .. } => (call.to_string(), Some(stream)),
            Event::Returned { .. } => return self.ranges.pop(),
            _ => return,
        };
        let stream = stream.and_then(|stream| known.stream(*stream));
        let text = match stream {
            Some(stream) => format!("{} ({stream})", text.trim_end()),
            None => text,
        };
        // A name with a zero byte is cut there.
        let text = text.split('\0').next().unwrap_or_default();
        let text = CString::new(text).unwrap_or_default();
        self.ranges.push(&text);
    }

    fn stamps(&self) -> bool {
        false
    }

    fn returns(&self) -> bool {
        true
    }
}
