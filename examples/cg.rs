//! Conjugate gradients on an unstructured mesh that is cut into pieces of any shape.
//!
//! Each rank puts to each neighbour the values of the vertices that the neighbour's rows refer to, which is a list of
//! indices ([`Layout::indexed`]). The two sums of an iteration are reductions over all ranks, and are enqueued as well
//! ([`AllReduce`]). So an iteration can be recorded, and the host looks at the residual once in 20 iterations. The sums
//! have the same bits on all ranks, so all ranks leave the loop at the same iteration.
//!
//! The matrix is the Laplacian of a graph, shifted a little (`cg/mesh.rs`). Rank 0 knows the whole mesh, and checks the
//! solution. `cg_gpu` is the same on GPUs.
//!
//! Run it with `cargo run --example cg`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/cg`.

#[path = "cg/mesh.rs"]
mod mesh;

use std::sync::Arc;

use mesh::{LOOK, Mesh, Piece, Rows, SMALL, VERTICES};
use tidegate::host::prelude::*;

impl Rows {
    fn times(&self, p: &[f64], q: &mut [f64]) {
        for (q, row) in q.iter_mut().zip(self.start.windows(2)) {
            *q = (row[0]..row[1])
                .map(|k| self.values[k] * p[self.columns[k]])
                .sum();
        }
    }
}

/// What an iteration needs. Each of the last four regions is one number, which is the same on all ranks.
#[derive(Carry)]
struct Solver<'s> {
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

fn square(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum()
}

/// A quotient that is 0 if the exact solution has been found, so that further iterations change nothing.
fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// One iteration. Nothing here waits. The lists and the rows are the program's own memory, and only borrowed: a
/// recording must be lent only what is at home on a stream.
fn iterate<'s>(
    s: &Stream<'s>,
    rows: &Arc<Rows>,
    lists: &[Layout],
    mut c: Solver<'s>,
) -> Result<Solver<'s>> {
    let slots = c.outbox.slots(); // one for each neighbour
    let mut epoch = c.outbox.start();
    for (to, list) in slots.zip(lists) {
        epoch.put(c.p.with(list)?, to)?; // gathered on its way
    }
    (c.inbox, c.outbox) = exchange(s, c.inbox, epoch)?;

    let rows = rows.clone();
    let multiply = move |came: Slots<'_, f64>, p: &mut [f64], q: &mut [f64], p_q: &mut [f64]| {
        let mut place = q.len();
        for slot in came.iter() {
            p[place..][..slot.len()].copy_from_slice(slot);
            place += slot.len();
        }
        rows.times(p, q);
        p_q[0] = q.iter().zip(&*p).map(|(q, p)| q * p).sum();
    };
    s.launch(multiply, (c.inbox.view(), &mut c.p, &mut c.q, &mut c.p_q))?;
    c.sum.enqueue(s, &mut c.p_q)?;

    let step = |p: &[f64],
                q: &[f64],
                p_q: &[f64],
                before: &[f64],
                x: &mut [f64],
                r: &mut [f64],
                now: &mut [f64]| {
        let alpha = ratio(before[0], p_q[0]);
        for i in 0..x.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        now[0] = square(r);
    };
    s.launch(
        step,
        (
            &c.p, &c.q, &c.p_q, &c.before, &mut c.x, &mut c.r, &mut c.now,
        ),
    )?;
    c.sum.enqueue(s, &mut c.now)?;

    let turn = |r: &[f64], now: &[f64], p: &mut [f64], before: &mut [f64]| {
        let beta = ratio(now[0], before[0]);
        for (p, r) in p.iter_mut().zip(r) {
            *p = r + beta * *p;
        }
        before[0] = now[0];
    };
    s.launch(turn, (&c.r, &c.now, &mut c.p, &mut c.before))?;
    Ok(c)
}

fn main() -> Result<()> {
    let world = World::init()?;
    let mesh = Mesh::new(world.size());
    let piece = Piece::new(&mesh, world.rank());
    let own = piece.vertices.len();
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
    let mut sum = AllReduce::open(&s, "dots", 1, Op::Sum)?;

    // The first guess is zero, so the residual is the right-hand side.
    let mut r = piece.right_hand_side();
    let mut before = Region::from_slice(&world, &[square(&r)])?.on(&s)?;
    sum.enqueue(&s, &mut before)?;
    let before = before.into_host(&s)?;
    let enough = SMALL * before[0];
    let residual = Region::from_slice(&world, &r)?.on(&s)?;
    r.resize(own + piece.foreign(), 0.0);
    let c = Solver {
        x: Region::zeroed(&world, own)?.on(&s)?,
        r: residual,
        p: Region::from_slice(&world, &r)?.on(&s)?,
        q: Region::zeroed(&world, own)?.on(&s)?,
        p_q: Region::zeroed(&world, 1)?.on(&s)?,
        now: Region::zeroed(&world, 1)?.on(&s)?,
        before: before.on(&s)?,
        inbox,
        outbox,
        sum,
    };

    let rows = Arc::new(piece.rows); // shared with the kernel that multiplies, which is recorded with it
    let (graph, mut c) = s.capture(c, |s, c| iterate(s, &rows, &lists, c))?;
    graph.verify(&s)?.proof()?;
    let mut iterations = 0;
    loop {
        c = graph.replay(&s, c, LOOK)?;
        iterations += LOOK;
        if c.now.to_vec(&s)?[0] <= enough || iterations >= VERTICES {
            break; // on all ranks: they have compared the same bits
        }
    }

    let x = c.x.into_host(&s)?;
    let words = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let all = world.all_gather("solution", words)?;
    if world.rank() == 0 {
        mesh.check(&all);
        println!(
            "{} ranks, {VERTICES} vertices: {iterations} iterations",
            world.size()
        );
    }
    Ok(())
}
