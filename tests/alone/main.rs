//! Tests that need the process to themselves, and run one at a time: some count every allocation that it makes, and some
//! take its signals for a card's registers. So no library of libfabric is loaded here, of which some take those signals.

mod alloc;
mod card;
mod soak;

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
