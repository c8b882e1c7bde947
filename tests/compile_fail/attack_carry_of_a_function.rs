#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    step: fn(&Stream<'s>),
}

fn main() {}
