use tidegate::Result;
use tidegate::generic::{On, Region, Stream};
use tidegate::generic::Device;

fn step<'s, D: Device>(s: &Stream<'s, D>, x: &mut Region<f64, On<'s, D>>) -> Result<()> {
    s.launch(|x: &mut [f64]| x[0] += 1.0, x)
}

fn main() {
    drop(step::<tidegate::host::Host>);
}
