//! What the world must know of a window to end its waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tidegate_hal::batch::Awaited;
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::Ptr;
use tidegate_hal::site::{CallSite, LastSite};

use crate::error::{Cause, Error, Result, WindowName};
use crate::ground::lock;
use crate::nic::{NicLine, Throttle};
use crate::side::Side;

/// A window, as far as its waits go.
pub(crate) struct Watched<D: Device> {
    pub(crate) name: Arc<str>,
    pub(crate) id: WindowId,
    /// The words that this rank waits on, with the rank that adds to each.
    pub(crate) words: Vec<(Ptr, usize)>,
    /// Those that this rank's own NIC adds to.
    sent: Vec<Ptr>,
    /// Keeps the words alive.
    pub(crate) block: Arc<D::Block>,
    /// Keeps the NIC's words alive, and the words in staged memory.
    _lines: Vec<Arc<D::Block>>,
    /// Bytes of an element.
    pub(crate) element_size: usize,
    /// How long its waits last at most: said by the declaration of a window, and for what is made of windows by whoever has
    /// opened it.
    limit: Mutex<Option<Duration>>,
    /// What it does where trigger slots are short.
    pub(crate) throttle: Throttle,
    /// Its ways by the NIC, once they are made. They hold this.
    lines: OnceLock<Vec<Weak<NicLine>>>,
    /// Whether a peer may have it: this rank has done its part, and the ranks have not agreed that none has the window.
    /// Released by the thread that opens the window, and acquired by whoever drops the last of it, perhaps the NIC.
    open: AtomicBool,
    /// Set with release when the cause is there: so whoever acquires it finds the cause.
    revoked: AtomicBool,
    cause: OnceLock<Cause>,
    /// Where the program has last enqueued waits of each half.
    sites: [LastSite; 2],
}

impl<D: Device> Watched<D> {
    pub(crate) fn new(
        name: Arc<str>,
        id: WindowId,
        words: Vec<(Ptr, usize)>,
        block: Arc<D::Block>,
        element_size: usize,
        limit: Option<Duration>,
    ) -> Self {
        Watched {
            name,
            id,
            words,
            sent: Vec::new(),
            block,
            _lines: Vec::new(),
            element_size,
            limit: Mutex::new(limit),
            throttle: Throttle::default(),
            lines: OnceLock::new(),
            open: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            cause: OnceLock::new(),
            sites: Default::default(),
        }
    }

    /// Watches words that a NIC adds to, too.
    pub(crate) fn with_lines(mut self, sent: Vec<Ptr>, lines: Vec<Arc<D::Block>>) -> Self {
        self.sent = sent;
        self._lines = lines;
        self
    }

    /// Whether this rank reaches a peer of it by its NIC.
    pub(crate) fn has_nic(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The words that this rank's own NIC adds to.
    pub(crate) fn sent(&self) -> &[Ptr] {
        &self.sent
    }

    pub(crate) fn with_throttle(mut self, throttle: Throttle) -> Self {
        self.throttle = throttle;
        self
    }

    /// How long its waits last at most.
    pub(crate) fn limit(&self) -> Option<Duration> {
        *lock(&self.limit)
    }

    /// From now on its waits last so long at most.
    pub(crate) fn fail_after(&self, limit: Duration) {
        *lock(&self.limit) = Some(limit);
    }

    /// Its ways by the NIC are made.
    pub(crate) fn has_lines(&self, lines: Vec<Weak<NicLine>>) {
        let set = self.lines.set(lines);
        debug_assert!(set.is_ok(), "a window is built once");
    }

    /// Those that are still in use.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Arc<NicLine>> + '_ {
        let lines = self.lines.get().into_iter().flatten();
        lines.filter_map(Weak::upgrade)
    }

    /// This rank has done its part, and is about to say so: from then on a peer may have the window, and put to it.
    pub(crate) fn may_open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// All ranks have agreed that none has it.
    pub(crate) fn is_refused(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Whether a peer may have it.
    pub(crate) fn may_be_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// A wait of one of its halves is enqueued there.
    #[inline]
    pub(crate) fn waits_at(&self, side: Side, site: CallSite) {
        self.sites[side as usize].note(site);
    }

    /// Where the program has last enqueued a wait for what is awaited, and whether others of it in other places.
    pub(crate) fn last_wait(&self, awaited: Awaited) -> Option<(CallSite, bool)> {
        let side = match awaited {
            Awaited::Exposure => Side::Outbox,
            Awaited::Completion | Awaited::Barrier => Side::Inbox,
            _ => return None,
        };
        let last = &self.sites[side as usize];
        Some((last.get()?, last.is_one_of_several()))
    }

    /// What errors call it.
    pub(crate) fn named(&self) -> WindowName {
        WindowName {
            name: self.name.clone(),
            id: self.id,
        }
    }

    /// An error if the window was revoked.
    #[inline]
    pub(crate) fn usable(&self) -> Result<()> {
        if self.revoked.load(Ordering::Acquire) {
            Err(self.revocation())
        } else {
            Ok(())
        }
    }

    #[cold]
    fn revocation(&self) -> Error {
        let cause = self.cause.get().cloned();
        let cause = cause.expect("the cause was set before the window was revoked");
        Error::Revoked {
            window: self.named(),
            cause,
        }
    }

    /// Ends all waits.
    pub(crate) fn revoke(&self, device: &D, bell: Ptr, cause: &Cause) {
        let _ = self.cause.set(cause.clone());
        self.revoked.store(true, Ordering::Release);
        self.poison(device, bell, |_| true);
        // Not when a peer has left in good order: what it waited for has come, and the NIC is still to say so here.
        for word in &self.sent {
            // SAFETY: the words lie in `_lines`, which this holds; the bell is held by the world.
            unsafe { device.poison(*word, bell) };
        }
    }

    /// A rank is gone: lost, so that the window is of no more use, or in good order.
    pub(crate) fn gone(&self, device: &D, bell: Ptr, cause: &Cause) {
        match cause {
            // Waits for what it has done before are satisfied, poisoned or not.
            Cause::PeerLeft { rank } => self.poison(device, bell, |peer| peer == *rank),
            _ => self.revoke(device, bell, cause),
        }
    }

    fn poison(&self, device: &D, bell: Ptr, of: impl Fn(usize) -> bool) {
        for (word, _) in self.words.iter().filter(|(_, peer)| of(*peer)) {
            // SAFETY: the words lie in `block` or `_lines`, which this holds; the bell is held by the world.
            unsafe { device.poison(*word, bell) };
        }
    }
}
