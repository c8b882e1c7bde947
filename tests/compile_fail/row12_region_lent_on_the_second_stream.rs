use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let stays = Region::from_slice(&world, &[1.0; 4])?.on(&b)?;
    a.capture_with(&mut b, ((), stays), |a, _b, ((), mut stays)| { // wrong
        a.launch(increment, &mut stays)?; // wrong
    // right: a.capture_with(&mut b, ((), stays), |_a, b, ((), mut stays)| {
        // right: b.launch(increment, &mut stays)?;
        Ok(((), stays))
    })?;
    Ok(())
}
