#![allow(dead_code)]

use std::cell::RefCell;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    more: RefCell<Region<f64, On<'s>>>,
}

fn main() {}
