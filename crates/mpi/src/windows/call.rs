//! Calls of MPI: their results, and constants that the binding lacks.

use std::ffi::c_int;

use mpi::ffi;
use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::far::BusError;

use crate::calls::{call, said_of};

/// The name of the transport in errors.
pub(super) const NAME: &str = "MPI";

unsafe extern "C" {
    safe fn tidegate_mpi_replace() -> ffi::MPI_Op;
    safe fn tidegate_mpi_no_op() -> ffi::MPI_Op;
    safe fn tidegate_mpi_win_model() -> c_int;
    safe fn tidegate_mpi_win_unified() -> c_int;
}

/// What a call returned, as a result.
#[inline]
pub(super) fn check(what: &str, code: c_int) -> Result<(), BusError> {
    if code == 0 {
        return Ok(());
    }
    Err(failed(format!("{what}: {}", said_of(code))))
}

/// An error of this crate.
pub(super) fn failed(detail: impl Into<String>) -> BusError {
    BusError {
        bus: NAME,
        detail: detail.into(),
    }
}

/// The type of bytes.
pub(super) fn byte() -> ffi::MPI_Datatype {
    scalar(Scalar::U8)
}

/// MPI's type for a scalar.
pub(super) fn scalar(scalar: Scalar) -> ffi::MPI_Datatype {
    // SAFETY: these are constants, which the binding declares as foreign variables.
    unsafe {
        match scalar {
            Scalar::I8 => ffi::RSMPI_INT8_T,
            Scalar::I16 => ffi::RSMPI_INT16_T,
            Scalar::I32 => ffi::RSMPI_INT32_T,
            Scalar::I64 => ffi::RSMPI_INT64_T,
            Scalar::U8 => ffi::RSMPI_UINT8_T,
            // MPI has no floats of 16 bits. It only moves their bits.
            Scalar::U16 | Scalar::F16 | Scalar::Bf16 => ffi::RSMPI_UINT16_T,
            Scalar::U32 => ffi::RSMPI_UINT32_T,
            Scalar::U64 => ffi::RSMPI_UINT64_T,
            Scalar::F32 => ffi::RSMPI_FLOAT,
            Scalar::F64 => ffi::RSMPI_DOUBLE,
        }
    }
}

/// The type as which MPI compares the bits of `of`, since it does not compare floats.
pub(super) fn bits(of: Scalar) -> Scalar {
    match of {
        Scalar::F32 => Scalar::U32,
        Scalar::F64 => Scalar::U64,
        Scalar::F16 | Scalar::Bf16 => Scalar::U16,
        other => other,
    }
}

/// MPI's operation for a reduction.
pub(super) fn op(op: Op) -> ffi::MPI_Op {
    // SAFETY: these are constants, which the binding declares as foreign variables.
    unsafe {
        match op {
            Op::Sum => ffi::RSMPI_SUM,
            Op::Prod => ffi::RSMPI_PROD,
            Op::Min => ffi::RSMPI_MIN,
            Op::Max => ffi::RSMPI_MAX,
            Op::BitAnd => ffi::RSMPI_BAND,
            Op::BitOr => ffi::RSMPI_BOR,
            Op::BitXor => ffi::RSMPI_BXOR,
            Op::Replace => tidegate_mpi_replace(),
            Op::Keep => tidegate_mpi_no_op(),
        }
    }
}

/// Whether a window's public and private copies are one (`MPI_WIN_UNIFIED`).
///
/// # Safety
///
/// The window is live.
pub(super) unsafe fn is_unified(window: ffi::MPI_Win) -> Result<bool, BusError> {
    let mut value: *mut c_int = std::ptr::null_mut();
    let mut found: c_int = 0;
    // SAFETY: the caller's promise; MPI stores a pointer to the value.
    unsafe {
        call!(MPI_Win_get_attr(
            window,
            tidegate_mpi_win_model(),
            (&raw mut value).cast(),
            &raw mut found,
        ))
    }?;
    // SAFETY: an attribute that was found is a pointer to an int that lives as long as the window.
    Ok(found != 0 && unsafe { value.read() } == tidegate_mpi_win_unified())
}
