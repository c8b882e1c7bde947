//! Cards, as tests hold them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::config::Config;
use crate::hardware::{Hardware, Kind};
use tidegate_hal::lock;

/// A network of its own.
pub struct Card {
    name: String,
    inner: Arc<Hardware>,
}

static CARDS: Mutex<Option<HashMap<String, Weak<Hardware>>>> = Mutex::new(None);

impl Card {
    /// A new one. Its thread ends when it is dropped and all that was opened is closed.
    pub fn new(config: Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("card-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let inner = Hardware::start(config);
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

pub(crate) fn find(name: &str) -> Option<Arc<Hardware>> {
    lock(&CARDS).as_ref()?.get(name)?.upgrade()
}
