//! Copies that gather.

use tidegate_hal::batch::{Action, Move, Shape, Side};
use tidegate_hal::memory::Ptr;

use super::Maker;

impl Maker<'_> {
    /// Elements from different places to contiguous ones. Most are gathered in 16 bytes.
    pub(super) fn gather(&mut self, parity: Ptr) -> Move {
        let size = self.rng.of(&[4usize, 8, 8, 16]);
        let count = match self.rng.below(4) {
            0 => self.rng.within(1..=40),
            _ => self.rng.within(1..=8 * self.most),
        };
        let (src, shape) = if self.rng.once_in(3) {
            let mut indices: Vec<u32> = (0..count as u32).map(|at| 2 * at).collect();
            self.rng.shuffle(&mut indices);
            let beyond = 4 * self.rng.of(&[0, 0, 0, 1, 2]);
            let table = self.arena.take(4 * count, beyond, false);
            for (at, index) in indices.iter().enumerate() {
                // SAFETY: the table was taken with room for all.
                unsafe { table.cast::<u32>().add(at).write(*index) };
            }
            let table = Ptr(table);
            (
                self.arena.take(2 * count * size, 0, false),
                Shape::Indexed { table },
            )
        } else {
            let stride = self.rng.within(1..=3) as i32;
            let mut dims = [(1, 0); Shape::MAX_DIMS];
            dims[0] = (count as u32, stride);
            let reach = count * stride as usize * size;
            (
                self.arena.take(reach, 0, false),
                Shape::Strided { dims, rank: 1 },
            )
        };
        let bytes = count * size;
        let odd = size * self.rng.of(&[0, 0, 0, 0, 1]);
        let flip = if parity.is_null() || self.rng.once_in(3) {
            0
        } else {
            (bytes + self.rng.below(40)).next_multiple_of(16) + odd
        };
        let beyond = if self.rng.once_in(5) { size } else { 0 };
        Move {
            action: Action::Copy,
            size: size as u32,
            count,
            src: Side {
                base: Ptr(src),
                flip: 0,
                shape,
            },
            dst: Side {
                base: Ptr(self.arena.take(bytes + flip, beyond, true)),
                flip,
                shape: Shape::Linear,
            },
            parity,
            early: !self.rng.once_in(8),
            landing: None,
            buffers: 2,
        }
    }
}
