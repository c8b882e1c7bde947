//! The 26 directions.

use crate::faces::params::Size;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the 26 offsets `(dx, dy, dz)` with each of them -1, 0 or 1, and not all 0.
///
/// Its [index](Direction::index) counts them with `dx` fastest; so the opposite of `k` is `25 - k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Direction(u8);

/// The part of the surface that two neighbours share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A face: one offset is not zero.
    Face,
    /// An edge: two are not.
    Edge,
    /// A corner: none is zero.
    Corner,
}

impl Direction {
    /// How many there are.
    pub const COUNT: usize = 26;

    /// All directions, in the order of their indices.
    pub fn all() -> impl DoubleEndedIterator<Item = Direction> + ExactSizeIterator {
        (0..Self::COUNT as u8).map(Direction)
    }

    /// A table of one value for each direction, filled in the order of their indices.
    pub fn table<T>(mut value: impl FnMut(Direction) -> T) -> [T; Direction::COUNT] {
        std::array::from_fn(|k| value(Direction(k as u8)))
    }

    /// The direction of an index, `None` from 26 on.
    pub const fn from_index(index: usize) -> Option<Direction> {
        if index < Self::COUNT {
            Some(Direction(index as u8))
        } else {
            None
        }
    }

    /// The direction of an offset, `None` for zero and for anything beyond -1 to 1.
    pub fn from_offset(offset: [i8; 3]) -> Option<Direction> {
        if offset == [0; 3] || offset.iter().any(|o| !(-1..=1).contains(o)) {
            return None;
        }
        let [x, y, z] = offset.map(|o| (o + 1) as u8);
        let k = x + 3 * y + 9 * z;
        // The 14th of the 27 would be the block itself.
        Some(Direction(if k > 13 { k - 1 } else { k }))
    }

    /// From 0 to 25.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The direction as steps along the three dimensions, `[dx, dy, dz]`, each -1, 0 or 1.
    pub const fn offset(self) -> [i8; 3] {
        let k = if self.0 < 13 { self.0 } else { self.0 + 1 } as i8;
        [k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1]
    }

    /// The direction from the neighbour back to this rank.
    pub const fn opposite(self) -> Direction {
        Direction(25 - self.0)
    }

    /// Face, edge or corner.
    pub fn kind(self) -> Kind {
        match self.offset().iter().filter(|&&o| o != 0).count() {
            1 => Kind::Face,
            2 => Kind::Edge,
            _ => Kind::Corner,
        }
    }

    /// The values in the message to this direction: `n * m` for each dimension along which the
    /// neighbours touch.
    pub fn message_len(self, size: Size) -> usize {
        let along = (0..3).filter(|&d| self.offset()[d] == 0);
        along.map(|d| size.n * size.m[d]).product()
    }
}

/// The signs of the three offsets: `(+,0,-)`.
impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.offset().map(|o| ["-", "0", "+"][(o + 1) as usize]);
        write!(f, "({x},{y},{z})")
    }
}

impl From<Direction> for u8 {
    fn from(d: Direction) -> u8 {
        d.0
    }
}

impl TryFrom<u8> for Direction {
    type Error = String;
    fn try_from(index: u8) -> Result<Direction, String> {
        Direction::from_index(index.into()).ok_or_else(|| format!("there is no direction {index}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_offsets_round_trip() {
        for (k, d) in Direction::all().enumerate() {
            assert_eq!(d.index(), k);
            assert_eq!(Direction::from_index(k), Some(d));
            assert_eq!(Direction::from_offset(d.offset()), Some(d));
            assert_eq!(d.opposite().offset(), d.offset().map(|o| -o));
        }
        assert_eq!(Direction::from_index(26), None);
        assert_eq!(Direction::from_offset([0; 3]), None);
        assert_eq!(Direction::from_offset([2, 0, 0]), None);
        assert!(Direction::try_from(26).is_err());
    }

    #[test]
    fn six_faces_twelve_edges_eight_corners() {
        let count = |kind| Direction::all().filter(|d| d.kind() == kind).count();
        assert_eq!(
            [count(Kind::Face), count(Kind::Edge), count(Kind::Corner)],
            [6, 12, 8]
        );
        assert_eq!(
            Direction::from_offset([1, 0, -1]).unwrap().to_string(),
            "(+,0,-)"
        );
    }
}
