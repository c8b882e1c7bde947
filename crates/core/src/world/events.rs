//! What happens to ranks and windows of the job, and how waits end because of it.

use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::{Awaited, Tag};
use tidegate_hal::control::{Event, PANICKED};
use tidegate_hal::device::{Device, Fault, Reclaim as _};
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::nic::{Keep, News};
use tidegate_hal::tell;

use super::inner::{Inner, World};
use super::known::Outlives;
use super::roster::Roster;
use super::watched::Watched;
use crate::error::{Cause, PutFault};
use crate::ground::{MOST_TEXT, lock, shortened};
use crate::half_kind::HalfKind;
use crate::message::Message;
use crate::observe::{self, now};
use crate::watch::on_message;

impl<D: Device> World<D> {
    /// Takes an id for a window that all ranks are about to open. Also forgets windows that nothing can ask for any
    /// more, so that memory does not grow with every window that was ever opened.
    pub(super) fn reserve_window(
        &self,
        roster: &Roster,
        what: &'static str,
        name: &Arc<str>,
    ) -> WindowId {
        let mut events = lock(&self.inner.events);
        let team = (roster.id, &roster.members);
        let id = events.windows.reserve(team, what, name);
        let mut over = events.windows.over();
        drop(events);
        if !over.is_empty() {
            // These are dropped without the lock: the last holder of a stream frees what was retired there, which may
            // be a window.
            let mut streams = Vec::new();
            self.inner.streams(&mut streams);
            let failed = streams.iter().filter_map(|stream| stream.fault());
            let failed: Vec<_> = failed
                .filter_map(|fault| match fault {
                    Fault::Wait { tag, .. } | Fault::Count { tag, .. } => tag.window,
                    _ => None,
                })
                .collect();
            over.retain(|window| !failed.contains(window));
            lock(&self.inner.events).windows.forget(&over);
        }
        id
    }

    /// Gives the last id back, because no rank has counted it.
    pub(super) fn release_window(&self, window: WindowId) {
        lock(&self.inner.events).windows.release(window);
    }

    /// Registers a window, so that its waits end when they must.
    pub(crate) fn watch_window(&self, window: &Arc<Watched<D>>) {
        let news = self.observed().map(|observed| observed.news());
        let mut events = lock(&self.inner.events);
        window.registered(&self.inner.control);
        let entry = events.windows.living(window.id);
        entry.window = Arc::downgrade(window);
        let (device, bell) = (&self.inner.device, self.inner.bells.own());
        if let Some(cause) = &entry.cause {
            window.revoke(device, bell, cause);
        }
        // The first loss counts. Ranks outside the team do not matter.
        let members = entry.members.clone();
        let gone = events.gone.iter();
        let gone = gone.filter(|(rank, _)| members.contains(**rank));
        let lost = events.first_lost(&members).into_iter();
        for cause in lost.chain(gone.map(|(_, cause)| cause)) {
            window.gone(device, bell, cause);
        }
        let failed = events.nic_failed.clone().filter(|_| window.has_nic());
        drop(events);
        self.inner.tell_revoked(window);
        drop(news);
        if let Some(cause) = failed {
            self.revoke(window, cause);
        }
    }

    /// Notes that the program gets both halves of a window. This happens while no other thread can open one. `exposed`
    /// is how many epochs each origin may begin before the first post.
    pub(crate) fn holds(&self, window: WindowId, exposed: u64) {
        self.set_held(window, &HalfKind::BOTH, true);
        if let Some(observed) = self.observed() {
            let mut events = lock(&self.inner.events);
            let (what, name) = events.windows.living(window).named();
            drop(events);
            observed.tell(&observe::Event::Opened {
                window,
                what: what.into(),
                name,
                exposed,
                at: now(),
            });
        }
    }

    /// Notes that the program has dropped these halves of a window, or does not get them.
    pub(crate) fn drops(&self, window: WindowId, halves: &[HalfKind]) {
        self.set_held(window, halves, false);
    }

    fn set_held(&self, window: WindowId, halves: &[HalfKind], held: bool) {
        lock(&self.inner.events)
            .windows
            .set_held(window, halves, held);
    }

    /// Whether the program holds a window or barrier (as `what` says) of the team with that name.
    pub(super) fn has_open(&self, team: TeamId, what: &'static str, name: &str) -> bool {
        lock(&self.inner.events).windows.has_open(team, what, name)
    }

    /// Ends all waits of a window, on all ranks.
    pub(crate) fn revoke(&self, window: &Watched<D>, cause: Cause) {
        self.inner.revoke(window, cause);
    }

    /// Keeps registered memory of a window whose halves are gone, until these neighbours have said that they are
    /// through with the window, or until the endpoint is closed.
    pub(crate) fn outlive(&self, window: WindowId, neighbours: Vec<usize>, registration: Keep) {
        let nic = &self.nic().expect("it has registered memory").nic;
        let mut outlives = Outlives::new(neighbours, nic, registration);
        let mut events = lock(&self.inner.events);
        let Some(entry) = events.windows.get_mut(window) else {
            // The window was forgotten just now, with the list of neighbours that are through. So the memory is kept
            // until the endpoint goes.
            drop(events);
            return drop(outlives);
        };
        let over = outlives.release(&entry.through);
        entry.outlives = over.is_none().then_some(outlives);
        drop(events);
        // This is dropped without the lock, since it frees memory.
        drop(over);
    }
}

/// Shortens a cause for a message. A reason may name a window, and names may be long.
fn brief(mut cause: Cause) -> Cause {
    if let Cause::NotEnqueued { reason, .. } | Cause::NicFailed { reason, .. } = &mut cause {
        *reason = shortened(reason, MOST_TEXT);
    }
    cause
}

/// Receives a NIC's failures and questions about peers. A NIC may fail before there is a world to hear of it.
pub(super) struct Broken<D: Device>(Mutex<(Weak<Inner<D>>, Option<String>)>);

impl<D: Device> Default for Broken<D> {
    fn default() -> Self {
        Broken(Mutex::new((Weak::new(), None)))
    }
}

impl<D: Device> Broken<D> {
    pub(super) fn note(&self, reason: String) {
        let inner = {
            let mut held = lock(&self.0);
            let inner = held.0.upgrade();
            if inner.is_none() {
                held.1 = Some(reason.clone());
            }
            inner
        };
        if let Some(inner) = inner {
            inner.on_nic_failed(reason);
        }
    }

    /// Asks whether a peer is alive. Nothing is sent before there is a world.
    pub(super) fn ask(&self, peer: usize, number: u64) {
        let inner = lock(&self.0).0.upgrade();
        let Some(inner) = inner else { return };
        if peer == inner.control.rank() {
            inner.tell_nic(peer, News::There(number));
            return;
        }
        // If the control plane is closed, all peers are lost, or this rank has left.
        let question = Message::Ask { number }.encode();
        let _ = inner.control.notify(Some(&[peer]), &question);
    }

    pub(super) fn hand_over(&self, inner: &Arc<Inner<D>>) {
        let before = {
            let mut held = lock(&self.0);
            held.0 = Arc::downgrade(inner);
            held.1.take()
        };
        if let Some(reason) = before {
            inner.on_nic_failed(reason);
        }
    }
}

impl<D: Device> Inner<D> {
    /// If a stream of this rank was made to fail by a kernel, here or on another rank, tells the others the cause. Only
    /// the first cause is told, because later ones usually follow from it. So if ranks wait for each other in a row,
    /// the last one hears of the kernel that began it.
    #[cold]
    pub(crate) fn tell_failed(&self, cause: Cause) {
        if !matches!(
            cause,
            Cause::StreamFailed { .. } | Cause::NotCompleted { .. }
        ) {
            return;
        }
        let rank = self.control.rank();
        let mut events = lock(&self.events);
        if events.failed.contains_key(&rank) {
            return;
        }
        events.failed.insert(rank, cause.clone());
        // If the control plane is closed, its end tells the peers.
        let _ = self
            .control
            .notify(None, &Message::Failed { cause }.encode());
    }

    /// Why a stream of this rank has failed, as far as that is known at once.
    pub(crate) fn cause_of_fault(&self, stream: &str, fault: &Fault) -> Option<Cause> {
        match fault {
            Fault::Kernel(message) => Some(Cause::StreamFailed {
                rank: self.control.rank(),
                stream: shortened(stream, MOST_TEXT),
                reason: format!("a kernel panicked: {}", shortened(message, MOST_TEXT)),
            }),
            Fault::Count { tag, count } => Some(Cause::StreamFailed {
                rank: self.control.rank(),
                stream: shortened(stream, MOST_TEXT),
                reason: match PutFault::decode(*count) {
                    Some(put) if tag.awaited == Awaited::Kernel => {
                        format!("a kernel broke its contract: {put}")
                    }
                    _ => fault.to_string(),
                },
            }),
            Fault::Wait { tag, .. } => self.cause(*tag),
            // A transport fails if a peer has failed, and the other peers hear of that in another way.
            Fault::Transport(_) | Fault::Aborted => None,
        }
    }

    /// Handles the failure of this rank's NIC. Windows that need the NIC can no longer be used by any rank, and only
    /// the control plane can tell the peers.
    fn on_nic_failed(&self, reason: String) {
        let rank = self.control.rank();
        let cause = Cause::NicFailed { rank, reason };
        tell(|| tracing::error!("{cause}"));
        let windows: Vec<_> = {
            let mut events = lock(&self.events);
            events.nic_failed.get_or_insert_with(|| cause.clone());
            let alive = events
                .windows
                .all()
                .filter_map(|entry| entry.window.upgrade());
            alive.filter(|window| window.has_nic()).collect()
        };
        for window in windows {
            self.revoke(&window, cause.clone());
        }
    }

    pub(crate) fn revoke(&self, window: &Watched<D>, cause: Cause) {
        let cause = self.note(window.id, cause);
        self.end_waits(window, &cause);
    }

    /// Ends the waits of a window that is revoked.
    fn end_waits(&self, window: &Watched<D>, cause: &Cause) {
        let (name, id) = (&window.name, window.id);
        tell(|| tracing::debug!(window = %name, %id, %cause, "a window is revoked"));
        let _news = self.observed.as_ref().map(|observed| observed.news());
        window.revoke(&self.device, self.bells.own(), cause);
        self.tell_revoked(window);
    }

    /// Tells observers that a window is revoked, if it is, and if they do not know.
    fn tell_revoked(&self, window: &Watched<D>) {
        if let Some(observed) = &self.observed
            && let Some(cause) = window.newly_revoked()
        {
            observed.tell(&observe::Event::Revoked {
                window: window.id,
                why: cause.to_string(),
                at: now(),
            });
        }
    }

    /// Notes why a window is revoked, tells the peers, and returns the first cause, which counts. This comes before a
    /// wait of this rank ends: the program may then leave, and a peer that waits for nobody hears of the cause only by
    /// this message. Both happen under the lock, so a thread that finds a cause noted knows that the message has been
    /// sent.
    fn note(&self, window: WindowId, cause: Cause) -> Cause {
        let cause = brief(cause);
        let mut events = lock(&self.events);
        let entry = events.windows.living(window);
        if let Some(first) = &entry.cause {
            return first.clone();
        }
        entry.cause = Some(cause.clone());
        let members = entry.members.listed();
        let message = Message::Revoke {
            window,
            cause: cause.clone(),
        };
        let others = members.map(|mut members| {
            members.retain(|rank| *rank != self.control.rank());
            members
        });
        // If the control plane is closed, its end tells the peers.
        let _ = self.control.notify(others.as_deref(), &message.encode());
        cause
    }

    /// Handles the message that a rank's NIC will no longer access this rank's memory of a window.
    pub(crate) fn on_through(&self, rank: usize, window: WindowId) {
        let mut events = lock(&self.events);
        let Some(entry) = events.windows.get_mut(window) else {
            return;
        };
        entry.through.push(rank);
        let outlives = entry.outlives.as_mut();
        let over = outlives.and_then(|outlives| outlives.release(&entry.through));
        if over.is_some() {
            (entry.through, entry.outlives) = (Vec::new(), None);
        }
        drop(events);
        // This is dropped without the lock, since it frees memory.
        drop(over);
    }

    pub(super) fn cause(&self, tag: Tag) -> Option<Cause> {
        if tag.awaited == Awaited::Kernel {
            // The wait was a check, and no peer has to do with it.
            let rank = self.control.rank();
            let target = tag.peer as usize;
            return Some(Cause::NotCompleted { rank, target });
        }
        let events = lock(&self.events);
        let entry = events.windows.of(tag);
        let revoked = entry.and_then(|entry| entry.cause.clone());
        let members = entry.map(|entry| &entry.members);
        let members = members.unwrap_or(&self.everyone.members);
        let lost = |cause: &&Cause| matches!(cause, Cause::PeerLost { .. });
        let peer = tag.peer as usize;
        // A rank that needed the peer may have ended since, and its end revokes the window, too. But the peer left
        // first. (If a stream of the peer has failed, the peer left because of that.)
        let left_first = events.left_first.contains(&peer) && !events.failed.contains_key(&peer);
        if left_first && revoked.as_ref().is_none_or(|cause| lost(&cause)) {
            return events.gone.get(&peer).cloned();
        }
        revoked
            .or_else(|| events.first_lost(members).cloned())
            // A peer that has left may have done so because its stream failed.
            .or_else(|| events.failed.get(&peer).cloned())
            .or_else(|| events.gone.get(&peer).cloned())
    }

    pub(super) fn on_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Lost { rank, reason } => self.on_lost(rank, reason),
            Event::Left { rank } => self.on_left(rank),
            Event::Message { from, bytes } => match Message::decode(&bytes) {
                Some(Message::Revoke { window, cause }) => {
                    let revoked = {
                        let mut events = lock(&self.events);
                        events.windows.get_mut(window).and_then(|entry| {
                            // The first cause counts.
                            let first = entry.cause.get_or_insert(cause).clone();
                            Some((entry.window.upgrade()?, first))
                        })
                    };
                    if let Some((window, cause)) = revoked {
                        self.end_waits(&window, &cause);
                    }
                }
                Some(Message::Through { window }) => self.on_through(from, window),
                Some(Message::Panicked) => self.on_lost(from, PANICKED.into()),
                Some(Message::Leaves) => {
                    self.tell_nic(from, News::Leaves);
                    let parting = self.nic.as_ref().map(|attached| &attached.parting);
                    if parting.is_none_or(|parting| parting.is_to_answer(from)) {
                        self.answer(from, &Message::Prepared);
                    }
                }
                Some(Message::Prepared) => self.prepares(from),
                Some(Message::Ask { number }) => self.answer(from, &Message::There { number }),
                Some(Message::There { number }) => self.tell_nic(from, News::There(number)),
                Some(Message::Failed { cause }) => {
                    lock(&self.events).failed.entry(from).or_insert(cause);
                }
                Some(Message::Watch(message)) => on_message(&**self, from, message),
                None => tell(|| tracing::warn!(from, "a control message could not be read")),
            },
        }
    }

    /// Sends a message to one rank. If the control plane is closed, no rank waits for the message.
    fn answer(&self, rank: usize, message: &Message) {
        let _ = self.control.notify(Some(&[rank]), &message.encode());
    }

    fn tell_nic(&self, rank: usize, news: News) {
        if let Some(attached) = &self.nic {
            attached.nic.hear(rank, news);
        }
    }

    /// Notes that this rank may leave without waiting for `rank`.
    fn prepares(&self, rank: usize) {
        if let Some(attached) = &self.nic {
            attached.parting.prepares(rank);
        }
    }

    /// Handles the departure of a rank. What it sent before it left still counts, even if this rank's NIC has not seen
    /// it yet. So the departure ends waits only when the NIC has looked.
    fn on_left(self: &Arc<Self>, rank: usize) {
        self.prepares(rank);
        let cause = Cause::PeerLeft { rank };
        let Some(attached) = &self.nic else {
            return self.on_gone(rank, cause);
        };
        let inner = Arc::downgrade(self);
        let then = move || {
            if let Some(inner) = inner.upgrade() {
                inner.on_gone(rank, cause);
            }
        };
        attached.nic.hear(rank, News::Left(Box::new(then)));
    }

    /// Handles the loss of a rank. The cause is noted first, because it is the reason for what the NIC then gives up.
    fn on_lost(&self, rank: usize, reason: String) {
        self.prepares(rank);
        let cause = Cause::PeerLost { rank, reason };
        tell(|| tracing::warn!(rank, %cause, "a rank is lost"));
        self.on_gone(rank, cause);
        self.tell_nic(rank, News::Lost);
    }

    fn on_gone(&self, rank: usize, cause: Cause) {
        let _news = self.observed.as_ref().map(|observed| observed.news());
        let mut events = lock(&self.events);
        if matches!(events.gone.get(&rank), Some(Cause::PeerLost { .. })) {
            return;
        }
        let reports = events.reporter() == rank;
        let is_lost = |cause: &Cause| matches!(cause, Cause::PeerLost { .. });
        if is_lost(&cause) {
            events.lost.push(rank);
        } else if events.lost.is_empty() {
            events.left_first.insert(rank);
        }
        events.gone.insert(rank, cause.clone());
        let mut windows = Vec::new();
        let (device, bell) = (&self.device, self.bells.own());
        for entry in events.windows.all_mut() {
            if !entry.members.contains(rank) {
                continue;
            }
            // A loss revokes the window. The first cause counts, which may be another one.
            let revoked =
                is_lost(&cause).then(|| &*entry.cause.get_or_insert_with(|| cause.clone()));
            let Some(window) = entry.window.upgrade() else {
                continue;
            };
            match revoked {
                Some(first) => {
                    window.revoke(device, bell, first);
                    windows.push(window);
                }
                None => window.gone(device, bell, &cause),
            }
        }
        drop(events);
        if let Some(observed) = &self.observed {
            observed.tell(&observe::Event::Gone {
                rank: rank as u32,
                why: cause.to_string(),
                at: now(),
            });
        }
        windows.iter().for_each(|window| self.tell_revoked(window));
        if reports {
            self.watch.reporter_gone();
        }
    }
}

#[cfg(test)]
mod tests;
