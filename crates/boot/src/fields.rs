//! How fields of messages are encoded.

use serde::Serializer;

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
