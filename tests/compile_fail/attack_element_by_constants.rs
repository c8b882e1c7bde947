//! The names that the derive binds could be constants of the program.
#![forbid(unsafe_code)]
#![allow(non_upper_case_globals, dead_code)]

use tidegate::host::prelude::*;

const field: &bool = &true;
const whole: &() = &();

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Flag {
    set: bool,
}

fn main() {}
