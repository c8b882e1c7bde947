//! The type of a field is one of a family, which a lifetime chooses: it need not be the same of another brand.
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
