//! What kernels need of a block and of a slot.

use crate::faces::layout::{Direction, Geometry};

/// Values that can be read by index.
pub trait Values {
    /// The value at an index.
    ///
    /// # Panics
    ///
    /// When the index is out of range, or not part of this view.
    fn get(&self, index: usize) -> f64;

    /// Reads `out.len()` values: at `start`, `start + stride`, and so on.
    ///
    /// # Panics
    ///
    /// As [`Values::get`], for any of them.
    #[inline]
    fn read(&self, start: usize, stride: usize, out: &mut [f64]) {
        for (k, out) in out.iter_mut().enumerate() {
            *out = self.get(start + k * stride);
        }
    }
}

/// Values that can be read and written by index: a block, or a part of one.
pub trait Points: Values {
    /// Replaces the value at an index.
    ///
    /// # Panics
    ///
    /// When the index is out of range, or not part of this view.
    fn set(&mut self, index: usize, value: f64);
}

impl Values for [f64] {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        self[index]
    }

    #[inline]
    fn read(&self, start: usize, stride: usize, out: &mut [f64]) {
        if stride == 1 {
            out.copy_from_slice(&self[start..start + out.len()]);
        } else if !out.is_empty() {
            // One check for the whole row.
            let row = &self[start..=start + (out.len() - 1) * stride];
            for (out, value) in out.iter_mut().zip(row.iter().step_by(stride)) {
                *out = *value;
            }
        }
    }
}

impl Points for [f64] {
    #[inline]
    fn set(&mut self, index: usize, value: f64) {
        self[index] = value;
    }
}

impl<V: Values + ?Sized> Values for &V {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        (**self).get(index)
    }

    #[inline]
    fn read(&self, start: usize, stride: usize, out: &mut [f64]) {
        (**self).read(start, stride, out);
    }
}

impl<V: Values + ?Sized> Values for &mut V {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        (**self).get(index)
    }

    #[inline]
    fn read(&self, start: usize, stride: usize, out: &mut [f64]) {
        (**self).read(start, stride, out);
    }
}

impl<V: Points + ?Sized> Points for &mut V {
    #[inline]
    fn set(&mut self, index: usize, value: f64) {
        (**self).set(index, value);
    }
}

/// The received messages, one for each direction that has a neighbour.
pub trait Slots {
    /// One message.
    type Slot<'a>: Values
    where
        Self: 'a;

    /// What the neighbour at `d` sent. Called only where there is one.
    ///
    /// # Panics
    ///
    /// An implementation may panic when it has nothing for this direction.
    fn slot(&self, d: Direction) -> Self::Slot<'_>;
}

/// One slice a direction, `None` where there is no neighbour.
impl Slots for [Option<&[f64]>; Direction::COUNT] {
    type Slot<'a>
        = &'a [f64]
    where
        Self: 'a;

    fn slot(&self, d: Direction) -> &[f64] {
        self[d.index()].unwrap_or_else(|| panic!("nothing was received from {d}"))
    }
}

/// All messages in one buffer, at [`Geometry::slot`].
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    geometry: &'a Geometry,
    buffer: &'a [f64],
}

impl<'a> Packed<'a> {
    /// Messages in a buffer of [`Geometry::packed_len`] values.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter.
    pub fn new(geometry: &'a Geometry, buffer: &'a [f64]) -> Packed<'a> {
        assert!(buffer.len() >= geometry.packed_len(), "a packed buffer of {} values is too short", buffer.len());
        Packed { geometry, buffer }
    }
}

impl Slots for Packed<'_> {
    type Slot<'b>
        = &'b [f64]
    where
        Self: 'b;

    fn slot(&self, d: Direction) -> &[f64] {
        &self.buffer[self.geometry.slot(d)]
    }
}
