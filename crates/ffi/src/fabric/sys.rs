//! The binary interface of libfabric: structures, tables of operations, constants.
//!
//! # Model
//!
//! This is the used part of the bindings that bindgen makes from the headers of libfabric 1.17. So a build needs no
//! headers. The names are those of the headers, and libfabric's manual pages (`fi_getinfo(3)`, `fi_endpoint(3)`, …)
//! document them. The tests compare each layout with that of a C compiler (`sys/layout.rs`). Version 2 has the same
//! layout, but four structures have grown at their ends. This crate passes two of these to the library. For them,
//! [`mr_attr`] and [`cq_err_entry`] have room for the fields that a newer library may read or write.
//!
//! # Failure
//!
//! This module checks nothing. An operation may be absent (null), and a table may be *shorter* than its structure: its
//! `size` says how long it is. The layer above checks both before it calls.

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

// The layouts hold for 64-bit Linux only.
const _: () = assert!(size_of::<usize>() == 8);
