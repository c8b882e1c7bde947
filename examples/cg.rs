//! Conjugate gradients on an unstructured mesh, cut in pieces of any shape: each rank puts to each neighbour the values
//! of the vertices that the neighbour's rows refer to, a list of indices ([`Layout::indexed`]), and the two sums of an
//! iteration are reductions over all ranks that are enqueued as well ([`AllReduce`]).
//!
//! So an iteration can be recorded, and the host looks at the residual once in 20 iterations. The sums have the same
//! bits on all ranks, so that all of them leave the loop at the same iteration.
//!
//! What is solved: the Laplacian of a graph, shifted a little. Rank 0 knows the whole mesh, and checks the solution.
//!
//! Run it with `cargo run --example cg`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/cg`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate::prelude::*;

const VERTICES: usize = 1500;
/// Vertices on the average that a vertex is joined to.
const DEGREE: f64 = 8.0;
/// What makes the matrix positive definite.
const SHIFT: f64 = 1e-3;
/// Iterations between two looks at the residual.
const LOOK: u64 = 20;
/// The squared residual, relative to that of the beginning, at which the loop ends.
const SMALL: f64 = 1e-20;

/// The whole mesh, the same on all ranks: who is joined to whom, and which rank each vertex belongs to.
struct Mesh {
    joined: Vec<Vec<usize>>,
    owner: Vec<usize>,
}

impl Mesh {
    /// Points strewn over the unit square. Those that are near each other are joined, and each belongs to the rank whose
    /// centre is nearest.
    fn new(ranks: usize) -> Self {
        let mut seed = 88_172_645_463_325_252_u64; // of a xorshift generator
        let mut coordinate = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut strew =
            |n| -> Vec<[f64; 2]> { (0..n).map(|_| [coordinate(), coordinate()]).collect() };
        let (points, centres) = (strew(VERTICES), strew(ranks));
        let apart = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2);
        let near = DEGREE / (std::f64::consts::PI * VERTICES as f64);
        let joined = |i: usize| {
            let others = (0..VERTICES).filter(|&j| j != i);
            others
                .filter(|&j| apart(points[i], points[j]) < near)
                .collect()
        };
        let nearest = |point: &[f64; 2]| {
            let order = |a: &usize, b: &usize| {
                apart(*point, centres[*a]).total_cmp(&apart(*point, centres[*b]))
            };
            (0..ranks).min_by(order).expect("a job has ranks")
        };
        Mesh {
            joined: (0..VERTICES).map(joined).collect(),
            owner: points.iter().map(nearest).collect(),
        }
    }

    fn right_hand_side(vertex: usize) -> f64 {
        (vertex as f64 * 0.37).sin()
    }

    /// The squared residual of a solution of all vertices, and that of zero.
    fn residuals(&self, x: &[f64]) -> (f64, f64) {
        let row = |i: usize| {
            let others: f64 = self.joined[i].iter().map(|&j| x[j]).sum();
            (self.joined[i].len() as f64 + SHIFT) * x[i] - others
        };
        let left = (0..VERTICES)
            .map(|i| (Self::right_hand_side(i) - row(i)).powi(2))
            .sum();
        (
            left,
            (0..VERTICES)
                .map(|i| Self::right_hand_side(i).powi(2))
                .sum(),
        )
    }
}

/// The rows of this rank's vertices, in compressed form. A column is a place in `p`: this rank's vertices come first,
/// and then those of others, neighbour by neighbour, as the slots of the inbox.
struct Rows {
    start: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Rows {
    fn times(&self, p: &[f64], q: &mut [f64]) {
        for (q, row) in q.iter_mut().zip(self.start.windows(2)) {
            *q = (row[0]..row[1])
                .map(|k| self.values[k] * p[self.columns[k]])
                .sum();
        }
    }
}

/// What is exchanged with one neighbour.
struct Link {
    rank: usize,
    /// Places in `p` of what the neighbour needs of ours.
    sent: Vec<u32>,
    /// How many of the neighbour's vertices our rows refer to.
    received: usize,
}

/// One rank's piece of the mesh.
struct Piece {
    /// The vertices, by their numbers in the mesh.
    vertices: Vec<usize>,
    rows: Arc<Rows>, // shared with the kernel that multiplies, which is recorded with it
    links: Vec<Link>,
}

impl Piece {
    fn new(mesh: &Mesh, rank: usize) -> Self {
        let vertices: Vec<usize> = (0..VERTICES).filter(|&i| mesh.owner[i] == rank).collect();
        // By neighbour, in the order of the vertices' numbers: so both ranks list what crosses between them alike.
        let mut crossing: BTreeMap<usize, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
        for &i in &vertices {
            for &j in mesh.joined[i].iter().filter(|&&j| mesh.owner[j] != rank) {
                let (sent, received) = crossing.entry(mesh.owner[j]).or_default();
                sent.insert(i);
                received.insert(j);
            }
        }
        let foreign = crossing.values().flat_map(|(_, received)| received);
        let places: BTreeMap<usize, usize> =
            vertices.iter().chain(foreign).copied().zip(0..).collect();
        let link = |(&rank, (sent, received)): (&usize, &(BTreeSet<_>, BTreeSet<_>))| Link {
            rank,
            sent: sent.iter().map(|i| places[i] as u32).collect(),
            received: received.len(),
        };
        let links = crossing.iter().map(link).collect();

        let mut rows = Rows {
            start: vec![0],
            columns: Vec::new(),
            values: Vec::new(),
        };
        for i in &vertices {
            rows.columns.push(places[i]);
            rows.values.push(mesh.joined[*i].len() as f64 + SHIFT);
            rows.columns
                .extend(mesh.joined[*i].iter().map(|j| places[j]));
            rows.values.resize(rows.columns.len(), -1.0);
            rows.start.push(rows.columns.len());
        }
        Piece {
            vertices,
            rows: Arc::new(rows),
            links,
        }
    }
}

/// What an iteration needs. The last four regions are of one number each, the same on all ranks.
#[derive(Carry)]
struct Solver<'s> {
    x: Region<f64, On<'s>>,
    /// The residual.
    r: Region<f64, On<'s>>,
    /// The direction, with room for others' vertices behind this rank's.
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

/// A quotient for an iteration after the exact solution was found, which then changes nothing.
fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// One iteration; nothing here waits. The lists and the rows are the program's own memory, and only borrowed: what must
/// be lent to a recording is what is at home on a stream.
fn iterate<'s>(
    s: &Stream<'s>,
    rows: &Arc<Rows>,
    lists: &[Layout],
    mut c: Solver<'s>,
) -> Result<Solver<'s>> {
    let mut epoch = c.outbox.start();
    for (slot, list) in (0..).map(Slot).zip(lists) {
        epoch.put(c.p.with(list)?, slot)?; // gathered on its way
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
    c.sum.sum(s, &mut c.p_q)?;

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
    c.sum.sum(s, &mut c.now)?;

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
    let world: World = World::init()?;
    let mesh = Mesh::new(world.size());
    let piece = Piece::new(&mesh, world.rank());
    let own = piece.vertices.len();
    let foreign: usize = piece.links.iter().map(|link| link.received).sum();
    let lists = piece
        .links
        .iter()
        .map(|link| Layout::indexed(&world, &link.sent));
    let lists = lists.collect::<Result<Vec<_>>>()?;

    stream!(let s = world.stream()?);
    let mut window = Window::by_slot("foreign vertices");
    for link in &piece.links {
        window = window
            .slot_from(link.rank, 0, link.received)
            .slot_to_with_len(link.rank, 0, link.sent.len());
    }
    let (inbox, outbox) = window.open(&s)?;
    let mut sum = AllReduce::open(&s, "dots", 1)?;

    // The first guess is zero, so that the residual is the right-hand side.
    let mut r: Vec<f64> = piece
        .vertices
        .iter()
        .map(|&i| Mesh::right_hand_side(i))
        .collect();
    let mut before = Region::from_slice(&world, &[square(&r)])?.on(&s)?;
    sum.sum(&s, &mut before)?;
    let before = before.into_host(&s)?;
    let enough = SMALL * before[0];
    let residual = Region::from_slice(&world, &r)?.on(&s)?;
    r.resize(own + foreign, 0.0);
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

    let (graph, mut c) = s.capture(c, |s, c| iterate(s, &piece.rows, &lists, c))?;
    let mut iterations = 0;
    loop {
        c = graph.replay(&s, c, LOOK)?;
        iterations += LOOK;
        let now = c.now.into_host(&s)?;
        let done = now[0] <= enough || iterations >= VERTICES as u64;
        c.now = now.on(&s)?;
        if done {
            break; // on all ranks: they have compared the same bits
        }
    }

    let x = c.x.into_host(&s)?;
    let words = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let all = world.gather("solution", words)?;
    if world.rank() == 0 {
        let mut pieces: Vec<_> = all.iter().map(|piece| piece.chunks_exact(8)).collect();
        let mut next = |&owner: &usize| {
            let word = pieces[owner].next().expect("every vertex has an owner");
            f64::from_le_bytes(word.try_into().expect("of 8 bytes"))
        };
        let x: Vec<f64> = mesh.owner.iter().map(&mut next).collect();
        let (left, zero) = mesh.residuals(&x);
        // What is updated from iteration to iteration drifts away from the true residual by rounding.
        assert!(
            left <= 100.0 * SMALL * zero,
            "squared residual {left:e} of {zero:e}"
        );
        println!(
            "{} ranks, {VERTICES} vertices: {iterations} iterations",
            world.size()
        );
    }
    Ok(())
}
