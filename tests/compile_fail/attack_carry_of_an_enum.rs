#![allow(dead_code)]

use tidegate::prelude::*;

#[derive(Carry)]
enum State<'s> {
    One(Region<f64, On<'s>>),
    None,
}

fn main() {}
