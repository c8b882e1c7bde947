//! A libfabric without hardware that does what cxi does, for tests.
//!
//! # Model
//!
//! [`library`] gives the functions of a provider called `cxi` that knows [`Card`]s by their names: who asks for an
//! endpoint at the address [`Card::name`] gets one of that card. All endpoints of a card, of one process, reach each
//! other. A card's thread is its hardware: it sees stores to the pages of counters (which fault, or are plain memory),
//! fires deferred works whose counters have come far enough, and carries out one operation after the other, *in any
//! order*, drawn from a seed; so what is not ordered by counters comes out of order soon.
//!
//! It has what [`tidegate_ffi::fabric`] calls for writes, reads, atomic adds, deferred works, counters with pages and
//! write-back; no messages, and nothing to wait on, as the real one.
//!
//! # Failure
//!
//! [`Config`] says what goes wrong. An operation with a key that is not there fails, as with the real one: no success
//! is counted. What the card must not be asked (to touch memory that is not registered for it, to close what works
//! still need) it answers with the error that a provider has for it, and [`Card::complaints`] has it for the test to
//! see.

mod calls;
mod card;
mod open;
mod plain;
mod register;
mod strike;
mod tables;

pub use card::Kind;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_ffi::fabric::Library;

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

/// Whether counters can have pages here that are not plain memory.
pub const PAGES: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// A network of its own.
pub struct Card {
    name: String,
    inner: Arc<card::Card>,
}

static CARDS: Mutex<Option<HashMap<String, Weak<card::Card>>>> = Mutex::new(None);

impl Card {
    /// A new one. Its thread ends when it is dropped and all that was opened is closed.
    pub fn new(config: Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("card-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let inner = card::Card::start(config);
        lock(&CARDS)
            .get_or_insert_default()
            .insert(name.clone(), Arc::downgrade(&inner));
        Card { name, inner }
    }

    /// The address at which endpoints of it are asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets nothing be carried out any more, or again.
    pub fn hold(&self, hold: bool) {
        self.inner.hold(hold);
    }

    /// Loses all stores to pages on their way, or no more.
    pub fn deafen(&self, deaf: bool) {
        self.inner.deafen(deaf);
    }

    /// Takes all room for deferred works away, as other processes may, or gives it back.
    pub fn crowd(&self, full: bool) {
        self.inner.crowd(full);
    }

    /// What it was asked that it must not be.
    pub fn complaints(&self) -> Vec<String> {
        self.inner.complaints()
    }

    /// How many deferred works wait, how many there were at most, and how many were ever queued.
    pub fn works(&self) -> (usize, usize, usize) {
        self.inner.works()
    }

    /// Lets so many of those be carried out that are [held](Self::hold).
    pub fn let_through(&self, count: usize) {
        self.inner.let_through(count);
    }

    /// Where the reads go that have begun, and are not carried out.
    pub fn reads(&self) -> Vec<usize> {
        self.inner.reads()
    }

    /// How many operations have begun, and are not carried out.
    pub fn posted(&self) -> usize {
        self.inner.posted()
    }

    /// How often a page was stored to.
    pub fn strikes(&self) -> u64 {
        self.inner.strikes()
    }

    /// What is open.
    pub fn open(&self) -> Vec<Kind> {
        self.inner.open()
    }
}

fn find(name: &str) -> Option<Arc<card::Card>> {
    lock(&CARDS).as_ref()?.get(name)?.upgrade()
}

/// The library.
pub fn library() -> Library {
    tables::library()
}

/// A poisoned lock means that a test failed under it; others go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
