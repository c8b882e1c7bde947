//! Where things are: points in a block, messages in a buffer, neighbours in the rank grid.
//!
//! # Model
//!
//! A block is one slice of `f64`, `u(ix,iy,iz,jx,jy,jz)` with `ix` fastest: `i` is a point within
//! its element, `j` the element within the block. A [`Direction`] is one of the 26 non-zero offsets
//! to a neighbour. The message *to* direction `d` is the part of the surface that touches that
//! neighbour, in the order of the slice: a face (`n*n` values an element), an edge (`n` an element)
//! or a corner (1). [`Geometry::strided`] says where those values are, so that a message can be
//! sent straight out of the block; [`Geometry::slot`] says where it is in a packed buffer. What
//! arrives *from* the neighbour at `d` lies in slot `d`: it was sent by that neighbour to
//! [`Direction::opposite`]`(d)`, and has the same size.
//!
//! The block is the disjoint union of two parts: the **surface** ([`Geometry::is_surface`]: a
//! coordinate of the point is the first or the last of the whole block) and the **interior**, all
//! other points. `pack` reads and `unpack` writes only the surface; `compute` reads and writes only
//! the interior, because all copies (in one block) of a global point have the same coordinates in
//! the block, so they are either all on the surface or all inside. So the two may run at the same
//! time. [`Geometry::surface_ranges`] and [`Geometry::interior_ranges`] are the two index sets.
//!
//! The block stays one array, as in the codes that this stands for, although two arrays (surface
//! and interior) would make it trivial to lend the two parts to two streams: then packing would be
//! a copy of contiguous memory, and the benchmark would no longer measure what a halo exchange
//! costs. The kernels take views instead ([`Points`](super::kernels::Points)). A view of relaxed
//! atomic words costs up to 15 % over a slice in `compute`, 30 % in `unpack` and 50 % in `pack`; one
//! that looks each index up in a bit set of its part costs 20 to 75 % in `unpack`, 50 to 150 % in
//! `compute` and up to 100 % in `pack` (`cargo bench -p tidegate-bench --bench kernels`).
//!
//! # Failures
//!
//! [`Geometry::new`] refuses invalid sizes and ranks. Everything else is total; indices out of
//! range panic.

mod direction;
mod patches;
mod points;
mod strided;

pub use direction::{Direction, Kind};
use patches::Affine;
pub(crate) use patches::{Group, Loop, Patch};
pub(crate) use points::{PointList, WIDE};
pub use strided::{Dim, Strided};

use super::params::{Grid, ParamsError, Size};
use std::ops::Range;

/// Slots begin at multiples of this many values (128 bytes): no two writers of different slots
/// share a cache line, and vector stores are aligned.
pub const SLOT_ALIGN: usize = 16;

/// The layout of one rank's block and messages; built once, then only read.
#[derive(Debug, Clone)]
pub struct Geometry {
    grid: Grid,
    size: Size,
    rank: usize,
    block: Affine,
    neighbours: [Option<usize>; Direction::COUNT],
    slots: [Range<usize>; Direction::COUNT],
    messages: [Strided; Direction::COUNT],
    surface: Vec<Group>,
    lists: Option<Vec<PointList>>,
    interior: Group,
}

impl Geometry {
    /// The layout of `rank`'s block.
    ///
    /// # Errors
    ///
    /// An invalid grid or size, or a rank that is not in the grid.
    pub fn new(grid: Grid, size: Size, rank: usize) -> Result<Geometry, ParamsError> {
        grid.validate()?;
        size.validate()?;
        if rank >= grid.ranks() {
            return Err(ParamsError::NoSuchRank {
                rank,
                ranks: grid.ranks(),
            });
        }
        let place = grid.place(rank);
        let neighbours = Direction::table(|d| neighbour(grid, place, d));
        let mut end = 0;
        let slots = Direction::table(|d| {
            let start = end;
            let len = d.message_len(size);
            end = (start + len).next_multiple_of(SLOT_ALIGN);
            start..start + len
        });
        let present = |d: usize, side: i8| match side {
            -1 => place[d] > 0,
            1 => place[d] + 1 < grid.0[d],
            _ => false,
        };
        let surface = Patch::surface(size, present);
        let lists = PointList::of_small(size, &surface);
        Ok(Geometry {
            grid,
            size,
            rank,
            block: Affine::block(size),
            neighbours,
            slots,
            messages: Direction::table(|d| Strided::message(size, d)),
            surface,
            lists,
            interior: Patch::interior(size),
        })
    }

    /// The grid of ranks.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The size of the block.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The rank whose block this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// This rank's place `[kx, ky, kz]` in the grid.
    pub fn place(&self) -> [usize; 3] {
        self.grid.place(self.rank)
    }

    /// Values in the block.
    pub fn len(&self) -> usize {
        self.size.values()
    }

    /// Never: a block has at least one element.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The rank at a direction, `None` beyond the end of the grid.
    pub fn neighbour(&self, d: Direction) -> Option<usize> {
        self.neighbours[d.index()]
    }

    /// All directions that have a neighbour, and the neighbour's rank.
    pub fn neighbours(&self) -> impl Iterator<Item = (Direction, usize)> + '_ {
        Direction::all().filter_map(|d| Some((d, self.neighbour(d)?)))
    }

    /// How many values are sent to (and received from) a direction; also where there is no
    /// neighbour.
    pub fn message_len(&self, d: Direction) -> usize {
        self.slots[d.index()].len()
    }

    /// The place of a direction's message in a packed buffer of [`Geometry::packed_len`] values.
    /// The same on every rank.
    pub fn slot(&self, d: Direction) -> Range<usize> {
        self.slots[d.index()].clone()
    }

    /// The length of a packed buffer with all 26 slots, those without a neighbour included, in
    /// values.
    pub fn packed_len(&self) -> usize {
        self.slots[Direction::COUNT - 1]
            .end
            .next_multiple_of(SLOT_ALIGN)
    }

    /// The bytes that this rank sends in one share.
    pub fn sent_bytes(&self) -> usize {
        self.neighbours()
            .map(|(d, _)| self.message_len(d) * size_of::<f64>())
            .sum()
    }

    /// Where the values of the message to a direction are in the block, in the order of the
    /// message.
    pub fn strided(&self, d: Direction) -> &Strided {
        &self.messages[d.index()]
    }

    /// The index of point `i` of element `j`.
    ///
    /// # Panics
    ///
    /// In debug builds, when a coordinate is out of range.
    pub fn index(&self, i: [usize; 3], j: [usize; 3]) -> usize {
        debug_assert!(
            (0..3).all(|d| i[d] < self.size.n && j[d] < self.size.m[d]),
            "no point {i:?} in element {j:?}"
        );
        self.block.at(i, j)
    }

    /// The point and the element `(i, j)` of an index: the inverse of [`Geometry::index`].
    pub fn coordinates(&self, index: usize) -> ([usize; 3], [usize; 3]) {
        let (n, [mx, my, _]) = (self.size.n, self.size.m);
        let (point, element) = (index % n.pow(3), index / n.pow(3));
        (
            [point % n, point / n % n, point / (n * n)],
            [element % mx, element / mx % my, element / (mx * my)],
        )
    }

    /// Whether the point at an index is on the surface of the block.
    pub fn is_surface(&self, index: usize) -> bool {
        let (i, j) = self.coordinates(index);
        (0..3).any(|d| self.at_end(d, i[d], j[d]))
    }

    fn at_end(&self, d: usize, i: usize, j: usize) -> bool {
        (i == 0 && j == 0) || (i == self.size.n - 1 && j == self.size.m[d] - 1)
    }

    /// The indices of the surface as ascending ranges that neither overlap nor touch.
    pub fn surface_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        merged(self.lines().flat_map(move |(start, surface)| {
            let (n, jx) = (self.size.n, start / self.size.n.pow(3) % self.size.m[0]);
            let (first, last) = (jx == 0, jx == self.size.m[0] - 1);
            let all = surface.then_some(start..start + n);
            let low = (!surface && first).then_some(start..start + 1);
            let high = (!surface && last).then_some(start + n - 1..start + n);
            [all, low, high].into_iter().flatten()
        }))
    }

    /// The indices of all other points, in the same form: the complement of
    /// [`Geometry::surface_ranges`].
    pub fn interior_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        merged(
            self.lines()
                .filter(|&(_, surface)| !surface)
                .map(move |(start, _)| {
                    let (n, jx) = (self.size.n, start / self.size.n.pow(3) % self.size.m[0]);
                    start + usize::from(jx == 0)..start + n - usize::from(jx == self.size.m[0] - 1)
                }),
        )
    }

    /// Every line of `n` contiguous values: its first index, and whether its y or z puts it on the
    /// surface.
    fn lines(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        (0..self.len() / self.size.n).map(move |line| {
            let start = line * self.size.n;
            let (i, j) = self.coordinates(start);
            (
                start,
                self.at_end(1, i[1], j[1]) || self.at_end(2, i[2], j[2]),
            )
        })
    }

    /// The surface points that have several copies, each of them in one patch: a group for each direction.
    pub(crate) fn surface_patches(&self) -> &[Group] {
        &self.surface
    }

    /// The same one by one, if the surface is small.
    pub(crate) fn surface_lists(&self) -> Option<&[PointList]> {
        self.lists.as_deref()
    }

    /// The same strictly inside.
    pub(crate) fn interior_patches(&self) -> &Group {
        &self.interior
    }
}

fn neighbour(grid: Grid, place: [usize; 3], d: Direction) -> Option<usize> {
    let mut at = place;
    for ((at, step), side) in at.iter_mut().zip(d.offset()).zip(grid.0) {
        *at = at.checked_add_signed(step.into()).filter(|&k| k < side)?;
    }
    Some(grid.rank(at))
}

/// Joins ranges that touch.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> impl Iterator<Item = Range<usize>> {
    let mut ranges = ranges.filter(|r| !r.is_empty()).peekable();
    std::iter::from_fn(move || {
        let mut range = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.start == range.end) {
            range.end = next.end;
        }
        Some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(rank: usize) -> Geometry {
        Geometry::new(Grid([3, 2, 2]), Size { m: [2, 3, 4], n: 5 }, rank).unwrap()
    }

    #[test]
    fn neighbours_point_back() {
        for rank in 0..12 {
            for (d, other) in geometry(rank).neighbours() {
                assert_eq!(geometry(other).neighbour(d.opposite()), Some(rank));
            }
        }
        assert_eq!(geometry(0).neighbours().count(), 7);
        assert_eq!(geometry(1).neighbours().count(), 11);
        assert_eq!(
            Geometry::new(Grid([3; 3]), Size::DESK, 13)
                .unwrap()
                .neighbours()
                .count(),
            26
        );
        assert!(matches!(
            Geometry::new(Grid([1; 3]), Size::DESK, 1),
            Err(ParamsError::NoSuchRank { .. })
        ));
    }

    #[test]
    fn published_sizes_of_messages() {
        let g = Geometry::new(Grid([2; 3]), Size::SMALL, 0).unwrap();
        let bytes = |d| g.message_len(Direction::from_offset(d).unwrap()) * 8;
        assert_eq!(bytes([1, 0, 0]), 209_664);
        assert_eq!(bytes([0, 1, 0]), 224_640);
        assert_eq!(bytes([0, 0, -1]), 241_920);
        assert_eq!(bytes([0, 1, -1]), 12 * 15 * 8);
        assert_eq!(bytes([1, 1, 1]), 8);
        assert_eq!(
            g.sent_bytes(),
            209_664 + 224_640 + 241_920 + 8 * 12 * (15 + 14 + 13) + 8
        );
    }

    #[test]
    fn slots_are_aligned_and_apart() {
        let g = geometry(0);
        let mut end = 0;
        for d in Direction::all() {
            let slot = g.slot(d);
            assert!(slot.start >= end && slot.start.is_multiple_of(SLOT_ALIGN));
            assert_eq!(slot.len(), g.strided(d).len());
            end = slot.end;
        }
        assert!(g.packed_len() >= end);
    }
}
