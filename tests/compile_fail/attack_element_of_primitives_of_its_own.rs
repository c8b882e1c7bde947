//! `u64`, `usize` and `Self` are what the program declares.
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, dead_code)]

use tidegate::host::prelude::*;

type u64 = Wide;
type usize = std::primitive::u8;

#[derive(Clone, Copy)]
struct Wide(&'static str);

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Text {
    a: u64,
}

fn main() {}
