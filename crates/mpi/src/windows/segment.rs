//! Memory that all ranks reach: windows of MPI, and the blocks in them.
//!
//! All ranks make a segment together (`MPI_Win_allocate` and related calls). It stays until `MPI_Finalize`, because
//! freeing it is collective, too, and dropping a block is not. Blocks are parts of segments.
//!
//! Each time that the ranks make blocks is a *round*. In a round, each rank tells of which earlier rounds it still
//! holds peers' memory. A block that its owner has dropped is reused when nobody holds anything of its round. So a late
//! put still finds the memory for which it was meant.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};

use mpi::ffi;
use serde::{Deserialize, Serialize};
use tidegate_hal::far::BusError;
use tidegate_hal::memory::Ptr;

use super::call::{check, failed, is_unified};
use super::pool::Pool;
use super::ranks::Ranks;
use crate::calls::call;

/// Segments begin at a page.
const ALIGN: usize = 4096;
/// The smallest size of a segment.
const LEAST: usize = 1 << 20;
/// The size of a part that its rank does not need.
const SMALL: usize = 1 << 16;

/// One window of MPI, and the memory of this rank and of those that share it.
pub(super) struct Segment {
    /// The window for calls of MPI to all ranks; null if there is no other rank.
    pub(super) window: ffi::MPI_Win,
    /// The window among the ranks that share memory, if the memory comes from such a window.
    pub(super) shares: ffi::MPI_Win,
    /// The first byte of each rank's part, if it is mapped here: this rank's own, and those of near ranks.
    parts: Vec<Option<*mut u8>>,
    /// The first aligned byte of this rank's part, and its distance from the part's first byte. MPI aligns to 8 bytes,
    /// or to more.
    pub(super) base: *mut u8,
    pub(super) skew: usize,
    /// Bytes of each rank's part.
    pub(super) bytes: Vec<usize>,
    /// The far address of each rank's part, after it was first needed.
    pub(super) names: Vec<Option<Ptr>>,
    pub(super) pool: Pool,
}

/// A rank's report when blocks are made.
#[derive(Serialize, Deserialize)]
pub(super) struct Round {
    /// Whether it needs another segment, and how large its part is if one is made.
    pub(super) needs: bool,
    pub(super) bytes: usize,
    /// The rounds of which it holds peers' memory.
    pub(super) held: Vec<u32>,
}

/// The blocks in use.
#[derive(Default)]
pub(super) struct InUse {
    /// How many rounds there were.
    pub(super) rounds: u32,
    /// For each round, how many blocks of peers are held here.
    held: BTreeMap<u32, usize>,
    /// This rank's blocks, one for each round, until they are reused.
    own: BTreeMap<u32, Own>,
    /// Peers' blocks that are held, by their far addresses: bytes, round, and how often.
    reached: BTreeMap<usize, (usize, u32, usize)>,
}

/// A block of this rank.
#[derive(Clone, Copy)]
struct Own {
    segment: usize,
    at: usize,
    bytes: usize,
    dropped: bool,
}

impl InUse {
    /// Notes a new block of this rank.
    pub(super) fn has(&mut self, round: u32, segment: usize, at: usize, bytes: usize) {
        let own = Own {
            segment,
            at,
            bytes,
            dropped: false,
        };
        self.own.insert(round, own);
    }

    /// Notes that this rank has dropped its block.
    pub(super) fn drops(&mut self, round: u32) {
        if let Some(own) = self.own.get_mut(&round) {
            own.dropped = true;
        }
    }

    /// The segment of a block of this rank, and a place in it, if the block still exists and has this many bytes at
    /// that place.
    pub(super) fn place_of(&self, round: u32, at: usize, bytes: usize) -> Option<(usize, usize)> {
        let own = self.own.get(&round)?;
        let inside = at.checked_add(bytes)? <= own.bytes;
        inside.then_some((own.segment, own.at + at))
    }

    /// Notes that this rank holds memory of a peer.
    pub(super) fn hold(&mut self, round: u32, far: Option<Ptr>, bytes: usize) {
        *self.held.entry(round).or_default() += 1;
        if let Some(far) = far {
            let reached = self.reached.entry(far.0.addr());
            reached.or_insert((bytes, round, 0)).2 += 1;
        }
    }

    /// Notes that this rank does not hold it any more.
    pub(super) fn let_go(&mut self, round: u32, far: Option<Ptr>) {
        if let Some(count) = self.held.get_mut(&round) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&round);
            }
        }
        let far = far.map(|far| far.0.addr());
        if let Some(far) = far
            && let Some((_, _, count)) = self.reached.get_mut(&far)
        {
            *count -= 1;
            if *count == 0 {
                self.reached.remove(&far);
            }
        }
    }

    /// The round of a peer's block that is held, and the offset of a far address in it.
    pub(super) fn block_of(&self, far: Ptr) -> Option<(u32, usize)> {
        let far = far.0.addr();
        let (base, (bytes, round, _)) = self.reached.range(..=far).next_back()?;
        (far - base < *bytes).then_some((*round, far - base))
    }

    /// This rank's report in a round.
    pub(super) fn round(&self, segments: &mut [Segment], bytes: usize) -> Result<Round, BusError> {
        let room = segments.iter_mut().any(|segment| {
            let found = segment.pool.take(bytes);
            found.inspect(|at| segment.pool.give(*at, bytes)).is_some()
        });
        let wanted = Pool::wanted(bytes).filter(|bytes| *bytes < isize::MAX as usize / 4);
        let wanted = wanted.ok_or_else(|| failed(format!("a block of {bytes} bytes")))?;
        // Each segment is twice as large as all before, so that there are few.
        let all: usize = segments.len().min(16);
        let part = if room {
            SMALL
        } else {
            wanted.max(LEAST << all)
        };
        Ok(Round {
            needs: !room,
            bytes: (part + ALIGN).next_multiple_of(1 << 16),
            held: self.held.keys().copied().collect(),
        })
    }

    /// Frees the blocks that nobody holds any more, for reuse.
    pub(super) fn reuse(&mut self, segments: &mut [Segment], said: &[Round]) {
        self.own.retain(|round, own| {
            let stays = !own.dropped || said.iter().any(|rank| rank.held.contains(round));
            if !stays {
                segments[own.segment].pool.give(own.at, own.bytes);
            }
            stays
        });
    }
}

/// Zeroed memory that stays until the process ends, since windows can be freed while it is in use.
fn lasting(bytes: usize) -> Result<*mut u8, BusError> {
    let out = |detail: String| failed(format!("{bytes} bytes: {detail}"));
    let layout = Layout::from_size_align(bytes, ALIGN).map_err(|e| out(e.to_string()))?;
    if bytes == 0 {
        return Err(out("a part without memory".into()));
    }
    // SAFETY: the layout has a size other than 0, as was just checked.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    if base.is_null() {
        return Err(out("there is no more memory".into()));
    }
    Ok(base)
}

/// Maps shared memory a second time, at another address. The second mapping stays when MPI unmaps the first.
///
/// # Safety
///
/// The memory is mapped, for this many bytes.
unsafe fn alias(base: *mut u8, bytes: usize) -> Result<*mut u8, BusError> {
    let page = rustix::param::page_size();
    let before = base.addr() % page;
    let len = (before + bytes).next_multiple_of(page);
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: an old length of 0 asks for a second mapping of shared memory, and does not change the first.
    let other = unsafe { rustix::mm::mremap(base.wrapping_sub(before).cast(), 0, len, flags) };
    let other = other.map_err(|e| failed(format!("mremap: {e}")))?;
    Ok(other.cast::<u8>().wrapping_add(before))
}

/// A hint for MPI.
struct Info(ffi::MPI_Info);

impl Info {
    fn with(key: &CStr, value: &CStr) -> Result<Self, BusError> {
        // SAFETY: a constant of the binding.
        let mut info = Info(unsafe { ffi::RSMPI_INFO_NULL });
        // SAFETY: MPI runs, since segments are made only until it ends; both texts end with a NUL.
        unsafe {
            call!(MPI_Info_create(&raw mut info.0))?;
            call!(MPI_Info_set(info.0, key.as_ptr(), value.as_ptr()))?;
        }
        Ok(info)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: `with` made it, or it is null. MPI still runs, because no value is kept.
        unsafe {
            if self.0 != ffi::RSMPI_INFO_NULL {
                let _ = ffi::MPI_Info_free(&raw mut self.0);
            }
        }
    }
}

impl Segment {
    /// Makes a segment. Collective. Each rank passes the size that it has told the others. `mine` is an error if this
    /// rank cannot go on.
    ///
    /// # Safety
    ///
    /// The communicators are live, and only this library uses them.
    pub(super) unsafe fn make(
        ranks: &Ranks,
        bytes: Vec<usize>,
        mine: Result<(), BusError>,
    ) -> Result<Self, BusError> {
        let (me, size) = (ranks.me, bytes[ranks.me] as ffi::MPI_Aint);
        // SAFETY: these are constants of the binding.
        let (mut window, mut shares) = unsafe { (ffi::RSMPI_WIN_NULL, ffi::RSMPI_WIN_NULL) };
        let mut parts = vec![None; bytes.len()];
        let memory = if ranks.near.iter().flatten().count() > 1 {
            // SAFETY: the caller's promise.
            unsafe { share(ranks, &bytes, &mut shares, &mut parts) }
        } else {
            lasting(bytes[me]).map(|base| parts[me] = Some(base))
        };
        // A rank that cannot go on must not leave the others waiting in the following calls.
        // SAFETY: the caller's promise.
        unsafe { ranks.agree(memory.and(mine)) }?;
        let base = parts[me].expect("a rank is near itself");
        let made = if ranks.all_near() {
            // One window is enough, and Open MPI makes none over memory of a single rank.
            std::mem::swap(&mut window, &mut shares);
            Ok(())
        } else {
            // SAFETY: the caller's promise; memory that is given to MPI is never freed.
            unsafe {
                let info = ffi::RSMPI_INFO_NULL;
                call!(MPI_Win_create(
                    base.cast(),
                    size,
                    1,
                    info,
                    ranks.all,
                    &raw mut window
                ))
            }
        };
        if ranks.size() > 1 {
            // SAFETY: the window was just made, if `made` is no error.
            let opened = made.and_then(|()| unsafe { open(window) });
            // All ranks have it, or none, since at the end they free it together.
            // SAFETY: the caller's promise.
            unsafe { ranks.agree(opened) }?;
        }
        let skew = base.align_offset(ALIGN);
        let usable = bytes[me].checked_sub(skew);
        let usable =
            usable.ok_or_else(|| failed(format!("a window of MPI with memory at {base:?}")))?;
        Ok(Segment {
            window,
            shares,
            parts,
            base: base.wrapping_add(skew),
            skew,
            pool: Pool::new(usable),
            names: vec![None; bytes.len()],
            bytes,
        })
    }

    /// The first byte of a rank's part, if it is mapped here.
    pub(super) fn part(&self, rank: usize) -> Option<Ptr> {
        self.parts[rank].map(Ptr)
    }

    /// The rank of an address that is mapped here, and the offset in that rank's part.
    pub(super) fn place(&self, near: Ptr) -> Option<(usize, usize)> {
        let inside = |rank: usize| {
            let at = near.0.addr().wrapping_sub(self.parts[rank]?.addr());
            (at < self.bytes[rank]).then_some((rank, at))
        };
        (0..self.parts.len()).find_map(inside)
    }

    /// Orders this process's stores and loads with the operations that come through the window (`MPI_Win_sync`).
    #[inline]
    pub(super) fn sync(&self) -> Result<(), BusError> {
        if self.bytes.len() == 1 {
            return Ok(());
        }
        // SAFETY: there is another rank, so there is a window. It is live, and locked by this rank, as long as the
        // segment lives.
        unsafe { call!(MPI_Win_sync(self.window)) }
    }
}

/// Memory that near ranks share, mapped for good.
///
/// # Safety
///
/// As for [`Segment::make`].
unsafe fn share(
    ranks: &Ranks,
    bytes: &[usize],
    window: &mut ffi::MPI_Win,
    parts: &mut [Option<*mut u8>],
) -> Result<(), BusError> {
    let mut base: *mut u8 = std::ptr::null_mut();
    let size = bytes[ranks.me] as ffi::MPI_Aint;
    let info = Info::with(c"alloc_shared_noncontig", c"true");
    // SAFETY: the caller's promise, here and below.
    unsafe { ranks.agree_near(info.as_ref().map(|_| ()).map_err(Clone::clone)) }?;
    let info = info?;
    // SAFETY: the caller's promise; MPI stores the address of the memory, and the window.
    let made = unsafe {
        let at = (&raw mut base).cast();
        call!(MPI_Win_allocate_shared(
            size,
            1,
            info.0,
            ranks.shared,
            at,
            window
        ))
    };
    let made = made.and_then(|()| {
        // SAFETY: the window was just made.
        unsafe { call!(MPI_Win_set_errhandler(*window, ffi::RSMPI_ERRORS_RETURN)) }
    });
    // SAFETY: as above.
    unsafe { ranks.agree_near(made) }?;
    // In any case the others wait at the barriers.
    // SAFETY: the window was just made.
    let mapped = unsafe { map(ranks, bytes, *window, base, parts) };
    // SAFETY: the caller's promise; nobody uses the memory yet.
    let same = unsafe { prove(ranks, base, parts) }?;
    mapped?;
    if !same {
        return Err(failed(
            "memory of MPI_Win_allocate_shared cannot be mapped a second time",
        ));
    }
    Ok(())
}

/// Maps the parts of all near ranks. `base` is MPI's own mapping of this rank's part.
///
/// # Safety
///
/// The window is live. These ranks have made it together, with this many bytes each.
unsafe fn map(
    ranks: &Ranks,
    bytes: &[usize],
    window: ffi::MPI_Win,
    base: *mut u8,
    parts: &mut [Option<*mut u8>],
) -> Result<(), BusError> {
    for (rank, near) in ranks.near.iter().enumerate() {
        let Some(near) = *near else { continue };
        let (mut part, mut size, mut unit) = (base, 0, 0);
        if rank != ranks.me {
            // SAFETY: the caller's promise; MPI stores the address of the rank's memory here.
            unsafe {
                let part = (&raw mut part).cast();
                call!(MPI_Win_shared_query(
                    window,
                    near,
                    &raw mut size,
                    &raw mut unit,
                    part
                ))
            }?;
            if size != bytes[rank] as ffi::MPI_Aint || part.is_null() {
                return Err(failed(format!(
                    "MPI_Win_shared_query tells of {size} bytes at {part:?} for rank {rank}, which has {}",
                    bytes[rank]
                )));
            }
        }
        // SAFETY: MPI has mapped the part, for this many bytes.
        parts[rank] = Some(unsafe { alias(part, bytes[rank]) }?);
    }
    Ok(())
}

/// Checks that all parts are the right memory: each rank writes into its own part at MPI's address, and the others read
/// at their own mappings. Leaves zeros. Collective over the near ranks.
///
/// # Safety
///
/// As for [`share`]; `base` is MPI's mapping of this rank's part, and the parts are mapped.
unsafe fn prove(ranks: &Ranks, base: *mut u8, parts: &[Option<*mut u8>]) -> Result<bool, BusError> {
    let mark = |rank: usize| 0x7469_6465_0000_0001 ^ (rank as u64) << 32;
    let barrier = || {
        // SAFETY: the caller's promise.
        unsafe { call!(MPI_Barrier(ranks.shared)) }
    };
    let mut same = true;
    // SAFETY: every part has room for a number (no segment is smaller), and nobody uses the parts yet. The barriers
    // separate writers from readers.
    unsafe {
        base.cast::<u64>().write_unaligned(mark(ranks.me));
        barrier()?;
        for (rank, part) in parts.iter().enumerate() {
            if let Some(part) = part {
                same &= part.cast::<u64>().read_unaligned() == mark(rank);
            }
        }
        barrier()?;
        base.cast::<u64>().write_unaligned(0);
        barrier()?;
    }
    Ok(same)
}

/// Makes MPI return errors, checks that loads see updates by MPI, and locks all targets.
///
/// # Safety
///
/// The window is live.
unsafe fn open(window: ffi::MPI_Win) -> Result<(), BusError> {
    // SAFETY: the caller's promise.
    unsafe {
        call!(MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN))?;
        if !is_unified(window)? {
            return Err(failed(
                "windows have two copies (no MPI_WIN_UNIFIED): nobody would see what comes",
            ));
        }
        let nocheck = ffi::MPI_MODE_NOCHECK as c_int;
        call!(MPI_Win_lock_all(nocheck, window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_round_are_let_go_one_by_one() {
        let far = |at: usize| Ptr(std::ptr::without_provenance_mut(at));
        let mut in_use = InUse::default();
        in_use.hold(4, Some(far(4096)), 128);
        in_use.hold(4, Some(far(8192)), 128);
        in_use.hold(4, None, 128);
        assert_eq!(in_use.block_of(far(4096 + 127)), Some((4, 127)));
        assert_eq!(in_use.block_of(far(4096 + 128)), None);
        in_use.let_go(4, Some(far(4096)));
        assert_eq!(in_use.block_of(far(4096)), None);
        assert_eq!(in_use.block_of(far(8192)), Some((4, 0)));
        in_use.let_go(4, Some(far(8192)));
        assert!(in_use.held.contains_key(&4));
        in_use.let_go(4, None);
        assert!(in_use.held.is_empty());
    }

    #[test]
    fn a_block_that_was_used_again_takes_no_late_signal() {
        let mut in_use = InUse::default();
        in_use.has(1, 0, 64, 256);
        in_use.drops(1);
        assert_eq!(in_use.place_of(1, 192, 64), Some((0, 256)));
        assert_eq!(in_use.place_of(1, 193, 64), None);
        let said = |held: &[u32]| Round {
            needs: false,
            bytes: 0,
            held: held.to_vec(),
        };
        let pool = || {
            let mut pool = Pool::new(1 << 12);
            assert_eq!((pool.take(1), pool.take(256)), (Some(0), Some(64)));
            pool
        };
        let mut segments = [Segment {
            window: unsafe_null(),
            shares: unsafe_null(),
            parts: Vec::new(),
            base: std::ptr::null_mut(),
            skew: 0,
            bytes: Vec::new(),
            names: Vec::new(),
            pool: pool(),
        }];
        // Another rank holds memory of that round.
        in_use.reuse(&mut segments, &[said(&[]), said(&[0, 1])]);
        assert_eq!(segments[0].pool.take(256), Some(320));
        assert!(in_use.place_of(1, 0, 8).is_some());
        in_use.reuse(&mut segments, &[said(&[0]), said(&[])]);
        assert_eq!(segments[0].pool.take(256), Some(64));
        assert_eq!(in_use.place_of(1, 0, 8), None);
    }

    fn unsafe_null() -> ffi::MPI_Win {
        // SAFETY: a constant of the binding.
        unsafe { ffi::RSMPI_WIN_NULL }
    }
}
