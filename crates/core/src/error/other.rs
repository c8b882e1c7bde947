//! The compiler's message for errors that `?` does not convert.

use super::Error;

/// A bound that no error fulfils. Its error message says how `?` takes an error of another library. (At a `?` the
/// compiler shows the label alone.)
#[diagnostic::on_unimplemented(
    label = "not an error of tidegate: write `.map_err(Error::other)?` (after a `try_…` call `.map_err(Rejected::into_error)?`), or return an error that takes all, such as `anyhow::Error` or `Box<dyn std::error::Error>`"
)]
pub trait ErrorOfTidegate {}

#[doc(hidden)]
impl<E: ErrorOfTidegate> From<E> for Error {
    fn from(_: E) -> Self {
        unreachable!("nothing implements the trait")
    }
}
