//! Tests that need the process for themselves, and run one at a time. Some count every allocation, and some use signals
//! for a card's registers. So libfabric is not loaded here, since some of its libraries take those signals.

mod alloc;
mod card;
mod soak;
mod threads;

#[path = "../common"]
mod common {
    pub(crate) mod ring;
}
#[path = "../counting/mod.rs"]
mod counting;
#[path = "../processes/mod.rs"]
mod processes;
#[path = "../processes/ring.rs"]
mod ring;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
