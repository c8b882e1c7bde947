//! Memory that all ranks reach: windows of MPI, and what of them is in use.
//!
//! A segment is made by all ranks together (`MPI_Win_allocate` and its like) and stays until `MPI_Finalize`, since to
//! free one is collective, too, and dropping a block is not. Blocks are parts of it. Each time the ranks make blocks is
//! a *round*; in each each rank says of which earlier rounds it still holds peers' memory. What its owner has let go is
//! used again when nobody holds anything of its round: so a put that comes late finds the memory that it was meant for.

use std::collections::BTreeMap;
use std::ffi::c_int;

use mpi::ffi;
use serde::{Deserialize, Serialize};
use tidegate_hal::far::BusError;
use tidegate_hal::memory::Ptr;

use super::call::{check, failed, is_unified};
use super::pool::Pool;

/// Segments are at least so large.
const LEAST: usize = 1 << 20;
/// And where a rank needs none.
const SMALL: usize = 1 << 16;

/// Where the memory of windows comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From this library, without a window: nobody else is there to reach it. (Open MPI makes none over memory of a
    /// single rank's.)
    Alone,
    /// From this library (`MPI_Win_create`): windows can be freed while it is in use.
    Own,
    /// From MPI, in common with all other ranks (`MPI_Win_allocate_shared`). This library uses it at another address,
    /// which stays when MPI takes its own away.
    Shared,
}

/// One window of MPI, and its memory at this rank.
pub(super) struct Segment {
    pub(super) window: ffi::MPI_Win,
    pub(super) kind: Kind,
    /// The first byte of this rank's part that is aligned, and how far from the first of all it is: MPI aligns to 8
    /// bytes, or to more.
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
            bytes: (part + super::ALIGN).next_multiple_of(1 << 16),
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

/// Zeroed memory that stays to the end of the process.
fn lasting(bytes: usize) -> *mut u8 {
    Box::leak(vec![0u64; bytes / 8].into_boxed_slice())
        .as_mut_ptr()
        .cast()
}

/// Shared memory once more, at an address of its own: what is used there is still there when it has been unmapped where it was.
///
/// # Safety
///
/// The memory is mapped, and nobody uses it yet.
unsafe fn alias(base: *mut u8, bytes: usize) -> Result<*mut u8, BusError> {
    const PAGE: usize = super::ALIGN;
    let before = base.addr() % PAGE;
    let len = (before + bytes).next_multiple_of(PAGE);
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: an old length of 0 asks for a second mapping of what is shared, and leaves the first alone.
    let other = unsafe { rustix::mm::mremap(base.wrapping_sub(before).cast(), 0, len, flags) };
    let other = other.map_err(|e| failed(format!("mremap: {e}")))?;
    let other = other.cast::<u8>().wrapping_add(before);
    // SAFETY: both are mapped, for so many bytes, and nobody else uses the memory yet (the caller's promise).
    let same = unsafe {
        base.write_volatile(0x5a);
        other.read_volatile() == 0x5a && {
            other.write_volatile(0);
            base.read_volatile() == 0
        }
    };
    if !same {
        return Err(failed(
            "memory of MPI_Win_allocate_shared cannot be mapped twice",
        ));
    }
    Ok(other)
}

impl Segment {
    /// Makes one. Collective: each rank comes with the size that it has told the others.
    ///
    /// # Safety
    ///
    /// The communicator is alive, and this library's alone.
    pub(super) unsafe fn make(
        comm: ffi::MPI_Comm,
        me: usize,
        bytes: Vec<usize>,
        kind: Kind,
    ) -> Result<Self, BusError> {
        let size = bytes[me] as ffi::MPI_Aint;
        let mut base: *mut u8 = std::ptr::null_mut();
        let at = (&raw mut base).cast();
        // SAFETY: constants of the binding's.
        let (mut window, mut info) = unsafe { (ffi::RSMPI_WIN_NULL, ffi::RSMPI_INFO_NULL) };
        // SAFETY: the caller's promise; MPI stores where the memory is, and the window. Memory that is given to it is
        // never freed.
        unsafe {
            match kind {
                Kind::Alone => base = lasting(bytes[me]),
                Kind::Own => {
                    base = lasting(bytes[me]);
                    let made =
                        ffi::MPI_Win_create(base.cast(), size, 1, info, comm, &raw mut window);
                    check("MPI_Win_create", made)?;
                }
                Kind::Shared => {
                    check("MPI_Info_create", ffi::MPI_Info_create(&raw mut info))?;
                    let (key, value) = (c"alloc_shared_noncontig", c"true");
                    let set = ffi::MPI_Info_set(info, key.as_ptr(), value.as_ptr());
                    check("MPI_Info_set", set)?;
                    let made =
                        ffi::MPI_Win_allocate_shared(size, 1, info, comm, at, &raw mut window);
                    check("MPI_Win_allocate_shared", made)?;
                    check("MPI_Info_free", ffi::MPI_Info_free(&raw mut info))?;
                    base = alias(base, bytes[me])?;
                }
            }
        }
        // SAFETY: the window was made just now.
        unsafe {
            if kind == Kind::Alone {
                return Self::of(kind, window, base, bytes, me);
            }
            check(
                "MPI_Win_set_errhandler",
                ffi::MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN),
            )?;
            if !is_unified(window)? {
                return Err(failed(
                    "windows have two copies (no MPI_WIN_UNIFIED): nobody would see what comes",
                ));
            }
            let nocheck = ffi::MPI_MODE_NOCHECK as c_int;
            check("MPI_Win_lock_all", ffi::MPI_Win_lock_all(nocheck, window))?;
        }
        Self::of(kind, window, base, bytes, me)
    }

    fn of(
        kind: Kind,
        window: ffi::MPI_Win,
        base: *mut u8,
        bytes: Vec<usize>,
        me: usize,
    ) -> Result<Self, BusError> {
        let skew = base.align_offset(super::ALIGN);
        let usable = bytes[me].checked_sub(skew).filter(|_| !base.is_null());
        let usable =
            usable.ok_or_else(|| failed(format!("a window of MPI with memory at {base:?}")))?;
        Ok(Segment {
            window,
            kind,
            base: base.wrapping_add(skew),
            skew,
            pool: Pool::new(usable),
            names: vec![None; bytes.len()],
            bytes,
        })
    }

    /// Orders what this process stores and loads with what comes through the window (`MPI_Win_sync`).
    #[inline]
    pub(super) fn sync(&self) -> Result<(), BusError> {
        if self.kind == Kind::Alone {
            return Ok(());
        }
        // SAFETY: the window is alive, and locked by this rank, as long as the segment.
        check("MPI_Win_sync", unsafe { ffi::MPI_Win_sync(self.window) })
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
            kind: Kind::Alone,
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
