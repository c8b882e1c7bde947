use tidegate::host::prelude::*;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    same(&a, &b);
    Ok(())
}
