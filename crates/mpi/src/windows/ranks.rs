//! Who is reached how.

use std::ffi::c_int;

use mpi::ffi;
use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::control::Control;
use tidegate_hal::far::BusError;

use super::call::{check, failed, op, scalar};
use crate::calls::call;

/// The ranks of a job, and which of them have memory in common with this one.
pub(super) struct Ranks {
    pub(super) me: usize,
    /// All of them, in their order.
    pub(super) all: ffi::MPI_Comm,
    /// This rank and those near it.
    pub(super) shared: ffi::MPI_Comm,
    /// For each rank its number among those, if it is one of them.
    pub(super) near: Vec<Option<c_int>>,
    /// Open MPI 4 crashes in a compare-and-swap of 8 bytes where one node's ranks reach each other as if they were of
    /// several.
    pub(super) crashes_in_swap: bool,
}

// SAFETY: handles of MPI are good on all threads (`MPI_THREAD_MULTIPLE`, which `join` asks for).
unsafe impl Send for Ranks {}
// SAFETY: as above; who may make collective calls with them is the affair of the callers.
unsafe impl Sync for Ranks {}

impl Ranks {
    /// Asks MPI which ranks can have memory in common; of those that the control plane puts on different nodes it is not
    /// asked. Collective.
    ///
    /// # Safety
    ///
    /// The communicator is alive, and this library's alone; its ranks are those of the control plane.
    pub(super) unsafe fn meet(
        all: ffi::MPI_Comm,
        control: &dyn Control,
        shared: bool,
    ) -> Result<Self, BusError> {
        let (me, size) = (control.rank(), control.size());
        let node = if shared { control.node(me) } else { me } as c_int;
        // SAFETY: constants of the binding's.
        let (null, kind, info) = unsafe {
            let kind = ffi::RSMPI_COMM_TYPE_SHARED;
            (ffi::RSMPI_COMM_NULL, kind, ffi::RSMPI_INFO_NULL)
        };
        let (mut here, mut near, mut node_of_mpi) = (null, null, null);
        let version = mpi::environment::library_version().unwrap_or_default();
        let mine = me as c_int;
        // SAFETY: the communicator is alive, and all its ranks come here; what is freed was made here.
        unsafe {
            call!(MPI_Comm_split(all, node, mine, &raw mut here))?;
            call!(MPI_Comm_split_type(here, kind, mine, info, &raw mut near))?;
            call!(MPI_Comm_free(&raw mut here))?;
            let numbers = numbers(all, near, size)?;
            call!(MPI_Comm_split_type(
                all,
                kind,
                mine,
                info,
                &raw mut node_of_mpi
            ))?;
            let mut on_node: c_int = 0;
            call!(MPI_Comm_size(node_of_mpi, &raw mut on_node))?;
            call!(MPI_Comm_free(&raw mut node_of_mpi))?;
            Ok(Ranks {
                me,
                all,
                shared: near,
                crashes_in_swap: version.contains("Open MPI v4.")
                    && on_node as usize == size
                    && numbers.contains(&None),
                near: numbers,
            })
        }
    }

    pub(super) fn size(&self) -> usize {
        self.near.len()
    }

    pub(super) fn is_near(&self, rank: usize) -> bool {
        self.near[rank].is_some()
    }

    /// What came of something at this rank; an error at all ranks, if there was one at any. Collective.
    ///
    /// # Safety
    ///
    /// The communicators are alive.
    pub(super) unsafe fn agree(&self, mine: Result<(), BusError>) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        unsafe { agree(self.all, mine) }
    }

    /// As [`Ranks::agree`], among the near ranks.
    ///
    /// # Safety
    ///
    /// As above.
    pub(super) unsafe fn agree_near(&self, mine: Result<(), BusError>) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        unsafe { agree(self.shared, mine) }
    }

    /// Whether all of them are near, this one's view and everybody's: near is who is in one part of the ranks, and then
    /// there is one part.
    pub(super) fn all_near(&self) -> bool {
        self.near.iter().all(Option::is_some)
    }
}

/// For each rank of a communicator its number in another.
///
/// # Safety
///
/// Both are alive, and this rank is in both.
unsafe fn numbers(
    all: ffi::MPI_Comm,
    part: ffi::MPI_Comm,
    size: usize,
) -> Result<Vec<Option<c_int>>, BusError> {
    let ranks: Vec<c_int> = (0..size as c_int).collect();
    let mut found: Vec<c_int> = vec![0; size];
    // SAFETY: the caller's promise; both lists are as long as is said; the groups were made here.
    unsafe {
        let (mut from, mut to) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
        call!(MPI_Comm_group(all, &raw mut from))?;
        call!(MPI_Comm_group(part, &raw mut to))?;
        let (n, ranks, found) = (size as c_int, ranks.as_ptr(), found.as_mut_ptr());
        call!(MPI_Group_translate_ranks(from, n, ranks, to, found))?;
        call!(MPI_Group_free(&raw mut from))?;
        call!(MPI_Group_free(&raw mut to))?;
    }
    // SAFETY: a constant of the binding's.
    let undefined = unsafe { ffi::RSMPI_UNDEFINED };
    let number = |found: c_int| (found != undefined).then_some(found);
    Ok(found.into_iter().map(number).collect())
}

/// # Safety
///
/// The communicator is alive.
unsafe fn agree(comm: ffi::MPI_Comm, mine: Result<(), BusError>) -> Result<(), BusError> {
    let (ok, mut all_ok) = (u64::from(mine.is_ok()), 0u64);
    // SAFETY: the caller's promise; a number goes in, a number comes out.
    let reduced = unsafe {
        let (from, to) = ((&raw const ok).cast(), (&raw mut all_ok).cast());
        call!(MPI_Allreduce(
            from,
            to,
            1,
            scalar(Scalar::U64),
            op(Op::Min),
            comm
        ))
    };
    mine?;
    reduced?;
    if all_ok == 0 {
        return Err(failed("another rank could not make its memory"));
    }
    Ok(())
}
