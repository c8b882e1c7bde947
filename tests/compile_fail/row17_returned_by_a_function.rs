use tidegate::host::prelude::*;

fn axpy(a: f64) -> impl Fn(&[f64], &mut [f64]) + Clone + Send + 'static {
    move |x, y| y[0] += a * x[0]
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut y = Region::from_slice(&world, &[0.0; 4])?.on(&s)?;
    let k = axpy(2.0);
    s.launch(k, (&x, &mut y))?; // wrong
    // right: s.launch(move |x: &[f64], y: &mut [f64]| k(x, y), (&x, &mut y))?;
    Ok(())
}
