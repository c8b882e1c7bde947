use tidegate::host::prelude::*;

async fn moves(world: World) -> Result<()> {
    stream!(let s = world.stream()?);
    let waited = s.synchronized();
    std::thread::scope(|scope| {
        scope.spawn(move || s.synchronize());
    });
    waited.await
}

fn main() {
    drop(moves);
}
