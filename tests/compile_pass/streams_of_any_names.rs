//! Streams have names that the macro uses itself, or that are nearly keywords. And the `Drop` of a value uses the stream
//! that it borrows for as long as its brand lasts.

use tidegate::host::prelude::*;

struct Uses<'s>(Option<(&'s Stream<'s>, Region<u64, On<'s>>)>);

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        let (s, x) = self.0.take().unwrap();
        assert_eq!(x.into_host(s).unwrap()[0], 1);
    }
}

pub(crate) fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let unbound = world.stream()?);
    stream!(let id = unbound.world().stream()?);
    stream!(let guard = world.stream()?);
    stream!(let x = world.stream()?);
    stream!(let mut union = world.stream()?);
    stream!(let macro_rules = world.stream()?);
    stream!(let r#mut = world.stream()?);
    stream!(let r#mut = r#mut.world().stream()?);
    for stream in [id.is_idle(), guard.is_idle(), unbound.is_idle()] {
        assert!(stream);
    }
    let (_graph, ()) = union.capture((), |_, ()| Ok(()))?;
    let mut region = Region::zeroed(&world, 1)?.on(&x)?;
    x.launch(|x: &mut [u64]| x[0] += 1, &mut region)?;
    let _uses = Uses(Some((&x, region)));
    macro_rules.synchronize()?;
    r#mut.synchronize()
}
