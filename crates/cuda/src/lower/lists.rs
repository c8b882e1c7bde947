//! Lists: where the units of a copy are whose sides have shapes.
//!
//! # Model
//!
//! To tell from a unit's number where it is takes a division for each loop of a shape, by numbers that the compiler does
//! not know. A batch is launched again and again, so what comes out is written down once, four bytes for each unit, and
//! stands in the program. The kernel looks it up before the batch's turn comes, while what stands before it is still at
//! work; then a copy that gathers, or scatters, differs from a linear one by nothing but where it reads and writes.
//!
//! The table of an indexed layout is such a list, where an element is one unit: it lies in memory of the device that was
//! written before the batch was submitted, and is not written again (`tidegate_hal::batch`).
//!
//! Others divide as ever: copies with units of less than four bytes, indexed elements of several units, several copies of
//! a lane, gets, and what goes to a NIC.
//!
//! # Cost
//!
//! A list takes half as much memory as units of eight bytes do, and a quarter of those of sixteen; to write it takes as
//! long as some tens of launches save. So it is written when a batch is submitted for the second time, or recorded
//! (`crate::place`), and the lists of a program are bounded ([`Sizes::lists`](super::Sizes)).

use super::layout::{MoveStep, SHAPE_INDEXED, SHAPE_LINEAR, SHAPE_STRIDED, ShapeStep};
use super::read;

/// The lists of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lists {
    pub(super) from: List,
    pub(super) to: List,
}

/// Where the list of a side comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    /// There is none: the units lie one behind the other.
    None,
    /// It stands at this address, in memory of the device that nobody writes any more.
    Given(u64),
    /// The loops of this shape, of elements of so many units each.
    Loops(ShapeStep, u32),
}

impl Lists {
    /// The lists of a copy of which a side has a shape, and where they count from, if no more than `most` entries have to
    /// be written for them. `copy` begins with the step of the move.
    pub(super) fn of(step: &MoveStep, copy: &[u8], most: u64) -> Option<(Self, u64, u64)> {
        let shaped = (step.src_shape, step.dst_shape) != (SHAPE_LINEAR, SHAPE_LINEAR);
        // (What begins before its wait has no second buffer at the source.)
        if !shaped || !(2..=4).contains(&step.unit) || step.src_flip != 0 {
            return None;
        }
        let mut shapes = &copy[size_of::<MoveStep>()..];
        let mut side = |kind: u8, base: u64| {
            if kind == SHAPE_LINEAR {
                return Some((List::None, base));
            }
            let shape = read(shapes);
            shapes = &shapes[size_of::<ShapeStep>()..];
            List::of(step, kind, shape, base)
        };
        let (from, src) = side(step.src_shape, step.src)?;
        let (to, dst) = side(step.dst_shape, step.dst)?;
        let lists = Lists { from, to };
        (lists.entries(step.count) <= most).then_some((lists, src, dst))
    }

    /// Whether the units lie one behind the other where they go to, and the entries of 16 bytes of them can be read at a
    /// time.
    pub(super) fn gathers(&self, unit: u8) -> bool {
        let aligned = match self.from {
            List::None => false,
            List::Given(table) => table.is_multiple_of(4 << (4 - unit)),
            List::Loops(..) => true,
        };
        aligned && matches!(self.to, List::None)
    }

    /// How many entries have to be written, for so many units.
    pub(super) fn entries(&self, units: u64) -> u64 {
        let written = |list: &List| matches!(list, List::Loops(..));
        let sides = [self.from, self.to]
            .iter()
            .filter(|list| written(list))
            .count();
        units.saturating_mul(sides as u64)
    }
}

impl List {
    /// Of a side of this kind: the list, and where it counts from.
    fn of(step: &MoveStep, kind: u8, shape: ShapeStep, base: u64) -> Option<(Self, u64)> {
        match kind {
            SHAPE_INDEXED if step.sub == 1 => Some((List::Given(shape.table), base)),
            SHAPE_STRIDED => {
                let (least, most) = ends(&shape);
                let sub = i64::from(step.sub);
                let first = base.wrapping_add_signed((least * sub) << step.unit);
                u32::try_from((most - least + 1) * sub)
                    .is_ok()
                    .then_some((List::Loops(shape, step.sub), first))
            }
            _ => None,
        }
    }

    /// What it says, if it is not in memory already.
    pub(super) fn places(&self) -> Vec<u32> {
        let List::Loops(shape, sub) = self else {
            return Vec::new();
        };
        let (least, _) = ends(shape);
        let sub = i64::from(*sub);
        // From the innermost loop outwards: what there is already, once for each turn.
        let mut places: Vec<u32> = (0..sub).map(|part| (part - least * sub) as u32).collect();
        for (count, stride) in loops(shape) {
            let more = places.len() * (count as usize - 1);
            let step = (i64::from(stride) * sub) as u32;
            places.reserve(more);
            for at in 0..more {
                // Modulo 2^32, where negative strides count backwards.
                places.push(places[at].wrapping_add(step));
            }
        }
        places
    }
}

/// The first element of all, and the last.
fn ends(shape: &ShapeStep) -> (i64, i64) {
    loops(shape).fold((0, 0), |(least, most), (count, stride)| {
        let reach = (i64::from(count) - 1) * i64::from(stride);
        (least + reach.min(0), most + reach.max(0))
    })
}

/// `(count, stride)`, the first fastest.
fn loops(shape: &ShapeStep) -> impl Iterator<Item = (u32, i32)> {
    let all = shape.count.into_iter().zip(shape.stride);
    all.take(shape.rank as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel finds an element by dividing (`element` in `kernels/batch_moves.cuh`).
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

    /// A step, and the shape behind it.
    fn step(of: &[(u32, i32)], sub: u32, unit: u8) -> (MoveStep, Vec<u8>) {
        use super::super::layout::Plain as _;
        let count: u64 = of.iter().map(|(count, _)| u64::from(*count)).product();
        let step = MoveStep {
            src: 1 << 40,
            count: count * u64::from(sub),
            sub,
            unit,
            src_shape: SHAPE_STRIDED,
            ..MoveStep::default()
        };
        let bytes = [step.bytes(), shape(of).bytes()].concat();
        (step, bytes)
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
            let (step, bytes) = step(of, sub, 3);
            let (lists, first, dst) = Lists::of(&step, &bytes, step.count).unwrap();
            assert!(matches!(lists.to, List::None) && dst == step.dst);
            let places = lists.from.places();
            assert_eq!(places.len() as u64, step.count);
            for (at, place) in places.iter().enumerate() {
                let (which, part) = (at as u32 / sub, at as i64 % i64::from(sub));
                let found = element(&shape(of), which) * i64::from(sub) + part;
                let expected = step.src.wrapping_add_signed(8 * found);
                assert_eq!(first + 8 * u64::from(*place), expected, "{of:?}, {at}");
            }
        }
    }

    #[test]
    fn each_side_has_its_own() {
        use super::super::layout::Plain as _;
        let (mut both, mut bytes) = step(&[(4, 2), (3, -9)], 1, 3);
        (both.dst, both.dst_shape) = (1 << 41, SHAPE_STRIDED);
        bytes.extend_from_slice(shape(&[(12, -5)]).bytes());
        assert!(Lists::of(&both, &bytes, 23).is_none());
        let (lists, src, dst) = Lists::of(&both, &bytes, 24).unwrap();
        assert_eq!((src, dst), ((1 << 40) - 8 * 18, (1 << 41) - 8 * 55));
        assert_eq!(lists.from.places()[..5], [18, 20, 22, 24, 9]);
        assert_eq!(lists.to.places()[..3], [55, 50, 45]);
        // The one that has a shape stands first, whichever it is.
        both.src_shape = SHAPE_LINEAR;
        let (lists, src, _) = Lists::of(&both, &bytes, 12).unwrap();
        assert!(matches!(lists.from, List::None) && src == both.src);
        assert_eq!(lists.to.places()[..2], [18, 20]);
        both.dst_shape = SHAPE_LINEAR;
        assert!(Lists::of(&both, &bytes, 12).is_none());
    }

    #[test]
    fn what_has_no_list_is_told() {
        let has = |(step, bytes): (MoveStep, Vec<u8>)| Lists::of(&step, &bytes, 1 << 20).is_some();
        assert!(has(step(&[(1 << 20, 2)], 1, 3)));
        assert!(!has(step(&[(1 << 20, 2)], 2, 3)), "too many units");
        assert!(!has(step(&[(4, 2)], 1, 1)), "units of two bytes");
        assert!(has(step(&[(3, i32::MAX)], 1, 4)));
        assert!(!has(step(&[(4, i32::MAX)], 1, 4)), "too far apart");
        let (mut flips, bytes) = step(&[(4, 2)], 1, 3);
        flips.src_flip = 64;
        assert!(!has((flips, bytes)));
        // A table is one that stands there: it costs nothing, but says where elements are.
        let (mut given, mut bytes) = step(&[(4, 2)], 1, 3);
        given.src_shape = SHAPE_INDEXED;
        bytes[size_of::<MoveStep>()..][..8].copy_from_slice(&0x7000u64.to_ne_bytes());
        let (lists, src, _) = Lists::of(&given, &bytes, 0).unwrap();
        assert!(matches!(lists.from, List::Given(0x7000)) && src == given.src);
        given.sub = 2;
        assert!(!has((given, bytes)));
    }
}
