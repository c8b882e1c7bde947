#![allow(dead_code)]

use std::sync::Arc;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    more: Arc<Region<f64, On<'s>>>,
}

fn main() {}
