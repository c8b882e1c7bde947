//! The ring inside an MPI job. The program initialises MPI and goes on using it. The epochs are enqueued on a stream.
//!
//! ```sh
//! MPICC=mpicc.openmpi cargo build --release --features mpi --example ring_mpi
//! mpirun.openmpi -n 2 target/release/examples/ring_mpi
//! ```

use tidegate::host::prelude::*;
use tidegate::mpi::mpi;
use tidegate::mpi::mpi::collective::SystemOperation;
use tidegate::mpi::mpi::traits::*;

const LEN: usize = 1000;
const STEPS: usize = 100;

/// What a step needs.
#[derive(Carry)]
struct Ring<'s> {
    src: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
    from: [In<f64>; 2],
    to: [Out<f64>; 2],
}

/// Adds the numbers from both sides to the rank's own numbers, and halves the sum. So all numbers approach each other.
fn average(inbox: Slots<'_, f64>, from: [In<f64>; 2], src: &mut [f64]) {
    let [right, left] = from.map(|from| inbox.slot(from));
    for (at, x) in src.iter_mut().enumerate() {
        *x = *x / 2.0 + (right[at] + left[at]) / 4.0;
    }
}

/// Nothing here waits. MPI's host-synchronised form is MPI_Win_post, start, put, put, complete, wait.
fn step<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let mut epoch = r.outbox.start();
    let [left, right] = epoch.take(r.to)?; // each is used once: the compiler sees to it
    epoch.put(&r.src, left)?;
    epoch.put(&r.src, right)?;
    let (inbox, outbox) = exchange(s, r.inbox, epoch)?;
    let from = r.from;
    let average = move |inbox: Slots<'_, f64>, src: &mut [f64]| average(inbox, from, src);
    s.launch(average, (inbox.view(), &mut r.src))?;
    Ok(Ring { inbox, outbox, ..r })
}

fn main() -> Result<()> {
    let universe = mpi::initialize().expect("MPI was not initialised before");
    let comm = universe.world();
    let world: World = World::from_mpi(&comm)?; // from here on MPI and tidegate know nothing of each other
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();

    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("ring");
    let from = [
        window.slot_from(right, 0, LEN),
        window.slot_from(left, 1, LEN),
    ];
    let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
    let (inbox, outbox) = window.open(&s)?;
    let ring = Ring {
        src: Region::from_slice(&world, &[rank as f64; LEN])?.on(&s)?,
        inbox,
        outbox,
        from,
        to,
    };

    let (graph, ring) = s.capture(ring, step)?;
    graph.verify(&s)?.proof()?;
    let ring = graph.replay(&s, ring, STEPS)?;
    let src = ring.src.into_host(&s)?; // the one synchronisation

    // The mean stays the same, and MPI can check it.
    let mut sum = 0.0;
    comm.all_reduce_into(&src[0], &mut sum, SystemOperation::sum());
    let (mean, expected) = (sum / size as f64, (size - 1) as f64 / 2.0);
    assert!((mean - expected).abs() < 1e-9, "{mean} is not {expected}");
    println!(
        "rank {rank} of {size}: {:.3}, and the mean is {mean:.3}",
        src[0]
    );
    Ok(())
}
