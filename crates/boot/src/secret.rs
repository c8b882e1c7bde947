//! Keys. Every proof in this crate is made by HMAC-SHA256, with a key that is derived from the job's secret.
//!
//! # Model
//!
//! Each key has one purpose. The job's key is derived from the secret, the job id and the world size. From it a key is
//! derived for each connection and direction, over both nonces and the rank. So a tag that was made in one place is
//! worthless in any other.
//!
//! # Failure
//!
//! Tags are compared in constant time. The secret itself is never sent, printed or logged.

use hmac_sha256::{HMAC, Hash};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

pub(crate) const TAG_LEN: usize = 32;
pub(crate) const NONCE_LEN: usize = 32;
pub(crate) type Tag = [u8; TAG_LEN];
pub(crate) type Nonce = [u8; NONCE_LEN];

/// A symmetric key. Its `Debug` output does not show the key.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key of a job. It depends on the world size and the job id, so a rank of another job fails the first check.
    pub(crate) fn of_job(secret: &[u8], job_id: &str, size: usize) -> Self {
        let secret = Key(Hash::hash(secret));
        Key(secret.tag(&[
            b"tidegate job 1",
            job_id.as_bytes(),
            &(size as u64).to_le_bytes(),
        ]))
    }

    /// A key for one purpose.
    pub(crate) fn derive(&self, purpose: &[u8], about: &[u8]) -> Self {
        Key(self.tag(&[b"derive", purpose, about]))
    }

    /// The tag of `parts`. Lengths are included, so that no two lists of parts have the same tag.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> Tag {
        self.absorb(parts).finalize()
    }

    fn absorb(&self, parts: &[&[u8]]) -> HMAC {
        let mut mac = HMAC::new(self.0);
        for part in parts {
            mac.update((part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    /// Whether `tag` is the tag of `parts`. It takes the same time for every wrong tag.
    pub(crate) fn check(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        let tag: Result<&Tag, _> = tag.try_into();
        tag.is_ok_and(|tag| self.absorb(parts).finalize_verify(tag))
    }
}

/// Random bytes that cannot be guessed.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let (mut bytes, mut filled) = ([0; N], 0);
    while filled < N {
        // One call returns at most 256 bytes for sure, and may return fewer if more are asked for.
        filled += retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()))?;
    }
    Ok(bytes)
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks of several builds may meet, so a tag must not change. Python's `hmac` computed these.
    #[test]
    fn tags_are_those_of_hmac_sha256() {
        let key = Key::of_job(b"0123456789abcdef", "", 4);
        let short = "4c90e98c3f58ec9bbcc68a40d6daf56c1a3fb1dc6f16a5ba967f4fe1824b7775";
        assert_eq!(hex(&key.tag(&[b"ab", b"c"])), short);
        let long = "91159d41a1fc76f993b09201c8708da5e315acb2ce15e4347e7df95a5225882f";
        assert_eq!(hex(&key.tag(&[&[b'x'; 1000]])), long);
    }

    #[test]
    fn random_bytes_are_filled_to_the_end() {
        let bytes = random::<1000>().unwrap();
        assert!(bytes[900..].iter().any(|byte| *byte != 0));
        assert_ne!(bytes, random::<1000>().unwrap());
    }

    #[test]
    fn tags_depend_on_every_part_and_on_their_borders() {
        let key = Key::of_job(b"0123456789abcdef", "", 4);
        let tag = key.tag(&[b"ab", b"c"]);
        assert!(key.check(&[b"ab", b"c"], &tag));
        assert!(!key.check(&[b"a", b"bc"], &tag));
        assert!(!key.check(&[b"abc"], &tag));
        assert!(!key.check(&[b"ab", b"c"], &tag[..31]));
        for other in [
            Key::of_job(b"0123456789abcdeg", "", 4),
            Key::of_job(b"0123456789abcdef", "x", 4),
            Key::of_job(b"0123456789abcdef", "", 5),
            key.derive(b"", b""),
        ] {
            assert!(!other.check(&[b"ab", b"c"], &tag));
        }
    }
}
