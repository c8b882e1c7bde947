//! libfabric over the providers that need no hardware, on loopback: two endpoints in one process.
//!
//! Without the library the tests are skipped, and say so; where `CI` is set they fail. `TIDEGATE_LIBFABRIC` names
//! another library.

mod objects;
mod rma;
mod support;
mod work;
