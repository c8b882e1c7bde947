use tidegate::host::prelude::*;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

async fn mixed(world: World) -> Result<()> {
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    a.synchronized().await?;
    same(&a, &b);
    b.synchronized().await
}

fn main() {
    drop(mixed);
}
