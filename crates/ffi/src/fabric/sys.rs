//! The binary interface of libfabric: structures, tables of operations, constants.
//!
//! # Model
//!
//! Cut down to what is used from what bindgen makes of the headers of libfabric 1.17, so that a build needs no headers. The names
//! are those of the headers, and their manual pages (`fi_getinfo(3)`, `fi_endpoint(3)`, …) document them. The tests compare
//! each layout with that of a C compiler (`sys/layout.rs`). Version 2 has the same layout, but four structures
//! grew at their ends. The caller fills two of those: [`mr_attr`] and [`cq_err_entry`] have room for the fields that a
//! newer library may read or write.
//!
//! # Failure
//!
//! Nothing here checks anything. An operation may be absent (null), and a table may be *shorter* than its structure:
//! its `size` says how long it is. The layer above looks before it calls.

// The headers' own documentation explains the items.
#![allow(missing_docs, non_camel_case_types)]

mod attr;
mod consts;
mod cxi;
mod errno;
#[cfg(test)]
mod layout;
mod tables;
mod work;
mod zeroed;

pub use attr::*;
pub use consts::*;
pub use cxi::*;
pub use errno::*;
pub use tables::*;
pub use work::*;
pub use zeroed::*;

// The layouts are those of 64-bit Linux.
const _: () = assert!(size_of::<usize>() == 8);
