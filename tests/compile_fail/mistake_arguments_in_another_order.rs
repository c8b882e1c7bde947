use tidegate::host::prelude::*;

fn scale(x: &[f64], y: &mut [f64], by: f64) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = by * x);
}

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut y = Region::<f64>::zeroed(&world, 4)?.on(&s)?;
    s.launch(scale, (&mut y, &x, 2.0))?;
    s.launch(|x: &[f64], y: &mut [f64]| y.copy_from_slice(x), (&mut y, &x))?;
    s.launch(scale, (&x, &mut y))?;
    s.launch(|x: &mut [f64]| x[0] = 1.0, &x)?;
    Ok(())
}
