//! Cards, as tests use them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::config::Config;
use crate::hardware::{Hardware, Kind};
use tidegate_hal::lock;

/// A card, which is a network of its own.
pub struct Card {
    name: String,
    inner: Arc<Hardware>,
}

static CARDS: Mutex<Option<HashMap<String, Weak<Hardware>>>> = Mutex::new(None);

impl Card {
    /// Makes a card. Its thread ends when the card is dropped, and everything that was opened is closed.
    pub fn new(config: Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("card-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let inner = Hardware::start(config);
        lock(&CARDS)
            .get_or_insert_default()
            .insert(name.clone(), Arc::downgrade(&inner));
        Card { name, inner }
    }

    /// The address at which endpoints of this card are opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops the card from carrying out operations, or lets it go on.
    pub fn hold(&self, hold: bool) {
        self.inner.hold(hold);
    }

    /// Makes the card lose all stores to pages, or stop losing them.
    pub fn deafen(&self, deaf: bool) {
        self.inner.deafen(deaf);
    }

    /// Takes all room for deferred works away, as other processes may, or returns it.
    pub fn crowd(&self, full: bool) {
        self.inner.crowd(full);
    }

    /// Adds so many failures to each queue, of operations that its endpoint has not begun.
    pub fn strays(&self, count: usize) {
        self.inner.strays(count);
    }

    /// The wrong requests that were made.
    pub fn complaints(&self) -> Vec<String> {
        self.inner.complaints()
    }

    /// How many deferred works wait, how many waited at most, and how many were ever queued.
    pub fn works(&self) -> (usize, usize, usize) {
        self.inner.works()
    }

    /// Lets this many of the [held](Self::hold) operations be carried out.
    pub fn let_through(&self, count: usize) {
        self.inner.let_through(count);
    }

    /// The destinations of reads that have begun, and are not carried out.
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

    /// The open objects.
    pub fn open(&self) -> Vec<Kind> {
        self.inner.open()
    }
}

pub(crate) fn find(name: &str) -> Option<Arc<Hardware>> {
    lock(&CARDS).as_ref()?.get(name)?.upgrade()
}
