//! The handles of a program.

/// The handle of an object: a number in the place of a pointer.
pub(crate) type Handle = usize;
