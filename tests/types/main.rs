//! What the types refuse, and programs beside it that differ by the fix and run.
#![forbid(unsafe_code)]

mod compile_fail;
mod compile_pass;
mod said;
