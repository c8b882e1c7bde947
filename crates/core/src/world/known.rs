//! The windows and barriers that a rank remembers.
//!
//! # Model
//!
//! A window has an entry from the time when its id is taken. That is before its first exchange, because a peer may
//! already have opened and revoked it. The window is *closed* when the program no longer holds a half of it, or when it
//! was not opened. Closed windows matter for two things: the report of long waits names halves that were dropped, and a
//! stream that has failed needs the cause. So the last [`KEPT`] closed windows are kept, and earlier ones as long as
//! something may still ask for them:
//!
//! - Streams have waits of the window in front of them; their batches hold its [`Watched`].
//! - A stream has failed by a wait of the window. The cause may arrive later than the poison, and the program may ask
//!   even later.
//! - The window's registered memory waits for neighbours that are not through with it.
//!
//! The other windows are *forgotten*. If a peer sends a message about one, nothing here waits for it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use tidegate_hal::batch::Tag;
use tidegate_hal::device::Device;
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::nic::{Keep, Nic};

use super::members::Members;
use super::watched::Watched;
use crate::error::Cause;
use crate::half_kind::HalfKind;

/// How many closed windows are always remembered. The reports of long waits name those of their halves that were
/// dropped, in a message.
pub(super) const KEPT: usize = 256;

/// Whether the program has a half of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It does not have the half yet, or will never have it.
    Never,
    Holds,
    Dropped,
}

/// A window in the world's memory, from before it is registered until after it is gone.
pub(super) struct Entry<D: Device> {
    /// What it is opened as: a window, or a barrier.
    what: &'static str,
    pub(super) name: Arc<str>,
    pub(super) window: Weak<Watched<D>>,
    /// The ranks that have opened it.
    pub(super) members: Members,
    /// Why it is revoked; the first cause counts.
    pub(super) cause: Option<Cause>,
    /// For each half, whether the program has it. A barrier has only the first.
    halves: [Hold; 2],
    /// The ranks whose NICs are through with this rank's memory of the window.
    pub(super) through: Vec<usize>,
    /// That memory, if this rank's halves are gone.
    pub(super) outlives: Option<Outlives>,
}

pub(super) struct Known<D: Device> {
    entries: BTreeMap<WindowId, Entry<D>>,
    /// The id of the next window of each team.
    next: BTreeMap<TeamId, WindowId>,
    /// The closed windows, in the order of closing. A window that could not be forgotten in its turn goes to the end
    /// again.
    closed: VecDeque<WindowId>,
    /// The names of the windows of which the program holds a half, by their team and by what they are opened as.
    held: HashMap<(TeamId, &'static str), HashSet<Arc<str>>>,
}

impl<D: Device> Default for Known<D> {
    fn default() -> Self {
        Known {
            entries: BTreeMap::new(),
            next: BTreeMap::new(),
            closed: VecDeque::new(),
            held: HashMap::new(),
        }
    }
}

impl<D: Device> Entry<D> {
    /// What it is, in a word, and its name.
    pub(super) fn named(&self) -> (&'static str, Arc<str>) {
        let word = self.what.rsplit(' ').next();
        (word.unwrap_or(self.what), self.name.clone())
    }

    fn is_held(&self) -> bool {
        self.halves.contains(&Hold::Holds)
    }

    /// Whether neither a stream nor a neighbour's NIC can use it any more.
    fn is_over(&self) -> bool {
        self.window.strong_count() == 0 && self.outlives.is_none()
    }
}

impl<D: Device> Known<D> {
    /// Takes an id for a window that all ranks of a team are about to open. A team opens one at a time.
    pub(super) fn reserve(
        &mut self,
        (team, members): (TeamId, &Members),
        what: &'static str,
        name: &Arc<str>,
    ) -> WindowId {
        let next = self.next.get(&team).copied();
        let id = next.unwrap_or(WindowId::first(team));
        self.close_before(id);
        self.next.insert(team, id.next());
        let entry = Entry {
            what,
            name: name.clone(),
            members: members.clone(),
            window: Weak::new(),
            cause: None,
            halves: [Hold::Never; 2],
            through: Vec::new(),
            outlives: None,
        };
        self.entries.insert(id, entry);
        id
    }

    /// Gives the last id back, because no rank has counted it.
    pub(super) fn release(&mut self, id: WindowId) {
        // A team opens one window at a time, so this is still its last id.
        debug_assert_eq!(self.next.get(&id.team), Some(&id.next()));
        self.entries.remove(&id);
        self.next.insert(id.team, id);
    }

    /// Notes that the window before this one is closed, if it was never opened: by now that is decided.
    fn close_before(&mut self, id: WindowId) {
        let before = id.before();
        let before = before.and_then(|id| Some((id, self.entries.get(&id)?)));
        if let Some((id, entry)) = before
            && entry.halves == [Hold::Never; 2]
            // If an id was given back, this comes here a second time.
            && self.closed.back() != Some(&id)
        {
            self.closed.push_back(id);
        }
    }

    /// Notes that this rank's part in a team has ended.
    pub(super) fn end(&mut self, team: TeamId) {
        if let Some(next) = self.next.remove(&team) {
            self.close_before(next);
        }
        self.held.retain(|(of, _), _| *of != team);
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

    /// The entry of a window that is held or is being opened.
    ///
    /// # Panics
    ///
    /// If the window is neither held nor being opened.
    pub(super) fn living(&mut self, id: WindowId) -> &mut Entry<D> {
        let entry = self.entries.get_mut(&id);
        entry.expect("a window that is held or being opened is not forgotten")
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry<D>> {
        self.entries.values()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry<D>> {
        self.entries.values_mut()
    }

    /// Notes whether the program holds these halves of a window.
    pub(super) fn set_held(&mut self, id: WindowId, halves: &[HalfKind], held: bool) {
        let hold = if held { Hold::Holds } else { Hold::Dropped };
        let entry = self.living(id);
        let before = entry.is_held();
        for half in halves {
            entry.halves[*half as usize] = hold;
        }
        let (what, name, now) = (entry.what, entry.name.clone(), entry.is_held());
        let names = self.held.entry((id.team, what)).or_default();
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

    /// Whether the program holds a window or barrier (as `what` says) of the team with that name.
    pub(super) fn has_open(&self, team: TeamId, what: &'static str, name: &str) -> bool {
        self.held
            .get(&(team, what))
            .is_some_and(|names| names.contains(name))
    }

    /// The windows that may be forgotten, unless a stream has failed by one of their waits. The caller must look at the
    /// streams after this call: no stream comes to such a wait any more.
    pub(super) fn over(&self) -> Vec<WindowId> {
        let more = self.closed.len().saturating_sub(KEPT);
        let earlier = self.closed.iter().take(more).copied();
        earlier
            .filter(|id| self.entries.get(id).is_some_and(Entry::is_over))
            .collect()
    }

    /// Forgets these windows, which [`over`](Self::over) returned.
    pub(super) fn forget(&mut self, ids: &[WindowId]) {
        for _ in 0..self.closed.len().saturating_sub(KEPT) {
            let Some(id) = self.closed.pop_front() else {
                return;
            };
            // A window without an entry was in the list twice.
            if ids.contains(&id) || !self.entries.contains_key(&id) {
                self.entries.remove(&id);
            } else {
                self.closed.push_back(id);
            }
        }
    }

    /// For how many teams, apart from the world, something is remembered.
    #[cfg(test)]
    pub(super) fn teams(&self) -> usize {
        let teams = self.next.keys();
        let held = self.held.iter().filter(|(_, names)| !names.is_empty());
        let teams = teams.chain(held.map(|((team, _), _)| team));
        teams.filter(|team| **team != TeamId::WORLD).count()
    }

    /// The halves that the program has dropped, for the last `most` windows that are remembered.
    pub(super) fn dropped(&self, most: usize) -> Vec<(WindowId, HalfKind)> {
        let last = self.entries.iter().rev().take(most);
        let dropped = |(id, entry): (&WindowId, &Entry<D>)| {
            let (id, halves) = (*id, entry.halves);
            let kinds = HalfKind::BOTH.into_iter();
            let gone = kinds.filter(move |kind| halves[*kind as usize] == Hold::Dropped);
            gone.map(move |kind| (id, kind))
        };
        last.flat_map(dropped).collect()
    }
}

/// Registered memory that waits until neighbours are through with it. If that never happens, it is released with the
/// endpoint.
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

    /// The memory, if all neighbours are among `through`.
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
