//! The guide.

#[doc = include_str!("../docs/async.md")]
pub mod asynchronous {}
