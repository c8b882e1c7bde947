//! Lists: the places of units, for copies whose sides have shapes, and for several copies that are carried out as one.
//!
//! # Model
//!
//! To compute a unit's place from its number takes a division for each loop of a shape, by numbers that the compiler
//! does not know. To find its copy takes a search. But a batch is launched repeatedly. So the places are computed once,
//! and stored in the program with four bytes for each unit. The kernel reads them before the batch's turn comes, while
//! the work in front still runs. After that, a lane with several copies, even if some gather or scatter, differs from
//! one linear copy only in its addresses. A side with contiguous units needs no list.
//!
//! The table of an indexed layout is such a list if an element is one unit and the lane has no other copy. The table
//! lies in device memory, is written before the batch is submitted, and is not written again (`tidegate_hal::batch`).
//!
//! These copies have no lists, and use divisions or a search:
//!
//! - copies with units of less than four bytes, and copies beside a copy whose narrower units would make long copies
//!   slow;
//! - indexed elements of several units, or beside other copies;
//! - copies of a lane whose second buffers differ, or some of which must not begin before the wait is over;
//! - sides that are further apart than a list can express;
//! - gets, and everything that goes to a NIC.
//!
//! # Cost
//!
//! A list takes half as much memory as the data if units have eight bytes, and a quarter if they have sixteen. Writing
//! it takes as long as some tens of launches save. So it is written when a batch is submitted for the second time, or
//! recorded (`crate::place`). The lists of a program are limited ([`Sizes::lists`](super::Sizes)), and those of shapes
//! come first.

use super::layout::read;
use super::layout::{MoveStep, SHAPE_INDEXED, SHAPE_LINEAR, ShapeStep};
use super::rows::SHORT;

/// A step that copies, and the shapes of its sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) step: MoveStep,
    /// The shapes of the source and of the target. A linear side has no loop.
    shapes: [ShapeStep; 2],
}

/// Copies whose units have places.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) lists: Lists,
    /// The addresses from which the places of the sources and of the targets count.
    pub(super) src: u64,
    pub(super) dst: u64,
    /// The number of units.
    pub(super) count: u64,
    /// Bytes of a unit, as a power of two.
    pub(super) unit: u8,
}

/// The lists of copies.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) from: List,
    pub(super) to: List,
}

/// The list of a side.
#[derive(Debug, Default)]
pub(super) enum List {
    /// There is none, because the units are contiguous.
    #[default]
    None,
    /// It is at this address, in device memory that nobody writes any more.
    Given(u64),
    /// It has to be written: these pieces, one after the other.
    Written(Vec<Piece>),
}

/// The places of one copy on one side: an element, repeated for each iteration of the loops.
#[derive(Debug)]
pub(super) struct Piece {
    /// The place of the first element, in units.
    first: i64,
    /// Units of an element.
    run: i64,
    /// The loops over elements.
    shape: ShapeStep,
}

impl Copy {
    /// The copy at the beginning of `steps`.
    pub(super) fn read(steps: &[u8]) -> Self {
        let step: MoveStep = read(steps);
        let mut behind = &steps[size_of::<MoveStep>()..];
        let shapes = [step.src_shape, step.dst_shape].map(|kind| {
            if kind == SHAPE_LINEAR {
                return ShapeStep::default();
            }
            let shape = read(behind);
            behind = &behind[size_of::<ShapeStep>()..];
            shape
        });
        Copy { step, shapes }
    }

    pub(super) fn is_linear(&self) -> bool {
        (self.step.src_shape, self.step.dst_shape) == (SHAPE_LINEAR, SHAPE_LINEAR)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.step.count << self.step.unit
    }

    /// The widest unit of which the copy can be made.
    fn unit(&self, flip: u64) -> u8 {
        if !self.is_linear() {
            return self.step.unit;
        }
        // The bytes before and behind its whole units may make up wider units than bytes.
        let all = self.step.src | self.step.dst | flip | self.bytes() | 16;
        all.trailing_zeros() as u8
    }

    /// The table of a side that has one.
    fn table(&self, side: usize) -> Option<u64> {
        let kind = [self.step.src_shape, self.step.dst_shape][side];
        (kind == SHAPE_INDEXED).then_some(self.shapes[side].table)
    }

    /// The first address of a side.
    fn base(&self, side: usize) -> u64 {
        [self.step.src, self.step.dst][side]
    }

    /// A side in units of this width. `base` is not behind any of its units.
    fn piece(&self, side: usize, base: u64, unit: u8) -> Piece {
        let (shape, run) = (self.shapes[side], self.run(side, unit));
        Piece {
            first: (self.base(side).wrapping_sub(base) as i64) >> unit,
            run,
            shape,
        }
    }

    /// How many units of a side are contiguous. (For a linear copy the units may be wider than its step's.)
    fn run(&self, side: usize, unit: u8) -> i64 {
        let parts = match self.shapes[side].rank {
            0 => self.step.count,
            _ => u64::from(self.step.sub),
        };
        ((parts << self.step.unit) >> unit) as i64
    }

    /// The address of the first byte of a side, and the address behind its last byte.
    fn reach(&self, side: usize) -> (i128, i128) {
        let unit = self.step.unit;
        let run = i128::from(self.run(side, unit)) << unit;
        let (least, most) = ends(&self.shapes[side]);
        let base = i128::from(self.base(side));
        (
            base + i128::from(least) * run,
            base + (i128::from(most) + 1) * run,
        )
    }
}

impl Lists {
    /// The lists of these copies, if at most `most` entries have to be written. All copies begin before their wait is
    /// over, and have this flip.
    pub(super) fn of(copies: &[Copy], flip: u64, most: u64) -> Option<Placed> {
        // (A copy that begins before its wait is over has no second buffer at the source.)
        if copies.iter().any(|copy| copy.step.src_flip != 0) {
            return None;
        }
        let unit = copies.iter().map(|copy| copy.unit(flip)).min()?;
        let total = |total: u64, copy: &Copy| total.checked_add(copy.bytes() >> unit);
        let count = copies.iter().try_fold(0, total)?;
        // A long copy keeps its units.
        let narrowed = |copy: &Copy| copy.step.unit > unit && copy.step.count > SHORT;
        if copies.iter().any(narrowed) {
            return None;
        }
        // The kernel has places of 32 bits, with or without a list.
        if !(2..=4).contains(&unit) || u32::try_from(count).is_err() {
            return None;
        }
        let (from, src) = List::of(copies, 0, unit)?;
        let (to, dst) = List::of(copies, 1, unit)?;
        let lists = Lists { from, to };
        (lists.entries(count) <= most).then_some(Placed {
            lists,
            src,
            dst,
            count,
            unit,
        })
    }

    /// Whether the targets of the units are contiguous, and the entries for 16 bytes of units can be read together.
    pub(super) fn gathers(&self, unit: u8) -> bool {
        let aligned = match &self.from {
            List::None => false,
            List::Given(table) => table.is_multiple_of(4 << (4 - unit)),
            List::Written(_) => true,
        };
        aligned && matches!(self.to, List::None)
    }

    /// How many entries have to be written for this many units.
    pub(super) fn entries(&self, units: u64) -> u64 {
        let written = |list: &&List| matches!(list, List::Written(_));
        let sides = [&self.from, &self.to].into_iter().filter(written).count();
        units.saturating_mul(sides as u64)
    }
}

impl List {
    /// The list for a side of these copies, and the address from which it counts.
    fn of(copies: &[Copy], side: usize, unit: u8) -> Option<(Self, u64)> {
        let base = copies[0].base(side);
        if copies.iter().any(|copy| copy.table(side).is_some()) {
            let [copy] = copies else { return None };
            let table = copy.table(side).filter(|_| copy.step.sub == 1)?;
            return Some((List::Given(table), base));
        }
        let follows = |end: u64, copy: &Copy| {
            let linear = copy.shapes[side].rank == 0 && copy.base(side) == end;
            linear.then(|| end + copy.bytes())
        };
        if copies.iter().try_fold(base, follows).is_some() {
            return Some((List::None, base));
        }
        let reaches = || copies.iter().map(|copy| copy.reach(side));
        let least = reaches().map(|(least, _)| least).min()?;
        let end = reaches().map(|(_, end)| end).max()?;
        // The distances between them are whole units, since each side is aligned to the unit.
        let base = u64::try_from(least).ok()?;
        u32::try_from((end - least) >> unit).ok()?;
        let pieces = copies.iter().map(|copy| copy.piece(side, base, unit));
        Some((List::Written(pieces.collect()), base))
    }

    /// The entries of a list that has to be written.
    pub(super) fn places(&self) -> Vec<u32> {
        let mut places = Vec::new();
        if let List::Written(pieces) = self {
            pieces.iter().for_each(|piece| piece.write(&mut places));
        }
        places
    }
}

impl Piece {
    fn write(&self, places: &mut Vec<u32>) {
        let begin = places.len();
        places.extend((0..self.run).map(|part| (self.first + part) as u32));
        // From the innermost loop outwards, the places so far are repeated for each iteration.
        for (count, stride) in loops(&self.shape) {
            let more = (places.len() - begin) * (count as usize - 1);
            let step = (i64::from(stride) * self.run) as u32;
            places.reserve(more);
            for at in begin..begin + more {
                // This is modulo 2^32, so negative strides count backwards.
                places.push(places[at].wrapping_add(step));
            }
        }
    }
}

/// The smallest and the largest offset of an element.
fn ends(shape: &ShapeStep) -> (i64, i64) {
    loops(shape).fold((0, 0), |(least, most), (count, stride)| {
        let reach = (i64::from(count) - 1) * i64::from(stride);
        (least + reach.min(0), most + reach.max(0))
    })
}

/// `(count, stride)` of each loop, the innermost first.
fn loops(shape: &ShapeStep) -> impl Iterator<Item = (u32, i32)> {
    let all = shape.count.into_iter().zip(shape.stride);
    all.take(shape.rank as usize)
}

#[cfg(test)]
mod tests {
    use super::super::layout::SHAPE_STRIDED;
    use super::*;

    /// Finds an element by dividing, as the kernel does (`element` in `kernels/batch_moves.cuh`).
    fn element(shape: &ShapeStep, index: u32) -> i64 {
        let mut rest = index;
        let mut at = 0;
        for (count, stride) in loops(shape) {
            at += i64::from(rest % count) * i64::from(stride);
            rest /= count;
        }
        at
    }

    fn shape(of: &[(u32, i32)]) -> ShapeStep {
        let mut shape = ShapeStep {
            rank: of.len() as u32,
            ..ShapeStep::default()
        };
        for (at, (count, stride)) in of.iter().enumerate() {
            (shape.count[at], shape.stride[at]) = (*count, *stride);
        }
        shape
    }

    /// A copy whose source has this shape, to a linear target.
    fn copy(of: &[(u32, i32)], sub: u32, unit: u8) -> Copy {
        let count: u64 = of.iter().map(|(count, _)| u64::from(*count)).product();
        let step = MoveStep {
            src: 1 << 40,
            count: count * u64::from(sub),
            sub,
            unit,
            src_shape: SHAPE_STRIDED,
            ..MoveStep::default()
        };
        Copy {
            step,
            shapes: [shape(of), ShapeStep::default()],
        }
    }

    /// A linear copy of `bytes` bytes.
    fn linear(src: u64, dst: u64, bytes: u64, unit: u8) -> Copy {
        let step = MoveStep {
            src,
            dst,
            count: bytes >> unit,
            sub: 1,
            unit,
            ..MoveStep::default()
        };
        Copy {
            step,
            shapes: [ShapeStep::default(); 2],
        }
    }

    #[test]
    fn lists_say_where_dividing_would_find_it() {
        let shapes: [&[(u32, i32)]; 5] = [
            &[(12, 12), (14, 144), (13, 20_000)],
            &[(5, -1), (3, 7)],
            &[(4, 9), (3, -100), (2, 1), (3, 0)],
            &[(1, 5)],
            &[(2, 1 << 20), (3, -(1 << 21)), (2, 3), (2, 5), (2, -7)],
        ];
        for (of, sub) in shapes
            .into_iter()
            .flat_map(|of| [1, 3].map(|sub| (of, sub)))
        {
            let copy = copy(of, sub, 3);
            let step = copy.step;
            let placed = Lists::of(&[copy], 0, step.count).unwrap();
            assert!(matches!(placed.lists.to, List::None) && placed.dst == step.dst);
            let places = placed.lists.from.places();
            assert_eq!(places.len() as u64, step.count);
            for (at, place) in places.iter().enumerate() {
                let (which, part) = (at as u32 / sub, at as i64 % i64::from(sub));
                let found = element(&shape(of), which) * i64::from(sub) + part;
                let expected = step.src.wrapping_add_signed(8 * found);
                assert_eq!(placed.src + 8 * u64::from(*place), expected, "{of:?}, {at}");
            }
        }
    }

    #[test]
    fn each_side_has_its_own() {
        let mut both = copy(&[(4, 2), (3, -9)], 1, 3);
        (both.step.dst, both.step.dst_shape) = (1 << 41, SHAPE_STRIDED);
        both.shapes[1] = shape(&[(12, -5)]);
        assert!(Lists::of(&[both], 0, 23).is_none());
        let placed = Lists::of(&[both], 0, 24).unwrap();
        let (src, dst) = (placed.src, placed.dst);
        assert_eq!((src, dst), ((1 << 40) - 8 * 18, (1 << 41) - 8 * 55));
        assert_eq!(placed.lists.from.places()[..5], [18, 20, 22, 24, 9]);
        assert_eq!(placed.lists.to.places()[..3], [55, 50, 45]);
        (both.step.src_shape, both.shapes[0]) = (SHAPE_LINEAR, ShapeStep::default());
        let placed = Lists::of(&[both], 0, 12).unwrap();
        assert!(matches!(placed.lists.from, List::None) && placed.src == both.step.src);
        assert_eq!(placed.lists.to.places()[..2], [55, 50]);
    }

    #[test]
    fn a_shape_stands_behind_its_step_whichever_side_has_it() {
        use super::super::layout::Plain as _;
        let mut both = copy(&[(4, 2), (3, -9)], 1, 3);
        both.step.dst_shape = SHAPE_STRIDED;
        let [src, dst] = [shape(&[(4, 2), (3, -9)]), shape(&[(12, -5)])];
        let of = |step: MoveStep, shapes: &[ShapeStep]| {
            let shapes = shapes.iter().map(|shape| shape.bytes());
            let bytes: Vec<_> = std::iter::once(step.bytes()).chain(shapes).collect();
            Copy::read(&bytes.concat())
                .shapes
                .map(|shape| shape.stride[0])
        };
        assert_eq!(of(both.step, &[src, dst]), [2, -5]);
        both.step.src_shape = SHAPE_LINEAR;
        assert_eq!(of(both.step, &[dst]), [0, -5]);
    }

    #[test]
    fn several_copies_are_one_behind_the_other() {
        // Rows of a block go to separate slots, and a column to one of these.
        let mut column = copy(&[(5, 12)], 1, 3);
        (column.step.src, column.step.dst) = (0x1_0008, 0x9_0040);
        let copies = [
            linear(0x1_0000, 0x9_0000, 32, 4),
            column,
            linear(0x1_0100, 0x9_0100, 16, 4),
        ];
        assert!(Lists::of(&copies, 0, 21).is_none());
        let placed = Lists::of(&copies, 0x40, 22).unwrap();
        assert_eq!((placed.unit, placed.count), (3, 11));
        assert_eq!((placed.src, placed.dst), (0x1_0000, 0x9_0000));
        let from = [0, 1, 2, 3, 1, 13, 25, 37, 49, 32, 33];
        assert_eq!(placed.lists.from.places(), from);
        let to = [0, 1, 2, 3, 8, 9, 10, 11, 12, 32, 33];
        assert_eq!(placed.lists.to.places(), to);
        assert!(!placed.lists.gathers(placed.unit));
        // A buffer that begins between two units makes the units smaller.
        let placed = Lists::of(&copies, 0x44, 44).unwrap();
        assert_eq!((placed.unit, placed.count), (2, 22));
        assert_eq!(placed.lists.from.places()[6..10], [6, 7, 2, 3]);
        assert!(Lists::of(&copies, 0x42, 1 << 20).is_none());
    }

    #[test]
    fn what_goes_on_has_no_list() {
        // Doubles with whole units of 16 bytes between them, as three steps; then a copy that begins where these end.
        let copies = [
            linear(0x1_0008, 0x9_0008, 8, 0),
            linear(0x1_0010, 0x9_0010, 64, 4),
            linear(0x1_0050, 0x9_0050, 8, 0),
        ];
        let placed = Lists::of(&copies, 0, 0).unwrap();
        assert_eq!((placed.unit, placed.count), (3, 10));
        assert!(matches!(placed.lists.from, List::None));
        let more = [&copies[..], &[linear(0x2_0000, 0x9_0058, 16, 3)]].concat();
        assert!(Lists::of(&more, 0, 11).is_none());
        let placed = Lists::of(&more, 0, 12).unwrap();
        assert!(matches!(placed.lists.to, List::None) && placed.lists.gathers(3));
        let end = (0x2_0000 - 0x1_0008) / 8;
        assert_eq!(placed.lists.from.places()[8..], [8, 9, end, end + 1]);
    }

    #[test]
    fn what_has_no_list_is_told() {
        let has = |copies: &[Copy]| Lists::of(copies, 0, 1 << 20).is_some();
        assert!(has(&[copy(&[(1 << 20, 2)], 1, 3)]));
        let many = copy(&[(1 << 20, 2)], 2, 3);
        assert!(!has(&[many]), "too many units");
        assert!(!has(&[copy(&[(4, 2)], 1, 1)]), "units of two bytes");
        assert!(has(&[copy(&[(3, i32::MAX)], 1, 4)]));
        let far = copy(&[(4, i32::MAX)], 1, 4);
        assert!(!has(&[far]), "too far apart");
        let two = |apart: u64| [0, apart].map(|at| linear(0x1000 + at, 0x9000 + at / 2, 16, 4));
        assert!(has(&two(1 << 35)) && !has(&two(1 << 36)));
        assert!(has(&[linear(8, 8, u64::from(u32::MAX) << 3, 3)]));
        assert!(!has(&[linear(8, 8, 1 << 35, 3)]), "more than are counted");
        let mut flips = copy(&[(4, 2)], 1, 3);
        flips.step.src_flip = 64;
        assert!(!has(&[flips]));
        // A table is a list that exists already: it costs nothing, but gives the places of elements.
        let mut given = copy(&[(4, 2)], 1, 3);
        given.step.src_shape = SHAPE_INDEXED;
        given.shapes[0] = ShapeStep {
            table: 0x7000,
            ..ShapeStep::default()
        };
        let placed = Lists::of(&[given], 0, 0).unwrap();
        assert!(matches!(placed.lists.from, List::Given(0x7000)) && placed.src == given.step.src);
        assert!(!has(&[given, given]), "none says it of both");
        given.step.sub = 2;
        assert!(!has(&[given]));
    }
}
