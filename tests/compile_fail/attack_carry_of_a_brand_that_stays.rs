//! The type of a field does not change with the struct's brand.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct Step<'s> {
    here: Region<f64, On<'s>>,
    ever: Region<f64, On<'static>>,
}

fn main() {}
