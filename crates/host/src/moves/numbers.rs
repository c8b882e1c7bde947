//! Arithmetic of moves.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

#[cfg(doc)]
use tidegate_hal::batch::Action;
use tidegate_hal::batch::{Move, Op, Scalar};
use tidegate_hal::memory::Ptr;

use super::halves::{Bf16, F16};
use super::nest::Loop;
use super::rows::for_each_row;

/// A number that moves can compute with.
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
                // Relaxed suffices for the atomicity of one number. The adds after the moves of a lane order the update
                // before the ranks that wait for them.
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
    // The language leaves open which operand `min` returns for two zeros or two NaNs. This does the same as `applied`
    // of the batch kernel, so that all devices agree.
    (@float $old:expr, $op:expr, $with:expr) => {
        match $op {
            Op::Sum => $old + $with,
            Op::Prod => $old * $with,
            Op::Min => if $with.is_nan() || $old < $with { $old } else { $with },
            Op::Max => if $with.is_nan() || $old > $with { $old } else { $with },
            Op::Replace => $with,
            // Core refuses bitwise operations on floats.
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
    F16, u16, AtomicU16, float;
    Bf16, u16, AtomicU16, float;
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
            Scalar::F16 => $function::<F16>($($argument),*),
            Scalar::Bf16 => $function::<Bf16>($($argument),*),
        }
    };
}

/// Updates one row, not atomically, and without the old values.
///
/// # Safety
///
/// Both sides are live for all elements of the row, initialised and aligned, and do not overlap. Nobody else writes the
/// source or accesses the destination.
#[inline(always)]
unsafe fn plain_row<N: Number>(op: Op, src: *mut u8, dst: *mut u8, by: Loop) {
    let (mut src, mut dst) = (src.cast::<N>(), dst.cast::<N>());
    if by == Loop::contiguous(by.turns, size_of::<N>()) {
        // SAFETY: the caller's promise.
        let (src, dst) = unsafe {
            (
                std::slice::from_raw_parts(src, by.turns),
                std::slice::from_raw_parts_mut(dst, by.turns),
            )
        };
        for (dst, src) in dst.iter_mut().zip(src) {
            *dst = dst.apply(op, *src);
        }
        return;
    }
    for _ in 0..by.turns {
        // SAFETY: the caller's promise.
        unsafe { dst.write(dst.read().apply(op, src.read())) };
        src = src.wrapping_byte_offset(by.by[0]);
        dst = dst.wrapping_byte_offset(by.by[1]);
    }
}

/// Updates one row by any reduction. Each reduction has a loop of its own, so that processors can do several elements
/// at a time.
///
/// # Safety
///
/// As for [`plain_row`].
unsafe fn plain<N: Number>(op: Op, src: *mut u8, dst: *mut u8, by: Loop) {
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            Op::Sum => plain_row::<N>(Op::Sum, src, dst, by),
            Op::Prod => plain_row::<N>(Op::Prod, src, dst, by),
            Op::Min => plain_row::<N>(Op::Min, src, dst, by),
            Op::Max => plain_row::<N>(Op::Max, src, dst, by),
            Op::BitAnd => plain_row::<N>(Op::BitAnd, src, dst, by),
            Op::BitOr => plain_row::<N>(Op::BitOr, src, dst, by),
            Op::BitXor => plain_row::<N>(Op::BitXor, src, dst, by),
            Op::Replace => plain_row::<N>(Op::Replace, src, dst, by),
            Op::Keep => {}
        }
    }
}

/// Reduces `count` elements with others; see [`Action::Fold`].
///
/// # Safety
///
/// As for [`combine`], for linear sides, and not `atomic`.
pub(super) unsafe fn fold(
    count: usize,
    src: *mut u8,
    dst: *mut u8,
    op: Op,
    scalar: Scalar,
    before: bool,
) {
    /// # Safety
    ///
    /// As for the outer function, for elements of `N`.
    unsafe fn each<N: Number>(count: usize, src: *mut u8, dst: *mut u8, op: Op, before: bool) {
        let by = Loop::contiguous(count, size_of::<N>());
        // Only these depend on the order in a way that the result shows.
        if before && matches!(op, Op::Min | Op::Max) {
            // SAFETY: the caller's promise.
            let (src, dst) = unsafe {
                (
                    std::slice::from_raw_parts(src.cast::<N>(), count),
                    std::slice::from_raw_parts_mut(dst.cast::<N>(), count),
                )
            };
            for (dst, src) in dst.iter_mut().zip(src) {
                *dst = src.apply(op, *dst);
            }
            return;
        }
        let op = match op {
            Op::Replace if before => Op::Keep,
            Op::Keep if before => Op::Replace,
            op => op,
        };
        // SAFETY: the caller's promise.
        unsafe { plain::<N>(op, src, dst, by) }
    }
    // SAFETY: the caller's promise.
    unsafe { with_scalar!(scalar, each(count, src, dst, op, before)) }
}

/// Updates an element, and returns its old value.
///
/// # Safety
///
/// `at` is live and aligned; if `atomic`, others access it atomically only, otherwise nobody does.
#[inline]
unsafe fn update<N: Number>(at: *mut N, op: Op, value: N, atomic: bool) -> N {
    // SAFETY: the caller's promise.
    unsafe {
        if atomic {
            return N::update(at, |old| Some(old.apply(op, value)));
        }
        let old = at.read();
        at.write(old.apply(op, value));
        old
    }
}

/// Updates elements; see [`Action::FetchOp`]. If `result` is null, the old values are not stored.
///
/// # Safety
///
/// The caller carries out `step`, with the promises of [`Mover::carry`](tidegate_words::Mover::carry), and its sides
/// lie at `src` and `dst` in this epoch. So both are live for all elements, aligned for the scalar and initialised, and
/// do not overlap. Nobody else accesses the destination, unless `atomic` is set and all accesses are atomic.
pub(super) unsafe fn combine(
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
    /// As for the outer function, for elements of `N`.
    unsafe fn each<N: Number>(
        step: &Move,
        src: *mut u8,
        dst: *mut u8,
        result: Ptr,
        op: Op,
        atomic: bool,
    ) {
        if !atomic && result.is_null() {
            // SAFETY: the caller's promise for the elements of each row.
            let row = |src, dst, by| unsafe { plain::<N>(op, src, dst, by) };
            // SAFETY: the caller's promise.
            unsafe { for_each_row(step, src, dst, row) };
            return;
        }
        let mut result = result.0.cast::<N>();
        let row = |src: *mut u8, dst: *mut u8, by: Loop| {
            let (mut src, mut dst) = (src.cast::<N>(), dst.cast::<N>());
            for _ in 0..by.turns {
                // SAFETY: the caller's promise for the elements that the row stands at.
                unsafe {
                    let old = update(dst, op, src.read(), atomic);
                    if !result.is_null() {
                        result.write(old);
                        result = result.add(1);
                    }
                }
                src = src.wrapping_byte_offset(by.by[0]);
                dst = dst.wrapping_byte_offset(by.by[1]);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { for_each_row(step, src, dst, row) };
    }
    // SAFETY: the caller's promise.
    unsafe { with_scalar!(scalar, each(step, src, dst, result, op, atomic)) }
}

/// Compares and swaps elements; see [`Action::CompareSwap`].
///
/// # Safety
///
/// As for [`combine`], with `atomic`. `compare` and `result` are live for all elements, and aligned.
pub(super) unsafe fn swap(
    step: &Move,
    src: *mut u8,
    dst: *mut u8,
    compare: Ptr,
    result: Ptr,
    scalar: Scalar,
) {
    /// # Safety
    ///
    /// As for the outer function, for elements of `N`.
    unsafe fn each<N: Number>(step: &Move, src: *mut u8, dst: *mut u8, compare: Ptr, result: Ptr) {
        let (mut compare, mut result) = (compare.0.cast::<N>(), result.0.cast::<N>());
        let row = |src: *mut u8, dst: *mut u8, by: Loop| {
            let (mut src, mut dst) = (src.cast::<N>(), dst.cast::<N>());
            for _ in 0..by.turns {
                // SAFETY: the caller's promise for the elements that the row stands at.
                unsafe {
                    let (value, expected) = (src.read(), compare.read().bits());
                    let old = N::update(dst, |old| (old.bits() == expected).then_some(value));
                    result.write(old);
                    (compare, result) = (compare.add(1), result.add(1));
                }
                src = src.wrapping_byte_offset(by.by[0]);
                dst = dst.wrapping_byte_offset(by.by[1]);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { for_each_row(step, src, dst, row) };
    }
    // SAFETY: the caller's promise.
    unsafe { with_scalar!(scalar, each(step, src, dst, compare, result)) }
}
