//! A future leaves the scope of the stream that it waits for, with a region that the stream still writes.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    let waits = {
        stream!(let s = world.stream()?);
        let mut x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
        std::thread::spawn(move || {
            let waits = x.into_host_async(&s);
            drop(s);
            waits
        })
    };
    drop(waits);
    Ok(())
}
