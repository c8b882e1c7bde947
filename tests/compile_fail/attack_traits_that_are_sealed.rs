use tidegate::hal::batch::Scalar;
use tidegate::host::prelude::*;
use tidegate::window::{Discipline, Kind};
use tidegate::Arithmetic;
use tidegate::generic::Place;
use tidegate::host::Host;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Mine(f64);

impl Place for Mine {
    type Device = Host;
}

impl Discipline for Mine {
    const KIND: Kind = Kind::Slot;
}

impl Arithmetic for Mine {
    const SCALAR: Scalar = Scalar::F64;
    const FLOAT: bool = true;
}

fn main() {}
