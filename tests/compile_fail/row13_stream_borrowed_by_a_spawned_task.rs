use tidegate::host::prelude::*;
use tokio::runtime::Runtime;

async fn wait(s: &Stream<'_>) -> Result<()> { // wrong
    s.synchronized().await // wrong
// right: fn wait(s: &Stream<'_>) -> impl Future<Output = Result<()>> + Send {
    // right: s.synchronized()
}

async fn solve(world: World) -> Result<()> {
    stream!(let s = world.stream()?);
    wait(&s).await
}

fn spawned<F>(runtime: &Runtime, task: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime.block_on(runtime.spawn(task)).expect("it ends")
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let runtime = Runtime::new().expect("a runtime");
    spawned(&runtime, solve(world))
}
