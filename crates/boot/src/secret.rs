//! Keys: everything that is proved in this crate is proved with HMAC-SHA256 under a key derived from the job secret.
//!
//! # Model
//!
//! Keys are derived, never reused: one for the job (secret, job id, world size), from it one for each connection and
//! direction (both nonces and the rank are in the derivation). A tag made in one place is worthless in any other.
//!
//! # Failure
//!
//! Tags are compared in constant time. The secret itself is never sent, printed or logged.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub(crate) const TAG_LEN: usize = 32;
pub(crate) const NONCE_LEN: usize = 32;
pub(crate) type Tag = [u8; TAG_LEN];
pub(crate) type Nonce = [u8; NONCE_LEN];

/// A symmetric key. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key of a job. World size and job id are part of it: a rank of another job cannot even say hello.
    pub(crate) fn of_job(secret: &[u8], job_id: &str, size: usize) -> Self {
        let secret = Key(Sha256::digest(secret).into());
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
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("an HMAC takes a key of any length")
        };
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Whether `tag` is the tag of `parts`; takes the same time for every wrong one.
    pub(crate) fn check(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.tag(parts).as_slice().ct_eq(tag).into()
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
