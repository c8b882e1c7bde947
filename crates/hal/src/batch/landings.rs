//! Where short data lands, and what short reductions have in common. The module above explains both.

use std::ops::Range;

#[cfg(doc)]
use super::Wait;
use super::words::QUANTUM;
use crate::memory::Ptr;

/// Memory for a few bytes, with a tag beside every four of them: first the four bytes, then the tag, a `u32`. Both are
/// stored in one operation of eight bytes. The tag is the number of the epoch, counted from 1, modulo 2^32. A landing
/// is zero at first. Its alignment is 16 bytes, and its length is a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Its first byte, in even epochs.
    pub base: Ptr,
    /// Bytes to add to `base` in odd epochs; 0 where the slot has one buffer.
    pub flip: usize,
}

impl Landing {
    /// For a wait with this operand: where its epoch lands, and the epoch's tag.
    pub fn of_epoch(self, operand: u64) -> (Ptr, u32) {
        let epoch = operand / QUANTUM;
        let flip = if epoch % 2 == 1 { self.flip } else { 0 };
        (self.base.byte_add(flip), (epoch + 1) as u32)
    }

    /// The length of a landing for so many bytes, a multiple of 4.
    pub const fn room(bytes: usize) -> usize {
        (2 * bytes).next_multiple_of(16)
    }
}

/// The most puts of a [short reduction](super#short-reductions), and the most waits for what lands.
pub const MOST_REDUCED: usize = 32;

/// Whether two runs of addresses are the same, or have nothing in common.
///
/// # Examples
///
/// ```
/// use tidegate_hal::batch::same_or_apart;
///
/// assert!(same_or_apart(&(16..32), &(16..32)) && same_or_apart(&(16..32), &(32..48)));
/// assert!(!same_or_apart(&(16..32), &(20..36)));
/// ```
pub fn same_or_apart<T: Ord>(one: &Range<T>, other: &Range<T>) -> bool {
    one == other || one.end <= other.start || other.end <= one.start
}

/// Data that a wait may find in a landing, and the slot that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The landing, in memory of this device.
    pub from: Landing,
    /// The first byte of the slot, in even epochs.
    pub slot: Ptr,
    /// Bytes to add to `slot` in odd epochs.
    pub flip: usize,
    /// Bytes of the slot; a multiple of 4.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_land_in_their_buffers_with_their_tags() {
        let landing = Landing {
            base: Ptr(std::ptr::without_provenance_mut(0x1000)),
            flip: 0x80,
        };
        let of = |epoch: u64| {
            let (at, tag) = landing.of_epoch(epoch * QUANTUM);
            (at.0.addr(), tag)
        };
        assert_eq!(
            [of(0), of(1), of(2)],
            [(0x1000, 1), (0x1080, 2), (0x1000, 3)]
        );
        let last = u64::from(u32::MAX);
        assert_eq!(
            [of(last - 1), of(last), of(last + 1)],
            [(0x1000, u32::MAX), (0x1080, 0), (0x1000, 1)]
        );
        assert_eq!([4, 8, 12, 256].map(Landing::room), [16, 16, 32, 512]);
    }
}
