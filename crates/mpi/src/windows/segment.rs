//! Memory that all ranks reach: windows of MPI, and what of them is in use.
//!
//! A segment is made by all ranks together (`MPI_Win_allocate`, or `MPI_Win_allocate_shared` where they have memory in common) and stays until `MPI_Finalize`, since to free one is collective, too, and dropping a block is not. Blocks are parts of it. Each time
//! the ranks make blocks is a *round*; in each each rank says of which earlier rounds it still holds peers' memory. What its owner has let go is used again when nobody holds anything of its round: so
//! a put that comes late finds the memory that it was meant for.

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

/// One window of MPI, and its memory at this rank.
pub(super) struct Segment {
    pub(super) window: ffi::MPI_Win,
    /// The first byte of this rank's part that is aligned, and how far from the first of all it is: MPI aligns to 8 bytes, or to more.
    pub(super) base: *mut u8,
    pub(super) skew: usize,
    /// Bytes of each rank's part.
    pub(super) bytes: Vec<usize>,
    /// The far address of each rank's part, once somebody has asked.
    pub(super) names: Vec<Option<Ptr>>,
    pub(super) pool: Pool,
    pub(super) shared: bool,
    /// Nothing new is to lie in it.
    pub(super) retired: bool,
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
    /// Peers' blocks that are held, by their far addresses: bytes and round.
    reached: BTreeMap<usize, (usize, u32)>,
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
            self.reached.insert(far.0.addr(), (bytes, round));
        }
    }

    /// It does no more.
    pub(super) fn let_go(&mut self, round: u32, far: Option<Ptr>) {
        if let Some(count) = self.held.get_mut(&round) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&round);
                if let Some(far) = far {
                    self.reached.remove(&far.0.addr());
                }
            }
        }
    }

    /// The round of a peer's block that is held, and where in it a far address is.
    pub(super) fn block_of(&self, far: Ptr) -> Option<(u32, usize)> {
        let far = far.0.addr();
        let (base, (bytes, round)) = self.reached.range(..=far).next_back()?;
        (far - base < *bytes).then_some((*round, far - base))
    }

    /// Whether anything is in use, of this rank's memory or of others'.
    pub(super) fn any(&self) -> bool {
        !self.held.is_empty() || self.own.values().any(|own| !own.dropped)
    }

    /// What this rank says in a round.
    pub(super) fn round(&self, segments: &mut [Segment], bytes: usize) -> Result<Round, BusError> {
        let room = segments.iter_mut().any(|segment| {
            let found = segment.take(bytes);
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

impl Segment {
    /// Makes one. Collective: each rank comes with the size that it has told the others. `shared`: all ranks have memory in common, which MPIs serve better when they are told.
    ///
    /// # Safety
    ///
    /// The communicator is alive, and this library's alone.
    pub(super) unsafe fn make(
        comm: ffi::MPI_Comm,
        me: usize,
        bytes: Vec<usize>,
        shared: bool,
    ) -> Result<Self, BusError> {
        let mut base: *mut u8 = std::ptr::null_mut();
        // SAFETY: a constant of the binding's.
        let mut window = unsafe { ffi::RSMPI_WIN_NULL };
        // SAFETY: the caller's promise; MPI stores where the memory is, and the window.
        let code = unsafe {
            let (size, at) = (bytes[me] as ffi::MPI_Aint, (&raw mut base).cast());
            if shared {
                let mut info = ffi::RSMPI_INFO_NULL;
                check("MPI_Info_create", ffi::MPI_Info_create(&raw mut info))?;
                let (key, value) = (c"alloc_shared_noncontig", c"true");
                let set = ffi::MPI_Info_set(info, key.as_ptr(), value.as_ptr());
                check("MPI_Info_set", set)?;
                let code = ffi::MPI_Win_allocate_shared(size, 1, info, comm, at, &raw mut window);
                check("MPI_Info_free", ffi::MPI_Info_free(&raw mut info))?;
                code
            } else {
                let info = ffi::RSMPI_INFO_NULL;
                ffi::MPI_Win_allocate(size, 1, info, comm, at, &raw mut window)
            }
        };
        check(
            if shared {
                "MPI_Win_allocate_shared"
            } else {
                "MPI_Win_allocate"
            },
            code,
        )?;
        // SAFETY: the window was made just now.
        unsafe {
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
        let skew = base.align_offset(super::ALIGN);
        let usable = bytes[me].checked_sub(skew).filter(|_| !base.is_null());
        let usable =
            usable.ok_or_else(|| failed(format!("MPI_Win_allocate gave memory at {base:?}")))?;
        Ok(Segment {
            window,
            base: base.wrapping_add(skew),
            skew,
            shared,
            retired: false,
            pool: Pool::new(usable),
            names: vec![None; bytes.len()],
            bytes,
        })
    }

    /// A place for a block, if there is one.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        if self.retired {
            return None;
        }
        self.pool.take(bytes)
    }

    /// Orders what this process stores and loads with what comes through the window (`MPI_Win_sync`).
    #[inline]
    pub(super) fn sync(&self) -> Result<(), BusError> {
        // SAFETY: the window is alive, and locked by this rank, as long as the segment.
        check("MPI_Win_sync", unsafe { ffi::MPI_Win_sync(self.window) })
    }
}
