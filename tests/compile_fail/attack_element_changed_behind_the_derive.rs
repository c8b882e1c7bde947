use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::fields(&'static u64)]
#[derive(Clone, Copy)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() -> Result<()> {
    let world: World = World::init()?;
    let zero = Region::<Number>::zeroed(&world, 1)?;
    println!("{}", zero[0].value);
    Ok(())
}
