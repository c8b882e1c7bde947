//! What all ranks do together: one thing at a time.
//!
//! # Model
//!
//! The control plane matches the exchanges of the ranks in order, and knows of each no more than its label. To create a
//! window takes several (descriptions, then memory, then whether all has gone well; that of a bus has its own), and threads of a rank may want to create
//! two at once. So whoever makes exchanges holds the world's one [`Agreement`] for as long as they belong together, and in
//! each that is about a window every rank says [`Which`] one it means: id and name, compared by all ranks alike.
//!
//! The id is what ranks call a window in their messages. It is taken before the first exchange, since a peer whose
//! exchange is done may speak of the window at once; and given back if that exchange fails, since then no peer has
//! counted it (or there will be no exchange any more).
//!
//! Where the rank is among all that is its [`Progress`](super::progress::Progress): who reports long waits asks for it. Exchanges are matched
//! in order; so of two ranks the one that has come to fewer of them is what the other waits for, if that is in one.
//!
//! # Failure
//!
//! - Ranks that create different windows, or the same in different orders, all get [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), which names
//!   both. All have made the same exchanges then, so the next one finds them in step.
//! - Id and name tell windows apart that ranks open in different orders, unless both have one name: then each rank
//!   would take one for the other, and nothing would look wrong. So a name is refused ([`WindowError::NameTaken`](crate::error::WindowError::NameTaken)) as long as
//!   any rank's program holds a half of a window of that name. Each rank says so of itself: by the order of its own
//!   program, which has dropped the half by then or has not; and all come to one verdict, in the first exchange.
//! - A rank that has failed says so in the exchange that comes next, instead of leaving the others waiting in it. The
//!   last exchange about a window is for that alone: a window is open on all ranks or on none.
//! - A thread that waits for its turn waits for the one before it, which waits for the peers: their ends end both.

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

/// What a rank says, and the handles that go with it.
pub(crate) type Brought<T> = (T, Vec<Handle>);

/// The right to make exchanges, this rank's only one. It is the one way to them for what windows are made of, which
/// is trusted: not for users.
pub(crate) struct Agreement<'w, D: Device> {
    world: &'w World<D>,
    _alone: MutexGuard<'w, ()>,
}

/// Which window (or barrier) an exchange is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Which {
    pub(crate) id: WindowId,
    pub(crate) name: String,
}

/// What a rank says about a window: something, or why it has failed.
#[derive(Serialize, Deserialize)]
struct Said<T> {
    which: Which,
    /// Whether the rank's program has a window (or barrier) of that name already.
    taken: bool,
    what: Result<T, Failure>,
}

/// Why a rank has failed.
#[derive(Serialize, Deserialize)]
struct Failure {
    /// For want of something: then the error is the same on all ranks.
    short: bool,
    reason: String,
}

impl Failure {
    /// With no more of the reason than there is `room` for.
    fn of(error: &Error, room: usize) -> Self {
        Failure {
            short: error.is_shortage(),
            reason: shortened(&error.to_string(), room.min(MOST_TEXT)),
        }
    }

    /// The error on the ranks that hear of it.
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
    /// Gives every rank every rank's bytes, in order of ranks: for results and set-up, not for the data path. Collective; `label`
    /// names the call, and is compared between ranks. A rank brings 1 MiB at most (1048576 bytes; 4096 less over windows
    /// of MPI), and each gets all of them: what is larger goes through a window, to a rank that writes it, or by several calls.
    ///
    /// # Errors
    ///
    /// [`Error::Control`]: a rank ended meanwhile, is in another collective call, or the bytes are too many (on the rank
    /// that brings them; the others wait for its next call). [`Error::Forked`].
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

    /// As [`World::all_gather`], of elements. Ranks may bring different numbers of them, all of one type.
    ///
    /// # Errors
    ///
    /// As [`World::all_gather`]; [`Error::Control`] if the ranks bring elements of different types, which are different
    /// collective calls.
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
        // (What has no size is no element; the call with none of it is made all the same.)
        let size = size_of::<T>().max(1);
        let kind = std::any::type_name::<T>();
        // One name may stand for two types: of two versions of a program, say.
        let label = format!("{label}: {kind} of {size} bytes, layout {:x}", T::LAYOUT);
        let mut bytes = vec![0; size_of_val(elements)];
        // SAFETY: elements have no padding, so their bytes are initialised; there is room for all of them.
        unsafe {
            let from = elements.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        let all = self.all_gather(&label, bytes)?;
        let elements = |bytes: Vec<u8>| {
            let count = bytes.len() / size;
            let mut elements = reserved::<T>(count)?;
            // SAFETY: there is room for so many elements, so many bytes are there, and any bytes are a valid element.
            unsafe {
                let to = elements.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count * size_of::<T>());
                elements.set_len(count);
            }
            Ok(elements)
        };
        all.into_iter().map(elements).collect()
    }

    /// Waits until this thread is the only one of the rank that makes exchanges. `what` says to people what for.
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

    /// Takes an id for a window that all ranks are about to create, and makes the first exchange about it: as
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

    /// Tells all ranks something about the window that is being created, or why this rank has failed; and hears what
    /// they tell.
    pub(crate) fn tell<T: Serialize + DeserializeOwned>(
        &self,
        label: &str,
        which: &Which,
        mine: Result<Brought<T>>,
    ) -> Result<Vec<Brought<T>>> {
        let (packet, failed) = said(which, false, mine);
        heard(which, self.exchange(label, packet)?, failed)
    }

    /// Tells all ranks whether this one has done its part, and hears the same of them: the last exchange about a window.
    /// If one rank has failed, no rank has the window. That rank gets its own error, the others
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement); all get [`WindowError::NotCreated`](crate::error::WindowError::NotCreated) if it was short of something.
    ///
    /// `refused` is called with this rank's part when all ranks have heard that none has the window. It is not called
    /// when the exchange itself fails: the others may have made it, and have the window.
    pub(crate) fn agree<T>(
        &self,
        which: &Which,
        mine: Result<T>,
        refused: impl FnOnce(&T),
    ) -> Result<T> {
        // All ranks have named the window twice by now. A name may be nearly as long as a packet, so it is not sent again.
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
    /// What errors call it.
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

/// What a rank said could not be read.
fn unreadable(which: &Which, rank: usize, error: &postcard::Error) -> Error {
    let reason = error.to_string();
    which.disagreement(Disagreement::Unreadable { rank, reason })
}

/// How many bytes of a packet are left alone where a reason is put into it: some control planes need them.
const SPARE: usize = 8192;

/// Returns this rank's own error at once, unless it is a shortage: of that, all ranks get the same error.
fn own_first<T>(mine: Result<T>) -> Result<Result<T>> {
    match mine {
        Err(error) if !error.is_shortage() => Err(error),
        mine => Ok(mine),
    }
}

/// The packet, and this rank's own failure.
fn said<T: Serialize>(
    which: &Which,
    taken: bool,
    mine: Result<Brought<T>>,
) -> (Packet, Result<(), Error>) {
    let (what, handles, failed) = match mine {
        Ok((what, handles)) => (Ok(what), handles, Ok(())),
        Err(error) => {
            // The name may take nearly all of a packet. A reason that finds no room is not said: what is too large would
            // be no exchange, and the others would wait for one.
            let room = (Packet::MAX_BYTES - SPARE).saturating_sub(which.name.len());
            (Err(Failure::of(&error, room)), Vec::new(), Err(error))
        }
    };
    let which = which.clone();
    let bytes =
        postcard::to_stdvec(&Said { which, taken, what }).expect("plain data can be encoded");
    (Packet { bytes, handles }, failed)
}

/// What all have said. Where they speak of different windows that is the verdict, on all ranks alike.
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
