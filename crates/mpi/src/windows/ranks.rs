//! The ranks, and how each is reached.

use std::ffi::c_int;

use mpi::ffi;
use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::control::Control;
use tidegate_hal::far::BusError;

use super::call::{check, failed, op, scalar};
use crate::calls::call;

/// The ranks of a job, and those that share memory with this one.
pub(super) struct Ranks {
    pub(super) me: usize,
    /// All ranks, in their order.
    pub(super) all: ffi::MPI_Comm,
    /// This rank and the ranks near it.
    pub(super) shared: ffi::MPI_Comm,
    /// For each rank its number among the near ranks, if it is one.
    pub(super) near: Vec<Option<c_int>>,
    /// Open MPI 4 crashes in a compare-and-swap of 8 bytes if ranks of one node reach each other as if they were on
    /// several.
    pub(super) crashes_in_swap: bool,
}

// SAFETY: handles of MPI are valid on all threads (`MPI_THREAD_MULTIPLE`, which `join` asks for).
unsafe impl Send for Ranks {}
// SAFETY: as above; the callers decide which thread makes collective calls with them.
unsafe impl Sync for Ranks {}

impl Ranks {
    /// Asks MPI which ranks can share memory. Ranks that are on different nodes by the control plane count as far in
    /// any case. Collective.
    ///
    /// # Safety
    ///
    /// The communicator is live, and only this library uses it; its ranks are those of the control plane.
    pub(super) unsafe fn meet(
        all: ffi::MPI_Comm,
        control: &dyn Control,
        shared: bool,
    ) -> Result<Self, BusError> {
        let (me, size) = (control.rank(), control.size());
        let node = if shared { control.node(me) } else { me } as c_int;
        // SAFETY: these are constants of the binding.
        let (null, kind, info) = unsafe {
            let kind = ffi::RSMPI_COMM_TYPE_SHARED;
            (ffi::RSMPI_COMM_NULL, kind, ffi::RSMPI_INFO_NULL)
        };
        let (mut here, mut near, mut node_of_mpi) = (null, null, null);
        let version = mpi::environment::library_version().unwrap_or_default();
        let mine = me as c_int;
        // SAFETY: the communicator is live, and all its ranks come here; everything that is freed was made here.
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

    /// The result of a step: an error on all ranks if any rank had one. Collective.
    ///
    /// # Safety
    ///
    /// The communicators are live.
    pub(super) unsafe fn agree(&self, mine: Result<(), BusError>) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        unsafe { agree(self.all, mine) }
    }

    /// Like [`Ranks::agree`], among the near ranks.
    ///
    /// # Safety
    ///
    /// As for [`Ranks::agree`].
    pub(super) unsafe fn agree_near(&self, mine: Result<(), BusError>) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        unsafe { agree(self.shared, mine) }
    }

    /// Whether all ranks are near each other. Near ranks form groups, so this rank's view is the same as everyone's:
    /// there is one group.
    pub(super) fn all_near(&self) -> bool {
        self.near.iter().all(Option::is_some)
    }
}

/// For each rank of a communicator its number in another.
///
/// # Safety
///
/// Both are live, and this rank is in both.
unsafe fn numbers(
    all: ffi::MPI_Comm,
    part: ffi::MPI_Comm,
    size: usize,
) -> Result<Vec<Option<c_int>>, BusError> {
    let ranks: Vec<c_int> = (0..size as c_int).collect();
    let mut found: Vec<c_int> = vec![0; size];
    // SAFETY: the caller's promise; both lists have the given length; the groups were made here.
    unsafe {
        let (mut from, mut to) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
        call!(MPI_Comm_group(all, &raw mut from))?;
        call!(MPI_Comm_group(part, &raw mut to))?;
        let (n, ranks, found) = (size as c_int, ranks.as_ptr(), found.as_mut_ptr());
        call!(MPI_Group_translate_ranks(from, n, ranks, to, found))?;
        call!(MPI_Group_free(&raw mut from))?;
        call!(MPI_Group_free(&raw mut to))?;
    }
    // SAFETY: a constant of the binding.
    let undefined = unsafe { ffi::RSMPI_UNDEFINED };
    let number = |found: c_int| (found != undefined).then_some(found);
    Ok(found.into_iter().map(number).collect())
}

/// # Safety
///
/// The communicator is live.
unsafe fn agree(comm: ffi::MPI_Comm, mine: Result<(), BusError>) -> Result<(), BusError> {
    let (ok, mut all_ok) = (u64::from(mine.is_ok()), 0u64);
    // SAFETY: the caller's promise; one number goes in, and one comes out.
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
