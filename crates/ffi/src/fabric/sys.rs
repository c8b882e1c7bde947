//! The binary interface of libfabric: structures, tables of operations, constants.
//!
//! # Model
//!
//! Made from the headers of libfabric 1.17 (by bindgen, cut down to what is used, and checked against a C compiler: see
//! `sys/layout.rs`), and committed, so that a build needs no headers. The names are those of the headers, whose
//! documentation (`fi_getinfo(3)`, `fi_endpoint(3)`, …) is theirs. Version 2 has the same layout, but four structures
//! grew at their ends. Of those, two are filled by the caller: [`mr_attr`] and [`cq_err_entry`] have room for what a
//! newer library may look at, or write.
//!
//! # Failure
//!
//! Nothing here checks anything. An operation may be absent (null), and a table may be *shorter* than its structure,
//! which its `size` says; the layer above looks before it calls.

// What the items mean is said in the headers' own documentation.
#![allow(missing_docs, non_camel_case_types, clippy::type_complexity)]

mod attr;
mod consts;
mod cxi;
mod domain;
mod endpoint;
mod errno;
mod layout;
mod msg;
mod object;
mod queues;
mod work;
mod zeroed;

pub use attr::*;
pub use consts::*;
pub use cxi::*;
pub use domain::*;
pub use endpoint::*;
pub use errno::*;
pub use msg::*;
pub use object::*;
pub use queues::*;
pub use work::*;
pub use zeroed::*;
