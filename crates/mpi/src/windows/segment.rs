//! Memory that all ranks reach: windows of MPI, and what of them is in use.
//!
//! A segment is made by all ranks together (`MPI_Win_allocate` and its like) and stays until `MPI_Finalize`, since to
//! free one is collective, too, and dropping a block is not. Blocks are parts of it. Each time the ranks make blocks is
//! a *round*; in each each rank says of which earlier rounds it still holds peers' memory. What its owner has let go is
//! used again when nobody holds anything of its round: so a put that comes late finds the memory that it was meant for.

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
/// Segments are at least so large.
const LEAST: usize = 1 << 20;
/// And where a rank needs none.
const SMALL: usize = 1 << 16;

/// One window of MPI, and the memory at this rank and at those that share it.
pub(super) struct Segment {
    /// What calls of MPI reach all ranks by; null where there is no other rank.
    pub(super) window: ffi::MPI_Win,
    /// What the memory comes from, where that is another window: one among the ranks that share memory.
    pub(super) shares: ffi::MPI_Win,
    /// The first byte of each rank's part, where it is mapped here: this rank's own, and those of ranks near it.
    parts: Vec<Option<*mut u8>>,
    /// This rank's part from the first byte on that is aligned, and how far that is from the first of all: MPI aligns
    /// to 8 bytes, or to more.
    pub(super) base: *mut u8,
    pub(super) skew: usize,
    /// Bytes of each rank's part.
    pub(super) bytes: Vec<usize>,
    /// The far address of each rank's part, once somebody has asked.
    pub(super) names: Vec<Option<Ptr>>,
    pub(super) pool: Pool,
}

/// What a rank says when blocks are made.
#[derive(Serialize, Deserialize)]
pub(super) struct Round {
    /// Whether it needs another segment, and how large its part is to be if there is one.
    pub(super) needs: bool,
    pub(super) bytes: usize,
    /// The rounds of which it holds peers' memory.
    pub(super) held: Vec<u32>,
}

/// What is in use.
#[derive(Default)]
pub(super) struct InUse {
    /// How many rounds there were.
    pub(super) rounds: u32,
    /// How much of each round's memory is held here that is a peer's.
    held: BTreeMap<u32, usize>,
    /// Own blocks, one a round, until they are used again.
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
    /// This rank has a block of its own.
    pub(super) fn has(&mut self, round: u32, segment: usize, at: usize, bytes: usize) {
        let own = Own {
            segment,
            at,
            bytes,
            dropped: false,
        };
        self.own.insert(round, own);
    }

    /// It has let it go.
    pub(super) fn drops(&mut self, round: u32) {
        if let Some(own) = self.own.get_mut(&round) {
            own.dropped = true;
        }
    }

    /// The segment of an own block and a place in it, if the block is still there and has so many bytes at that place.
    pub(super) fn place_of(&self, round: u32, at: usize, bytes: usize) -> Option<(usize, usize)> {
        let own = self.own.get(&round)?;
        let inside = at.checked_add(bytes)? <= own.bytes;
        inside.then_some((own.segment, own.at + at))
    }

    /// This rank holds memory of a peer.
    pub(super) fn hold(&mut self, round: u32, far: Option<Ptr>, bytes: usize) {
        *self.held.entry(round).or_default() += 1;
        if let Some(far) = far {
            let reached = self.reached.entry(far.0.addr());
            reached.or_insert((bytes, round, 0)).2 += 1;
        }
    }

    /// It does no more.
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

    /// The round of a peer's block that is held, and where in it a far address is.
    pub(super) fn block_of(&self, far: Ptr) -> Option<(u32, usize)> {
        let far = far.0.addr();
        let (base, (bytes, round, _)) = self.reached.range(..=far).next_back()?;
        (far - base < *bytes).then_some((*round, far - base))
    }

    /// What this rank says in a round.
    pub(super) fn round(&self, segments: &mut [Segment], bytes: usize) -> Result<Round, BusError> {
        let room = segments.iter_mut().any(|segment| {
            let found = segment.pool.take(bytes);
            found.inspect(|at| segment.pool.give(*at, bytes)).is_some()
        });
        let wanted = Pool::wanted(bytes).filter(|bytes| *bytes < isize::MAX as usize / 4);
        let wanted = wanted.ok_or_else(|| failed(format!("a block of {bytes} bytes")))?;
        // Each is twice as large as all before, so that there are few.
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

    /// Uses again what nobody holds any more.
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

/// Zeroed memory that stays to the end of the process: windows can be freed while it is in use.
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

/// Shared memory once more, at an address of its own: what is used there is still there when MPI has unmapped it where
/// it was.
///
/// # Safety
///
/// The memory is mapped, for so many bytes.
unsafe fn alias(base: *mut u8, bytes: usize) -> Result<*mut u8, BusError> {
    let page = rustix::param::page_size();
    let before = base.addr() % page;
    let len = (before + bytes).next_multiple_of(page);
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: an old length of 0 asks for a second mapping of what is shared, and leaves the first alone.
    let other = unsafe { rustix::mm::mremap(base.wrapping_sub(before).cast(), 0, len, flags) };
    let other = other.map_err(|e| failed(format!("mremap: {e}")))?;
    Ok(other.cast::<u8>().wrapping_add(before))
}

/// A hint.
struct Info(ffi::MPI_Info);

impl Info {
    fn with(key: &CStr, value: &CStr) -> Result<Self, BusError> {
        // SAFETY: a constant of the binding's.
        let mut info = Info(unsafe { ffi::RSMPI_INFO_NULL });
        // SAFETY: MPI runs: segments are made only until it ends; both texts end with a zero.
        unsafe {
            call!(MPI_Info_create(&raw mut info.0))?;
            call!(MPI_Info_set(info.0, key.as_ptr(), value.as_ptr()))?;
        }
        Ok(info)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it was made by `with`, or is the null, and MPI runs, as it did then: nobody keeps one.
        unsafe {
            if self.0 != ffi::RSMPI_INFO_NULL {
                let _ = ffi::MPI_Info_free(&raw mut self.0);
            }
        }
    }
}

impl Segment {
    /// Makes one. Collective: each rank comes with the size that it has told the others; `mine` is an error, if it cannot
    /// go on.
    ///
    /// # Safety
    ///
    /// The communicators are alive, and this library's alone.
    pub(super) unsafe fn make(
        ranks: &Ranks,
        bytes: Vec<usize>,
        mine: Result<(), BusError>,
    ) -> Result<Self, BusError> {
        let (me, size) = (ranks.me, bytes[ranks.me] as ffi::MPI_Aint);
        // SAFETY: constants of the binding's.
        let (mut window, mut shares) = unsafe { (ffi::RSMPI_WIN_NULL, ffi::RSMPI_WIN_NULL) };
        let mut parts = vec![None; bytes.len()];
        let memory = if ranks.near.iter().flatten().count() > 1 {
            // SAFETY: the caller's promise.
            unsafe { share(ranks, &bytes, &mut shares, &mut parts) }
        } else {
            lasting(bytes[me]).map(|base| parts[me] = Some(base))
        };
        // A rank that cannot go on must not leave the others waiting for it in what follows.
        // SAFETY: the caller's promise.
        unsafe { ranks.agree(memory.and(mine)) }?;
        let base = parts[me].expect("a rank is near itself");
        let made = if ranks.all_near() {
            // One window is enough, and Open MPI makes none over memory of a single rank's.
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
            // SAFETY: the window was made just now, if it was made.
            let opened = made.and_then(|()| unsafe { open(window) });
            // All have it, or none: at the end they free what they have together.
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

    /// The first byte of a rank's part, if that is mapped here.
    pub(super) fn part(&self, rank: usize) -> Option<Ptr> {
        self.parts[rank].map(Ptr)
    }

    /// The rank of a place that is mapped here, and where in that rank's part it is.
    pub(super) fn place(&self, near: Ptr) -> Option<(usize, usize)> {
        let inside = |rank: usize| {
            let at = near.0.addr().wrapping_sub(self.parts[rank]?.addr());
            (at < self.bytes[rank]).then_some((rank, at))
        };
        (0..self.parts.len()).find_map(inside)
    }

    /// Orders what this process stores and loads with what comes through the window (`MPI_Win_sync`).
    #[inline]
    pub(super) fn sync(&self) -> Result<(), BusError> {
        if self.bytes.len() == 1 {
            return Ok(());
        }
        // SAFETY: there is another rank, so there is a window, which is alive, and locked by this rank, as long as the
        // segment.
        unsafe { call!(MPI_Win_sync(self.window)) }
    }
}

/// Memory that near ranks have in common, mapped for good.
///
/// # Safety
///
/// As [`Segment::make`].
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
    // SAFETY: the caller's promise; MPI stores where the memory is, and the window.
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
        // SAFETY: the window was made just now.
        unsafe { call!(MPI_Win_set_errhandler(*window, ffi::RSMPI_ERRORS_RETURN)) }
    });
    // SAFETY: as above.
    unsafe { ranks.agree_near(made) }?;
    // Whatever becomes of it, the others wait at the barriers.
    // SAFETY: the window was made just now.
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

/// Maps the parts of all near ranks; `base` is where MPI has mapped this rank's.
///
/// # Safety
///
/// The window is alive, and these ranks have made it together, with so many bytes each.
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
            // SAFETY: the caller's promise; MPI stores where the rank's memory is here.
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
        // SAFETY: MPI has mapped the part, for so many bytes.
        parts[rank] = Some(unsafe { alias(part, bytes[rank]) }?);
    }
    Ok(())
}

/// Whether all parts are the memory that they should be: each rank writes into its own, at the address that MPI gave,
/// and the others look where they have mapped it. Leaves zeros. Collective over the near ranks.
///
/// # Safety
///
/// As [`share`]; `base` is this rank's part as MPI has mapped it, and the parts are mapped.
unsafe fn prove(ranks: &Ranks, base: *mut u8, parts: &[Option<*mut u8>]) -> Result<bool, BusError> {
    let mark = |rank: usize| 0x7469_6465_0000_0001 ^ (rank as u64) << 32;
    let barrier = || {
        // SAFETY: the caller's promise.
        unsafe { call!(MPI_Barrier(ranks.shared)) }
    };
    let mut same = true;
    // SAFETY: parts have room for a number (no segment is as small as that), and nobody uses them yet; who writes and
    // who reads is kept apart by the barriers.
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

/// Makes errors returns, checks that memory is what loads see, and locks all targets.
///
/// # Safety
///
/// The window is alive.
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
        // Somebody holds something of that round.
        in_use.reuse(&mut segments, &[said(&[]), said(&[0, 1])]);
        assert_eq!(segments[0].pool.take(256), Some(320));
        assert!(in_use.place_of(1, 0, 8).is_some());
        in_use.reuse(&mut segments, &[said(&[0]), said(&[])]);
        assert_eq!(segments[0].pool.take(256), Some(64));
        assert_eq!(in_use.place_of(1, 0, 8), None);
    }

    fn unsafe_null() -> ffi::MPI_Win {
        // SAFETY: a constant of the binding's.
        unsafe { ffi::RSMPI_WIN_NULL }
    }
}
