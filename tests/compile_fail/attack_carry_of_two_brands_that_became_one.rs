//! A field has another brand than the struct, and would be carried along without its stream.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
#[tidegate_changing::becomes(
    struct Both<'s, 'x> {
        src: Region<f64, On<'s>>,
        more: Region<f64, On<'x>>,
    }
    type Step<'s> = Both<'s, 'static>;
)]
struct Step<'s> {
    src: Region<f64, On<'s>>,
    more: Region<f64, On<'s>>,
}

fn main() {}
