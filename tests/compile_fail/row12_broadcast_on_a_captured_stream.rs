use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let mut s = world.stream()?);
    let news = Broadcast::open(&s, "news", 0, 1)?;
    let x = Region::<f64, _>::zeroed(&world, 1)?.on(&s)?;
    let mut news = news; // wrong
    let (_graph, _x) = s.capture(x, |s, mut x| { // wrong
    // right: let (_graph, (_news, _x)) = s.capture((news, x), |s, (mut news, mut x)| {
        news.enqueue(s, &mut x)?;
        Ok(x) // wrong
        // right: Ok((news, x))
    })?;
    Ok(())
}
