//! `ring` on GPUs: every rank adds one to its numbers, puts them to its left and right neighbours, and compares its own
//! with those that came.
//!
//! The step is the same. Three things differ. Types name the device. A kernel is a function of device code
//! (`kernels/examples.cu`), declared once, with the contract that lets safe code launch it. And the host reads a region
//! by copying it. The ranks take the GPUs in turn. It is one text for GPUs of NVIDIA and of AMD, which no AMD GPU has run
//! yet: they differ by the prelude.
//!
//! Run it with `cargo run --example ring_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/ring_gpu`.

#[cfg(feature = "cuda")]
use tidegate::cuda::prelude::*;
#[cfg(not(feature = "cuda"))]
use tidegate::hip::prelude::*;

/// Numbers of each rank.
const LEN: usize = 1000;

/// The device code: PTX for NVIDIA GPUs, code objects for four kinds of AMD GPU, and the source, which is compiled at run
/// time for others. `cargo xtask kernels` makes the PTX and the code objects.
const CODE: Code = code!("../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

tidegate::kernel! {
    /// `x += 1`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn increment = "increment"(x: &mut [f64]);
    /// Counts the numbers in all slots that differ from `src`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn compare = "compare"(inbox: Slots<f64>, src: &[f64], errors: &mut [u64]);
}

/// The bound functions: launching one with other arguments does not compile.
struct Kernels {
    increment: increment<Gpu>,
    compare: compare<Gpu>,
}

impl Kernels {
    fn load(world: &World) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        // SAFETY: the module is `examples.cu`. Its functions take the declared parameters, and keep to the lengths.
        unsafe {
            Ok(Kernels {
                increment: increment(&module)?,
                compare: compare(&module)?,
            })
        }
    }
}

/// Everything that a step needs. `'s` is the brand of the stream that it is at home on.
#[derive(Carry)]
struct Ring<'s> {
    src: Region<f64, On<'s>>,
    /// A kernel on a GPU cannot panic, so it counts the errors for the host.
    errors: Region<u64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
    to_left: Out<f64>,
    to_right: Out<f64>,
}

/// One step. Nothing here waits: everything is enqueued on the stream.
fn step<'s>(k: &Kernels, s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let exposed = r.inbox.post(s)?; // the inbox is moved: nobody here can touch it now
    s.launch(k.increment.threads(LEN, 128), (&mut r.src,))?; // with at least so many threads, in blocks of 128
    let mut epoch = r.outbox.start();
    epoch.put(&r.src, r.to_left)?; // only noted; `r.src` is borrowed: writing it now does not compile
    epoch.put(&r.src, r.to_right)?;
    let outbox = epoch.complete(s)?; // enqueued: wait for the neighbours' posts, move, signal
    let inbox = exposed.wait(s)?; // enqueued: wait for the neighbours' signals
    s.launch(
        k.compare.threads(LEN, 128),
        (inbox.view(), &r.src, &mut r.errors),
    )?;
    Ok(Ring { inbox, outbox, ..r })
}

fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();
    let kernels = Kernels::load(&world)?; // first: code is not loaded while a stream may be waiting

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
        errors: Region::zeroed(&world, 1)?.on(&s)?,
        inbox,
        outbox,
        to_left,
        to_right,
    };

    let (graph, ring) = s.capture(ring, |s, ring| step(&kernels, s, ring))?; // a graph of the driver
    graph.verify(&s)?.proof()?; // on all ranks: no number of replays waits for ever
    let ring = graph.replay(&s, ring, 1_000)?; // and eager steps may go between replays:
    let ring = step(&kernels, &s, ring)?;

    let (mut src, mut errors) = (vec![0.0; LEN], [0]);
    ring.src.into_host(&s)?.read(0, &mut src)?; // the one synchronisation; only now can the CPU read
    ring.errors.into_host(&s)?.read(0, &mut errors)?;
    assert_eq!(errors, [0], "all ranks count alike");
    assert!(src.iter().all(|x| *x == 1001.0));
    println!("rank {rank} of {size}: {} steps, all equal", src[0]);
    Ok(())
}

fn main() {
    // Without a driver or a GPU, the program says so.
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
