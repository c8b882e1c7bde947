#![allow(dead_code)]

use std::rc::Rc;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    more: Rc<Region<f64, On<'s>>>,
}

fn main() {}
