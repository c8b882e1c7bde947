//! Puts whose elements are counted on the GPU: eager and replayed, by one block and by many, at any alignment.

use tidegate::Buffers;
use tidegate::prelude::*;

use super::common::{In, Kernels, Out, R, S, W, ranks};

/// What a rank of a ring of one direction has.
#[derive(Carry)]
#[carry(device = tidegate::Cuda)]
struct Message<'s> {
    src: R<'s, u64>,
    epoch: R<'s, u64>,
    count: R<'s, u64>,
    inbox: In<'s, u64>,
    outbox: Out<'s, u64>,
}

/// How long the source is, where in the slot it goes, and of how many elements the slot is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    src: usize,
    at: usize,
    slot: usize,
}

/// In every epoch the source has other numbers, and one element more is counted than in the one before.
fn step<'s>(k: &Kernels, s: &S<'s>, sizes: Sizes, mut m: Message<'s>) -> Result<Message<'s>> {
    let threads = sizes.src.clamp(1, 1 << 15);
    s.launch(
        k.produce.threads(threads, 256),
        (&mut m.src, &mut m.epoch, SCALE),
    )?;
    let mut epoch = m.outbox.start();
    epoch.put_counted(&m.src, &m.count, Slot(0).at(sizes.at))?;
    (m.inbox, m.outbox) = exchange(s, m.inbox, epoch)?;
    s.launch(k.tick.threads(1, 32), (&mut m.epoch,))?;
    s.launch(k.tick.threads(1, 32), (&mut m.count,))?;
    Ok(m)
}

const SCALE: u64 = 1_000_003;
/// The first epochs count more than there is, then none, one, and so on.
const FIRST: u64 = u64::MAX - 3;

/// What is in the slot after so many epochs.
fn expected(sizes: Sizes, buffers: usize, epochs: u64) -> Vec<u64> {
    let mut slot = vec![vec![0; sizes.slot]; buffers];
    for epoch in 0..epochs {
        let counted = FIRST.wrapping_add(epoch).min(sizes.src as u64);
        for index in 0..counted {
            slot[epoch as usize % buffers][sizes.at + index as usize] = epoch * SCALE + index;
        }
    }
    slot.swap_remove((epochs as usize - 1) % buffers)
}

fn check(world: &W, k: &Kernels, sizes: Sizes, buffers: Buffers, number: usize) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream()?);
    let window = Window::by_slot("counted").buffers(buffers);
    let window = window.slot_from(left, 0, sizes.slot).slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut m = Message {
        src: Region::zeroed(world, sizes.src)?.on(&s)?,
        epoch: Region::zeroed(world, 1)?.on(&s)?,
        count: Region::from_slice(world, &[FIRST])?.on(&s)?,
        inbox,
        outbox,
    };
    let mut came = Region::zeroed(world, sizes.slot)?;
    let mut epochs = 0;
    let mut found = vec![0; sizes.slot];
    for round in 0..40u64 {
        // Eager ones, and as many replays as are odd and even.
        if round % 2 == 0 {
            m = step(k, &s, sizes, m)?;
            epochs += 1;
        } else {
            let times = 1 + round % 5;
            let (graph, lent) = s.capture(m, |s, m| step(k, s, sizes, m))?;
            m = graph.replay(&s, lent, times)?;
            epochs += times;
        }
        let mut there = came.on(&s)?;
        s.launch(
            k.copy_slot.threads(sizes.slot.clamp(1, 1 << 15), 256),
            (m.inbox.view(), 0u64, &mut there),
        )?;
        came = there.into_host(&s)?;
        came.read(0, &mut found)?;
        let must = expected(sizes, number, epochs);
        let wrong = found.iter().zip(&must).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{sizes:?}, {number} buffers, {epochs} epochs");
    }
    Ok(())
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn as_many_elements_come_as_are_counted() {
    let sizes = |src, at, slot| Sizes { src, at, slot };
    // By a warp; by blocks, both sides aligned; the same, and the target's is not.
    let all = [
        sizes(30, 1, 40),
        sizes(70_000, 0, 70_000),
        sizes(70_000, 3, 70_010),
    ];
    ranks(3, |world, k| {
        for sizes in all {
            check(&world, &k, sizes, Buffers::Double, 2).unwrap();
            check(&world, &k, sizes, Buffers::Single, 1).unwrap();
        }
    });
}
