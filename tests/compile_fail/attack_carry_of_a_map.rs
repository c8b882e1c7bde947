#![allow(dead_code)]

use std::collections::HashMap;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    more: HashMap<u32, Region<f64, On<'s>>>,
}

fn main() {}
