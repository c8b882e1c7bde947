//! Carries out moves with the processor.
//!
//! A copy between two linear sides is one `memcpy`. Any other pair of shapes is walked in *runs*: stretches that are
//! contiguous on both sides, so that a face of a field whose rows are contiguous is copied row by row. Arithmetic goes
//! element by element.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Side};
use tidegate_hal::memory::Ptr;
use tidegate_words::{Mover, Word};

/// The host's way to carry out moves. Agents of NICs that work with the processor use it too.
pub struct HostMover;

/// Where the two sides of a move lie in this epoch.
///
/// # Safety
///
/// A parity that is not null points to a live word.
#[inline]
pub(crate) unsafe fn by_turns(step: &Move) -> (*mut u8, *mut u8) {
    let odd = if step.parity.is_null() {
        false
    } else {
        // SAFETY: the caller's promise.
        unsafe { &*step.parity.0.cast::<Word>() }.epoch() & 1 == 1
    };
    let base = |side: &Side| {
        if odd {
            side.base.0.wrapping_add(side.flip)
        } else {
            side.base.0
        }
    };
    (base(&step.src), base(&step.dst))
}

impl Mover for HostMover {
    unsafe fn carry(&mut self, step: &Move) {
        // SAFETY: `Batch::new` promises that a parity that is not null points to a live word.
        let (src, dst) = unsafe { by_turns(step) };
        let size = step.size as usize;
        match step.action {
            Action::Copy => match (step.src.shape, step.dst.shape) {
                (Shape::Linear, Shape::Linear) => {
                    // SAFETY: `Batch::new` promises both sides live, not overlapping, and accessed by nobody else.
                    unsafe { std::ptr::copy_nonoverlapping(src, dst, size * step.count) };
                }
                (from, to) => {
                    let (mut from, mut to) =
                        (Walk::new(&from, step.count), Walk::new(&to, step.count));
                    // SAFETY: as above, for every element that the shapes reach.
                    unsafe { copy_runs(src, &mut from, dst, &mut to, size) };
                }
            },
            Action::Accumulate { op, scalar, atomic } => {
                // SAFETY: as above; `scalar` fits `size`.
                unsafe { combine(step, src, dst, Ptr::NULL, op, scalar, atomic) };
            }
            Action::FetchOp {
                op,
                scalar,
                result,
                atomic,
            } => {
                // SAFETY: as above; `result` is live for `count` elements.
                unsafe { combine(step, src, dst, result, op, scalar, atomic) };
            }
            Action::CompareSwap {
                scalar,
                compare,
                result,
            } => {
                // SAFETY: as above; `result` and `compare` are live for `count` elements.
                unsafe { swap(step, src, dst, compare, result, scalar) };
            }
        }
    }
}

/// Yields the elements of a side in order, as runs of neighbours.
struct Walk<'a> {
    shape: &'a Shape,
    left: usize,
    /// How far each loop of a strided shape is.
    at: [u32; Shape::MAX_DIMS],
    /// Index of the next element of a linear or indexed shape.
    next: usize,
    /// Offset of the next element of a strided shape.
    offset: isize,
}

impl<'a> Walk<'a> {
    fn new(shape: &'a Shape, count: usize) -> Self {
        Walk {
            shape,
            left: count,
            at: [0; Shape::MAX_DIMS],
            next: 0,
            offset: 0,
        }
    }

    /// The offset of the next element, and how many more elements follow it contiguously (itself counted), 0 at the end.
    ///
    /// # Safety
    ///
    /// An index table is live for all elements.
    unsafe fn run(&self) -> (isize, usize) {
        match *self.shape {
            Shape::Linear => (self.next as isize, self.left),
            Shape::Strided { dims, .. } => {
                let (count, stride) = dims[0];
                let more = if stride == 1 {
                    (count - self.at[0]) as usize
                } else {
                    1
                };
                (self.offset, more.min(self.left))
            }
            Shape::Indexed { table } => {
                if self.left == 0 {
                    return (0, 0);
                }
                // SAFETY: the caller promises `count` entries, of which `left` are left from `next` on.
                (
                    unsafe { table.0.cast::<u32>().add(self.next).read() } as isize,
                    1,
                )
            }
        }
    }

    /// Goes on by `count` elements, no more than [`Walk::run`] said.
    fn advance(&mut self, count: usize) {
        self.left -= count;
        match *self.shape {
            Shape::Linear | Shape::Indexed { .. } => self.next += count,
            Shape::Strided { dims, rank } => {
                self.at[0] += count as u32;
                self.offset += count as isize * dims[0].1 as isize;
                for loop_ in 0..rank as usize {
                    let (count, stride) = dims[loop_];
                    if self.at[loop_] < count {
                        break;
                    }
                    self.at[loop_] = 0;
                    self.offset -= count as isize * stride as isize;
                    if let Some((_, stride)) = dims[..rank as usize].get(loop_ + 1) {
                        self.at[loop_ + 1] += 1;
                        self.offset += *stride as isize;
                    }
                }
            }
        }
    }
}

/// Calls `each` for every stretch that is contiguous on both sides of a copy of `count` elements, in order: where it
/// lies on the one, where on the other (in elements from the base), and how long it is.
///
/// # Safety
///
/// Index tables are live for all elements.
pub unsafe fn for_each_run(
    from: &Shape,
    to: &Shape,
    count: usize,
    mut each: impl FnMut(isize, isize, usize),
) {
    let (mut from, mut to) = (Walk::new(from, count), Walk::new(to, count));
    while from.left > 0 {
        // SAFETY: the caller's promise.
        let ((a, n), (b, m)) = unsafe { (from.run(), to.run()) };
        let run = n.min(m);
        each(a, b, run);
        from.advance(run);
        to.advance(run);
    }
}

/// # Safety
///
/// Both sides are live for all elements of their walks, which are equally many, and do not overlap.
unsafe fn copy_runs(
    src: *const u8,
    from: &mut Walk<'_>,
    dst: *mut u8,
    to: &mut Walk<'_>,
    size: usize,
) {
    while from.left > 0 {
        // A gather of single elements into a contiguous side, or the scatter back, is the inner loop of most halo exchanges
        // along a slow dimension: it is worth a loop of its own for 8-byte elements.
        // SAFETY: the caller's promise on tables.
        let ((a, n), (b, m)) = unsafe { (from.run(), to.run()) };
        let run = n.min(m);
        // SAFETY: the run lies within both sides.
        unsafe {
            let (src, dst) = (src.offset(a * size as isize), dst.offset(b * size as isize));
            match (run, size) {
                (1, 8) => dst.cast::<u64>().write(src.cast::<u64>().read()),
                (1, 4) => dst.cast::<u32>().write(src.cast::<u32>().read()),
                _ => std::ptr::copy_nonoverlapping(src, dst, run * size),
            }
        }
        from.advance(run);
        to.advance(run);
    }
}

/// A scalar that moves can compute with.
trait Number: Copy {
    type Bits: Copy + PartialEq;
    fn from_bits(bits: Self::Bits) -> Self;
    fn bits(self) -> Self::Bits;
    fn apply(self, op: Op, with: Self) -> Self;
    /// # Safety
    ///
    /// `at` points to a live, aligned element that is otherwise accessed atomically.
    unsafe fn update(at: *mut Self, with: impl Fn(Self) -> Option<Self>) -> Self;
}

macro_rules! number {
    ($($number:ty, $bits:ty, $atomic:ty, $arm:ident;)*) => {$(
        impl Number for $number {
            type Bits = $bits;
            fn from_bits(bits: $bits) -> Self {
                <$number>::from_ne_bytes(bits.to_ne_bytes())
            }
            fn bits(self) -> $bits {
                <$bits>::from_ne_bytes(self.to_ne_bytes())
            }
            fn apply(self, op: Op, with: Self) -> Self {
                number!(@$arm self, op, with)
            }
            unsafe fn update(at: *mut Self, with: impl Fn(Self) -> Option<Self>) -> Self {
                // SAFETY: the caller's promise; the atomic has the number's size and alignment.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                let change = |old| with(Self::from_bits(old)).map(Self::bits);
                match cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change) {
                    Ok(old) | Err(old) => Self::from_bits(old),
                }
            }
        }
    )*};
    (@int $old:expr, $op:expr, $with:expr) => {
        match $op {
            Op::Sum => $old.wrapping_add($with),
            Op::Prod => $old.wrapping_mul($with),
            Op::Min => $old.min($with),
            Op::Max => $old.max($with),
            Op::BitAnd => $old & $with,
            Op::BitOr => $old | $with,
            Op::BitXor => $old ^ $with,
            Op::Replace => $with,
            Op::Keep => $old,
        }
    };
    (@float $old:expr, $op:expr, $with:expr) => {
        match $op {
            Op::Sum => $old + $with,
            Op::Prod => $old * $with,
            Op::Min => $old.min($with),
            Op::Max => $old.max($with),
            Op::Replace => $with,
            // Bitwise operations on floats are refused by core.
            Op::Keep | Op::BitAnd | Op::BitOr | Op::BitXor => $old,
        }
    };
}

number! {
    i8, u8, AtomicU8, int;
    i16, u16, AtomicU16, int;
    i32, u32, AtomicU32, int;
    i64, u64, AtomicU64, int;
    u8, u8, AtomicU8, int;
    u16, u16, AtomicU16, int;
    u32, u32, AtomicU32, int;
    u64, u64, AtomicU64, int;
    f32, u32, AtomicU32, float;
    f64, u64, AtomicU64, float;
}

/// Calls a generic function with the type that a scalar names.
macro_rules! with_scalar {
    ($scalar:expr, $function:ident($($argument:expr),*)) => {
        match $scalar {
            Scalar::I8 => $function::<i8>($($argument),*),
            Scalar::I16 => $function::<i16>($($argument),*),
            Scalar::I32 => $function::<i32>($($argument),*),
            Scalar::I64 => $function::<i64>($($argument),*),
            Scalar::U8 => $function::<u8>($($argument),*),
            Scalar::U16 => $function::<u16>($($argument),*),
            Scalar::U32 => $function::<u32>($($argument),*),
            Scalar::U64 => $function::<u64>($($argument),*),
            Scalar::F32 => $function::<f32>($($argument),*),
            Scalar::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// # Safety
///
/// Both sides (and `result` unless null) are live for all elements; see [`Action::FetchOp`].
unsafe fn combine(
    step: &Move,
    src: *mut u8,
    dst: *mut u8,
    result: Ptr,
    op: Op,
    scalar: Scalar,
    atomic: bool,
) {
    /// # Safety
    ///
    /// As the outer function, for elements of `N`.
    unsafe fn each<N: Number>(
        step: &Move,
        src: *mut u8,
        dst: *mut u8,
        result: Ptr,
        op: Op,
        atomic: bool,
    ) {
        let (mut from, mut to) = (
            Walk::new(&step.src.shape, step.count),
            Walk::new(&step.dst.shape, step.count),
        );
        let (src, dst, result) = (src.cast::<N>(), dst.cast::<N>(), result.0.cast::<N>());
        for index in 0..step.count {
            // SAFETY: the caller's promise for the element that each walk stands at.
            unsafe {
                let value = src.offset(from.run().0).read();
                let at = dst.offset(to.run().0);
                let old = if atomic {
                    N::update(at, |old| Some(old.apply(op, value)))
                } else {
                    let old = at.read();
                    at.write(old.apply(op, value));
                    old
                };
                if !result.is_null() {
                    result.add(index).write(old);
                }
            }
            from.advance(1);
            to.advance(1);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { with_scalar!(scalar, each(step, src, dst, result, op, atomic)) }
}

/// # Safety
///
/// Both sides, `compare` and `result` are live for all elements; see [`Action::CompareSwap`].
unsafe fn swap(step: &Move, src: *mut u8, dst: *mut u8, compare: Ptr, result: Ptr, scalar: Scalar) {
    /// # Safety
    ///
    /// As the outer function, for elements of `N`.
    unsafe fn each<N: Number>(step: &Move, src: *mut u8, dst: *mut u8, compare: Ptr, result: Ptr) {
        let (mut from, mut to) = (
            Walk::new(&step.src.shape, step.count),
            Walk::new(&step.dst.shape, step.count),
        );
        let (src, dst) = (src.cast::<N>(), dst.cast::<N>());
        for index in 0..step.count {
            // SAFETY: the caller's promise for the element that each walk stands at.
            unsafe {
                let value = src.offset(from.run().0).read();
                let expected = compare.0.cast::<N>().add(index).read().bits();
                let at = dst.offset(to.run().0);
                let old = N::update(at, |old| (old.bits() == expected).then_some(value));
                result.0.cast::<N>().add(index).write(old);
            }
            from.advance(1);
            to.advance(1);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { with_scalar!(scalar, each(step, src, dst, compare, result)) }
}
