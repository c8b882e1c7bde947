//! The windows (and barriers) that a rank remembers.
//!
//! # Model
//!
//! A window has an entry from when its id is taken, which is before its first exchange: a peer may have created it, and
//! revoked it, already. It is *closed* when the program holds no half of it any more, or when it has not come to be. What is
//! asked of closed ones is what the report on long waits says of halves that were dropped, and why a stream has failed.
//! So the last [`KEPT`] closed ones are kept, and of earlier ones those that somebody may still ask for:
//!
//! - streams have waits of it in front of them: their batches hold its [`Watched`];
//! - a stream has failed by a wait of it: the news of the cause may come later than the poison, and the program may ask later
//!   than that;
//! - its registered memory waits for neighbours that are not through with it.
//!
//! The others are *forgotten*. What a peer says of one that is forgotten, nobody here waits to hear.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use tidegate_hal::batch::Tag;
use tidegate_hal::device::Device;
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::nic::{Keep, Nic};

use super::watched::Watched;
use crate::error::Cause;
use crate::side::Side;

/// How many closed windows are remembered whatever becomes of them: the reports on long waits name the halves of these that
/// were dropped, in a message.
pub(super) const KEPT: usize = 256;

/// What the program has of a half of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It has not got it, yet or at all.
    Never,
    Holds,
    Dropped,
}

/// A window as the world remembers it: also before it is registered, and after it is gone.
pub(super) struct Entry<D: Device> {
    /// How it is opened: a window, or a barrier.
    what: &'static str,
    pub(super) name: Arc<str>,
    pub(super) window: Weak<Watched<D>>,
    /// Why it is revoked; the first cause counts.
    pub(super) cause: Option<Cause>,
    /// What the program has of each half. A barrier is one piece, the first.
    halves: [Hold; 2],
    /// Who has said that its NIC is through with this rank's memory of the window.
    pub(super) through: Vec<usize>,
    /// That memory, when this rank's halves are gone.
    pub(super) outlives: Option<Outlives>,
}

pub(super) struct Known<D: Device> {
    entries: BTreeMap<WindowId, Entry<D>>,
    /// The window that comes next.
    next: WindowId,
    /// Those that are closed, in the order in which they were; those that could not be forgotten when it was their turn
    /// stand behind again.
    closed: VecDeque<WindowId>,
    /// The names of those that the program holds a half of, by how they are opened.
    held: HashMap<&'static str, HashSet<Arc<str>>>,
}

impl<D: Device> Default for Known<D> {
    fn default() -> Self {
        Known {
            entries: BTreeMap::new(),
            next: WindowId::first(TeamId::WORLD),
            closed: VecDeque::new(),
            held: HashMap::new(),
        }
    }
}

impl<D: Device> Entry<D> {
    fn is_held(&self) -> bool {
        self.halves.contains(&Hold::Holds)
    }

    /// Whether neither a stream nor a neighbour's NIC has anything to do with it any more.
    fn is_over(&self) -> bool {
        self.window.strong_count() == 0 && self.outlives.is_none()
    }
}

impl<D: Device> Known<D> {
    /// Takes an id for a window that all ranks are about to create, one at a time.
    pub(super) fn reserve(&mut self, what: &'static str, name: &Arc<str>) -> WindowId {
        // The one before it has come to be, or never does.
        let before = self.next.before();
        let before = before.and_then(|id| Some((id, self.entries.get(&id)?)));
        if let Some((id, entry)) = before
            && entry.halves == [Hold::Never; 2]
            // An id that was given back since asks a second time.
            && self.closed.back() != Some(&id)
        {
            self.closed.push_back(id);
        }
        let id = self.next;
        self.next = id.next();
        let entry = Entry {
            what,
            name: name.clone(),
            window: Weak::new(),
            cause: None,
            halves: [Hold::Never; 2],
            through: Vec::new(),
            outlives: None,
        };
        self.entries.insert(id, entry);
        id
    }

    /// Gives the last id back: no rank has counted it.
    pub(super) fn release(&mut self, id: WindowId) {
        // Of the windows that come, one is created at a time, so it is the last one still.
        debug_assert_eq!(id.next(), self.next);
        self.entries.remove(&id);
        self.next = id;
    }

    pub(super) fn get(&self, id: WindowId) -> Option<&Entry<D>> {
        self.entries.get(&id)
    }

    /// The window that a wait belongs to.
    pub(super) fn of(&self, tag: Tag) -> Option<&Entry<D>> {
        self.entries.get(&tag.window?)
    }

    pub(super) fn get_mut(&mut self, id: WindowId) -> Option<&mut Entry<D>> {
        self.entries.get_mut(&id)
    }

    /// The entry of a window that somebody holds, or that is being created.
    ///
    /// # Panics
    ///
    /// If the window is neither.
    pub(super) fn living(&mut self, id: WindowId) -> &mut Entry<D> {
        let entry = self.entries.get_mut(&id);
        entry.expect("what is alive, or comes to be, is not forgotten")
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry<D>> {
        self.entries.values()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry<D>> {
        self.entries.values_mut()
    }

    /// The program has got these halves of a window, or holds them no more.
    pub(super) fn set_held(&mut self, id: WindowId, sides: &[Side], held: bool) {
        let hold = match held {
            true => Hold::Holds,
            false => Hold::Dropped,
        };
        let entry = self.living(id);
        let before = entry.is_held();
        for side in sides {
            entry.halves[*side as usize] = hold;
        }
        let (what, name, now) = (entry.what, entry.name.clone(), entry.is_held());
        let names = self.held.entry(what).or_default();
        match (before, now) {
            (false, true) => {
                names.insert(name);
            }
            (true, false) => {
                names.remove(&name);
                self.closed.push_back(id);
            }
            _ => {}
        }
    }

    /// Whether the program holds something of that name which was opened so.
    pub(super) fn has_open(&self, what: &str, name: &str) -> bool {
        self.held
            .get(what)
            .is_some_and(|names| names.contains(name))
    }

    /// Those that may be forgotten, unless a stream has failed by a wait of theirs: which is to be looked at now, and not
    /// before. No stream comes to such a wait any more.
    pub(super) fn over(&self) -> Vec<WindowId> {
        let more = self.closed.len().saturating_sub(KEPT);
        let earlier = self.closed.iter().take(more).copied();
        earlier
            .filter(|id| self.entries.get(id).is_some_and(Entry::is_over))
            .collect()
    }

    /// Forgets these, which were [over](Self::over).
    pub(super) fn forget(&mut self, ids: &[WindowId]) {
        for _ in 0..self.closed.len().saturating_sub(KEPT) {
            let Some(id) = self.closed.pop_front() else {
                return;
            };
            // (What has no entry any more was closed twice.)
            if ids.contains(&id) || !self.entries.contains_key(&id) {
                self.entries.remove(&id);
            } else {
                self.closed.push_back(id);
            }
        }
    }

    /// The halves that the program has dropped, of the windows that are remembered: the last `most` of these.
    pub(super) fn dropped(&self, most: usize) -> Vec<(WindowId, Side)> {
        let last = self.entries.iter().rev().take(most);
        let dropped = |(id, entry): (&WindowId, &Entry<D>)| {
            let (id, halves) = (*id, entry.halves);
            let sides = Side::BOTH.into_iter();
            let gone = sides.filter(move |side| halves[*side as usize] == Hold::Dropped);
            gone.map(move |side| (id, side))
        };
        last.flat_map(dropped).collect()
    }
}

/// Registered memory that waits for neighbours to be through with it. If they never are, it goes with the endpoint.
pub(super) struct Outlives {
    neighbours: Vec<usize>,
    nic: Arc<dyn Nic>,
    registration: Option<Keep>,
}

impl Outlives {
    pub(super) fn new(neighbours: Vec<usize>, nic: &Arc<dyn Nic>, registration: Keep) -> Self {
        Outlives {
            neighbours,
            nic: nic.clone(),
            registration: Some(registration),
        }
    }

    /// What may go now, if all neighbours are among these.
    pub(super) fn release(&mut self, through: &[usize]) -> Option<Keep> {
        let all = self.neighbours.iter().all(|rank| through.contains(rank));
        all.then(|| self.registration.take()).flatten()
    }
}

impl Drop for Outlives {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.nic.keep(registration);
        }
    }
}

#[cfg(test)]
mod tests;
