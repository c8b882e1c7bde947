//! The only foreign symbols of tidegate. Here, and only here, raw functions become results.
//!
//! # Model
//!
//! There is one module for each foreign library; [`cuda`], [`hip`], [`fabric`] and `ranges` are features. Libraries
//! are looked for at run time, so the crate builds, and its tests run, without them. Each module has a table of the
//! functions that tidegate calls, and thin methods over it. A method checks the returned code, and has no policy. In
//! all modules but [`hip`] it turns out-parameters into return values. In [`cuda`] and [`hip`], the layer above decides
//! when objects are destroyed, because streams and graphs decide that. In [`fabric`] and [`pmix`], objects only have
//! parents, so values own them. [`resident`] says which libraries the process has already, [`exit`] when the process
//! ends, and [`lock`] locks ranges of files.
//!
//! # Failure
//!
//! A library that is missing or too old is an error that names what was looked for. A returned code stays a number,
//! even an unknown one; it is never converted to an enumeration that may lack it.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod exit;
#[cfg(feature = "fabric")]
pub mod fabric;
#[cfg(feature = "hip")]
pub mod hip;
pub mod lock;
mod open;
pub mod pmix;
#[cfg(feature = "profiler")]
pub mod ranges;
pub mod resident;
