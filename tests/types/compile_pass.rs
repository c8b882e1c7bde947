//! Programs that compile, without a word that is unsafe, and run: the twins of those that must not compile (see
//! `compile_fail.rs`), and others.
#![allow(unused_must_use, reason = "the programs end with an epoch")]

tidegate_changing::twins!("tests/compile_fail");

macro_rules! programs {
    ($($name:ident $($main:ident)?;)*) => {
        #[path = "../compile_pass"]
        mod programs {
            $(pub(super) mod $name;)*
        }
        $($(#[test]
        fn $name() {
            programs::$name::$main().unwrap();
        })?)*
    };
}

programs! {
    carry_generic_over_the_device main;
    derives_of_any_names;
    fields_that_differ;
    plain_errors;
    refused_at_run_time;
    stream_borrowed_for_as_long_as_it_lives main;
    streams_of_any_names main;
}
