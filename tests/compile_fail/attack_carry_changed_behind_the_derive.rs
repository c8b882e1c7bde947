use tidegate::host::prelude::*;

#[derive(Carry)]
#[tidegate_changing::fields(Box<Region<f64, On<'s>>>)]
struct Step<'s> {
    src: Region<f64, On<'s>>,
}

fn main() {}
