use tidegate::__private::{Id, StreamsDoNotMix, brand};
use tidegate::host::prelude::*;

trait Brand<'s> {
    fn brand(self) -> StreamsDoNotMix<'s>;
}

impl<'s> Brand<'s> for Id<'s> {
    fn brand(self) -> StreamsDoNotMix<'s> {
        brand(Box::leak(Box::new(self)))
    }
}

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    same(&a, &b);
    Ok(())
}
