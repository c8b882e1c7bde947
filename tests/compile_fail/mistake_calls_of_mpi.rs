use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    world.send(1, &[1.0]);
    world.barrier();
    world.allreduce(&mut [1.0]);
    Ok(())
}
