//! The name of a stream.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// The name of a stream, for errors, reports and timelines. All clones are one name. A stream may be made before it has
/// a name, and gets it later.
///
/// ```
/// use tidegate_hal::device::StreamName;
/// let name = StreamName::default();
/// assert_eq!(name.clone().as_str(), "stream");
/// name.set("s");
/// name.set("t"); // no effect: it has a name
/// assert_eq!(name.as_str(), "s");
/// ```
#[derive(Clone, Default)]
pub struct StreamName(Arc<OnceLock<String>>);

impl StreamName {
    /// Sets the name, unless there is one.
    pub fn set(&self, name: &str) {
        self.0.get_or_init(|| name.to_owned());
    }

    /// The name, or "stream" if there is none yet.
    pub fn as_str(&self) -> &str {
        self.0.get().map_or("stream", String::as_str)
    }
}

impl From<&str> for StreamName {
    fn from(name: &str) -> Self {
        StreamName(Arc::new(name.to_owned().into()))
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
