//! In how large chunks staged puts go to the NIC.

use crate::error::{Result, SettingError};
use crate::ground::variable;

/// How staged puts are cut: while the NIC sends one chunk, the stream fills the next.
///
/// What an epoch puts to one target is cut if it is long enough. Without anything said, that is done where streams are
/// those of a GPU: a stream that is a thread has nobody else to send a chunk while it fills the next.
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
    /// Bytes of a chunk.
    pub(crate) bytes: usize,
    /// How many bytes go to a target before they are cut.
    pub(crate) from: usize,
}

impl Default for Chunks {
    /// Chunks of 1 MiB, from 2 MiB on. Shorter ones were no faster, or slower (BENCHMARKS.md).
    fn default() -> Self {
        Chunks::of(1 << 20).from(2 << 20)
    }
}

impl Chunks {
    /// The name of the environment variable that [`World::join`](crate::World::join) reads.
    pub const VARIABLE: &'static str = "TIDEGATE_CHUNKS";

    /// Everything goes whole.
    pub const NEVER: Chunks = Chunks {
        bytes: usize::MAX,
        from: usize::MAX,
    };

    /// Chunks of so many bytes, more or less: of what is as long as two or longer. Of very much, at most some hundred
    /// larger ones.
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

    /// The same chunks, but only of what is so long.
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

    /// Reads `never`, the bytes of a chunk (`262144`), or these and from how many bytes on there are any
    /// (`262144:1048576`).
    ///
    /// # Errors
    ///
    /// [`SettingError::Chunks`] for anything else.
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
