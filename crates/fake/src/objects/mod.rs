//! The objects that a program gets from libfabric's calls. A file has an object's calls, and the tables by which it is
//! called.

mod counter;
mod domain;
mod endpoint;
mod fabric;
mod info;
mod queue;
mod region;
mod thing;
mod vector;

pub use fabric::library;
