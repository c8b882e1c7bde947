//! Two streams that work at the same time. One makes blocks of numbers and puts them to the right neighbour. The other
//! digests the blocks of the left neighbour, together with the block that was made here.
//!
//! A region belongs to one stream at a time, and its type says to which. So a block is *handed off* from the stream
//! that made it to the stream that digests it, and back. The host waits for neither. The two halves of a window may be
//! at home on different streams, too: here blocks leave from one stream and arrive on the other.
//!
//! Run it with `cargo run --example pipeline`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/pipeline`. `pipeline_gpu` is the same on GPUs.

use tidegate::host::prelude::*;

/// Numbers in a block.
const LEN: usize = 4096;
/// The number of blocks.
const BLOCKS: u64 = 200;

/// The number that rank `rank` puts at every place of its block number `k`.
fn value(rank: usize, k: u64) -> u64 {
    (rank as u64 + 1) * (k + 1)
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();

    stream!(let make = world.named_stream("make")?);
    stream!(let digest = world.named_stream("digest")?);

    let mut window = SlotWindow::new("blocks");
    let from_left = window.slot_from(left, 0, LEN);
    let to_right = window.slot_to(right, 0);
    let (inbox, mut outbox) = window.open(&make)?;
    let mut inbox = make.hand_off(inbox, &digest)?; // the outbox stays
    let mut sum = Region::<u64>::zeroed(&world, 1)?.on(&digest)?;

    // There are two blocks: one is made while the other is digested.
    let mut free = Region::<u64>::zeroed(&world, LEN)?.on(&make)?;
    let mut digested = Region::<u64>::zeroed(&world, LEN)?.on(&digest)?;

    for k in 0..BLOCKS {
        // The first stream makes a block and puts it.
        let fill = move |block: &mut [u64]| block.fill(value(rank, k));
        make.launch(fill, &mut free)?;
        let mut epoch = outbox.start();
        epoch.put(&free, to_right)?;
        outbox = epoch.complete(&make)?;

        // The second stream gets it, behind everything that is enqueued on the first one by now ...
        let made = make.hand_off(free, &digest)?;
        // ... and returns the block before it, so that the first stream goes on as soon as that one is digested.
        free = digest.hand_off(digested, &make)?;

        inbox = inbox.expose(&digest)?;
        let multiply = move |came: Slots<'_, u64>, mine: &[u64], sum: &mut [u64]| {
            let products = came.slot(from_left).iter().zip(mine).map(|(a, b)| a * b);
            sum[0] += products.sum::<u64>();
        };
        // `&free` here would not compile: it belongs to the other stream.
        digest.launch(multiply, (inbox.view(), &made, &mut sum))?;
        digested = made;
    }

    let sum = sum.into_host(&digest)?; // the one synchronisation
    let expected: u64 = (0..BLOCKS)
        .map(|k| LEN as u64 * value(left, k) * value(rank, k))
        .sum();
    assert_eq!(sum[0], expected);
    println!("rank {rank} of {size}: {BLOCKS} blocks, their products add up to {expected}");
    Ok(())
}
