use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

fn again<'a>(s: &Stream<'a>, mut src: Region<f64, On<'a>>, depth: usize) -> Result<()> { // wrong
// right: fn again<'a>(s: &Stream<'a>, src: Region<f64, On<'a>>, depth: usize) -> Result<()> {
    if depth == 0 {
        return Ok(());
    }
    stream!(let t = s.world().stream()?);
    // right: let mut src = s.hand_off(src, &t)?;
    t.launch(increment, &mut src)?;
    again(&t, src, depth - 1)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    again(&s, src, 3)?;
    Ok(())
}
