//! The device is a macro.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::generic::{On, Region};
use tidegate::host::prelude::*;
use tidegate::host::Host;
use tidegate::{cuda::Cuda};
use tidegate_changing::turns;

#[derive(Carry)]
#[carry(device = turns!(D: Host; Cuda))]
struct Step<'s> {
    src: Region<f64, On<'s, Cuda>>,
}

fn main() {}
