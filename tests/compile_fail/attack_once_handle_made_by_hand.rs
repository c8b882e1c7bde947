//! A handle for one use is made from one for any number of uses, and a handle's destination is made up.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;
use tidegate::window::{Dest, OutOnce};

fn once(out: Out<f64>) -> OutOnce<f64> {
    OutOnce { out, epoch: 1 }
}

fn further<'b>(out: Out<f64>) -> Dest<'b, f64, tidegate::host::Host> {
    Dest {
        first: 1000,
        ..out.at(0)
    }
}

fn main() {
    drop((once, further));
}
