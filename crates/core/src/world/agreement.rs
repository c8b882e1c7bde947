//! Agreements: what all ranks do together, one thing at a time.
//!
//! # Model
//!
//! The control plane matches the exchanges of the ranks in order, and knows only the label of each. Opening a window
//! takes several exchanges: descriptions, then memory, then whether all has gone well. Memory that a bus allocates
//! takes one more. And several threads of a rank may want to open windows at once. So the thread that makes exchanges
//! holds the world's only [`Agreement`] for as long as they belong together. In each exchange about a window, every
//! rank says [`Which`] window it means, by id and name, and all ranks compare them.
//!
//! Ranks use the id in their messages about a window. It is taken before the first exchange, because a peer whose
//! exchange is done may mention the window at once. If that exchange fails, the id is given back: then no peer has
//! counted it (or there will be no exchange any more).
//!
//! [`Progress`](super::progress::Progress) tells how far the rank has come in all this, for reports of long waits.
//! Exchanges are matched in order. So if a rank is in an exchange, it waits for those that have come to fewer
//! exchanges.
//!
//! # Failure
//!
//! - If ranks open different windows, or the same windows in different orders, all get
//!   [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), which names both. All have then made the
//!   same exchanges, so the next one finds them in step.
//! - Id and name together show that ranks open windows in different orders, unless both windows have one name. Then
//!   each rank would take one for the other, and nothing would look wrong. So a name is refused
//!   ([`WindowError::NameTaken`](crate::error::WindowError::NameTaken)) as long as the program of any rank holds a half
//!   of a window with that name. Each rank answers for its own program, in whose order the half is dropped by then or
//!   not. All come to one verdict, in the first exchange.
//! - A rank that has failed says so in the next exchange, so that the others do not wait in it. The last exchange about
//!   a window is only for that: a window is open on all ranks or on none.
//! - A thread that waits for its turn waits for the thread before it, which waits for the peers. If a peer ends, both
//!   waits end.

use std::sync::{Arc, MutexGuard};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{ControlError, Handle, Packet};
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;

use super::inner::World;
use crate::element::Element;
use crate::error::{Disagreement, Error, Result, WindowError, WindowName, reserved};
use crate::ground::{MOST_TEXT, lock, shortened};

/// What a rank contributes, and the handles that go with it.
pub(crate) type Brought<T> = (T, Vec<Handle>);

/// The right to make exchanges, of which a rank has only one. All exchanges about windows go through it, and they are
/// trusted. So it is not public.
pub(crate) struct Agreement<'w, D: Device> {
    world: &'w World<D>,
    _alone: MutexGuard<'w, ()>,
}

/// The window (or barrier) that an exchange is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Which {
    pub(crate) id: WindowId,
    pub(crate) name: String,
}

/// What a rank tells about a window, or why it has failed.
#[derive(Serialize, Deserialize)]
struct Said<T> {
    which: Which,
    /// Whether the rank's program already has a window (or barrier) with that name.
    taken: bool,
    what: Result<T, Failure>,
}

/// Why a rank has failed.
#[derive(Serialize, Deserialize)]
struct Failure {
    /// Whether it is a shortage. Then all ranks get the same error.
    short: bool,
    reason: String,
}

impl Failure {
    /// With at most `room` bytes of the reason.
    fn of(error: &Error, room: usize) -> Self {
        Failure {
            short: error.is_shortage(),
            reason: shortened(&error.to_string(), room.min(MOST_TEXT)),
        }
    }

    /// The error on the ranks that hear of the failure.
    fn heard(self, which: &Which, rank: usize) -> Error {
        let Failure { short, reason } = self;
        if !short {
            return which.disagreement(Disagreement::Part { rank, reason });
        }
        Error::Open(WindowError::NotCreated {
            window: which.named(),
            rank,
            reason,
        })
    }
}

impl<D: Device> World<D> {
    /// Sends every rank's bytes to every rank, and returns them in the order of the ranks. Use it for results and
    /// set-up, not for the data path. The call is collective; `label` names it, and ranks compare their labels. A rank
    /// contributes at most 1 MiB (1048576 bytes; 4096 fewer over windows of MPI), and each rank gets the bytes of all.
    /// Send larger data through a window to the rank that needs it, or use several calls.
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
        let handles = Vec::new();
        let packet = Packet { bytes, handles };
        let label = format!("all-gather `{label}`");
        let packets = self.agreement(label.clone())?.exchange(&label, packet)?;
        Ok(packets.into_iter().map(|packet| packet.bytes).collect())
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
        // Elements have a size, so this is never 0 where bytes are copied.
        let size = size_of::<T>().max(1);
        let kind = std::any::type_name::<T>();
        // Two types may have the same name, in two versions of a program, say.
        let label = format!("{label}: {kind} of {size} bytes, layout {:x}", T::LAYOUT);
        let mut bytes = vec![0; size_of_val(elements)];
        // SAFETY: elements have no padding, so their bytes are initialised, and there is room for all of them.
        unsafe {
            let from = elements.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        let all = self.all_gather(&label, bytes)?;
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
    pub(crate) fn agreement(&self, what: String) -> Result<Agreement<'_, D>> {
        self.inner.process.check()?;
        let alone = lock(&self.inner.alone);
        lock(&self.inner.progress).begin(what);
        Ok(Agreement {
            world: self,
            _alone: alone,
        })
    }
}

impl<D: Device> Drop for Agreement<'_, D> {
    fn drop(&mut self) {
        lock(&self.world.inner.progress).end();
    }
}

impl<'w, D: Device> Agreement<'w, D> {
    pub(crate) fn world(&self) -> &'w World<D> {
        self.world
    }

    pub(crate) fn exchange(&self, label: &str, packet: Packet) -> Result<Vec<Packet>> {
        let inner = &self.world.inner;
        lock(&inner.progress).enter();
        let packets = inner.control.exchange(label, packet);
        let refused = matches!(packets, Err(ControlError::TooLarge { .. }));
        let progress = &mut *lock(&inner.progress);
        progress.leave(refused);
        Ok(packets.map_err(|error| progress.named(error))?)
    }

    /// Sends every rank's bytes to every rank, in as many exchanges as the longest of them need.
    pub(crate) fn gather(&self, label: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut parts = bytes.chunks(PART).peekable();
        let mut all = vec![Vec::new(); self.world.size()];
        loop {
            let part = parts.next().unwrap_or_default();
            let more = u8::from(parts.peek().is_some());
            let bytes = [&[more], part].concat();
            let handles = Vec::new();
            let packets = self.exchange(label, Packet { bytes, handles })?;
            let mut last = true;
            for (all, packet) in all.iter_mut().zip(packets) {
                if let [more, part @ ..] = &*packet.bytes {
                    last &= *more == 0;
                    all.extend(part);
                }
            }
            if last {
                return Ok(all);
            }
        }
    }

    /// Takes an id for a window that all ranks are about to open, and makes the first exchange about it, like
    /// [`Agreement::tell`].
    pub(crate) fn begin<T: Serialize + DeserializeOwned>(
        &self,
        label: &'static str,
        name: &Arc<str>,
        mine: Result<Brought<T>>,
    ) -> Result<(Which, Vec<Brought<T>>)> {
        let taken = self.world.has_open(label, name);
        let id = self.world.reserve_window(label, name);
        let name = name.to_string();
        let which = Which { id, name };
        let (packet, failed) = said(&which, taken, mine);
        let packets = self.exchange(label, packet).inspect_err(|_| {
            self.world.release_window(id);
        })?;
        let all = heard(&which, packets, failed)?;
        Ok((which, all))
    }

    /// Tells all ranks something about the window that is being opened, or why this rank has failed. Returns what all
    /// ranks tell.
    pub(crate) fn tell<T: Serialize + DeserializeOwned>(
        &self,
        label: &str,
        which: &Which,
        mine: Result<Brought<T>>,
    ) -> Result<Vec<Brought<T>>> {
        let (packet, failed) = said(which, false, mine);
        heard(which, self.exchange(label, packet)?, failed)
    }

    /// Makes the last exchange about a window: tells all ranks whether this rank has done its part, and hears the same
    /// from them. If a rank has failed, no rank has the window. That rank gets its own error, and the others get
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement). If the failure is a shortage, all ranks
    /// get [`WindowError::NotCreated`](crate::error::WindowError::NotCreated).
    ///
    /// If all ranks have heard that none has the window, `refused` is called with this rank's part. It is not called if
    /// the exchange itself fails: then the others may have made it, and have the window.
    pub(crate) fn agree<T>(
        &self,
        which: &Which,
        mine: Result<T>,
        refused: impl FnOnce(&T),
    ) -> Result<T> {
        // All ranks have named the window twice by now. A name may be nearly as long as a packet, so it is not sent
        // again.
        let failure = |error: &Error| Failure::of(error, MOST_TEXT);
        let said: Result<(), Failure> = mine.as_ref().map(|_| ()).map_err(failure);
        let bytes = postcard::to_stdvec(&said).expect("plain data can be encoded");
        let handles = Vec::new();
        let packets = self.exchange("agreeing on a window", Packet { bytes, handles });
        let mine = own_first(mine)?;
        for (rank, packet) in packets?.into_iter().enumerate() {
            let said: Result<(), Failure> =
                postcard::from_bytes(&packet.bytes).map_err(|e| unreadable(which, rank, &e))?;
            if let Err(failure) = said {
                if let Ok(mine) = &mine {
                    refused(mine);
                }
                return Err(failure.heard(which, rank));
            }
        }
        mine
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

    pub(crate) fn disagreement(&self, disagreement: Disagreement) -> Error {
        Error::Open(WindowError::Disagreement {
            window: self.named(),
            disagreement: Box::new(disagreement),
        })
    }
}

/// The error for a message of a rank that cannot be decoded.
fn unreadable(which: &Which, rank: usize, error: &postcard::Error) -> Error {
    let reason = error.to_string();
    which.disagreement(Disagreement::Unreadable { rank, reason })
}

/// The most bytes of a part of something that is longer than a packet may be.
const PART: usize = Packet::MAX_BYTES / 2;

/// How many bytes of a packet a reason leaves free. Some control planes need them.
const SPARE: usize = 8192;

/// Returns this rank's own error at once, unless it is a shortage, for which all ranks get the same error.
fn own_first<T>(mine: Result<T>) -> Result<Result<T>> {
    match mine {
        Err(error) if !error.is_shortage() => Err(error),
        mine => Ok(mine),
    }
}

/// The packet to send, and this rank's own failure.
fn said<T: Serialize>(
    which: &Which,
    taken: bool,
    mine: Result<Brought<T>>,
) -> (Packet, Result<(), Error>) {
    let (what, handles, failed) = match mine {
        Ok((what, handles)) => (Ok(what), handles, Ok(())),
        Err(error) => {
            // The name may take nearly a whole packet. A reason without room is left out: if the packet were too large
            // there would be no exchange, and the others would wait for one.
            let room = (Packet::MAX_BYTES - SPARE).saturating_sub(which.name.len());
            (Err(Failure::of(&error, room)), Vec::new(), Err(error))
        }
    };
    let which = which.clone();
    let bytes =
        postcard::to_stdvec(&Said { which, taken, what }).expect("plain data can be encoded");
    (Packet { bytes, handles }, failed)
}

/// What all ranks have told. If they mean different windows, all ranks get the same error.
fn heard<T: DeserializeOwned>(
    mine: &Which,
    packets: Vec<Packet>,
    failed: Result<()>,
) -> Result<Vec<Brought<T>>> {
    let mut all = Vec::with_capacity(packets.len());
    for (rank, packet) in packets.into_iter().enumerate() {
        let said: Said<T> =
            postcard::from_bytes(&packet.bytes).map_err(|e| unreadable(mine, rank, &e))?;
        all.push((said, packet.handles));
    }
    let first = all[0].0.which.clone();
    let other = all.iter().position(|(said, _)| said.which != first);
    if let Some(rank) = other {
        let other = &all[rank].0.which;
        return Err(mine.disagreement(Disagreement::Windows {
            first: first.named(),
            rank,
            other: other.named(),
        }));
    }
    let taken = all.iter().enumerate().filter(|(_, (said, _))| said.taken);
    let ranks: Vec<_> = taken.map(|(rank, _)| rank).collect();
    if !ranks.is_empty() {
        let window = mine.named();
        return Err(Error::Open(WindowError::NameTaken { window, ranks }));
    }
    let _ = own_first(failed)?;
    let each = |(rank, (said, handles)): (usize, (Said<T>, _))| match said.what {
        Ok(what) => Ok((what, handles)),
        Err(failure) => Err(failure.heard(mine, rank)),
    };
    all.into_iter().enumerate().map(each).collect()
}

#[cfg(test)]
mod tests;
