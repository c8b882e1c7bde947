//! The rows of a move.

use tidegate_hal::batch::{Move, Shape};

use super::nest::{Loop, Nest};
use super::walk::for_each_stretch;

/// Calls `row` for all rows of a move, in order, with the addresses at which each begins on both sides.
///
/// # Safety
///
/// Index tables are live for all elements.
#[inline]
pub(super) unsafe fn for_each_row(
    step: &Move,
    src: *mut u8,
    dst: *mut u8,
    mut row: impl FnMut(*mut u8, *mut u8, Loop),
) {
    let size = step.size as usize;
    let (from, to) = (&step.src.shape, &step.dst.shape);
    if let (Shape::Linear, Shape::Linear) = (from, to) {
        // To make a nest would take longer than a short move does.
        if step.count != 0 {
            row(src, dst, Loop::contiguous(step.count, size));
        }
        return;
    }
    if let Some(nest) = Nest::new(from, to, step.count, size) {
        nest.for_each_row(src, dst, row);
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        for_each_stretch(from, to, step.count, |here, there, run| {
            let here = src.wrapping_offset(here * size as isize);
            let there = dst.wrapping_offset(there * size as isize);
            row(here, there, Loop::contiguous(run, size));
        });
    }
}

/// Calls `each` for every stretch that is contiguous on both sides of a copy of `count` elements, in order. It gets the
/// offset of the stretch on both sides (in elements from the base), and its length.
///
/// # Safety
///
/// Index tables are live for all elements, and the product of the loops' turns is `count`.
pub unsafe fn for_each_run(
    from: &Shape,
    to: &Shape,
    count: usize,
    mut each: impl FnMut(isize, isize, usize),
) {
    let Some(nest) = Nest::new(from, to, count, 1) else {
        // SAFETY: the caller's promise.
        return unsafe { for_each_stretch(from, to, count, each) };
    };
    // With elements of one byte at address 0, an address is a number of elements.
    nest.for_each_row(
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        |src, dst, by| {
            let (mut here, mut there) = (src.addr() as isize, dst.addr() as isize);
            let (turns, run) = if by == Loop::contiguous(by.turns, 1) {
                (1, by.turns)
            } else {
                (by.turns, 1)
            };
            for _ in 0..turns {
                each(here, there, run);
                (here, there) = (here + by.by[0], there + by.by[1]);
            }
        },
    );
}
