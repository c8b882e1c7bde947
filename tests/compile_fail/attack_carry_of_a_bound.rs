#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s>
where
    's: 'static,
{
    src: Region<f64, On<'s>>,
}

fn main() {}
