//! Moves of random shapes, compared with moves of the single elements.

use tidegate_hal::batch::{Op, Scalar};

use self::random::Rng;
use super::nest::Nest;
use super::*;

#[path = "../../../../tests/common/random.rs"]
mod random;

/// A shape, and the indices of its elements, counted from the lowest.
struct Sample {
    shape: Shape,
    /// The index of the element at offset 0.
    first: usize,
    elements: Vec<usize>,
    /// The table that the shape points to.
    _table: Vec<u32>,
}

impl Sample {
    fn linear(count: usize) -> Sample {
        Sample {
            shape: Shape::Linear,
            first: 0,
            elements: (0..count).collect(),
            _table: Vec::new(),
        }
    }

    /// Loops in any order of strides; some run backwards, and some have one turn. No two turns meet unless `repeats` is
    /// set.
    fn strided(rng: &mut Rng, factors: &[u32], repeats: bool) -> Sample {
        let mut counts = vec![1u32];
        for factor in factors {
            let room = counts.len() < Shape::MAX_DIMS;
            match rng.below(3) {
                0 if room => counts.push(*factor),
                _ => *counts.last_mut().unwrap() *= factor,
            }
        }
        if counts.len() < Shape::MAX_DIMS && rng.below(3) == 0 {
            counts.insert(rng.below(counts.len() + 1), 1);
        }
        let mut order: Vec<_> = (0..counts.len()).collect();
        if rng.below(2) == 0 {
            order.rotate_left(rng.below(counts.len()));
        }
        let (mut strides, mut next) = (vec![0i32; counts.len()], 1 + rng.below(2) as i32);
        let mut first = 0;
        for index in order {
            if counts[index] == 1 {
                strides[index] = rng.below(1000) as i32 - 500;
                continue;
            }
            if repeats && rng.below(4) == 0 {
                continue;
            }
            let backwards = rng.below(4) == 0;
            strides[index] = if backwards { -next } else { next };
            if backwards {
                first += (counts[index] as i32 - 1) * next;
            }
            // Often the next loop continues this one.
            next = next * counts[index] as i32 + [0, 0, 3][rng.below(3)];
        }
        let mut elements = vec![i64::from(first)];
        for (count, stride) in counts.iter().zip(&strides) {
            let inner = elements.clone();
            let turns = 1..i64::from(*count);
            elements.extend(turns.flat_map(|turn| {
                let by = turn * i64::from(*stride);
                inner.iter().map(move |element| element + by)
            }));
        }
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        for (dim, loop_) in dims.iter_mut().zip(counts.iter().copied().zip(strides)) {
            *dim = loop_;
        }
        Sample {
            shape: Shape::Strided {
                dims,
                rank: counts.len() as u32,
            },
            first: first as usize,
            elements: elements
                .into_iter()
                .map(|e| usize::try_from(e).unwrap())
                .collect(),
            _table: Vec::new(),
        }
    }

    fn indexed(rng: &mut Rng, count: usize) -> Sample {
        let mut table: Vec<u32> = (0..2 * count as u32).collect();
        for index in 0..count {
            let other = index + rng.below(table.len() - index);
            // Half of the tables have runs of neighbours.
            if rng.below(2) == 0 {
                table.swap(index, other);
            }
        }
        table.truncate(count);
        Sample {
            shape: Shape::Indexed {
                table: Ptr(table.as_mut_ptr().cast()),
            },
            first: 0,
            elements: table.iter().map(|e| *e as usize).collect(),
            _table: table,
        }
    }

    fn any(rng: &mut Rng, factors: &[u32], repeats: bool) -> Sample {
        let count = factors.iter().product::<u32>() as usize;
        match rng.below(5) {
            0 => Sample::linear(count),
            1 => Sample::indexed(rng, count),
            _ => Sample::strided(rng, factors, repeats),
        }
    }

    fn extent(&self) -> usize {
        self.elements.iter().max().unwrap() + 1
    }
}

/// Two sides with the same number of elements.
fn sides(rng: &mut Rng) -> [Sample; 2] {
    let factors: Vec<u32> = (0..rng.below(6)).map(|_| [2, 3, 5][rng.below(3)]).collect();
    // An element of the source may occur more than once.
    [true, false].map(|repeats| Sample::any(rng, &factors, repeats))
}

fn step(action: Action, size: usize, [from, to]: &[Sample; 2], src: Ptr, dst: Ptr) -> Move {
    let side = |sample: &Sample, base: Ptr| Side {
        base: base.byte_add(sample.first * size),
        flip: 0,
        shape: sample.shape,
    };
    Move {
        action,
        size: size as u32,
        count: from.elements.len(),
        src: side(from, src),
        dst: side(to, dst),
        parity: Ptr::NULL,
        early: false,
        landing: None,
        buffers: 2,
    }
}

const ROUNDS: usize = if cfg!(miri) { 10 } else { 3000 };

#[test]
fn copies_of_any_shapes_and_sizes() {
    let mut rng = Rng::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let size = [1, 2, 3, 4, 8, 12, 16, 24, 32][round % 9];
        let sides = sides(&mut rng);
        // Words, so that all elements are aligned.
        let words = |sample: &Sample| vec![0u64; (sample.extent() * size).div_ceil(8)];
        let (mut src, mut dst) = (words(&sides[0]), words(&sides[1]));
        for word in &mut src {
            *word = (rng.below(1 << 30) as u64) << 32 | rng.below(1 << 30) as u64;
        }
        dst.fill(0x5555_5555_5555_5555);
        let bytes = |words: &[u64]| {
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        let (from, mut expected) = (bytes(&src), bytes(&dst));
        for (a, b) in sides[0].elements.iter().zip(&sides[1].elements) {
            expected[b * size..][..size].copy_from_slice(&from[a * size..][..size]);
        }
        let [src, at] = [&mut src, &mut dst].map(|words| Ptr(words.as_mut_ptr().cast()));
        // SAFETY: both sides were made for the shapes.
        unsafe { HostMover.carry(&step(Action::Copy, size, &sides, src, at)) };
        assert_eq!(bytes(&dst), expected, "{:?}", sides.map(|side| side.shape));
    }
}

#[test]
fn runs_are_all_elements_in_order() {
    let mut rng = Rng::new(0x2545_f491_4f6c_dd1d);
    for _ in 0..ROUNDS {
        let [from, to] = sides(&mut rng);
        let count = from.elements.len();
        let mut pairs = Vec::new();
        // SAFETY: tables are live.
        unsafe {
            for_each_run(&from.shape, &to.shape, count, |here, there, run| {
                let (here, there) = (here + from.first as isize, there + to.first as isize);
                pairs
                    .extend((0..run as isize).map(|k| ((here + k) as usize, (there + k) as usize)));
            });
        }
        let expected: Vec<_> = from
            .elements
            .iter()
            .copied()
            .zip(to.elements.iter().copied())
            .collect();
        assert_eq!(pairs, expected);
    }
}

/// The result of an update of doubles, by the definitions of MPI.
fn reduced(op: Op, old: f64, with: f64) -> f64 {
    match op {
        Op::Sum => old + with,
        Op::Prod => old * with,
        Op::Min => {
            if with < old {
                with
            } else {
                old
            }
        }
        Op::Max => {
            if with > old {
                with
            } else {
                old
            }
        }
        Op::Replace => with,
        _ => old,
    }
}

#[test]
fn reductions_over_any_shapes() {
    let mut rng = Rng::new(0xd1b5_4a32_d192_ed03);
    for round in 0..ROUNDS {
        let op = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Replace, Op::Keep][round % 6];
        let (atomic, fetch) = (rng.below(2) == 0, rng.below(2) == 0);
        let sides = sides(&mut rng);
        let mut numbers = |sample: &Sample| -> Vec<f64> {
            (0..sample.extent())
                .map(|_| rng.below(9) as f64 - 4.0)
                .collect()
        };
        let (mut src, mut dst) = (numbers(&sides[0]), numbers(&sides[1]));
        let (mut expected, mut old) = (dst.clone(), Vec::new());
        for (a, b) in sides[0].elements.iter().zip(&sides[1].elements) {
            old.push(expected[*b]);
            expected[*b] = reduced(op, expected[*b], src[*a]);
        }
        let mut fetched = vec![f64::NAN; old.len()];
        let scalar = Scalar::F64;
        let action = match fetch {
            true => Action::FetchOp {
                op,
                scalar,
                result: Ptr(fetched.as_mut_ptr().cast()),
                atomic,
            },
            false => Action::Accumulate { op, scalar, atomic },
        };
        let [src, at] = [&mut src, &mut dst].map(|numbers| Ptr(numbers.as_mut_ptr().cast()));
        // SAFETY: both sides were made for the shapes, and the result for the count.
        unsafe { HostMover.carry(&step(action, 8, &sides, src, at)) };
        assert_eq!(dst, expected, "{op:?} {:?}", sides.map(|side| side.shape));
        assert!(!fetch || fetched == old);
    }
}

/// Zeros of both signs show which operand came first.
#[test]
fn folds_keep_the_order_of_their_operands() {
    let (here, there) = ([0.0, -0.0, 2.0, -3.0], [-0.0, 0.0, -5.0, 4.0]);
    for op in [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Replace, Op::Keep] {
        for before in [false, true] {
            let one = |(here, there): (f64, f64)| {
                let (first, second) = if before { (there, here) } else { (here, there) };
                match op {
                    Op::Sum => first + second,
                    Op::Prod => first * second,
                    Op::Min if first < second => first,
                    Op::Max if first > second => first,
                    Op::Keep => first,
                    _ => second,
                }
            };
            let expected = here.into_iter().zip(there).map(one);
            let expected: Vec<_> = expected.map(f64::to_bits).collect();
            let (mut src, mut dst) = (there, here);
            let sides = [(); 2].map(|()| Sample::linear(here.len()));
            let [src, at] = [&mut src, &mut dst].map(|numbers| Ptr(numbers.as_mut_ptr().cast()));
            let scalar = Scalar::F64;
            let fold = Action::Fold { op, scalar, before };
            // SAFETY: both sides are live, and have as many elements.
            unsafe { HostMover.carry(&step(fold, 8, &sides, src, at)) };
            assert_eq!(
                dst.map(f64::to_bits)[..],
                expected,
                "{op:?}, before: {before}"
            );
        }
    }
}

#[test]
fn comparisons_swap_elements_of_any_shapes() {
    let mut rng = Rng::new(0x94d0_49bb_1331_11eb);
    for _ in 0..ROUNDS {
        let sides = sides(&mut rng);
        let count = sides[0].elements.len();
        let mut numbers =
            |many: usize| -> Vec<u32> { (0..many).map(|_| rng.below(2) as u32).collect() };
        let (mut src, mut dst) = (numbers(sides[0].extent()), numbers(sides[1].extent()));
        let (mut compare, mut result) = (numbers(count), vec![9; count]);
        let (mut expected, mut old) = (dst.clone(), Vec::new());
        for ((a, b), compare) in sides[0]
            .elements
            .iter()
            .zip(&sides[1].elements)
            .zip(&compare)
        {
            old.push(expected[*b]);
            if expected[*b] == *compare {
                expected[*b] = src[*a];
            }
        }
        let [src, at, compare, fetched] = [&mut src, &mut dst, &mut compare, &mut result]
            .map(|numbers| Ptr(numbers.as_mut_ptr().cast()));
        let action = Action::CompareSwap {
            scalar: Scalar::U32,
            compare,
            result: fetched,
        };
        // SAFETY: both sides were made for the shapes, comparands and results for the count.
        unsafe { HostMover.carry(&step(action, 4, &sides, src, at)) };
        assert_eq!((dst, result), (expected, old));
    }
}

/// Integers wrap. Each width has code of its own: rows are long enough for vectors, with a rest.
#[test]
fn integers_of_all_widths_wrap() {
    macro_rules! check {
        ($($number:ident, $scalar:ident;)*) => {$(
            for op in Op::ALL {
                let mut rng = Rng::new(op as u64 + 1);
                let mut row = || [0; 77].map(|_| (rng.below(1 << 40) << 24 ^ rng.below(1 << 30)) as $number);
                let (src, dst) = (row(), row());
                let expected = std::array::from_fn::<_, 77, _>(|index| {
                    let (old, with): ($number, $number) = (dst[index], src[index]);
                    match op {
                        Op::Sum => old.wrapping_add(with),
                        Op::Prod => old.wrapping_mul(with),
                        Op::Min => if with < old { with } else { old },
                        Op::Max => if with > old { with } else { old },
                        Op::BitAnd => old & with,
                        Op::BitOr => old | with,
                        Op::BitXor => old ^ with,
                        Op::Replace => with,
                        Op::Keep => old,
                    }
                });
                let (mut src, mut dst) = (src, dst);
                let sides = [Sample::linear(77), Sample::linear(77)];
                let action = Action::Accumulate {
                    op,
                    scalar: Scalar::$scalar,
                    atomic: false,
                };
                let [from, to] = [src.as_mut_ptr().cast(), dst.as_mut_ptr().cast()].map(Ptr);
                let step = step(action, size_of::<$number>(), &sides, from, to);
                // SAFETY: the rows have so many elements.
                unsafe { HostMover.carry(&step) };
                assert_eq!(dst, expected, "{op:?} {}", stringify!($number));
            }
        )*};
    }
    check! {
        i8, I8;
        i16, I16;
        i32, I32;
        i64, I64;
        u8, U8;
        u16, U16;
        u32, U32;
        u64, U64;
    }
}

/// Updates a row of equal elements, in each way that the mover has. All elements have the same result.
fn updated<T: Copy + PartialEq + std::fmt::Debug>(
    op: Op,
    scalar: Scalar,
    old: T,
    with: T,
    bits: impl Fn(T) -> u64,
) -> u64 {
    let updates = [(17, false), (17, true), (1, false), (1, true)].map(|(count, atomic)| {
        let (mut src, mut dst) = (vec![with; count], vec![old; count]);
        let sides = [Sample::linear(count), Sample::linear(count)];
        let action = Action::Accumulate { op, scalar, atomic };
        let [from, to] = [src.as_mut_ptr().cast(), dst.as_mut_ptr().cast()].map(Ptr);
        // SAFETY: the rows have so many elements.
        unsafe { HostMover.carry(&step(action, size_of::<T>(), &sides, from, to)) };
        let bits: Vec<_> = dst.into_iter().map(&bits).collect();
        assert!(bits.iter().all(|one| *one == bits[0]), "{op:?}: {bits:x?}");
        bits[0]
    });
    assert_eq!(updates, [updates[0]; 4], "{op:?} of {old:?} and {with:?}");
    updates[0]
}

#[test]
fn numbers_with_a_sign_go_round_at_their_ends() {
    let i32s = |op, old, with| updated(op, Scalar::I32, old, with, |x: i32| x as u64) as i32;
    let i64s = |op, old, with| updated(op, Scalar::I64, old, with, |x: i64| x as u64) as i64;
    assert_eq!(i32s(Op::Sum, i32::MAX, 1), i32::MIN);
    assert_eq!(i32s(Op::Sum, i32::MIN, -1), i32::MAX);
    assert_eq!(i32s(Op::Prod, i32::MIN, -1), i32::MIN);
    assert_eq!(i32s(Op::Prod, i32::MAX, 2), -2);
    assert_eq!(i32s(Op::Min, i32::MAX, i32::MIN), i32::MIN);
    assert_eq!(i64s(Op::Sum, i64::MAX, 1), i64::MIN);
    assert_eq!(i64s(Op::Prod, i64::MIN, -1), i64::MIN);
    assert_eq!(i64s(Op::Max, i64::MAX, i64::MIN), i64::MAX);
}

#[test]
fn subnormal_numbers_are_kept() {
    let bits = |op, old: f32, with: f32| {
        updated(op, Scalar::F32, old, with, |x: f32| x.to_bits().into()) as u32
    };
    let least = f32::from_bits(1);
    assert_eq!(bits(Op::Sum, least, f32::from_bits(0x7f_0000)), 0x7f_0001);
    assert_eq!(bits(Op::Sum, f32::MIN_POSITIVE, -least), 0x7f_ffff);
    assert_eq!(bits(Op::Prod, f32::MIN_POSITIVE, 0.5), 0x40_0000);
}

#[test]
fn no_number_loses_and_equals_are_replaced() {
    let bits = |op, old: f64, with: f64| updated(op, Scalar::F64, old, with, f64::to_bits);
    let bits32 = |op, old: f32, with: f32| {
        updated(op, Scalar::F32, old, with, |x: f32| x.to_bits().into()) as u32
    };
    let (one, other) = (f64::from_bits(0x7ff8_0000_0000_0042), -f64::NAN);
    let (one32, other32) = (f32::from_bits(0x7fc0_0042), -f32::NAN);
    for op in [Op::Min, Op::Max] {
        assert_eq!(bits(op, one, 2.5), 2.5f64.to_bits());
        assert_eq!(bits(op, 2.5, one), 2.5f64.to_bits());
        assert_eq!(bits(op, one, other), one.to_bits());
        assert_eq!(bits(op, other, one), other.to_bits());
        assert_eq!(bits(op, 0.0, -0.0), (-0.0f64).to_bits());
        assert_eq!(bits(op, -0.0, 0.0), 0.0f64.to_bits());
        assert_eq!(bits32(op, one32, 2.5), 2.5f32.to_bits());
        assert_eq!(bits32(op, 2.5, one32), 2.5f32.to_bits());
        assert_eq!(bits32(op, one32, other32), one32.to_bits());
        assert_eq!(bits32(op, 0.0, -0.0), (-0.0f32).to_bits());
        assert_eq!(bits32(op, -0.0, 0.0), 0.0f32.to_bits());
    }
    assert_eq!(
        bits(Op::Min, f64::NEG_INFINITY, 1.0),
        f64::NEG_INFINITY.to_bits()
    );
    assert_eq!(bits(Op::Max, 1.0, f64::INFINITY), f64::INFINITY.to_bits());
}

fn strided(loops: &[(u32, i32)]) -> Shape {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[..loops.len()].copy_from_slice(loops);
    Shape::Strided {
        dims,
        rank: loops.len() as u32,
    }
}

fn loops(from: &Shape, to: &Shape, count: usize) -> Option<Vec<(usize, [isize; 2])>> {
    let nest = Nest::new(from, to, count, 8)?;
    let loops = nest.loops[..nest.rank].iter();
    Some(loops.map(|by| (by.turns, by.by)).collect())
}

#[test]
fn nests_are_as_flat_as_they_can_be() {
    // A face of an array of elements of 6 x 6 x 6 points, as it goes into a slot.
    let face = strided(&[(6, 6), (6, 36), (4, 864), (4, 3456)]);
    let expected = vec![(36, [48, 8]), (16, [6912, 288])];
    assert_eq!(loops(&face, &Shape::Linear, 576), Some(expected));
    // Loops of different lengths are cut.
    let (a, b) = (strided(&[(6, 2)]), strided(&[(2, 1), (3, 10)]));
    assert_eq!(loops(&a, &b, 6), Some(vec![(2, [16, 8]), (3, [32, 80])]));
    assert_eq!(loops(&b, &a, 6), Some(vec![(2, [8, 16]), (3, [80, 32])]));
    // 2 by 3 and 3 by 2 have no loops in common, unless each is a single loop.
    let c = strided(&[(3, 1), (2, 10)]);
    assert_eq!(loops(&b, &c, 6), None);
    let (a, b) = (strided(&[(2, 1), (3, 2)]), strided(&[(3, 1), (2, 3)]));
    assert_eq!(loops(&a, &b, 6), Some(vec![(6, [8, 8])]));
    // Loops of one turn change nothing.
    let (a, b) = (
        strided(&[(2, 1), (1, 99), (3, 2)]),
        strided(&[(3, 1), (2, 10)]),
    );
    assert_eq!(loops(&a, &b, 6), Some(vec![(3, [8, 8]), (2, [24, 80])]));
    assert_eq!(loops(&Shape::Linear, &Shape::Linear, 1), Some(vec![]));
    assert_eq!(loops(&Shape::Linear, &Shape::Linear, 0), None);
}

#[test]
fn a_move_without_elements_touches_nothing() {
    let none = strided(&[(0, 1)]);
    for (from, to) in [(none, Shape::Linear), (Shape::Linear, none), (none, none)] {
        let side = |shape| Side {
            base: Ptr(std::ptr::without_provenance_mut(8)),
            flip: 0,
            shape,
        };
        for action in [
            Action::Copy,
            Action::Accumulate {
                op: Op::Sum,
                scalar: Scalar::U64,
                atomic: false,
            },
        ] {
            let step = Move {
                action,
                size: 8,
                count: 0,
                src: side(from),
                dst: side(to),
                parity: Ptr::NULL,
                early: false,
                landing: None,
                buffers: 2,
            };
            // SAFETY: there are no elements.
            unsafe { HostMover.carry(&step) };
        }
    }
}

#[test]
fn the_parity_of_the_epoch_chooses_the_buffers() {
    for (epochs, expected) in [(1, [1, 0, 0, 0]), (2, [0, 0, 0, 2]), (3, [1, 0, 0, 0])] {
        let word = Word::new(epochs * tidegate_hal::batch::QUANTUM);
        let (mut src, mut dst) = ([1u64, 2], [0u64; 4]);
        let side = |base: *mut u64, flip| Side {
            base: Ptr(base.cast()),
            flip,
            shape: Shape::Linear,
        };
        let step = Move {
            action: Action::Copy,
            size: 8,
            count: 1,
            src: side(src.as_mut_ptr(), 8),
            dst: side(dst.as_mut_ptr(), 24),
            parity: Ptr(std::ptr::from_ref(&word).cast_mut().cast()),
            early: false,
            landing: None,
            buffers: 2,
        };
        // SAFETY: both buffers of both sides are live.
        unsafe { HostMover.carry(&step) };
        assert_eq!(dst, expected);
    }
}

/// Small numbers have atomics of their own size, which do not touch their neighbours.
#[test]
fn atomics_of_all_widths() {
    macro_rules! sums {
        ($($number:ty, $scalar:ident;)*) => {$(
            for atomic in [false, true] {
                let (mut src, mut dst) = ([1 as $number, 2 as $number, 3 as $number], [40 as $number; 7]);
                let sides = [
                    Sample::linear(3),
                    Sample {
                        shape: strided(&[(3, 2)]),
                        first: 1,
                        elements: vec![1, 3, 5],
                        _table: Vec::new(),
                    },
                ];
                let action = Action::Accumulate {
                    op: Op::Sum,
                    scalar: Scalar::$scalar,
                    atomic,
                };
                let [from, to] = [src.as_mut_ptr().cast(), dst.as_mut_ptr().cast()].map(Ptr);
                let step = step(action, size_of::<$number>(), &sides, from, to);
                // SAFETY: both sides were made for the shapes.
                unsafe { HostMover.carry(&step) };
                assert_eq!(dst.map(|number| number as u32), [40, 41, 40, 42, 40, 43, 40]);
            }
        )*};
    }
    sums! {
        i8, I8;
        i16, I16;
        i32, I32;
        i64, I64;
        u8, U8;
        u16, U16;
        u32, U32;
        u64, U64;
        f32, F32;
        f64, F64;
    }
}
