#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
enum State<'s> {
    One(Region<f64, On<'s>>),
    None,
}

fn main() {}
