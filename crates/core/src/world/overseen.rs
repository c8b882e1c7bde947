//! The rank as its watch sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_hal::batch::Tag;
use tidegate_hal::control::Control;
use tidegate_hal::device::{Device, Reclaim as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::site::CallSite;

use super::inner::Inner;
use super::watched::Watched;
use crate::error::Cause;
use crate::ground::{ReclaimOf, lock};
use crate::half_kind::HalfKind;
use crate::message::Inside;
use crate::replays::Runs;
use crate::watch::{Overseen, Watch};

impl<D: Device> Inner<D> {
    /// The name of a window, and the window if it still exists.
    pub(super) fn window(&self, id: WindowId) -> (Arc<str>, Option<Arc<Watched<D>>>) {
        let events = lock(&self.events);
        events.windows.get(id).map_or(("-".into(), None), |entry| {
            (entry.name.clone(), entry.window.upgrade())
        })
    }

    /// Where the program last enqueued such a wait, and whether it enqueued others in other places.
    pub(super) fn last_wait(&self, tag: Tag) -> Option<(CallSite, bool)> {
        self.window(tag.window?).1?.last_wait(tag.awaited)
    }
}

impl<D: Device> Overseen for Inner<D> {
    type Stream = ReclaimOf<D>;

    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn control(&self) -> &dyn Control {
        &*self.control
    }

    fn streams(&self, into: &mut Vec<Arc<ReclaimOf<D>>>) {
        Inner::streams(self, into);
    }

    fn named_streams(&self) -> Vec<(String, Arc<ReclaimOf<D>>)> {
        let events = lock(&self.events);
        let alive = events
            .streams
            .iter()
            .filter_map(|(name, stream)| Some((name.as_str().to_owned(), stream.upgrade()?)));
        alive.collect()
    }

    fn look_at_fault(&self, stream: &Arc<ReclaimOf<D>>) {
        let Some(fault) = stream.fault() else { return };
        let name = lock(&self.events)
            .streams
            .iter()
            .find(|(_, known)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(stream)))
            .map(|(name, _)| name.clone());
        let cause = name.and_then(|name| self.cause_of_fault(name.as_str(), &fault));
        cause.into_iter().for_each(|cause| self.tell_failed(cause));
    }

    fn poison_again(&self) {
        let nic = self.nic.as_ref();
        if !nic.is_some_and(|attached| attached.nic.adds()) {
            return;
        }
        let events = lock(&self.events);
        let (device, bell) = (&self.device, self.bells.own());
        for entry in events.windows.all() {
            let Some(window) = entry.window.upgrade() else {
                continue;
            };
            if let Some(cause) = &entry.cause {
                window.revoke(device, bell, cause);
            }
            let gone = events.gone.iter();
            for (_, cause) in gone.filter(|(rank, _)| entry.members.contains(**rank)) {
                window.gone(device, bell, cause);
            }
        }
    }

    fn is_in_a_call_for(&self, long: Duration) -> bool {
        lock(&self.progress).is_in_a_call_for(long)
    }

    fn progress(&self) -> (Vec<(u64, u64)>, Vec<Inside>) {
        lock(&self.progress).said()
    }

    fn window_name(&self, id: WindowId) -> Arc<str> {
        self.window(id).0
    }

    fn replays(&self) -> Runs {
        lock(&self.replays).runs()
    }

    fn last_wait(&self, tag: Tag) -> Option<(CallSite, bool)> {
        Inner::last_wait(self, tag)
    }

    fn limit(&self, window: WindowId) -> Option<Duration> {
        self.window(window).1?.limit()
    }

    fn limit_has_passed(&self, window: WindowId, peer: usize, limit: Duration) {
        if let Some(window) = self.window(window).1 {
            let rank = self.control.rank();
            let peer = Some(peer);
            self.revoke(&window, Cause::Limit { rank, peer, limit });
        }
    }

    fn reporter(&self) -> usize {
        lock(&self.events).reporter()
    }

    fn gone(&self) -> BTreeMap<usize, Cause> {
        lock(&self.events).gone.clone()
    }

    fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Relaxed)
    }

    fn dropped(&self, most: usize) -> Vec<(WindowId, HalfKind)> {
        lock(&self.events).windows.dropped(most)
    }
}
