#![allow(dead_code)]

use std::marker::PhantomData;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct State<'s> {
    src: Region<f64, On<'s>>,
    brand: PhantomData<&'s ()>,
}

fn main() {}
