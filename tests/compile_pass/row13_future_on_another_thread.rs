use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::prelude::*;

fn here<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let src = here(src.into_host_async(&s))?;
    assert_eq!(src[0], 1.0);
    Ok(())
}
