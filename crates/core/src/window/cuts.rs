//! Cuts a run of elements out of a shape, as pieces that are shapes again.

use tidegate_hal::batch::{Shape, Side};
use tidegate_hal::memory::Ptr;

/// Some elements of a shape, in order, as pieces that are shapes again. A piece of a nest of loops consists of rounds
/// of one loop, within one round of all outer loops; its inner loops are whole.
pub(super) struct Cuts {
    shape: Shape,
    at: usize,
    end: usize,
}

impl Cuts {
    pub(super) fn new(shape: Shape, first: usize, count: usize) -> Self {
        Cuts {
            shape,
            at: first,
            end: first + count,
        }
    }
}

impl Iterator for Cuts {
    /// The first element of the piece, and its number of elements.
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (at, left) = (self.at, self.end - self.at);
        if left == 0 {
            return None;
        }
        let mut count = left;
        if let Shape::Strided { dims, rank } = self.shape {
            // Finds the outermost loop that begins a round here, and of which a whole round is left.
            let mut inner = 1;
            for (turns, _) in &dims[..rank as usize] {
                if at % inner != 0 || inner > left {
                    break;
                }
                let turns = *turns as usize;
                count = inner * (left / inner).min(turns - at / inner % turns);
                inner *= turns;
            }
        }
        self.at += count;
        Some((at, count))
    }
}

/// `count` elements of a side, from `first` on. In a nest of loops these must be rounds of one loop, within one round
/// of all outer loops; the inner loops are whole.
pub(super) fn side(whole: Side, size: u32, first: usize, count: usize) -> Side {
    let at = |elements: isize| {
        let bytes = elements * size as isize;
        Ptr(whole.base.0.wrapping_offset(bytes))
    };
    match whole.shape {
        Shape::Linear => Side {
            base: at(first as isize),
            ..whole
        },
        Shape::Indexed { table } => Side {
            shape: Shape::Indexed {
                table: table.byte_add(first * size_of::<u32>()),
            },
            ..whole
        },
        Shape::Strided { mut dims, rank } => {
            let (mut turn, mut left, mut offset) = (first, count, 0);
            for (turns, stride) in &mut dims[..rank as usize] {
                let all = *turns as usize;
                offset += (turn % all) as isize * *stride as isize;
                turn /= all;
                *turns = left.min(all) as u32;
                left /= left.min(all);
            }
            debug_assert_eq!(left, 1, "it is cut along one loop");
            Side {
                base: at(offset),
                shape: Shape::Strided { dims, rank },
                ..whole
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements that a side touches, as offsets in elements of 4 bytes.
    fn elements(side: &Side) -> Vec<isize> {
        let Shape::Strided { dims, rank } = side.shape else {
            unreachable!("it is a nest");
        };
        let mut all = vec![side.base.0.addr() as isize / 4];
        for (turns, stride) in dims[..rank as usize].iter().rev() {
            let along = |at: isize| (0..*turns as isize).map(move |k| at + k * *stride as isize);
            all = all.into_iter().flat_map(along).collect();
        }
        all
    }

    #[test]
    fn pieces_are_the_elements_in_order() {
        let nests: [&[(u32, i32)]; 5] = [
            &[(7, 3)],
            &[(4, 1), (3, 10)],
            &[(3, -2), (2, 20), (3, 50)],
            &[(2, 1), (3, 4), (2, 30), (2, 100)],
            &[(2, 100), (2, 40), (1, 7), (3, 10), (2, 1)],
        ];
        for loops in nests {
            let mut dims = [(1, 0); Shape::MAX_DIMS];
            dims[..loops.len()].copy_from_slice(loops);
            let whole = Side {
                base: Ptr(std::ptr::without_provenance_mut(4000)),
                flip: 0,
                shape: Shape::Strided {
                    dims,
                    rank: loops.len() as u32,
                },
            };
            let all = elements(&whole);
            for first in 0..=all.len() {
                for count in 0..=all.len() - first {
                    let pieces: Vec<_> = Cuts::new(whole.shape, first, count).collect();
                    // The pieces grow up to the outermost loop, and shrink again.
                    assert!(pieces.len() < 2 * loops.len(), "{pieces:?} of {loops:?}");
                    let mut found = Vec::new();
                    for (at, count) in pieces {
                        let piece = elements(&side(whole, 4, at, count));
                        assert_eq!(piece.len(), count);
                        found.extend(piece);
                    }
                    assert_eq!(found, all[first..first + count], "{first}, {count}");
                }
            }
        }
        let linear = Cuts::new(Shape::Linear, 3, 5).collect::<Vec<_>>();
        assert_eq!(linear, [(3, 5)]);
    }
}
