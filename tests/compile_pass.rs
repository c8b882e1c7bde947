//! The twins of what must not compile: each differs from its misuse by the fix alone. They compile, and they run.
#![forbid(unsafe_code)]

mod compile_pass {
    mod refused_at_run_time;
}
