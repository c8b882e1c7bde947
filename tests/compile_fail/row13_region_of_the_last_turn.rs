use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let mut last = None;
    for _ in 0..2 {
        stream!(let s = world.stream()?);
        let src = match last.take() {
            Some(src) => src,
            None => Region::from_slice(&world, &[1.0; 4])?.on(&s)?, // wrong
            // right: None => Region::from_slice(&world, &[1.0; 4])?,
        };
        let mut src = src; // wrong
        // right: let mut src = src.on(&s)?;
        s.launch(increment, &mut src)?;
        last = Some(src); // wrong
        // right: last = Some(src.into_host(&s)?);
    }
    Ok(())
}
