//! Nests of loops, and runs of elements.

use tidegate_hal::batch::Shape;

use crate::error::{Result, reserved};
use crate::ground::visited;

/// Joins each run to the run before it if it continues that one.
pub(super) struct Joined<I: Iterator>(std::iter::Peekable<I>);

impl<I: Iterator<Item = (usize, usize)>> Joined<I> {
    pub(super) fn of(runs: I) -> Self {
        Joined(runs.peekable())
    }
}

impl<I: Iterator<Item = (usize, usize)>> Iterator for Joined<I> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (first, mut end) = self.0.next()?;
        while let Some((_, further)) = self.0.next_if(|(next, _)| *next == end) {
            end = further;
        }
        Some((first, end))
    }
}

/// The elements of a nest of loops, the first loop fastest. None of them is negative.
pub(super) struct NestElements<'a> {
    loops: &'a [(u32, i32)],
    at: [u32; Shape::MAX_DIMS],
    next: Option<i64>,
}

impl<'a> NestElements<'a> {
    pub(super) fn new(first: usize, loops: &'a [(u32, i32)]) -> Self {
        NestElements {
            loops,
            at: [0; Shape::MAX_DIMS],
            next: Some(first as i64),
        }
    }
}

impl Iterator for NestElements<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        visited();
        let now = self.next?;
        let mut then = now;
        self.next = None;
        for (at, &(count, stride)) in self.at.iter_mut().zip(self.loops) {
            *at += 1;
            then += i64::from(stride);
            if *at < count {
                self.next = Some(then);
                break;
            }
            *at = 0;
            then -= i64::from(count) * i64::from(stride);
        }
        Some(now as usize)
    }
}

/// A nest of loops without loops of one round, in which each loop that continues the loop inside it is merged with
/// that.
pub(super) fn merged(loops: &[(u64, i64)]) -> Result<Vec<(u64, i64)>> {
    let mut nest: Vec<(u64, i64)> = reserved(loops.len())?;
    for &(times, stride) in loops.iter().filter(|(times, _)| *times != 1) {
        if let Some((inner, step)) = nest.last_mut()
            && i128::from(*inner) * i128::from(*step) == i128::from(stride)
            && let Some(all) = inner.checked_mul(times)
        {
            *inner = all;
        } else {
            nest.push((times, stride));
        }
    }
    Ok(nest)
}

/// Whether the elements of a nest of loops are distinct, if that is easy to see. They are if no loop is wider than one
/// round of the next wider loop. They are not if a loop has stride 0.
pub(super) fn nested(nest: &[(u64, i64)]) -> Option<bool> {
    let mut loops = nest.to_vec();
    loops.sort_unstable_by_key(|(_, stride)| stride.unsigned_abs());
    let mut width = 0u128;
    for (times, stride) in &loops {
        let stride = u128::from(stride.unsigned_abs());
        if stride == 0 {
            return Some(false);
        }
        if stride <= width {
            return None;
        }
        width += u128::from(times - 1) * stride;
    }
    Some(true)
}

/// The number of elements that lie side by side in a [merged] nest of loops, and the loops over these rows.
pub(super) fn rows(nest: &[(u32, i32)]) -> (usize, &[(u32, i32)]) {
    match nest {
        [(times, 1), outer @ ..] => (*times as usize, outer),
        outer => (1, outer),
    }
}
