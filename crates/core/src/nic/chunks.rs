//! The size of the chunks in which staged puts go to the NIC.

use crate::error::{Result, SettingError};
use crate::ground::variable;

/// How staged puts are cut: while the NIC sends one chunk, the stream fills the next.
///
/// Only long data is cut: what an epoch puts to one target counts as a whole. By default data is cut only for GPU
/// streams. A host stream is a thread, which would have to send a chunk itself while it fills the next.
///
/// # Examples
///
/// ```
/// use tidegate::{Chunks, WorldOptions};
///
/// let options = WorldOptions::new().chunks(Chunks::of(256 << 10).from(1 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The size of a chunk in bytes.
    pub(crate) bytes: usize,
    /// How many bytes an epoch must put to a target before they are cut.
    pub(crate) from: usize,
}

impl Default for Chunks {
    /// Chunks of 1 MiB, for 2 MiB or more. Shorter chunks were no faster, or slower (BENCHMARKS.md).
    fn default() -> Self {
        Chunks::of(1 << 20).from(2 << 20)
    }
}

impl Chunks {
    /// The name of the environment variable that [`World::join`](crate::World::join) reads.
    pub const VARIABLE: &'static str = tidegate_hal::variables::CHUNKS.name;

    /// Nothing is cut.
    pub const NEVER: Chunks = Chunks {
        bytes: usize::MAX,
        from: usize::MAX,
    };

    /// Chunks of about `bytes` bytes. Data is cut if it fills at least two chunks. Very large data is cut into a few
    /// hundred larger chunks instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Chunks;
    ///
    /// assert_eq!(Chunks::of(1 << 18), Chunks::parse("262144").unwrap()); // of what has 512 KiB or more
    /// ```
    pub const fn of(bytes: usize) -> Self {
        Chunks {
            bytes,
            from: bytes.saturating_mul(2),
        }
    }

    /// The same chunks, but only for data of at least `from` bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Chunks;
    ///
    /// assert_eq!(Chunks::of(1 << 18).from(1 << 20), Chunks::parse("262144:1048576").unwrap());
    /// ```
    #[must_use]
    pub const fn from(self, from: usize) -> Self {
        Chunks { from, ..self }
    }

    /// Parses `never`, the size of a chunk in bytes (`262144`), or that and the least size of data to cut
    /// (`262144:1048576`).
    ///
    /// # Errors
    ///
    /// [`SettingError::Chunks`] for any other text.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Chunks;
    ///
    /// assert_eq!(Chunks::parse("never").unwrap(), Chunks::NEVER);
    /// assert!(Chunks::parse("256K").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| match text.trim().parse() {
            Ok(0) | Err(_) => Err(SettingError::Chunks {
                variable: Self::VARIABLE,
                text: text.to_owned(),
            }),
            Ok(bytes) => Ok(bytes),
        };
        match text.split_once(':') {
            _ if text.trim() == "never" => Ok(Chunks::NEVER),
            None => Ok(Chunks::of(number(text)?)),
            Some((bytes, from)) => Ok(Chunks::of(number(bytes)?).from(number(from)?)),
        }
    }

    pub(crate) fn from_env() -> Result<Option<Self>> {
        variable(Self::VARIABLE)
            .map(|text| Self::parse(&text))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_read() {
        let read = |text| Chunks::parse(text).unwrap();
        assert_eq!(read("never"), Chunks::NEVER);
        assert_eq!(read("262144"), Chunks::of(1 << 18));
        assert_eq!(read("1048576:2097152"), Chunks::default());
        let other = Chunks::of(4096).from(1 << 20);
        assert_eq!(read("4096: 1048576"), other);
        assert_eq!((other.bytes, other.from), (4096, 1 << 20));
        for text in ["", "0", "4096:", ":4096", "256K", "4096:8192:1", "always"] {
            let error = Chunks::parse(text).unwrap_err().to_string();
            assert!(error.contains("TIDEGATE_CHUNKS"), "{error}");
        }
    }
}
