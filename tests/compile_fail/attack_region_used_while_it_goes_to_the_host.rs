use tidegate::host::prelude::*;

async fn uses(world: World) -> Result<f64> {
    stream!(let s = world.stream()?);
    let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    let host = x.into_host_async(&s);
    s.launch(|x: &mut [f64]| x[0] = 2.0, &mut x)?;
    Ok(host.await?[0])
}

fn main() {
    drop(uses);
}
