//! Agreements: what all ranks of a team do together, one thing at a time.
//!
//! # Model
//!
//! The control plane matches the collective calls of the ranks in order, and knows only the label of each. Opening a
//! window takes three of them. In each, a rank sends letters to its neighbours, and all ranks hear one decision
//! ([`Control::confer`]):
//!
//! 1. [`Agreement::begin`] compares the window and its terms. Neighbours tell each other what they declare.
//! 2. [`Agreement::tell`]: neighbours tell each other where their memory is, or what does not fit together.
//! 3. [`Agreement::agree`]: whether each rank has done its part.
//!
//! Memory that a bus allocates takes one more. And several threads of a rank may want to open windows at once. So the
//! thread that makes these calls holds the team's only [`Agreement`] for as long as they belong together. Here "all
//! ranks" are those of the team. Different teams have nothing to do with each other.
//!
//! Ranks use the window's id in their messages about it. It is taken before the first call, because a peer whose call
//! is done may mention the window at once. If that call fails, the id is given back: then no peer has counted it (or
//! there will be no call any more).
//!
//! [`Progress`](super::progress::Progress) tells how far the rank has come in all this, for reports of long waits. Calls
//! are matched in order. So if a rank is in such a call, it waits for those that have come to fewer.
//!
//! # Failure
//!
//! - If ranks open different windows, or the same windows in different orders, all get
//!   [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), which names both. All have then made the
//!   same calls, so the next one finds them in step.
//! - Id and name together show that ranks open windows in different orders, unless both windows have one name. Then
//!   each rank would take one for the other, and nothing would look wrong. So a name is refused
//!   ([`WindowError::NameTaken`](crate::error::WindowError::NameTaken)) as long as the program of any rank holds a half
//!   of a window with that name. Each rank answers for its own program, in whose order the half is dropped by then or
//!   not. All hear one decision, in the first call.
//! - A rank that has failed says so in the next call, so that the others do not wait in it. The last call about a
//!   window is only for that: a window is open on all ranks or on none.
//! - A thread that waits for its turn waits for the thread before it, which waits for the peers. If a peer ends, both
//!   waits end.

use std::sync::{Arc, MutexGuard};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Control, ControlError, Decision, Letter, Objection, Packet, Proposal};
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;

use super::inner::World;
use super::progress::Gathering;
use super::roster::Roster;
use crate::bytes::bytes_of;
use crate::element::Element;
use crate::error::{Disagreement, Error, Result, WindowError, WindowName, reserved};
use crate::ground::{MOST_TEXT, lock, shortened};

/// The right to make collective calls of a team, of which a rank has only one. All calls about windows go through it,
/// and they are trusted. So it is not public.
pub(crate) struct Agreement<'w, D: Device> {
    world: &'w World<D>,
    roster: &'w Roster,
    _alone: MutexGuard<'w, ()>,
}

/// The window (or barrier) that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Which {
    pub(crate) id: WindowId,
    pub(crate) name: String,
}

/// What must be the same on all ranks, besides the window itself: bytes that the ranks compare, and bytes that the
/// others only hear if those differ.
pub(crate) type Terms = (Vec<u8>, Vec<u8>);

/// What differs between two ranks' terms, or which rank's terms cannot be read.
pub(crate) type Differ = std::result::Result<Disagreement, (usize, postcard::Error)>;

/// Why this rank does not go on with a window.
pub(crate) enum Trouble {
    /// The declarations do not fit together.
    Found(Disagreement),
    /// This rank cannot do its part.
    Failed(Error),
}

impl From<Disagreement> for Trouble {
    fn from(found: Disagreement) -> Self {
        Trouble::Found(found)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Failed(error)
    }
}

/// What a rank brings to a call about a window: letters, or why it has none.
pub(crate) type Brought = Result<Vec<Letter>, Trouble>;

/// What a rank tells the others of its trouble. The kind that comes first counts first.
#[derive(Serialize, Deserialize)]
enum Refusal {
    /// The rank's program already has a window (or barrier) with that name.
    Taken,
    /// The declarations do not fit together. All ranks get this error.
    Found(Disagreement),
    /// The rank could not do its part.
    Failed {
        /// Whether it is a shortage. Then all ranks get the same error.
        short: bool,
        reason: String,
    },
}

impl Refusal {
    /// With at most `room` bytes of a reason.
    fn of(trouble: &Trouble, room: usize) -> Self {
        match trouble {
            Trouble::Found(found) => Refusal::Found(found.clone()),
            Trouble::Failed(error) => Refusal::Failed {
                short: error.is_shortage(),
                reason: shortened(&error.to_string(), room.min(MOST_TEXT)),
            },
        }
    }

    fn objection(&self) -> Objection {
        let kind = match self {
            Refusal::Taken => 0,
            Refusal::Found(_) => 1,
            Refusal::Failed { .. } => 2,
        };
        let reason = postcard::to_stdvec(self).expect("plain data can be encoded");
        Objection { kind, reason }
    }

    /// The error of the ranks that hear of it. `ranks` are those that object.
    fn heard(self, which: &Which, ranks: Vec<usize>) -> Error {
        let window = which.named();
        let rank = ranks[0];
        match self {
            Refusal::Taken => Error::Open(WindowError::NameTaken { window, ranks }),
            Refusal::Found(found) => which.disagreement(found),
            Refusal::Failed {
                short: false,
                reason,
            } => which.disagreement(Disagreement::Part { rank, reason }),
            Refusal::Failed {
                short: true,
                reason,
            } => Error::Open(WindowError::NotCreated {
                window,
                rank,
                reason,
            }),
        }
    }
}

/// The most bytes of a label that ranks compare. With the name of a team it is no longer than the control plane takes.
const MOST_LABEL: usize = 2048;

impl<D: Device> World<D> {
    /// Sends every rank's bytes to every rank, and returns them in the order of the ranks. Use it for results and
    /// set-up, not for the data path. The call is collective; `label` names it, and ranks compare their labels (of a
    /// label over 2 KiB its beginning). A rank contributes at most 1 MiB (1048576 bytes), and each rank gets the bytes
    /// of all. Send larger data through a window to the rank that needs it, or use several calls.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if a rank has ended, if a rank is in another collective call, or if this rank contributes too
    /// many bytes. (In the last case only this rank gets the error, and the others wait for its next call.)
    /// [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let squares = world.all_gather("squares", vec![(world.rank() * world.rank()) as u8])?;
    /// assert_eq!(squares, [[0], [1], [4]]);
    /// # Ok(()) });
    /// ```
    pub fn all_gather(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.all_gather_of(self.roster(), label, bytes)
    }

    /// Sends the bytes of every rank of a team to all others.
    pub(super) fn all_gather_of(
        &self,
        roster: &Roster,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>> {
        let label = shortened(label, MOST_LABEL);
        let label = format!("all-gather `{}`", roster.named(&label));
        self.agreement(roster, label.clone())?
            .exchange(&label, bytes)
    }

    /// Like [`World::all_gather`], for elements. Ranks may contribute different numbers of elements, all of one type.
    ///
    /// # Errors
    ///
    /// The errors of [`World::all_gather`]; [`Error::Control`] also if the ranks contribute elements of different
    /// types, since those are different collective calls.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let ids = vec![0.5; world.rank()];
    /// let all = world.all_gather_elements("ids", &ids)?;
    /// assert_eq!(all, [vec![], vec![0.5], vec![0.5; 2]]);
    /// # Ok(()) });
    /// ```
    pub fn all_gather_elements<T: Element>(
        &self,
        label: &str,
        elements: &[T],
    ) -> Result<Vec<Vec<T>>> {
        self.all_gather_elements_of(self.roster(), label, elements)
    }

    pub(super) fn all_gather_elements_of<T: Element>(
        &self,
        roster: &Roster,
        label: &str,
        elements: &[T],
    ) -> Result<Vec<Vec<T>>> {
        // Elements have a size, so this is never 0 where bytes are copied.
        let size = size_of::<T>().max(1);
        let kind = std::any::type_name::<T>();
        // Two types may have the same name, in two versions of a program, say.
        let label = shortened(label, MOST_LABEL / 2);
        let label = format!("{label}: {kind} of {size} bytes, layout {:x}", T::LAYOUT);
        let bytes = bytes_of(elements).to_vec();
        let all = self.all_gather_of(roster, &label, bytes)?;
        let elements = |bytes: Vec<u8>| {
            let count = bytes.len() / size;
            let mut elements = reserved::<T>(count)?;
            // SAFETY: there is room for `count` elements, that many bytes are there, and any bytes are a valid element.
            unsafe {
                let to = elements.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count * size_of::<T>());
                elements.set_len(count);
            }
            Ok(elements)
        };
        all.into_iter().map(elements).collect()
    }

    /// Waits until no other thread of this rank makes exchanges. `what` says for people what this one is about to do.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub(crate) fn agreement<'w>(
        &'w self,
        roster: &'w Roster,
        what: String,
    ) -> Result<Agreement<'w, D>> {
        self.inner.process.check()?;
        let alone = lock(&roster.alone);
        let gathering = Gathering::of(roster.id);
        lock(&self.inner.progress).begin(gathering, &roster.members, what);
        Ok(Agreement {
            world: self,
            roster,
            _alone: alone,
        })
    }
}

impl<D: Device> Drop for Agreement<'_, D> {
    fn drop(&mut self) {
        lock(&self.world.inner.progress).end(self.gathering());
    }
}

impl<'w, D: Device> Agreement<'w, D> {
    pub(crate) fn world(&self) -> &'w World<D> {
        self.world
    }

    pub(crate) fn roster(&self) -> &'w Roster {
        self.roster
    }

    /// Sends every rank's bytes to every rank. Returns them in the order of the team.
    fn exchange(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let all = self.call(|control| control.exchange_in(self.roster.id, label, bytes))?;
        let Some(listed) = self.roster.members.listed() else {
            return Ok(all);
        };
        let team = |rank: &usize| self.roster.members.in_team(*rank);
        let mut ordered: Vec<_> = listed.iter().map(team).zip(all).collect();
        ordered.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(ordered.into_iter().map(|(_, bytes)| bytes).collect())
    }

    pub(super) fn confer(&self, label: &str, proposal: Proposal) -> Result<Decision> {
        self.call(|control| control.confer_in(self.roster.id, label, proposal))
    }

    fn gathering(&self) -> Gathering {
        Gathering::of(self.roster.id)
    }

    /// Makes a collective call of the control plane.
    fn call<R>(
        &self,
        call: impl FnOnce(&dyn Control) -> std::result::Result<R, ControlError>,
    ) -> Result<R> {
        let inner = &self.world.inner;
        lock(&inner.progress).enter(self.gathering());
        let done = call(&*inner.control);
        let refused = matches!(done, Err(ControlError::TooLarge { .. }));
        let progress = &mut *lock(&inner.progress);
        progress.leave(self.gathering(), refused);
        Ok(done.map_err(|error| progress.named(self.gathering(), error))?)
    }

    /// Sends every rank's bytes to every rank, in as many exchanges as the longest of them need.
    pub(crate) fn gather(&self, label: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut parts = bytes.chunks(PART).peekable();
        let mut all = vec![Vec::new(); self.roster.size()];
        loop {
            let part = parts.next().unwrap_or_default();
            let more = u8::from(parts.peek().is_some());
            let bytes = [&[more], part].concat();
            let mut last = true;
            for (all, bytes) in all.iter_mut().zip(self.exchange(label, bytes)?) {
                if let [more, part @ ..] = &*bytes {
                    last &= *more == 0;
                    all.extend(part);
                }
            }
            if last {
                return Ok(all);
            }
        }
    }

    /// Takes an id for a window that all ranks are about to open, and makes the first call about it: compares the
    /// window and its terms, and sends letters. `differ` says what differs between the terms of the lowest rank and
    /// another.
    ///
    /// If this rank has failed, it says why in place of its letters. All ranks then get the error that
    /// [`Agreement::agree`] describes.
    pub(crate) fn begin(
        &self,
        label: &'static str,
        name: &Arc<str>,
        (compared, told): Terms,
        differ: impl FnOnce(&[u8], usize, &[u8]) -> Differ,
        mine: Brought,
    ) -> Result<(Which, Vec<Letter>)> {
        let taken = self.world.has_open(self.roster.id, label, name);
        let id = self.world.reserve_window(self.roster, label, name);
        let name = name.to_string();
        let which = Which { id, name };
        let mut header = postcard::to_stdvec(&which).expect("plain data can be encoded");
        header.extend(compared);
        let alike = header.len();
        header.extend(told);
        // The name may take nearly a whole packet. A reason without room is left out: if the header were too large
        // there would be no call, and the others would wait for one.
        let room = (Packet::MAX_BYTES - SPARE).saturating_sub(header.len());
        let (letters, trouble) = apart(label, mine);
        let refusal = match &trouble {
            _ if taken => Some(Refusal::Taken),
            Some(trouble) => Some(Refusal::of(trouble, room)),
            None => None,
        };
        let proposal = Proposal {
            header,
            alike,
            flags: 0,
            objection: refusal.as_ref().map(Refusal::objection),
            letters,
        };
        let decision = self
            .confer(label, proposal)
            .inspect_err(|_| self.world.release_window(id))?;
        let lowest = self.roster.members.lowest();
        let letters = decided(&which, decision, trouble, |first, rank, other| {
            which.differ((lowest, first), rank, other, differ)
        })?;
        Ok((which, letters))
    }

    /// Sends letters about the window that is being opened, or says why this rank has failed. Returns the letters to
    /// this rank.
    pub(crate) fn tell(&self, label: &str, which: &Which, mine: Brought) -> Result<Vec<Letter>> {
        let (letters, trouble) = apart(label, mine);
        let refusal = trouble.as_ref();
        let refusal = refusal.map(|trouble| Refusal::of(trouble, MOST_TEXT));
        let proposal = Proposal {
            objection: refusal.as_ref().map(Refusal::objection),
            letters,
            ..Proposal::default()
        };
        let decision = self.confer(label, proposal)?;
        decided(which, decision, trouble, |_, rank, _| {
            which.unreadable(rank, "it has a header")
        })
    }

    /// Makes the last call about a window: tells all ranks whether this rank has done its part, and hears the same from
    /// them. If a rank has failed, no rank has the window. That rank gets its own error, and the others get
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement). If the failure is a shortage, all ranks
    /// get [`WindowError::NotCreated`](crate::error::WindowError::NotCreated).
    ///
    /// If all ranks have heard that none has the window, `refused` is called with this rank's part. It is not called if
    /// the call itself fails: then the others may have made it, and have the window.
    pub(crate) fn agree<T>(
        &self,
        which: &Which,
        mine: Result<T>,
        refused: impl FnOnce(&T),
    ) -> Result<T> {
        let (part, mine) = match mine {
            Ok(part) => (Some(part), Ok(Vec::new())),
            Err(error) => (None, Err(Trouble::Failed(error))),
        };
        match self.tell("agreeing on a window", which, mine) {
            Ok(_) => Ok(part.expect("a rank that has failed objects")),
            Err(error) => {
                if let (Some(part), false) = (&part, matches!(error, Error::Control(_))) {
                    refused(part);
                }
                Err(error)
            }
        }
    }
}

impl Which {
    /// The name and id that errors contain.
    pub(crate) fn named(&self) -> WindowName {
        WindowName {
            name: self.name.as_str().into(),
            id: self.id,
        }
    }

    /// What a rank has told in a letter.
    pub(crate) fn read<T: DeserializeOwned>(&self, rank: usize, bytes: &[u8]) -> Result<T> {
        postcard::from_bytes(bytes).map_err(|error| self.unreadable(rank, error))
    }

    /// The error for a message of a rank that cannot be decoded.
    fn unreadable(&self, rank: usize, reason: impl ToString) -> Error {
        let reason = reason.to_string();
        self.disagreement(Disagreement::Unreadable { rank, reason })
    }

    /// The error if the headers of the lowest rank and of `rank` differ.
    fn differ(
        &self,
        (lowest, first): (usize, &[u8]),
        rank: usize,
        other: &[u8],
        differ: impl FnOnce(&[u8], usize, &[u8]) -> Differ,
    ) -> Error {
        let named = |rank, header| {
            let named: std::result::Result<(Which, &[u8]), _> = postcard::take_from_bytes(header);
            named.map_err(|error| (rank, error))
        };
        let disagreement = || {
            let ((first, first_terms), (other, other_terms)) =
                (named(lowest, first)?, named(rank, other)?);
            if first == other {
                return differ(first_terms, rank, other_terms);
            }
            Ok(Disagreement::Windows {
                lowest,
                first: first.named(),
                rank,
                other: other.named(),
            })
        };
        match disagreement() {
            Ok(disagreement) => self.disagreement(disagreement),
            Err((rank, error)) => self.unreadable(rank, error),
        }
    }

    pub(crate) fn disagreement(&self, disagreement: Disagreement) -> Error {
        Error::Open(WindowError::Disagreement {
            window: self.named(),
            disagreement: Box::new(disagreement),
        })
    }
}

/// The most bytes of a part of something that is longer than a packet may be.
const PART: usize = Packet::MAX_BYTES / 2;

/// How many bytes of a packet a reason leaves free. Some control planes need them.
const SPARE: usize = 8192;

/// The letters to send, and the trouble of a rank that has none to send. With a letter that is too large there would be no
/// call, and the others would wait for one.
fn apart(label: &str, mine: Brought) -> (Vec<Letter>, Option<Trouble>) {
    let fit = mine.and_then(|letters| {
        let large = letters.iter().find_map(|letter| too_large(label, letter));
        large.map_or(Ok(letters), |error| Err(Trouble::Failed(error)))
    });
    match fit {
        Ok(letters) => (letters, None),
        Err(trouble) => (Vec::new(), Some(trouble)),
    }
}

/// The error of a letter that does not fit in a packet.
fn too_large(label: &str, letter: &Letter) -> Option<Error> {
    let Letter { rank, packet } = letter;
    let (bytes, handles) = (packet.bytes.len(), packet.handles.len());
    let most = Packet::MAX_BYTES - SPARE;
    (bytes > most || handles > Packet::MAX_HANDLES).then(|| {
        let label = format!("{label}: what rank {rank} has to know");
        let error = ControlError::TooLarge {
            label,
            bytes,
            most,
            handles,
        };
        error.into()
    })
}

/// The letters to this rank, if the ranks have agreed. A rank that could not do its part gets its own error, unless
/// that is a shortage: then all ranks get the same.
fn decided(
    which: &Which,
    decision: Decision,
    trouble: Option<Trouble>,
    differ: impl FnOnce(&[u8], usize, &[u8]) -> Error,
) -> Result<Vec<Letter>> {
    match (decision, trouble) {
        (Decision::Agreed { letters, .. }, _) => Ok(letters),
        (_, Some(Trouble::Failed(error))) if !error.is_shortage() => Err(error),
        (Decision::Differs { first, rank, other }, _) => Err(differ(&first, rank, &other)),
        (Decision::Refused { ranks, reason, .. }, _) => {
            let refusal: Refusal = which.read(ranks[0], &reason)?;
            Err(refusal.heard(which, ranks))
        }
    }
}

#[cfg(test)]
mod tests;
