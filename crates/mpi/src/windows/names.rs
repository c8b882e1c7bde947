//! Far addresses: names for places in peers' memory. There is no memory at these addresses.
//!
//! One range of addresses is reserved without any access. It is divided into granules, and each granule belongs to one
//! rank's part of one segment.

use std::ops::Range;

use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;

const GRANULE: usize = 1 << 24;
/// The sizes of the reserved range, from the smallest that is enough to the largest, which has room for the names of a
/// hundred buses. If address space is limited, smaller sizes are tried.
const RESERVED: Range<usize> = 1 << 34..1 << 40;

/// A place in a window of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FarPlace {
    pub(super) segment: usize,
    pub(super) rank: usize,
    /// The offset from the beginning of the rank's part.
    pub(super) at: usize,
}

#[derive(Debug)]
struct Granule {
    segment: u32,
    rank: u32,
    /// The far address of the beginning of the rank's part.
    origin: usize,
}

/// The names.
#[derive(Debug)]
pub(super) struct Names {
    base: *mut u8,
    bytes: usize,
    granules: Vec<Granule>,
}

// SAFETY: the pointer is the beginning of addresses that nobody accesses.
unsafe impl Send for Names {}

impl Names {
    /// Reserves addresses; none if no rank is far.
    pub(super) fn reserve(has_far: bool) -> Result<Self, DeviceError> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        if !has_far {
            return Ok(Names {
                base: std::ptr::null_mut(),
                bytes: 0,
                granules: Vec::new(),
            });
        }
        let mut bytes = RESERVED.end;
        loop {
            let (protection, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: a mapping at an address that the system chooses touches no other.
            match unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) } {
                Ok(base) => {
                    return Ok(Names {
                        base: base.cast(),
                        bytes,
                        granules: Vec::new(),
                    });
                }
                Err(_) if bytes > RESERVED.start => bytes /= 4,
                Err(error) => {
                    return Err(DeviceError::Exhausted {
                        what: "address space",
                        detail: format!("{bytes} bytes for names of peers' memory: {error}"),
                    });
                }
            }
        }
    }

    /// All addresses that are names.
    pub(super) fn range(&self) -> Range<usize> {
        self.base.addr()..self.base.addr() + self.bytes
    }

    /// Names for a rank's part of a segment.
    pub(super) fn deal(
        &mut self,
        segment: usize,
        rank: usize,
        bytes: usize,
    ) -> Result<Ptr, DeviceError> {
        let (first, count) = (self.granules.len(), bytes.div_ceil(GRANULE).max(1));
        if (first + count) * GRANULE > self.bytes {
            return Err(DeviceError::Exhausted {
                what: "address space",
                detail: format!("names for {bytes} bytes of rank {rank}"),
            });
        }
        let base = self.base.wrapping_add(first * GRANULE);
        let granule = || Granule {
            segment: segment as u32,
            rank: rank as u32,
            origin: base.addr(),
        };
        self.granules.extend((0..count).map(|_| granule()));
        Ok(Ptr(base))
    }

    /// The place that a far address names.
    ///
    /// # Panics
    ///
    /// If it names nothing.
    #[inline]
    pub(super) fn resolve(&self, far: Ptr) -> FarPlace {
        let far = far.0.addr();
        let granule = &self.granules[far.wrapping_sub(self.base.addr()) / GRANULE];
        FarPlace {
            segment: granule.segment as usize,
            rank: granule.rank as usize,
            at: far - granule.origin,
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: `reserve` mapped the range, and there is no memory. Everyone that has a far address owns the bus, so
        // none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_were_dealt_for() {
        let mut names = Names::reserve(true).unwrap();
        let a = names.deal(0, 3, 1000).unwrap();
        let b = names.deal(1, 2, GRANULE * 2 + 1).unwrap();
        let c = names.deal(1, 4, 8).unwrap();
        let is = |far: Ptr, segment, rank, at| {
            assert_eq!(names.resolve(far), FarPlace { segment, rank, at });
            assert!(names.range().contains(&far.0.addr()));
        };
        is(a.byte_add(999), 0, 3, 999);
        is(b, 1, 2, 0);
        is(b.byte_add(2 * GRANULE), 1, 2, 2 * GRANULE);
        is(c.byte_add(8), 1, 4, 8);
    }
}
