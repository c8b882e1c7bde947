//! The points that have several copies, as a short list for the kernels that sum them.
//!
//! # Model
//!
//! A block has, in each dimension, a first coordinate, a last one, and those between. That gives 27
//! disjoint *pieces*: one for each direction (the points that touch it, without those that touch
//! more), and the interior. All points of a piece hear from the same neighbours.
//!
//! A coordinate between the ends is either strictly inside an element (one copy), or between two
//! elements (a pair). A [`Patch`] is all points of a piece that are of the same sort in each
//! dimension: a face has up to four, an edge two, a corner one, the interior seven. So all points
//! of a patch have the same number of copies, which lie at the same distance from each other, and a
//! patch is a nest of [`Loop`]s. Patches in which points have one copy only are left out, and so are
//! loops of one step; loops that continue each other are merged.
//!
//! Patches that lie in the same cache lines are walked together, row of elements by row of elements:
//! those of the interior, and those of each piece of the surface ([`Patch::rows`]). Small surfaces are
//! summed by [lists](super::points) instead, but for single pieces of them.
//!
//! There are at most 56 patches of the surface and 7 of the interior, however large the block is. So
//! the tables have at most 63 times 164 bytes, 10 KB, where a block of desk size has 111 KB and one of
//! small size 38 MB. (Each of two ranks has 39 and 7 patches, 7.5 KB; the lists of a small surface, 40 KB at most, come on top.)
//!
//! # Failures
//!
//! None: sizes were checked. Indices have 32 bits, which [`Size::validate`] sees to.

use super::Direction;
use crate::faces::params::Size;

/// An index that is affine in a point's and its element's coordinates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Affine {
    /// From a point to the next of its element, in each dimension; 0 in dimensions that a message
    /// does not have.
    pub(crate) i: [usize; 3],
    /// From an element to the next.
    pub(crate) j: [usize; 3],
}

impl Affine {
    /// Indices of a block.
    pub(crate) fn block(size: Size) -> Affine {
        Affine::along(size, |_| true)
    }

    /// Indices of a message that extends in those dimensions for which `has` says so.
    fn along(size: Size, has: impl Fn(usize) -> bool) -> Affine {
        let mut strides = Affine::default();
        let mut next = 1;
        for d in (0..3).filter(|&d| has(d)) {
            strides.i[d] = next;
            next *= size.n;
        }
        for d in (0..3).filter(|&d| has(d)) {
            strides.j[d] = next;
            next *= size.m[d];
        }
        strides
    }

    /// The index of point `i` of element `j`.
    pub(crate) fn at(&self, i: [usize; 3], j: [usize; 3]) -> usize {
        (0..3).map(|d| i[d] * self.i[d] + j[d] * self.j[d]).sum()
    }
}

/// Steps through the points of a patch, in all its sources at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loop {
    /// How many there are.
    pub(crate) count: u32,
    /// From one to the next, in the block and in up to three messages ([`Patch::source`]). (Points
    /// that hear from more neighbours are corners, which have no loops.)
    pub(crate) stride: [u32; 4],
}

impl Loop {
    /// No loop. (Its step is a step all the same, so that one can divide by it.)
    const ONCE: Loop = Loop {
        count: 1,
        stride: [1; 4],
    };
}

/// Points that have the same copies; see the module.
///
/// Of the dimensions in which its points have two copies, the first is bit 0 of a copy's number, the
/// next one bit 1, and so on. A bit that is set is the upper one of a pair, or the neighbour's.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    /// How many copies its points have: 2, 4 or 8.
    pub(crate) copies: u8,
    /// The bits of copies' numbers that say "the neighbour's".
    pub(crate) remote: u8,
    /// The direction (its index) of the neighbour that has a copy, for copies that are not in the
    /// block.
    pub(crate) from: [u8; 8],
    /// Where each copy of the first point is: in the block, or in that neighbour's message.
    pub(crate) start: [u32; 8],
    /// The innermost first. Strides in the block are multiples of all before them, and the block is a
    /// multiple of them all.
    pub(crate) loops: [Loop; 4],
    /// Loops around these, in which patches take turns.
    pub(crate) rows: [Loop; 2],
}

/// Patches that are walked together.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) patches: Vec<Patch>,
    /// The most that there are of any of them, in each of the two loops around.
    pub(crate) rows: [u32; 2],
}

impl Group {
    fn new(mut patches: Vec<Patch>) -> Group {
        // Each kind has code of its own.
        patches.sort_by_key(|patch| (patch.copies, patch.remote));
        let most = |k: usize| patches.iter().map(|patch| patch.rows[k].count).max();
        let rows = [most(0), most(1)].map(Option::unwrap_or_default);
        Group { patches, rows }
    }
}

/// The sort of a patch's points in one dimension.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    /// The first or last coordinate (`-1`, `1`).
    End(i8),
    /// Strictly inside an element.
    Inside,
    /// On the boundary between two elements.
    Between,
}

impl Patch {
    /// All patches of the surface of a block, a group for each direction, in their order; `present(d, s)` says whether there is a neighbour at side `s` of dimension `d`.
    pub(crate) fn surface(size: Size, present: impl Fn(usize, i8) -> bool) -> Vec<Group> {
        Direction::all()
            .map(|d| Group::new(Patch::piece(size, d.offset(), &present)))
            .collect()
    }

    /// Those of the interior.
    pub(crate) fn interior(size: Size) -> Group {
        Group::new(Patch::piece(size, [0; 3], |_, _| false))
    }

    fn piece(size: Size, side: [i8; 3], present: impl Fn(usize, i8) -> bool) -> Vec<Patch> {
        // Between two elements or not, in each dimension along which the piece extends.
        (0..8usize)
            .filter_map(|between| {
                let mut sorts = [Sort::Inside; 3];
                for d in 0..3 {
                    sorts[d] = match (side[d], between >> d & 1) {
                        (0, 0) => Sort::Inside,
                        (0, _) if size.m[d] > 1 => Sort::Between,
                        (end @ (-1 | 1), 0) => Sort::End(end),
                        _ => return None,
                    };
                }
                Patch::new(size, sorts, &present)
            })
            .collect()
    }

    /// `None` for points of one copy.
    fn new(size: Size, sorts: [Sort; 3], present: impl Fn(usize, i8) -> bool) -> Option<Patch> {
        let (n, m) = (size.n, size.m);
        let remote = |d: usize| matches!(sorts[d], Sort::End(side) if present(d, side));
        let twice = |d: &usize| sorts[*d] == Sort::Between || remote(*d);
        // The dimensions in which there are two copies, by bit; and the bits that are remote.
        let dims: Vec<usize> = (0..3).filter(twice).collect();
        if dims.is_empty() {
            return None;
        }
        let bits = |of: &dyn Fn(usize) -> bool| -> usize {
            (0..dims.len())
                .filter(|&bit| of(dims[bit]))
                .map(|bit| 1 << bit)
                .sum()
        };
        let remotes = bits(&remote);
        let has = |copy: usize, d: usize| {
            (0..dims.len()).any(|bit| dims[bit] == d && copy >> bit & 1 == 1)
        };

        let (mut from, mut start) = ([0; 8], [0; 8]);
        let mut strides = [Affine::default(); 4];
        for copy in 0..1 << dims.len() {
            let away = copy & remotes;
            let lies = Affine::along(size, |d| !has(away, d));
            let (mut i, mut j, mut offset) = ([0; 3], [0; 3], [0; 3]);
            for d in 0..3 {
                (i[d], j[d]) = match sorts[d] {
                    Sort::End(-1) => (0, 0),
                    Sort::End(_) => (n - 1, m[d] - 1),
                    Sort::Inside => (1, 0),
                    Sort::Between if has(copy, d) => (0, 1),
                    Sort::Between => (n - 1, 0),
                };
                if let (Sort::End(side), true) = (sorts[d], has(away, d)) {
                    offset[d] = side;
                }
            }
            start[copy] = narrow(lies.at(i, j));
            from[copy] = Direction::from_offset(offset).map_or(0, u8::from);
            strides[Patch::source(copy, remotes)] = lies;
        }

        let step = |count: usize, stride: &dyn Fn(&Affine) -> usize| Loop {
            count: narrow(count),
            stride: [0, 1, 2, 3].map(|source| narrow(stride(&strides[source]))),
        };
        let inside = (0..3).filter(|&d| sorts[d] == Sort::Inside);
        let points = inside.map(|d| step(n - 2, &|lies| lies.i[d]));
        let elements = |d: usize| match sorts[d] {
            Sort::End(_) => 1,
            Sort::Inside => m[d],
            Sort::Between => m[d] - 1,
        };
        let side = sorts.map(|sort| if let Sort::End(side) = sort { side } else { 0 });
        let elements = [0, 1, 2].map(|d| step(elements(d), &|lies| lies.j[d]));
        // On a face, the last dimension along which it extends; in the interior the last two.
        let split = match side {
            [0, 0, _] => 1,
            [_, 0, 0] | [0, _, 0] => 2,
            _ => 3,
        };
        let row = |d: usize| match d >= split && elements[d].count > 1 {
            true => elements[d],
            false => Loop::ONCE,
        };
        let rows = [row(1), row(2)];
        let elements = elements.into_iter().take(split);
        let mut loops = [Loop::ONCE; 4];
        let mut used = 0;
        for next in points.chain(elements).filter(|next| next.count > 1) {
            if used > 0 && loops[used - 1].stride.map(|s| s * loops[used - 1].count) == next.stride
            {
                loops[used - 1].count *= next.count;
            } else {
                loops[used] = next;
                used += 1;
            }
        }
        Some(Patch {
            copies: 1 << dims.len(),
            remote: remotes as u8,
            from,
            start,
            loops,
            rows,
        })
    }

    /// Which of the strides a copy's are: those of the block, or of one of the messages in the order
    /// of the numbers that their lowest copies have.
    #[inline(always)]
    pub(crate) const fn source(copy: usize, remote: usize) -> usize {
        let (mut source, mut bit, mut value) = (0, 0, 1);
        while bit < 3 {
            if remote >> bit & 1 == 1 {
                if copy >> bit & 1 == 1 {
                    source += value;
                }
                value *= 2;
            }
            bit += 1;
        }
        // The messages of a corner need none.
        source & 3
    }
}

/// An index, a count or a stride: `Size::validate` has seen that there are no larger ones.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a block has less than 2^32 values")
}
