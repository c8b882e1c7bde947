//! Another thread launches a kernel with the rest of an exposure that has ended.
#![forbid(unsafe_code)]

use tidegate::CellsMut;
use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    window.range_to(0, 0..2);
    let (inbox, _outbox) = window.open(&s)?;
    let mut exposed = inbox.post(&s)?;
    std::thread::scope(|scope| {
        let rest = exposed.rest_mut()?;
        let s = &mut s;
        scope.spawn(move || s.launch(|_: CellsMut<'_, f64>| (), rest));
        drop(exposed);
        Ok(())
    })
}
