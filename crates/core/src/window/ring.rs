//! Where the rings of a window lie, and how many buffers they have.
//!
//! # Model
//!
//! In a collective between streams of the host, the slots that a rank has for one origin are a
//! [`Ring`](tidegate_hal::batch::Ring): several buffers, each with a flag in front of the slots. Short slots lie in the
//! cache line of their flag. Both ranks compute the ring from the lengths of the slots, which both know.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Ring;
use tidegate_hal::memory::Ptr;

use super::describe::{SLOT_ALIGN, room};
use crate::ground::visited;

/// A ring, in a block.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RingAt {
    /// The offset of the first flag.
    flags: usize,
    pub(super) stride: usize,
    pub(super) buffers: u32,
}

/// The size of a flag.
const FLAG: usize = size_of::<u64>();

/// The most buffers of a ring, and the most bytes of one that has more than two. An origin runs ahead by so much that
/// neither side waits for a cache line in each call.
const MOST_BUFFERS: usize = 32;
const RING: usize = 256 << 10;

/// The most bytes that the ring of a slot takes beyond two buffers of the slot.
pub(super) const RING_BEYOND: usize = RING + 4 * SLOT_ALIGN;

/// Whether a target should read data of so many bytes from the origin's own memory, where it can. That saves a copy, and
/// costs a call of the system and a signal back.
pub(super) fn is_long(bytes: usize) -> bool {
    bytes >= 64 << 10
}

impl RingAt {
    /// The bytes from a flag to the first slot behind it. Few bytes share the flag's cache line, and others begin with a
    /// line. Elements are aligned to the greatest power of two that divides their size, or to less.
    fn lead(bytes: usize, size: usize) -> usize {
        let align = (size & size.wrapping_neg()).min(SLOT_ALIGN);
        let lead = FLAG.next_multiple_of(align);
        match lead + bytes <= SLOT_ALIGN {
            true => lead,
            false => SLOT_ALIGN,
        }
    }

    /// The ring for slots of these lengths, which has no place yet, and the lead.
    pub(super) fn of(lens: impl Iterator<Item = usize>, size: usize) -> (Self, usize) {
        let bytes = lens.fold((0, 0), |(from, _), len| {
            visited();
            (
                room(from, len, size).expect("sizes were checked"),
                from + len * size,
            )
        });
        let lead = RingAt::lead(bytes.1, size);
        let bytes = lead + bytes.1;
        let stride = match bytes {
            0..=SLOT_ALIGN => bytes.next_power_of_two(),
            _ => bytes.next_multiple_of(SLOT_ALIGN),
        };
        let fit = (RING / stride).clamp(2, MOST_BUFFERS);
        let ring = RingAt {
            flags: 0,
            stride,
            buffers: 1 << fit.ilog2(),
        };
        (ring, lead)
    }

    /// The same ring, with its first flag at this offset.
    pub(super) fn lying_at(self, flags: usize) -> Self {
        RingAt { flags, ..self }
    }

    /// The bytes that all buffers take, in whole cache lines.
    pub(super) fn bytes(self) -> usize {
        (self.stride * self.buffers as usize).next_multiple_of(SLOT_ALIGN)
    }

    /// How many exposures its origin counts when the window opens, if there have been `before` epochs: all buffers are
    /// free then, but those of the next exposure come with it.
    pub(super) fn exposed_at_first(self, before: u64) -> u64 {
        let every = self.at(Ptr::NULL).exposed_every();
        before.next_multiple_of(every) + u64::from(self.buffers) - every
    }

    /// The ring in the block that is mapped at `base`.
    pub(super) fn at(self, base: Ptr) -> Ring {
        Ring {
            flags: base.byte_add(self.flags),
            stride: self.stride,
            buffers: self.buffers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_behind_their_flags_and_within_the_buffer() {
        for size in [1, 2, 4, 8, 12, 16, 48, 64] {
            for lens in [&[1][..], &[1, 1], &[7], &[100, 3], &[70_000], &[]] {
                let (ring, lead) = RingAt::of(lens.iter().copied(), size);
                let slots = lens.iter().scan(0, |at, len| {
                    let from = *at;
                    *at = room(from, *len, size)?;
                    Some((from, len * size))
                });
                let end = slots.map(|(from, bytes)| from + bytes).max().unwrap_or(0);
                assert!(
                    lead >= FLAG && lead + end <= ring.stride,
                    "{ring:?} {lens:?}"
                );
                // A greater power of two divides no size of elements that are aligned to it.
                let align = (size & size.wrapping_neg()).min(SLOT_ALIGN);
                assert!(lead.is_multiple_of(align) && ring.stride.is_multiple_of(align));
                assert!(ring.buffers.is_power_of_two() && ring.buffers >= 2);
                let data: usize = lens.iter().map(|len| len * size).sum();
                assert!(ring.bytes() <= 2 * data + RING_BEYOND * lens.len().max(1));
            }
        }
        let few = RingAt::of([2].into_iter(), 4).0;
        assert_eq!((few.stride, few.buffers), (16, 32));
    }

    /// Whatever number of epochs there have been, the origin never finds fewer exposures than with two buffers, and never
    /// more than there are buffers.
    #[test]
    fn exposures_suffice_and_are_not_too_many() {
        for bytes in [8, 4096, 16 << 10, 1 << 20] {
            let (ring, _) = RingAt::of([bytes].into_iter(), 1);
            let every = ring.at(Ptr::NULL).exposed_every();
            for before in 0..40 {
                let mut exposed = ring.exposed_at_first(before);
                assert!(exposed > before && exposed <= before + u64::from(ring.buffers));
                for epoch in before..before + 100 {
                    if epoch.is_multiple_of(every) {
                        exposed += every;
                    }
                    assert!(exposed >= epoch + 2, "{ring:?} {before}");
                    assert!(exposed <= epoch + u64::from(ring.buffers));
                }
            }
        }
    }
}
