//! Streams of the host, with ranks as threads of this process, and NICs over loopback, memory and libfabric.

mod agent;
mod attacks;
mod awaiting;
mod causes;
mod counted;
mod ends;
mod expose;
mod fabric;
mod faces;
mod failing;
mod handles;
mod kernels;
mod kernels_ranges;
mod layouts;
mod lent;
mod lent_attacks;
mod metrics;
mod nic;
mod observe;
mod oneself;
mod order;
mod plain;
mod queue;
mod random;
mod ring;
mod sizes;
mod teams;
mod throttle;
mod triggered;
mod unwinding;
mod verify;

#[path = "../common"]
mod common {
    pub(crate) mod exposition;
    pub(crate) mod held;
    pub(crate) mod random;
    pub(crate) mod rest;
    pub(crate) mod ring;
    pub(crate) mod signals;
    pub(crate) mod skip;
}
#[path = "../schedules/mod.rs"]
mod schedules;
#[path = "../../crates/fabric/tests/rig/wrapped.rs"]
mod wrapped;
