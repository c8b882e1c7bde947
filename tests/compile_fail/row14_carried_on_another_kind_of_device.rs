use tidegate::generic::{On, Region, Stream};
use tidegate::host::prelude::*;
use tidegate::cuda::Cuda;

#[derive(Carry)]
// right: #[carry(device = Cuda)]
struct Ring<'s> {
    src: Region<f64, On<'s, Cuda>>,
}

fn carried<'s>(s: &mut Stream<'s, Cuda>, ring: Ring<'s>) -> Result<Region<f64, On<'s, Cuda>>> {
    let (_, ring) = s.capture(ring, |_, ring| Ok(ring))?;
    Ok(ring.src)
}

pub fn main() -> Result<()> {
    let _ = carried;
    Ok(())
}
