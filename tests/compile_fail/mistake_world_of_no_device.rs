use tidegate::generic::World;
use tidegate::{Init, Result};

fn main() -> Result<()> {
    let world = World::init()?;
    println!("{}", world.rank());
    Ok(())
}
