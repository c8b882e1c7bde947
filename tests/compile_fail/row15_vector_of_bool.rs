use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    let region = Region::from_vec(&world, vec![true, false])?;
    assert_eq!(region.into_vec()?.len(), 2);
    Ok(())
}
