use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut energy = AllReduce::open(&a, "energy", 4, Op::Sum)?; // wrong
    // right: let mut energy = AllReduce::open(&b, "energy", 4, Op::Sum)?;
    let mut x = Region::<f64, _>::zeroed(&world, 4)?.on(&b)?;
    energy.enqueue(&b, &mut x)?;
    Ok(())
}
