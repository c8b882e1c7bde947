use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let kept;
    {
        stream!(let s = world.stream()?);
        let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        kept = src; // wrong
        // right: kept = src.into_host(&s)?;
    }
    assert_eq!(kept.len(), 4);
    Ok(())
}
