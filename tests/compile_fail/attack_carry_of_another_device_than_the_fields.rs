//! The attribute names another device than that of the region.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
#[carry(device = tidegate::cuda::Cuda)]
struct Step<'s> {
    src: Region<f64, On<'s>>,
}

fn main() {}
