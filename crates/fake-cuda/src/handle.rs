//! What a program holds.

/// What a program holds of something: a number, in a pointer's place.
pub(crate) type Handle = usize;
