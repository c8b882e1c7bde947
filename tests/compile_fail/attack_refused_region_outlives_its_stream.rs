use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    let refused = {
        stream!(let s = world.stream()?);
        let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
        x.try_into_host(&s).err()
    };
    drop(refused);
    Ok(())
}
