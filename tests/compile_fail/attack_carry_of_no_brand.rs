#![allow(dead_code)]

use tidegate::prelude::*;

#[derive(Carry)]
struct State {
    number: u32,
}

fn main() {}
