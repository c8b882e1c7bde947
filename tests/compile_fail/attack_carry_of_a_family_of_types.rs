//! The type of a field is one of a family that a lifetime chooses. With another brand it may be another type.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::Host;
use tidegate::host::prelude::*;

trait Family {
    type Of<'t>: tidegate::Carry<'t, Host>;
}

#[derive(Carry)]
struct State<'s, F: Family> {
    x: F::Of<'s>,
}

fn main() {}
