//! The device is a macro.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::prelude::*;
use tidegate::{Cuda, Host};
use tidegate_changing::turns;

#[derive(Carry)]
#[carry(device = turns!(D: Host; Cuda))]
struct Step<'s> {
    src: Region<f64, On<'s, Cuda>>,
}

fn main() {}
