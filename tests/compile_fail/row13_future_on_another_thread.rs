use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::host::prelude::*;

fn here<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn spawned<F: Future<Output: Send> + Send>(future: F) -> F::Output { // wrong
    std::thread::scope(|scope| scope.spawn(|| here(future)).join().expect("it ends")) // wrong
} // wrong

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let waited = async {
        ready(()).await;
        s.synchronize()
    };
    spawned(waited)?; // wrong
    // right: here(waited)?;
    Ok(())
}
