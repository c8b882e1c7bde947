//! The problem of `cg` and `cg_gpu`: the mesh, one rank's piece of it, and the required accuracy.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) const VERTICES: usize = 1500;
/// The average number of edges of a vertex.
const DEGREE: f64 = 8.0;
/// The shift that makes the matrix positive definite.
const SHIFT: f64 = 1e-3;
/// The number of iterations between two looks at the residual.
pub(crate) const LOOK: usize = 20;
/// The loop ends at this squared residual, relative to the first one.
pub(crate) const SMALL: f64 = 1e-20;

/// The whole mesh, which is the same on all ranks: the neighbours of each vertex, and the rank that it belongs to.
pub(crate) struct Mesh {
    joined: Vec<Vec<usize>>,
    owner: Vec<usize>,
}

impl Mesh {
    /// Random points in the unit square. Points that are near each other are joined. Each point belongs to the rank
    /// with the nearest centre.
    pub(crate) fn new(ranks: usize) -> Self {
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

    /// Checks the solution: each rank brings the values of its own vertices.
    pub(crate) fn check(&self, found: &[Vec<u8>]) {
        let mut pieces: Vec<_> = found.iter().map(|piece| piece.chunks_exact(8)).collect();
        let mut next = |&owner: &usize| {
            let word = pieces[owner].next().expect("every vertex has an owner");
            f64::from_le_bytes(word.try_into().expect("of 8 bytes"))
        };
        let x: Vec<f64> = self.owner.iter().map(&mut next).collect();
        let (left, zero) = self.residuals(&x);
        // The residual that is updated in each iteration drifts away from the true one by rounding.
        assert!(
            left <= 100.0 * SMALL * zero,
            "squared residual {left:e} of {zero:e}"
        );
    }

    /// The squared residual of a solution, and that of zero.
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

/// The rows of this rank's vertices, in compressed form. A column is an index into `p`. This rank's vertices come
/// first, and then those of others, neighbour by neighbour, like the slots of the inbox.
pub(crate) struct Rows {
    pub(crate) start: Vec<usize>,
    pub(crate) columns: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

/// The exchange with one neighbour.
pub(crate) struct Link {
    pub(crate) rank: usize,
    /// The indices in `p` of the vertices that the neighbour needs.
    pub(crate) sent: Vec<u32>,
    /// How many of the neighbour's vertices this rank's rows refer to.
    pub(crate) received: usize,
}

/// One rank's piece of the mesh.
pub(crate) struct Piece {
    /// The vertices, by their numbers in the mesh.
    pub(crate) vertices: Vec<usize>,
    pub(crate) rows: Rows,
    pub(crate) links: Vec<Link>,
}

impl Piece {
    /// How many vertices of other ranks its rows refer to.
    pub(crate) fn foreign(&self) -> usize {
        self.links.iter().map(|link| link.received).sum()
    }

    /// The right-hand side of its rows.
    pub(crate) fn right_hand_side(&self) -> Vec<f64> {
        let vertices = self.vertices.iter();
        vertices.map(|&i| Mesh::right_hand_side(i)).collect()
    }

    pub(crate) fn new(mesh: &Mesh, rank: usize) -> Self {
        let vertices: Vec<usize> = (0..VERTICES).filter(|&i| mesh.owner[i] == rank).collect();
        // Vertices are sorted by neighbour and then by number, so both ranks list them in the same order.
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
            rows,
            links,
        }
    }
}
