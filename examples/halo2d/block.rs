//! The part of the problem that does not communicate: the cells of a rank, their places in the square, and the known
//! answer.

/// The number of unknowns along each side of the whole square.
pub(crate) const N: usize = 24;
/// The error that the answer may have.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// A rank's block of the square, with a frame of ghost cells around it.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// The place of its first unknown in the whole square.
    x: usize,
    y: usize,
    /// The sides with a neighbour, in the order of their slots.
    pub(crate) sides: Vec<Side>,
}

/// A side with a neighbour.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) neighbour: usize,
    /// The number of the side. The key of a slot is the side of the rank that *sends*.
    pub(crate) key: u64,
    /// The first of the outermost unknowns along this side, which the neighbour needs.
    pub(crate) edge: usize,
    /// The first of the ghost cells beyond them, where the neighbour's data belongs.
    pub(crate) ghosts: usize,
    /// The number of each.
    pub(crate) count: usize,
    /// The distance from each to the next: 1 along a row, and the length of a row along a column.
    pub(crate) stride: usize,
}

impl Block {
    /// The block of a rank, in the most nearly square grid of all ranks.
    pub(crate) fn new(rank: usize, size: usize) -> Self {
        let rows = (1..=size)
            .rfind(|r| size.is_multiple_of(*r) && r * r <= size)
            .unwrap_or(1);
        let columns = size / rows;
        let (column, row) = (rank % columns, rank / columns);
        let part = |i: usize, of: usize| (N * i / of, N * (i + 1) / of - N * i / of);
        let ((x, width), (y, height)) = (part(column, columns), part(row, rows));
        let mut block = Block {
            width,
            height,
            x,
            y,
            sides: Vec::new(),
        };
        let (w, h) = (width, height);
        let side = |key: u64, neighbour: usize, edge: (usize, usize), ghosts: (usize, usize)| {
            // West and east are columns, whose elements lie one row apart. South and north are rows, which are
            // contiguous.
            let (count, stride) = if key < 2 { (h, block.at(0, 1)) } else { (w, 1) };
            Side {
                neighbour,
                key,
                edge: block.at(edge.0, edge.1),
                ghosts: block.at(ghosts.0, ghosts.1),
                count,
                stride,
            }
        };
        let sides = [
            (column > 0).then(|| side(0, rank - 1, (1, 1), (0, 1))),
            (column + 1 < columns).then(|| side(1, rank + 1, (w, 1), (w + 1, 1))),
            (row > 0).then(|| side(2, rank - columns, (1, 1), (1, 0))),
            (row + 1 < rows).then(|| side(3, rank + columns, (1, h), (1, h + 1))),
        ];
        block.sides = sides.into_iter().flatten().collect();
        block
    }

    /// The index of a cell; those with a coordinate of 0 or beyond the last unknown are ghosts.
    pub(crate) fn at(&self, x: usize, y: usize) -> usize {
        y * (self.width + 2) + x
    }

    /// The known solution at a cell.
    pub(crate) fn exact(&self, x: usize, y: usize) -> f64 {
        let (x, y) = (
            (self.x + x) as f64 / (N + 1) as f64,
            (self.y + y) as f64 / (N + 1) as f64,
        );
        x * x - y * y
    }

    /// Zero everywhere except on the border of the whole square.
    pub(crate) fn start(&self) -> Vec<f64> {
        let mut u = vec![0.0; (self.width + 2) * (self.height + 2)];
        for y in 0..self.height + 2 {
            for x in 0..self.width + 2 {
                let (gx, gy) = (self.x + x, self.y + y);
                if gx == 0 || gx == N + 1 || gy == 0 || gy == N + 1 {
                    u[self.at(x, y)] = self.exact(x, y);
                }
            }
        }
        u
    }

    /// The largest error of the unknowns.
    pub(crate) fn error(&self, u: &[f64]) -> f64 {
        let cells = (1..=self.height).flat_map(|y| (1..=self.width).map(move |x| (x, y)));
        cells
            .map(|(x, y)| (u[self.at(x, y)] - self.exact(x, y)).abs())
            .fold(0.0, f64::max)
    }
}
