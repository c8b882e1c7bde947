//! A type parameter brings a brand of its own.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::generic::{On, Region};
use tidegate::generic::Device;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct Hidden<'s, D: Device, T: tidegate::Carry<'s, D>> {
    first: Region<f64, On<'s, D>>,
    more: T,
}

fn main() {}
