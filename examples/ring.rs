//! Every rank adds one to its numbers, puts them to its left and right neighbours, and compares its own with those that
//! came.
//!
//! Run it with `cargo run --example ring`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/ring`. `ring_gpu` is the same on GPUs.

use tidegate::host::prelude::*;

/// Numbers of each rank.
const LEN: usize = 1000;

/// Everything that a step needs. `'s` is the brand of the stream that it is at home on.
#[derive(Carry)]
struct Ring<'s> {
    src: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
    to_left: Out<f64>,
    to_right: Out<f64>,
}

/// A kernel: on the host, a function of slices.
fn increment(src: &mut [f64]) {
    src.iter_mut().for_each(|x| *x += 1.0);
}

/// A kernel that checks what the neighbours put.
fn compare(inbox: Slots<'_, f64>, src: &[f64]) {
    for slot in inbox.iter() {
        assert_eq!(slot, src, "all ranks count alike");
    }
}

/// One step. Nothing here waits: everything is enqueued on the stream.
fn step<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let exposed = r.inbox.post(s)?; // the inbox is moved: nobody here can touch it now
    s.launch(increment, &mut r.src)?;
    let mut epoch = r.outbox.start();
    epoch.put(&r.src, r.to_left)?; // only noted; `r.src` is borrowed: writing it now does not compile
    epoch.put(&r.src, r.to_right)?;
    let outbox = epoch.complete(s)?; // enqueued: wait for the neighbours' posts, move, signal
    let inbox = exposed.wait(s)?; // enqueued: wait for the neighbours' signals
    s.launch(compare, (inbox.view(), &r.src))?;
    Ok(Ring { inbox, outbox, ..r })
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();

    stream!(let s = world.stream()?);
    // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes
    // right.
    let mut window = SlotWindow::new("ring");
    window.slot_from(right, 0, LEN);
    window.slot_from(left, 1, LEN);
    let (to_left, to_right) = (window.slot_to(left, 0), window.slot_to(right, 1));
    let (inbox, outbox) = window.open(&s)?;
    let ring = Ring {
        src: Region::zeroed(&world, LEN)?.on(&s)?,
        inbox,
        outbox,
        to_left,
        to_right,
    };

    let (graph, ring) = s.capture(ring, step)?; // records, executes nothing
    graph.verify(&s)?.proof()?; // on all ranks: no number of replays waits for ever
    let ring = graph.replay(&s, ring, 1_000)?; // and eager steps may go between replays:
    let ring = step(&s, ring)?;

    let src = ring.src.into_host(&s)?; // the one synchronisation; only now can the CPU read
    assert!(src.iter().all(|x| *x == 1001.0));
    println!("rank {rank} of {size}: {} steps, all equal", src[0]);
    Ok(())
}
