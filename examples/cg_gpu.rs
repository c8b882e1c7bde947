//! `cg` on GPUs: conjugate gradients on an unstructured mesh that is cut in pieces.
//!
//! The whole iteration is recorded: the puts between pieces, which gather by lists of indices; four kernels; and both
//! sums over all ranks. So the host waits once in 20 iterations, to look at the residual. `ring_gpu` explains how
//! kernels are declared.
//!
//! Run it with `cargo run --example cg_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/cg_gpu`.

#[path = "cg/mesh.rs"]
mod mesh;

use std::time::Instant;

use mesh::{LOOK, Mesh, Piece, Rows, SMALL, VERTICES};
#[cfg(feature = "cuda")]
use tidegate::cuda::prelude::*;
#[cfg(not(feature = "cuda"))]
use tidegate::hip::prelude::*;

const CODE: Code = code!("../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

/// The threads of a block, as in the kernels.
const BLOCK: usize = 128;
/// The blocks of a kernel. A kernel's sum is one number for each block. The sum over all ranks is made of each number,
/// and a kernel that needs the total adds them up.
const PARTS: usize = 32;

tidegate::kernel! {
    /// Puts the values that came behind this rank's `own` elements of `p`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn take_foreign = "take_foreign"(came: Slots<f64>, p: &mut [f64], own: u64);
    /// `q = A p`, parts of `p q`; and `before = now`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn multiply_rows = "multiply_rows"(start: &[u64], columns: &[u64], values: &[f64], p: &[f64], now: &[f64], q: &mut [f64], p_q: &mut [f64], before: &mut [f64]);
    /// `x += alpha p`, `r -= alpha q`, and parts of `r r`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn step_along = "step_along"(p: &[f64], q: &[f64], p_q: &[f64], before: &[f64], x: &mut [f64], r: &mut [f64], now: &mut [f64]);
    /// `p = r + beta p`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn turn = "turn"(r: &[f64], now: &[f64], before: &[f64], p: &mut [f64]);
}

struct Kernels {
    take_foreign: take_foreign<Gpu>,
    multiply_rows: multiply_rows<Gpu>,
    step_along: step_along<Gpu>,
    turn: turn<Gpu>,
}

impl Kernels {
    fn load(world: &World) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        // SAFETY: the module is `examples.cu`. Its functions take the declared parameters, and keep to the lengths.
        unsafe {
            Ok(Kernels {
                take_foreign: take_foreign(&module)?,
                multiply_rows: multiply_rows(&module)?,
                step_along: step_along(&module)?,
                turn: turn(&module)?,
            })
        }
    }
}

/// The rows of the matrix, on the GPU.
#[derive(Carry)]
struct Matrix<'s> {
    start: Region<u64, On<'s>>,
    columns: Region<u64, On<'s>>,
    values: Region<f64, On<'s>>,
}

impl<'s> Matrix<'s> {
    fn new(s: &Stream<'s>, world: &World, rows: &Rows) -> Result<Self> {
        let places = |all: &[usize]| -> Result<Region<u64, On<'s>>> {
            let all: Vec<_> = all.iter().map(|&at| at as u64).collect();
            Region::from_slice(world, &all)?.on(s)
        };
        Ok(Matrix {
            start: places(&rows.start)?,
            columns: places(&rows.columns)?,
            values: Region::from_slice(world, &rows.values)?.on(s)?,
        })
    }
}

/// What an iteration needs. Regions of [`PARTS`] numbers are sums, which are the same on all ranks.
#[derive(Carry)]
struct Solver<'s> {
    a: Matrix<'s>,
    x: Region<f64, On<'s>>,
    /// The residual.
    r: Region<f64, On<'s>>,
    /// The direction. Behind this rank's vertices there is room for those of others.
    p: Region<f64, On<'s>>,
    /// The matrix times `p`.
    q: Region<f64, On<'s>>,
    p_q: Region<f64, On<'s>>,
    /// The squared residual, after this iteration and before it.
    now: Region<f64, On<'s>>,
    before: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
    sum: AllReduce<'s, f64>,
}

/// One iteration. Nothing here waits.
fn iterate<'s>(
    s: &Stream<'s>,
    k: &Kernels,
    lists: &[Layout],
    mut c: Solver<'s>,
) -> Result<Solver<'s>> {
    const THREADS: usize = PARTS * BLOCK;
    let block = BLOCK as u32;
    let slots = c.outbox.slots(); // one for each neighbour
    let mut epoch = c.outbox.start();
    for (to, list) in slots.zip(lists) {
        epoch.put(c.p.with(list)?, to)?; // gathered on its way
    }
    (c.inbox, c.outbox) = exchange(s, c.inbox, epoch)?;

    let own = c.q.len() as u64;
    let came = c.inbox.view();
    s.launch(
        k.take_foreign.threads(THREADS, block),
        (came, &mut c.p, own),
    )?;
    let a = &c.a;
    s.launch(
        k.multiply_rows.threads(THREADS, block),
        (
            &a.start,
            &a.columns,
            &a.values,
            &c.p,
            &c.now,
            &mut c.q,
            &mut c.p_q,
            &mut c.before,
        ),
    )?;
    c.sum.enqueue(s, &mut c.p_q)?;
    s.launch(
        k.step_along.threads(THREADS, block),
        (
            &c.p, &c.q, &c.p_q, &c.before, &mut c.x, &mut c.r, &mut c.now,
        ),
    )?;
    c.sum.enqueue(s, &mut c.now)?;
    s.launch(
        k.turn.threads(THREADS, block),
        (&c.r, &c.now, &c.before, &mut c.p),
    )?;
    Ok(c)
}

fn run() -> Result<()> {
    let world = World::init()?;
    let mesh = Mesh::new(world.size());
    let piece = Piece::new(&mesh, world.rank());
    let own = piece.vertices.len();
    let kernels = Kernels::load(&world)?;
    let lists = piece
        .links
        .iter()
        .map(|link| Layout::indexed(&world, &link.sent));
    let lists = lists.collect::<Result<Vec<_>>>()?;

    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("foreign vertices");
    for link in &piece.links {
        window.slot_from(link.rank, 0, link.received);
        window.slot_to_with_len(link.rank, 0, link.sent.len());
    }
    let (inbox, outbox) = window.open(&s)?;
    let mut sum = AllReduce::open(&s, "dots", PARTS, Op::Sum)?;

    // The first guess is zero, so the residual is the right-hand side.
    let mut r = piece.right_hand_side();
    let mut squared = [0.0; PARTS];
    squared[0] = r.iter().map(|r| r * r).sum();
    let mut now = Region::from_slice(&world, &squared)?.on(&s)?;
    sum.enqueue(&s, &mut now)?;
    let enough = SMALL * now.to_vec(&s)?.iter().sum::<f64>();
    let residual = Region::from_slice(&world, &r)?.on(&s)?;
    r.resize(own + piece.foreign(), 0.0);
    let zeroed = |len| -> Result<_> { Region::zeroed(&world, len)?.on(&s) };
    let c = Solver {
        a: Matrix::new(&s, &world, &piece.rows)?,
        x: zeroed(own)?,
        r: residual,
        p: Region::from_slice(&world, &r)?.on(&s)?,
        q: zeroed(own)?,
        p_q: zeroed(PARTS)?,
        now,
        before: zeroed(PARTS)?,
        inbox,
        outbox,
        sum,
    };

    let (graph, mut c) = s.capture(c, |s, c| iterate(s, &kernels, &lists, c))?;
    graph.verify(&s)?.proof()?;
    let (mut iterations, begin) = (0, Instant::now());
    loop {
        c = graph.replay(&s, c, LOOK)?;
        iterations += LOOK;
        let now: f64 = c.now.to_vec(&s)?.iter().sum();
        if now <= enough || iterations >= VERTICES {
            break; // on all ranks: they have compared the same bits
        }
    }
    let took = begin.elapsed().as_secs_f64() * 1e6 / iterations as f64;

    let mut x = vec![0.0; own];
    c.x.into_host(&s)?.read(0, &mut x)?;
    let words = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let all = world.all_gather("solution", words)?;
    if world.rank() == 0 {
        mesh.check(&all);
        println!(
            "{} ranks, {VERTICES} vertices: {iterations} iterations of {took:.1} us",
            world.size()
        );
    }
    Ok(())
}

fn main() {
    // Without a driver or a GPU, the program says so.
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
