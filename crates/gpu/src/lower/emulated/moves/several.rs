//! Several copies of a lane to parts of one piece of memory, like the slots of a window.

use tidegate_hal::batch::{Action, Move, Shape, Side};
use tidegate_hal::memory::Ptr;

use super::Maker;

impl Maker<'_> {
    /// A few copies in any order: some contiguous, some apart, some of separate elements.
    pub(super) fn several(&mut self, parity: Ptr) -> Vec<Move> {
        let size = self.rng.of(&[1usize, 4, 8, 8, 16]);
        let stride = |this: &mut Self| match this.rng.once_in(4) {
            true => this.rng.within(2..=3),
            false => 1,
        };
        let most = self.rng.of(&[8, self.most, self.most]);
        // The number of elements, their distance, and the first place.
        let (mut parts, mut end) = (Vec::new(), 0);
        for _ in 0..self.rng.within(2..=6) {
            let count = self.rng.within(1..=most);
            let apart = stride(self);
            parts.push((end, count, apart));
            end += count * apart + self.rng.of(&[0, 0, 1, 2, 16]);
        }
        let (sources, targets) = (self.rng.once_in(3), end * size);
        let flip = match parity.is_null() || self.rng.once_in(3) {
            true => 0,
            false => targets.next_multiple_of(self.rng.of(&[size, 16, 16])),
        };
        let beyond = if self.rng.once_in(4) { size } else { 0 };
        let dst = Ptr(self.arena.take(targets + flip, beyond, true));
        // All sources are in one piece, or each is a piece of its own.
        let all = sources.then(|| Ptr(self.arena.take(targets, beyond, false)));
        let side = |base: Ptr, flip, count: usize, apart: usize| {
            let mut dims = [(1, 0); Shape::MAX_DIMS];
            dims[0] = (count as u32, apart as i32);
            let shape = match apart {
                1 => Shape::Linear,
                _ => Shape::Strided { dims, rank: 1 },
            };
            Side { base, flip, shape }
        };
        let early = !self.rng.once_in(8);
        self.rng.shuffle(&mut parts);
        let copy = |(first, count, apart): (usize, usize, usize)| {
            let src = match all {
                Some(all) => side(all.byte_add(first * size), 0, count, apart),
                None => {
                    let apart = stride(self);
                    let beyond = size * self.rng.below(3);
                    let piece = self.arena.take(count * apart * size, beyond, false);
                    side(Ptr(piece), 0, count, apart)
                }
            };
            Move {
                action: Action::Copy,
                size: size as u32,
                count,
                src,
                dst: side(dst.byte_add(first * size), flip, count, apart),
                parity,
                early,
                landing: None,
                buffers: 2,
            }
        };
        parts.into_iter().map(copy).collect()
    }
}
