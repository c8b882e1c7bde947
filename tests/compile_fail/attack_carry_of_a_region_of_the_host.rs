#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    here: Region<f64>,
}

fn main() {}
