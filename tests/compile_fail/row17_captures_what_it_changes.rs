use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let mut count = 1.0; // wrong
    // right: let count = 1.0;
    s.launch(
        move |x: &mut [f64]| {
            count += 1.0; // wrong
            x.fill(count);
        },
        &mut src,
    )?;
    Ok(())
}
