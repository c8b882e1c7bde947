//! Registered memory of peers, and the description that they send of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_hal::nic::{NicError, RemotePtr};

use crate::mail::{Letter, room_at, word_at};
use crate::notice::Notice;
use crate::wire::Wire;

/// A peer's registered memory.
pub(crate) struct RemoteRegion<W: Wire> {
    /// The number of the registration there, for notices.
    pub(crate) number: u32,
    pub(crate) remote: W::Remote,
    /// The same memory as each further rail knows it, if both ends have that rail.
    pub(crate) rails: Vec<W::Remote>,
    /// Where requests and answers for the peer go, if its memory may be updated.
    pub(crate) mail: Option<RemoteMail<W>>,
}

/// A peer's [mail](crate::mail).
pub(crate) struct RemoteMail<W: Wire> {
    pub(crate) region: Arc<RemoteRegion<W>>,
    lines: usize,
    /// The distance of the signalled words.
    step: usize,
}

impl<W: Wire> RemoteMail<W> {
    pub(crate) fn new(region: RemoteRegion<W>, lines: usize, step: usize) -> Self {
        RemoteMail {
            region: Arc::new(region),
            lines,
            step,
        }
    }

    /// Where letters of this kind go for the queue that signals the word at `offset`: the notice of their word, its
    /// offset, and that of their room. `None` if there is no such word.
    pub(crate) fn place(&self, offset: usize, letter: Letter) -> Option<(u64, usize, usize)> {
        let line = offset.checked_div(self.step).unwrap_or(0);
        if line >= self.lines || line * self.step != offset {
            return None;
        }
        let number = letter.number(line);
        let notice = Notice {
            bell: 0,
            word: self.region.number,
            offset: word_at(number),
            number: 0,
            further: None,
            one_of: None,
            poison: false,
        };
        let room = room_at(self.lines, number);
        Some((notice.encode().ok()?, word_at(number), room))
    }
}

impl<W: Wire> RemoteRegion<W> {
    /// The memory as this rail knows it; 0 is the engine's own endpoint.
    pub(crate) fn by(&self, rail: usize) -> &W::Remote {
        match rail {
            0 => &self.remote,
            rail => &self.rails[rail - 1],
        }
    }
}

/// What a place in a peer's memory is in.
pub(crate) fn resolve<W: Wire>(place: &RemotePtr) -> Result<Arc<RemoteRegion<W>>, NicError> {
    Arc::downcast(place.memory.0.clone())
        .map_err(|_| NicError::BadKey("memory of another NIC".into()))
}

/// The description of registered memory that a peer needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) number: u32,
    /// One key for each endpoint that peers write to.
    pub(crate) wires: Vec<Vec<u8>>,
    pub(crate) mail: Option<SaidMail>,
}

/// The description of a registration's mail.
#[derive(Serialize, Deserialize)]
pub(crate) struct SaidMail {
    pub(crate) number: u32,
    pub(crate) lines: usize,
    pub(crate) step: usize,
    /// The key for the endpoint that peers write to.
    pub(crate) wire: Vec<u8>,
}
