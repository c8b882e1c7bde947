//! The guide.

#[doc = include_str!("../docs/async.md")]
pub mod asynchronous {}

#[doc = include_str!("../docs/when-the-compiler-says-no.md")]
pub mod when_the_compiler_says_no {
    pub use tidegate_core::__private::StreamsDoNotMix;
}
