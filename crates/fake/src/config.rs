//! What goes wrong, and what a card has.

/// How a card behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the order of operations is drawn from.
    pub seed: u64,
    /// How many deferred works it says that it has.
    pub says: usize,
    /// How many it really has.
    pub works: usize,
    /// How many of 1000 works find no room though there is.
    pub refuses: u32,
    /// What it answers when it has no room (positive, `FI_EAGAIN` or `FI_ENOSPC`).
    pub full: i32,
    /// Whether a write brings data to the target's queue.
    pub data: bool,
    /// Whether counters have pages, where that can be.
    pub pages: bool,
    /// Whether those are plain memory, which the card looks at all the time: that can be everywhere, and for stores of
    /// GPUs. But of two stores that come at once it sees one.
    pub plain: bool,
    /// Whether counters can be written to memory.
    pub back: bool,
    /// Whether works can be taken back.
    pub cancels: bool,
    /// How long an atomic add takes from reading the word to writing it.
    pub torn: std::time::Duration,
    /// How many of 1000 operations of deferred works fail for no reason.
    pub fails: u32,
    /// Whether a failure of a deferred work is counted by its counter, besides the entry in the queue.
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
