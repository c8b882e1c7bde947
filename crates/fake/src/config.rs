//! The abilities of a card, and its faults.

/// The behaviour of a card.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed of the order of operations.
    pub seed: u64,
    /// How many deferred works it claims to have.
    pub says: usize,
    /// How many it really has.
    pub works: usize,
    /// How many of 1000 works find no room although there is some.
    pub refuses: u32,
    /// Its error when it has no room (positive, `FI_EAGAIN` or `FI_ENOSPC`).
    pub full: i32,
    /// Whether a write brings data to the target's queue.
    pub data: bool,
    /// Whether registrations belong to an endpoint only where the user can bear it. (Those of the real provider always
    /// do.) Then the software engine can use the card, too.
    pub free: bool,
    /// Whether counters have pages, if that is possible here.
    pub pages: bool,
    /// Whether the pages are plain memory, at which the card looks all the time. That works everywhere, and for stores
    /// of GPUs. But of two stores at once, it sees one.
    pub plain: bool,
    /// Whether counters can be written to memory.
    pub back: bool,
    /// Whether works can be taken back.
    pub cancels: bool,
    /// How long an atomic add takes from reading the word to writing it.
    pub torn: std::time::Duration,
    /// How many of 1000 operations of deferred works fail for no reason.
    pub fails: u32,
    /// Whether the counter of a failed deferred work counts the failure, besides the entry in the queue.
    pub counts_failures: bool,
    /// Whether there is no entry in the queue for failures of deferred works.
    pub silent: bool,
    /// Whether such an entry comes twice.
    pub twice: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 1,
            says: 512,
            works: 512,
            refuses: 0,
            full: tidegate_ffi::fabric::sys::FI_EAGAIN,
            data: true,
            free: false,
            pages: true,
            plain: false,
            back: true,
            cancels: true,
            torn: std::time::Duration::ZERO,
            fails: 0,
            counts_failures: false,
            silent: false,
            twice: false,
        }
    }
}
