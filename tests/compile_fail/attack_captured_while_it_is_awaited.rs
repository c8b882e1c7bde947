use tidegate::host::prelude::*;

async fn records(world: World) -> Result<()> {
    stream!(let mut s = world.stream()?);
    let waited = s.synchronized();
    s.capture((), |_, ()| Ok(()))?;
    waited.await
}

fn main() {
    drop(records);
}
