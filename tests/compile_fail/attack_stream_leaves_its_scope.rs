use tidegate::host::prelude::*;

fn kept<'s>(world: &World) -> Result<Stream<'s>> {
    stream!(let s = world.stream()?);
    Ok(s)
}

fn main() {
    drop(kept);
}
