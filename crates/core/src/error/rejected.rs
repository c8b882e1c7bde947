//! An error with the value that a call had taken.

use std::fmt;

use super::Error;

/// An error, and the value that the call had taken: what the calls fail with whose names begin with `try_`. (It is no
/// `std::error::Error`: it can hold what is at home on a stream, and that cannot leave the function that `?` leaves. So
/// where the value is not wanted, call the twin without `try_`.)
pub struct Rejected<T> {
    /// What went wrong.
    pub error: Error,
    /// What the call was given, as it was.
    pub value: T,
}

impl<T> Rejected<T> {
    pub(crate) fn new(error: impl Into<Error>, value: T) -> Self {
        Rejected {
            error: error.into(),
            value,
        }
    }

    /// The error; the value is dropped.
    pub fn into_error(self) -> Error {
        self.error
    }

    /// Applies a function to the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Rejected<U> {
        Rejected {
            error: self.error,
            value: f(self.value),
        }
    }
}

/// The error, in words.
impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
