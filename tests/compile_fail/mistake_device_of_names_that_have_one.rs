use tidegate::host::prelude::*;

use tidegate::generic::Device;

fn step<'s, D: Device>(_: &Stream<'s, D>, _: Inbox<'s, f64, D>, _: &Region<f64, On<'s, D>>) {}

fn main() {}
