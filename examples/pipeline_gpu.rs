//! `pipeline` on GPUs: two streams that work at the same time. One makes blocks of numbers and puts them to the right
//! neighbour. The other digests the blocks of the left neighbour, together with the block that was made here.
//!
//! A block is *handed off* from the stream that made it to the stream that digests it, and back. That is an event
//! between two streams, and the host waits for neither. `ring_gpu` explains how kernels are declared.
//!
//! Run it with `cargo run --example pipeline_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/pipeline_gpu`.

#[cfg(feature = "cuda")]
use tidegate::cuda::prelude::*;
#[cfg(not(feature = "cuda"))]
use tidegate::hip::prelude::*;

/// Numbers in a block.
const LEN: usize = 4096;
/// The number of blocks.
const BLOCKS: u64 = 200;

const CODE: Code = code!("../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

tidegate::kernel! {
    /// `x[i] = value`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn fill = "fill"(x: &mut [u64], value: u64);
    /// Adds the products of the numbers that came and `mine` to `sum[0]`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn multiply = "multiply"(came: Slots<u64>, from: In<u64>, mine: &[u64], sum: &mut [u64]);
}

/// The number that rank `rank` puts at every place of its block number `k`.
fn value(rank: usize, k: u64) -> u64 {
    (rank as u64 + 1) * (k + 1)
}

fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();
    let module = Module::load(&world, CODE)?;
    // SAFETY: the module is `examples.cu`. Its functions take the declared parameters, and keep to the lengths.
    let (fill, multiply) = unsafe { (fill(&module)?, multiply(&module)?) };

    stream!(let make = world.named_stream("make")?);
    stream!(let digest = world.named_stream("digest")?);

    let mut window = SlotWindow::new("blocks");
    let from_left = window.slot_from(left, 0, LEN);
    let to_right = window.slot_to(right, 0);
    let (inbox, mut outbox) = window.open(&make)?;
    let mut inbox = make.hand_off(inbox, &digest)?; // the outbox stays
    let mut sum = Region::zeroed(&world, 1)?.on(&digest)?;

    // There are two blocks: one is made while the other is digested.
    let mut free = Region::zeroed(&world, LEN)?.on(&make)?;
    let mut digested = Region::zeroed(&world, LEN)?.on(&digest)?;

    for k in 0..BLOCKS {
        // The first stream makes a block and puts it.
        make.launch(fill.threads(LEN, 256), (&mut free, value(rank, k)))?;
        let mut epoch = outbox.start();
        epoch.put(&free, to_right)?;
        outbox = epoch.complete(&make)?;

        // The second stream gets it, behind everything that is enqueued on the first one by now ...
        let made = make.hand_off(free, &digest)?;
        // ... and returns the block before it, so that the first stream goes on as soon as that one is digested.
        free = digest.hand_off(digested, &make)?;

        let exposed = inbox.post(&digest)?;
        inbox = exposed.wait(&digest)?;
        // `&free` here would not compile: it belongs to the other stream.
        let arguments = (inbox.view(), from_left, &made, &mut sum);
        digest.launch(multiply.threads(LEN, 256), arguments)?;
        digested = made;
    }

    let mut total = [0];
    sum.into_host(&digest)?.read(0, &mut total)?; // the one synchronisation
    let expected: u64 = (0..BLOCKS)
        .map(|k| LEN as u64 * value(left, k) * value(rank, k))
        .sum();
    assert_eq!(total, [expected]);
    println!("rank {rank} of {size}: {BLOCKS} blocks, their products add up to {expected}");
    Ok(())
}

fn main() {
    // Without a driver or a GPU, the program says so.
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
