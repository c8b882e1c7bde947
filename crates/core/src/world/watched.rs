//! What the world must know of a window to end its waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tidegate_hal::batch::Awaited;
use tidegate_hal::control::Control;
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::Ptr;
use tidegate_hal::site::{CallSite, LastSite};

use crate::error::{Cause, Error, Result, WindowName};
use crate::ground::lock;
use crate::half_kind::HalfKind;
use crate::nic::{NicLine, Throttle};

/// A window's waits, as the world sees them.
pub(crate) struct Watched<D: Device> {
    pub(crate) name: Arc<str>,
    pub(crate) id: WindowId,
    /// The words that this rank waits on, each with the rank that adds to it.
    pub(crate) words: Vec<(Ptr, usize)>,
    /// The words that this rank's own NIC adds to.
    sent: Vec<Ptr>,
    /// Keeps the words alive.
    pub(crate) block: Arc<D::Block>,
    /// Keeps alive the words of the lines, and the words in staged memory.
    _lines: Vec<Arc<D::Block>>,
    /// The size of an element in bytes.
    pub(crate) element_size: usize,
    /// The limit of the window's waits. The declaration of a window sets it; for a collective, its own
    /// call.
    limit: Mutex<Option<Duration>>,
    /// What the window does if trigger slots are short.
    pub(crate) throttle: Throttle,
    /// The window's lines, once they are made. The lines hold this.
    lines: OnceLock<Vec<Weak<NicLine>>>,
    /// Whether a peer may have the window: this rank has done its part, and the ranks have not agreed that none has the
    /// window. The thread that opens the window stores it with release. Whatever drops the last part of the window,
    /// perhaps the NIC, loads it with acquire.
    open: AtomicBool,
    /// Stored with release when the cause is noted, so that a thread that acquires it finds the cause.
    revoked: AtomicBool,
    cause: OnceLock<Cause>,
    /// Whether observers know that it is revoked.
    told: AtomicBool,
    /// Hears which cause the program is told. A window must not keep the rank in the job.
    control: OnceLock<Weak<dyn Control>>,
    /// For each half, where the program last enqueued waits.
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
            told: AtomicBool::new(false),
            control: OnceLock::new(),
            sites: Default::default(),
        }
    }

    /// Adds words that a NIC adds to.
    pub(crate) fn with_lines(mut self, sent: Vec<Ptr>, lines: Vec<Arc<D::Block>>) -> Self {
        self.sent = sent;
        self._lines = lines;
        self
    }

    /// Whether this rank reaches a peer of the window by its NIC.
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

    /// The limit of the window's waits.
    pub(crate) fn limit(&self) -> Option<Duration> {
        *lock(&self.limit)
    }

    /// Sets the limit of all later waits.
    pub(crate) fn fail_after(&self, limit: Duration) {
        *lock(&self.limit) = Some(limit);
    }

    /// Notes the window's lines, when they are made.
    pub(crate) fn has_lines(&self, lines: Vec<Weak<NicLine>>) {
        let set = self.lines.set(lines);
        debug_assert!(set.is_ok(), "a window is built once");
    }

    /// The lines that are still in use.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Arc<NicLine>> + '_ {
        let lines = self.lines.get().into_iter().flatten();
        lines.filter_map(Weak::upgrade)
    }

    /// Notes which control plane hears of the cause that the program is told.
    pub(super) fn registered(&self, control: &Arc<dyn Control>) {
        let _ = self.control.set(Arc::downgrade(control));
    }

    /// Notes that this rank has done its part, and is about to say so. From then on a peer may have the window, and put
    /// to it.
    pub(crate) fn may_open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Notes that all ranks have agreed that none has the window.
    pub(crate) fn is_refused(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Whether a peer may have the window.
    pub(crate) fn may_be_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Notes that a wait of a half is enqueued at this place.
    #[inline]
    pub(crate) fn waits_at(&self, half: HalfKind, site: CallSite) {
        self.sites[half as usize].note(site);
    }

    /// Where the program last enqueued a wait for what is awaited, and whether it enqueued others in other places.
    pub(crate) fn last_wait(&self, awaited: Awaited) -> Option<(CallSite, bool)> {
        let half = match awaited {
            Awaited::Exposure | Awaited::Read => HalfKind::Outbox,
            Awaited::Completion | Awaited::Barrier => HalfKind::Inbox,
            _ => return None,
        };
        let last = &self.sites[half as usize];
        Some((last.get()?, last.is_one_of_several()))
    }

    /// The name and id that errors contain.
    pub(crate) fn named(&self) -> WindowName {
        WindowName {
            name: self.name.clone(),
            id: self.id,
        }
    }

    /// Returns an error if the window is revoked.
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
        if let Some(control) = self.control.get().and_then(Weak::upgrade) {
            control.follows(cause.rank(), &cause.to_string());
        }
        Error::Revoked {
            window: self.named(),
            cause,
        }
    }

    /// Why the window is revoked, at the first call since.
    pub(super) fn newly_revoked(&self) -> Option<&Cause> {
        let cause = self.cause.get()?;
        (!self.told.swap(true, Ordering::Relaxed)).then_some(cause)
    }

    /// Ends all waits of the window.
    pub(crate) fn revoke(&self, device: &D, bell: Ptr, cause: &Cause) {
        let _ = self.cause.set(cause.clone());
        self.revoked.store(true, Ordering::Release);
        self.poison(device, bell, |_| true);
        // These are not poisoned when a peer leaves in good order: that peer got everything that it waited for, and the
        // NIC will report it here.
        for word in &self.sent {
            // SAFETY: the words lie in `_lines`, which this holds, and the world holds the bell.
            unsafe { device.poison(*word, bell) };
        }
    }

    /// Handles the end of a rank. If it is lost, the window cannot be used any more; if it left in good order, only
    /// waits for it end.
    pub(crate) fn gone(&self, device: &D, bell: Ptr, cause: &Cause) {
        match cause {
            // Waits for what the rank did before are satisfied, whether poisoned or not.
            Cause::PeerLeft { rank } => self.poison(device, bell, |peer| peer == *rank),
            _ => self.revoke(device, bell, cause),
        }
    }

    fn poison(&self, device: &D, bell: Ptr, of: impl Fn(usize) -> bool) {
        for (word, _) in self.words.iter().filter(|(_, peer)| of(*peer)) {
            // SAFETY: the words lie in `block` or `_lines`, which this holds, and the world holds the bell.
            unsafe { device.poison(*word, bell) };
        }
    }
}
