//! Tests of libfabric with the providers that need no hardware: two endpoints of one process, on loopback.
//!
//! Without the library the tests are skipped, and say so; if `CI` is set, they fail. `TIDEGATE_LIBFABRIC` names another
//! library.

mod objects;
mod rma;
mod support;
mod work;
