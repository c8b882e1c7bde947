//! Signals without data, and barriers, on any device and by any transport: no rank goes on before it may.

use std::time::Duration;

use tidegate::generic::Device;
use tidegate::generic::{AllReduce, Barrier, Region, Stream, World};
use tidegate::host::prelude::*;
use tidegate::window::Tested;

/// In this time, something that must not happen would usually have happened.
const WHILE: Duration = Duration::from_millis(20);

const HELD: &str = "it is held";

/// Runs all of it. Every rank calls it.
pub(crate) fn run<D: Device>(world: &World<D>) -> Result<()> {
    for buffers in [Buffers::Single, Buffers::Double] {
        signals(world, buffers)?;
    }
    barriers(world)?;
    meetings(world)
}

/// Asserts that the stream is still waiting for the late rank.
#[track_caller]
fn assert_waits<D: Device>(s: &Stream<'_, D>) {
    std::thread::sleep(WHILE);
    assert!(!s.is_idle(), "it has not waited");
}

/// A ring of slots without elements, in which one rank at a time is late, and the next one waits for it.
fn signals<D: Device>(world: &World<D>, buffers: Buffers) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("signals").buffers(buffers);
    window.slot_from(left, 7, 0);
    let to = window.slot_to_with_len(right, 7, 0);
    let (mut inbox, outbox) = window.open(&s)?;
    let mut outbox = Some(outbox);
    let nothing = Region::<u64, _>::zeroed(world, 0)?.on(&s)?;
    for late in 0..size {
        let is_late = rank == late && size > 1;
        let waits = left == late && size > 1;
        let mut exposed = inbox.post(&s)?;
        let mut epoch = outbox.take().expect(HELD).start();
        epoch.put(&nothing, to)?;
        let mut epoch = Some(epoch);
        if !is_late {
            outbox = Some(epoch.take().expect(HELD).complete(&s)?);
        }
        if waits {
            exposed = match exposed.test(&s)? {
                Tested::Pending(exposed) => exposed,
                Tested::Done(_) => panic!("the signal has not been given yet"),
            };
        }
        inbox = exposed.wait(&s)?;
        if waits {
            assert_waits(&s);
        }
        world.all_gather("the late one comes", Vec::new())?;
        if let Some(epoch) = epoch {
            outbox = Some(epoch.complete(&s)?);
        }
        s.synchronize()?;
    }
    let mut outbox = outbox.expect(HELD);
    for _ in 0..10 {
        let mut epoch = outbox.start();
        epoch.put(&nothing, to)?;
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
    }
    s.synchronize()?;
    drop((inbox, outbox));
    Ok(())
}

/// In each turn one rank is late, at a barrier that is enqueued and at one that is replayed.
fn barriers<D: Device>(world: &World<D>) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    stream!(let s = world.stream()?);
    let barrier = Barrier::open(&s, "all")?;
    let (graph, mut barrier) = s.capture(barrier, |s, mut barrier| {
        barrier.enqueue(s)?;
        Ok(barrier)
    })?;
    for turn in 0..2 * size {
        let is_late = rank == turn / 2;
        if is_late {
            world.all_gather("the late one comes", Vec::new())?;
        }
        if turn % 2 == 0 {
            barrier.enqueue(&s)?;
        } else {
            barrier = graph.replay(&s, barrier, 1)?;
        }
        if !is_late {
            assert_waits(&s);
            world.all_gather("the late one comes", Vec::new())?;
        }
        s.synchronize()?;
    }
    for times in 0..5 {
        barrier.enqueue(&s)?;
        barrier = graph.replay(&s, barrier, times)?;
    }
    s.synchronize()
}

/// An all-reduce of no elements.
fn meetings<D: Device>(world: &World<D>) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut meeting = AllReduce::<f32, D>::open(&s, "meeting", 0, Op::Sum)?;
    let mut nothing = Region::zeroed(world, 0)?.on(&s)?;
    for _ in 0..5 {
        meeting.enqueue(&s, &mut nothing)?;
    }
    s.synchronize()
}
