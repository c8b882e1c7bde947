//! Programs that the types refuse, and their twins, which differ only by the fix, and run.
#![forbid(unsafe_code)]

mod compile_fail;
mod compile_pass;
mod said;
