//! An error with the value that a call had taken.

use std::fmt;

use super::Error;

/// An error, and the value that the call had taken: what the calls fail with whose names begin with `try_`. (It is no
/// [`std::error::Error`]: it can hold what is at home on a stream, and that cannot leave the function that `?` leaves. So
/// where the value is not wanted, call the twin without `try_`.)
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

/// What no [`Rejected`] is: it holds what belongs to a stream.
#[diagnostic::on_unimplemented(
    label = "a call named `try_…` gives back what it was given: match it, call the twin without `try_`, or `.map_err(Rejected::into_error)?`"
)]
pub trait PlainError {}

impl<T> std::error::Error for Rejected<T> where Rejected<T>: PlainError {}

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
