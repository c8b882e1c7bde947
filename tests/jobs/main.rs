//! Jobs whose ranks are processes: this program again, the examples, and programs under other launchers.

#![forbid(unsafe_code)]

mod attacks;
mod causes;
mod collectives;
mod examples;
mod forked;
mod inherited;
mod jobs;
mod lent;
mod limits;
mod mpirun;
mod nodes;
mod teams;
mod tools;
mod trees;
mod unheard;

#[path = "../common"]
mod common {
    pub(crate) mod child;
    pub(crate) mod exposition;
    pub(crate) mod hydra;
    pub(crate) mod panics;
    pub(crate) mod ring;
    pub(crate) mod signals;
    pub(crate) mod skip;
    pub(crate) mod waits;
}
#[path = "../processes/mod.rs"]
mod processes;
#[path = "../processes/ring.rs"]
mod ring;
