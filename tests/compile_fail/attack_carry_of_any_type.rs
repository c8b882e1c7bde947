#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s, T> {
    src: Region<f64, On<'s>>,
    more: T,
}

fn main() {}
