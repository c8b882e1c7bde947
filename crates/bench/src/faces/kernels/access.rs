//! How kernels access a block and a slot.

use crate::faces::layout::{Direction, Geometry};

/// Values that can be read by index.
pub trait Values {
    /// The value at an index.
    ///
    /// # Panics
    ///
    /// When the index is out of range, or not part of this view.
    fn get(&self, index: usize) -> f64;

    /// All values as a slice, where they are one: kernels are faster over slices.
    #[inline]
    fn as_slice(&self) -> Option<&[f64]> {
        None
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

    /// All values as a slice, where they are one.
    #[inline]
    fn as_mut_slice(&mut self) -> Option<&mut [f64]> {
        None
    }
}

impl Values for [f64] {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        self[index]
    }

    #[inline]
    fn as_slice(&self) -> Option<&[f64]> {
        Some(self)
    }
}

impl Points for [f64] {
    #[inline]
    fn set(&mut self, index: usize, value: f64) {
        self[index] = value;
    }

    #[inline]
    fn as_mut_slice(&mut self) -> Option<&mut [f64]> {
        Some(self)
    }
}

impl<V: Values + ?Sized> Values for &V {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        (**self).get(index)
    }

    #[inline]
    fn as_slice(&self) -> Option<&[f64]> {
        (**self).as_slice()
    }
}

impl<V: Values + ?Sized> Values for &mut V {
    #[inline]
    fn get(&self, index: usize) -> f64 {
        (**self).get(index)
    }

    #[inline]
    fn as_slice(&self) -> Option<&[f64]> {
        (**self).as_slice()
    }
}

impl<V: Points + ?Sized> Points for &mut V {
    #[inline]
    fn set(&mut self, index: usize, value: f64) {
        (**self).set(index, value);
    }

    #[inline]
    fn as_mut_slice(&mut self) -> Option<&mut [f64]> {
        (**self).as_mut_slice()
    }
}

/// The received messages, one for each direction that has a neighbour.
pub trait Slots {
    /// The values of one received message.
    type Slot<'a>: Values
    where
        Self: 'a;

    /// The message of the neighbour at `d`. Called only for directions with a neighbour.
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

/// A function from a direction to its message, such as a closure that borrows the slots of a
/// window.
#[derive(Debug, Clone, Copy)]
pub struct SlotsBy<F>(pub F);

impl<V: Values, F: Fn(Direction) -> V> Slots for SlotsBy<F> {
    type Slot<'a>
        = V
    where
        Self: 'a;

    fn slot(&self, d: Direction) -> V {
        (self.0)(d)
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
        assert!(
            buffer.len() >= geometry.packed_len(),
            "a packed buffer of {} values is too short",
            buffer.len()
        );
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
