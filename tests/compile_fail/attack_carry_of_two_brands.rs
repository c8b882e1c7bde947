#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s, 't> {
    one: Region<f64, On<'s>>,
    other: Region<f64, On<'t>>,
}

fn main() {}
