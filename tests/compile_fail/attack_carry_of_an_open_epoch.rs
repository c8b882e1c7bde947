#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    epoch: Access<'s, 's, f64>,
}

fn main() {}
