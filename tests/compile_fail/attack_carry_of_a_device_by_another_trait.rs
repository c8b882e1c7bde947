//! A trait of the program has the same name as the devices' trait, so two parameters look like devices.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::generic::{Carry, On, Region};
use tidegate::generic::Device as Real;

trait Device: Real {}

#[derive(tidegate::host::Carry)]
struct Renamed<'s, D: Real> {
    src: Region<f64, On<'s, D>>,
}

#[derive(tidegate::host::Carry)]
struct Two<'s, D: Device, E: Real> {
    src: Region<f64, On<'s, D>>,
    other: Region<f64, On<'s, E>>,
}

fn carried<'s, D: Real, X: Carry<'s, D>>(_: X) {}

fn is_carried<'s, D: Real>(other: Renamed<'s, D>) {
    carried::<D, _>(other);
}

fn main() {}
