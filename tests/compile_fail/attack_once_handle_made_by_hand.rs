//! A handle that is used once, made of one that is used any number of times; and where it leads, made up.
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
