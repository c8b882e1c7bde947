//! How fields of messages are encoded.

use serde::Serializer;
use tidegate_hal::control::Packet;

/// The longest label of a collective call.
pub(crate) const MAX_LABEL: usize = Packet::MAX_LABEL;
/// The longest reason. Reasons are for people, and longer ones are cut.
pub(crate) const MAX_REASON: usize = 1024;

/// Writes a reason, cut to its limit between two characters.
pub(crate) fn shortened<S: Serializer>(reason: &str, to: S) -> Result<S::Ok, S::Error> {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    to.serialize_str(&reason[..end])
}

/// Like [`shortened`], for a reason that may be missing.
pub(crate) fn shortened_if_any<S: Serializer>(
    reason: &Option<String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    struct Cut<'a>(&'a str);
    impl serde::Serialize for Cut<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            shortened(self.0, to)
        }
    }
    match reason {
        None => to.serialize_none(),
        Some(reason) => to.serialize_some(&Cut(reason)),
    }
}

/// Encodes bytes as a whole, and not one by one.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
    }
}
