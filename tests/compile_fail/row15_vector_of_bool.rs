use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    let region = Region::from_vec(&world, vec![true, false])?; // wrong
    // right: let region = Region::from_vec(&world, vec![1u8, 0])?;
    assert_eq!(region.into_vec()?.len(), 2);
    Ok(())
}
