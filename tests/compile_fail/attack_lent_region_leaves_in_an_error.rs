use std::fmt;

use tidegate::error::Error;
use tidegate::host::prelude::*;

struct Taken<T>(T);

impl<T> fmt::Debug for Taken<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl<T> fmt::Display for Taken<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl<T> std::error::Error for Taken<T> {}

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let mut s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    s.capture(x, |_, x| Err(Error::other(Taken(x))))?;
    Ok(())
}
