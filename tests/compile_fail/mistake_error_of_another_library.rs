use tidegate::host::prelude::*;

fn table(world: &World) -> Result<Region<f64>> {
    let text = std::fs::read_to_string("table.txt")?;
    let numbers = text.lines().map(|line| Ok(line.parse()?)).collect::<Result<Vec<f64>>>()?;
    Region::from_slice(world, &numbers)
}

fn later<'s>(s: &Stream<'s>, inbox: Inbox<'s, f64>) -> Result<Exposed<'s, f64>> {
    Ok(inbox.try_post(s)?)
}

fn main() -> Result<()> {
    let world = World::init()?;
    table(&world)?;
    drop(later);
    Ok(())
}
