//! Puts whose elements are counted on the GPU: eager and replayed, by one block and by many, at any alignment.

use crate::vendor::prelude::*;

use super::common::{I, Kernels, O, R, S, W, ranks};

/// The state of a rank, in a ring with one direction.
#[derive(Carry)]
#[carry(device = Gpu)]
struct Message<'s> {
    src: R<'s, u64>,
    epoch: R<'s, u64>,
    count: R<'s, u64>,
    inbox: I<'s, u64>,
    outbox: O<'s, u64>,
    to: Out<u64>,
}

/// The first element and the number of elements of the source, the first element and the number of elements of the
/// slot, and the count in the first epoch.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    from: usize,
    src: usize,
    at: usize,
    slot: usize,
    first: u64,
}

/// In every epoch the source has other numbers, and the count is one higher than before.
fn step<'s>(k: &Kernels, s: &S<'s>, sizes: Sizes, mut m: Message<'s>) -> Result<Message<'s>> {
    let threads = sizes.src.clamp(1, 1 << 15);
    s.launch(
        k.produce.threads(threads, 256),
        (&mut m.src, &mut m.epoch, SCALE),
    )?;
    let mut epoch = m.outbox.start();
    let source = m.src.slice(sizes.from..sizes.from + sizes.src)?;
    epoch.put_counted(source, &m.count, m.to.at(sizes.at))?;
    (m.inbox, m.outbox) = exchange(s, m.inbox, epoch)?;
    s.launch(k.tick.threads(1, 32), (&mut m.epoch,))?;
    s.launch(k.tick.threads(1, 32), (&mut m.count,))?;
    Ok(m)
}

const SCALE: u64 = 1_000_003;

/// The contents of the slot after `epochs` epochs.
fn expected(sizes: Sizes, buffers: usize, epochs: u64) -> Vec<u64> {
    let mut slot = vec![vec![0; sizes.slot]; buffers];
    for epoch in 0..epochs {
        let counted = sizes.first.wrapping_add(epoch).min(sizes.src as u64) as usize;
        for index in 0..counted {
            slot[epoch as usize % buffers][sizes.at + index] =
                epoch * SCALE + (sizes.from + index) as u64;
        }
    }
    slot.swap_remove((epochs as usize - 1) % buffers)
}

fn check(world: &W, k: &Kernels, sizes: Sizes, buffers: Buffers, number: usize) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("counted").buffers(buffers);
    window.slot_from(left, 0, sizes.slot);
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut m = Message {
        src: Region::zeroed(world, sizes.from + sizes.src)?.on(&s)?,
        epoch: Region::zeroed(world, 1)?.on(&s)?,
        count: Region::from_slice(world, &[sizes.first])?.on(&s)?,
        inbox,
        outbox,
        to,
    };
    let mut came = Region::zeroed(world, sizes.slot)?;
    let mut epochs = 0;
    let mut found = vec![0; sizes.slot];
    for round in 0..14u64 {
        // Eager epochs, and odd and even numbers of replays.
        if round % 2 == 0 {
            m = step(k, &s, sizes, m)?;
            epochs += 1;
        } else {
            let times = 1 + round % 5;
            let (graph, lent) = s.capture(m, |s, m| step(k, s, sizes, m))?;
            m = graph.replay(&s, lent, times as usize)?;
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
    let mut all = Vec::new();
    // In wide units, and by steps if the first unit is not whole; as numbers of 8 bytes; with the last unit whole in
    // the source, and not.
    for (from, at) in [(0, 0), (1, 1), (0, 3)] {
        // By a warp, and by blocks.
        for src in [31, 32, 70_000, 70_001] {
            let slot = src + at + 5;
            // More than there is, then none, one, and so on; some elements; up to all of them.
            for first in [u64::MAX - 3, src as u64 / 2, src as u64 - 6] {
                all.push(Sizes {
                    from,
                    src,
                    at,
                    slot,
                    first,
                });
            }
        }
    }
    ranks(3, |world, k| {
        for sizes in all.iter().copied() {
            check(&world, &k, sizes, Buffers::Double, 2).unwrap();
            check(&world, &k, sizes, Buffers::Single, 1).unwrap();
        }
    });
}
