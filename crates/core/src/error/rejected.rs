//! An error together with the value that the call had taken.

use std::fmt;

use super::Error;

/// The error of a call whose name begins with `try_`, and the value that the call had taken.
///
/// It does not implement [`std::error::Error`]: the value may belong to a stream, and then cannot leave the function
/// that `?` would leave. If you do not want the value back, call the twin without `try_`.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
/// use tidegate::Rejected;
///
/// # tidegate::doc::stream(|world, s| {
/// let x = Region::from_slice(world, &[1.0, 2.0])?;
/// let Err(Rejected { error, value: x }) = x.try_split_at(3) else { panic!("it has 2 elements") };
/// println!("{error}");
/// let (one, two) = x.split_at(1)?;
/// assert_eq!((one[0], two[0]), (1.0, 2.0));
/// # Ok(()) });
/// ```
pub struct Rejected<T> {
    /// The error.
    pub error: Error,
    /// The value, unchanged.
    pub value: T,
}

impl<T> Rejected<T> {
    pub(crate) fn new(error: impl Into<Error>, value: T) -> Self {
        Rejected {
            error: error.into(),
            value,
        }
    }

    /// Drops the value, and returns the error.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let error = x.try_split_at(3).unwrap_err().into_error(); // the region is freed
    /// assert!(matches!(error, Error::Region(_)));
    /// # Ok(()) });
    /// ```
    pub fn into_error(self) -> Error {
        self.error
    }

    /// Applies a function to the value.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let refused = x.try_split_at(3).unwrap_err().map(|x| x.len());
    /// assert_eq!(refused.value, 2);
    /// # Ok(()) });
    /// ```
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Rejected<U> {
        Rejected {
            error: self.error,
            value: f(self.value),
        }
    }
}

/// A bound that no [`Rejected`] fulfils, because it may hold a value that belongs to a stream. Its error message
/// explains why `?` does not take a `Rejected`.
#[diagnostic::on_unimplemented(
    label = "the error of a `try_…` call contains the value: match it, call the twin without `try_`, or write `.map_err(Rejected::into_error)?`"
)]
pub trait PlainError {}

impl<T> std::error::Error for Rejected<T> where Rejected<T>: PlainError {}

/// Prints the error, without the value.
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
