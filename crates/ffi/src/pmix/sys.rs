//! The layouts and constants of `pmix_common.h` that the calls here need. They are the same in versions 3 to 6.
#![allow(
    non_camel_case_types,
    reason = "the names of the header, to be found there"
)]

use std::ffi::{c_char, c_int, c_void};

/// Longest name of a namespace, without its NUL.
pub const PMIX_MAX_NSLEN: usize = 255;
/// Longest key, without its NUL.
pub const PMIX_MAX_KEYLEN: usize = 511;

/// A status: 0 is success, and errors are mostly negative.
pub type pmix_status_t = c_int;
/// A rank, or one of the special values.
pub type pmix_rank_t = u32;
/// Which processes can get what is put.
pub type pmix_scope_t = u8;

/// Success.
pub const PMIX_SUCCESS: pmix_status_t = 0;
/// The time limit has passed.
pub const PMIX_ERR_TIMEOUT: pmix_status_t = -24;
/// Some of the processes have not taken part.
pub const PMIX_ERR_PARTIAL_SUCCESS: pmix_status_t = -52;

/// The job as a whole, where a rank is asked for.
pub const PMIX_RANK_WILDCARD: pmix_rank_t = u32::MAX - 1;
/// All processes of the job can get it.
pub const PMIX_GLOBAL: pmix_scope_t = 3;

/// The type of a value that is a `flag`.
pub const PMIX_BOOL: u16 = 1;
/// The type of a value that is a `string`.
pub const PMIX_STRING: u16 = 3;
/// The type of a value that is an `integer`.
pub const PMIX_INT: u16 = 6;
/// The type of a value that is a `uint32`.
pub const PMIX_UINT32: u16 = 14;

/// A process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pmix_proc_t {
    /// Its job, ended by a NUL.
    pub nspace: [c_char; PMIX_MAX_NSLEN + 1],
    /// Which process of the job.
    pub rank: pmix_rank_t,
}

/// The data of a value: the kinds that are used here, and room for the largest kind, which takes three words.
#[repr(C)]
#[derive(Clone, Copy)]
pub union pmix_value_data {
    /// For [`PMIX_BOOL`].
    pub flag: bool,
    /// For [`PMIX_STRING`], ended by a NUL.
    pub string: *mut c_char,
    /// For [`PMIX_INT`].
    pub integer: c_int,
    /// For [`PMIX_UINT32`].
    pub uint32: u32,
    /// The whole room.
    pub words: [*mut c_void; 3],
}

/// A value with its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pmix_value_t {
    /// `PMIX_STRING` or another type.
    pub type_: u16,
    /// The value.
    pub data: pmix_value_data,
}

/// An attribute of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pmix_info_t {
    /// Its name, ended by a NUL.
    pub key: [c_char; PMIX_MAX_KEYLEN + 1],
    /// Whether it is required, for example.
    pub flags: u32,
    /// Its value.
    pub value: pmix_value_t,
}
