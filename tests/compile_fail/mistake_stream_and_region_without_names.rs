use tidegate::host::prelude::*;

fn step(s: &Stream<'_>, x: &mut Region<f64, On<'_>>) -> Result<()> {
    s.launch(|x: &mut [f64]| x[0] += 1.0, x)
}

fn main() {
    drop(step);
}
