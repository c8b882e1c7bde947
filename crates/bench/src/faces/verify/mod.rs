//! The verification of results.
//!
//! # Model
//!
//! After `K` shares every rank's block is compared, value by value, with two references that know
//! nothing of each other, of messages, or of the [kernels](super::kernels):
//!
//! - [`ClosedForm`]: a formula. A point that is shared has the average of its
//!   initial copies times the number of copies to the power of `K`. It takes one pass over the block for any `K`.
//! - [`Domain`]: a plain simulation of the whole domain, share by share, with exact sums. For small
//!   sizes ([`Domain::is_cheap`]).
//!
//! A large block is compared by several threads, if the ranks leave processors idle.
//!
//! The measure is [`error`]`(u, v) = |u - v| / (|u| + |v|)`, which must stay below [`TOLERANCE`].
//!
//! # Failures
//!
//! A [`Verdict`] counts the wrong values and keeps the worst one. A value that is not finite is
//! always wrong, also when the reference is not finite either. Too many values (or too few) are
//! wrong as well.

mod closed;
mod domain;
#[cfg(test)]
mod tests;
mod verdict;
mod verifier;

pub use closed::ClosedForm;
pub use domain::Domain;
pub use verdict::{Mismatch, TOLERANCE, Verdict, error};
pub use verifier::Verifier;
