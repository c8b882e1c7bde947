//! A step that runs by luck, and a proof that it does not run for long.
//!
//! Every rank puts a number to its right neighbour. The first step never posts. It runs once, because slots of two buffers
//! are free at first. Replayed twice, it waits for ever. `verify` says so before anything runs.
//!
//! Run it with `cargo run --example verify`, or on 4 ranks: `cargo run -p tidegate-cli -- run -n 4
//! target/debug/examples/verify`.

use tidegate::host::prelude::*;
use tidegate::verify::Verdict;

#[derive(Carry)]
struct Halves<'s> {
    src: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    right: Out<u64>,
}

/// Puts, and never posts: nothing in a test of one step shows it.
fn forgetful<'s>(s: &Stream<'s>, h: Halves<'s>) -> Result<Halves<'s>> {
    let mut epoch = h.outbox.start();
    epoch.put(&h.src, h.right)?;
    let outbox = epoch.complete(s)?;
    Ok(Halves { outbox, ..h })
}

/// Puts, and exposes the inbox as often.
fn careful<'s>(s: &Stream<'s>, h: Halves<'s>) -> Result<Halves<'s>> {
    let mut epoch = h.outbox.start();
    epoch.put(&h.src, h.right)?;
    let (inbox, outbox) = exchange(s, h.inbox, epoch)?;
    Ok(Halves { inbox, outbox, ..h })
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("ring"); // with two buffers, the default
    window.slot_from(left, 0, 1);
    let right = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[world.rank() as u64])?.on(&s)?;
    let halves = Halves {
        src,
        inbox,
        outbox,
        right,
    };

    let (graph, halves) = s.capture(halves, forgetful)?;
    let verdict = graph.verify(&s)?; // collective; nothing is executed
    if world.rank() == 0 {
        println!("{verdict}");
    }
    assert!(matches!(verdict, Verdict::Refused(_)));

    let (graph, halves) = s.capture(halves, careful)?;
    let proof = graph.verify(&s)?.proof()?; // an error, if there were no proof
    if world.rank() == 0 {
        println!("{proof}");
    }
    drop(graph.replay(&s, halves, 1_000)?);
    s.synchronize()
}
