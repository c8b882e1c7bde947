use tidegate::host::prelude::*;

async fn waits(world: World) -> Result<()> {
    let waited = {
        stream!(let s = world.stream()?);
        s.synchronized()
    };
    waited.await
}

fn main() {
    drop(waits);
}
