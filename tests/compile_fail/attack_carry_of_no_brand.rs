#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State {
    number: u32,
}

fn main() {}
