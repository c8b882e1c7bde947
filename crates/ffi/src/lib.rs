//! Foreign symbols, and nothing else: raw functions become results here, and only here.
//!
//! # Model
//!
//! One module a foreign library. A library is looked for at run time, so that the crate builds, and its tests run,
//! where it is not installed. [`cuda`] and [`fabric`] are features. Each module has a table of the functions that tidegate calls, and thin methods over it: a
//! method checks the code that comes back, turns out-parameters into return values, and adds no policy. What must be
//! *destroyed*, when, and after whom, is for the layer above in [`cuda`], where streams and graphs decide it; in
//! [`fabric`] and [`pmix`], whose objects have parents and nothing else, values own them. [`resident`] says what the
//! process has without being asked to load it, and [`exit`] when it ends.
//!
//! # Failure
//!
//! A library that is missing or too old is an error that names what was looked for. A code that comes back is a number, also one
//! that nobody has heard of; it is never converted to an enumeration that may not have it.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod exit;
#[cfg(feature = "fabric")]
pub mod fabric;
mod open;
pub mod pmix;
pub mod resident;
