//! The struct has a region that the derive has not seen.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
#[tidegate_changing::becomes(
    struct Step<'s> {
        src: Region<f64, On<'s>>,
        more: Vec<Region<f64, On<'s>>>,
    }
)]
struct Step<'s> {
    src: Region<f64, On<'s>>,
}

fn main() {}
