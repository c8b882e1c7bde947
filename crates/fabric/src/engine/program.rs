//! Programs, cut into pieces that a wire carries out in one operation each.

use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::batch::Action;
use tidegate_hal::nic::{Direction, Keep, NicError, Prepared, Program, Transfer};
use tidegate_host::for_each_run;

use super::request::Requests;
use super::rows::{self, PIECE, Row, SHORT};
use crate::base::{MOST_RAILS, NAME};
use crate::mail::{Mail, ROOM};
use crate::notice::{Notice, numbered, one_of};
use crate::remote::{RemoteRegion, resolve};
use crate::wire::{Limits, Op, Wire};

/// Longer writes go by all rails. (A shorter write may take another queue's signal along; parts take none.)
const LONG: usize = 64 << 10;
/// The most bytes of an operation. If a slow network brings a peer much data, the end of each operation is its only
/// sign of life ([`contact`](super::contact)). So a put may take any time, and a network that is cut is found out after
/// the time of this many bytes. (Hardware has too few triggers to cut so finely.)
const STEP: usize = 4 << 20;
/// All stripes but the last are multiples of this many bytes. So if the whole is aligned, each stripe is.
const PAGE: usize = 4096;
// No stripe is empty.
const _: () = {
    assert!(LONG > MOST_RAILS * (MOST_RAILS - 1) * (PAGE + 1));
};

/// The part of a transfer that one operation carries out. It is contiguous at the peer.
pub(crate) struct ScriptPiece<W: Wire> {
    pub(crate) direction: Direction,
    /// The indices of the script's rows that it is made of. Empty if it is contiguous here, too.
    pub(super) rows: Range<usize>,
    /// Its address here.
    pub(crate) local: *mut u8,
    /// Bytes to add to that in firings with an odd number.
    pub(crate) local_flip: usize,
    pub(crate) bytes: usize,
    pub(crate) remote: Arc<RemoteRegion<W>>,
    pub(crate) offset: usize,
    /// Bytes to add to the offset in firings with an odd number.
    pub(crate) flip: usize,
    /// The part of a ring, from 0, with which it is posted.
    pub(crate) stage: u32,
    /// The number of the rail by which it goes; 0 is the engine's own endpoint.
    pub(super) rail: usize,
}

// SAFETY: only the thread that holds the engine passes the pointer to the wire; by `NicQueue::prepare`, any thread may
// access the memory there.
unsafe impl<W: Wire> Send for ScriptPiece<W> {}
// SAFETY: as above; a shared piece allows no more than to read its fields.
unsafe impl<W: Wire> Sync for ScriptPiece<W> {}

/// The word that a queue's programs signal to, and the notice that poisons it.
pub(super) struct SignalWord<W: Wire> {
    pub(super) word: (Arc<RemoteRegion<W>>, usize),
    /// What the word counts before the first firing.
    pub(super) first: u64,
    pub(super) poison: u64,
}

impl<W: Wire> Clone for SignalWord<W> {
    fn clone(&self) -> Self {
        SignalWord {
            word: self.word.clone(),
            first: self.first,
            poison: self.poison,
        }
    }
}

/// A program, ready to be fired.
pub(crate) struct Script<W: Wire> {
    /// The last piece is a write, if there is one, because that brings the notice along, unless there are requests.
    pub(crate) pieces: Vec<ScriptPiece<W>>,
    pub(super) rows: Vec<Row>,
    /// How many pieces there are up to the last one that asks for data; 0 if there is none. It is stored because each
    /// post needs it, and there may be very many pieces.
    pub(super) asks: usize,
    /// How many parts the signal has, if each piece brings a part: at least two.
    pub(super) parts: Option<usize>,
    pub(super) longest: u64,
    pub(super) signal: u64,
    /// What the word counts before the queue's first firing.
    pub(crate) first: u64,
    pub(crate) poison: u64,
    /// The word of the signal and of the poison.
    pub(crate) word: (Arc<RemoteRegion<W>>, usize),
    /// The requests for the peer to update elements. They go after all pieces, and replace the signal.
    pub(super) requests: Option<Requests<W>>,
    pub(super) _keep: Vec<Keep>,
}

impl<W: Wire> Script<W> {
    /// How many bytes all pieces move.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes as u64).sum()
    }

    /// How many bytes the longest operation has.
    pub(super) fn longest(&self) -> u64 {
        self.longest
    }

    /// The notice of a firing.
    pub(super) fn notice(&self, firing: u64) -> u64 {
        numbered(self.signal, self.first.wrapping_add(firing))
    }

    /// The notice that each piece of a firing brings, if all bring parts of the signal.
    pub(super) fn part(&self, firing: u64) -> Option<u64> {
        self.parts.map(|parts| one_of(self.notice(firing), parts))
    }

    /// The word that its signal goes to.
    pub(super) fn signalled(&self) -> SignalWord<W> {
        SignalWord {
            word: self.word.clone(),
            first: self.first,
            poison: self.poison,
        }
    }
}

pub(crate) fn script<W: Wire>(prepared: &Prepared) -> &Script<W> {
    prepared
        .0
        .downcast_ref()
        .expect("core arms what this NIC has prepared")
}

impl<W: Wire> Script<W> {
    /// `line` finds this end's mail for the queue.
    ///
    /// # Safety
    ///
    /// As for `NicQueue::prepare`.
    pub(crate) unsafe fn new(
        program: Program,
        limits: Limits,
        gathers: bool,
        line: impl FnOnce() -> Option<(Arc<Mail>, usize)>,
    ) -> Result<Self, NicError> {
        let mut cut = Cut {
            most: if gathers {
                limits.bytes.min(STEP)
            } else {
                limits.bytes
            },
            gathered: if gathers { limits.bytes.min(PIECE) } else { 0 },
            pieces: Vec::new(),
            rows: Vec::new(),
        };
        let mut updates = Vec::new();
        for transfer in &program.transfers {
            if transfer.action == Action::Copy {
                // SAFETY: the caller's promise.
                unsafe { cut.transfer(transfer) }?;
            } else {
                updates.push(transfer);
            }
        }
        let Cut {
            mut pieces, rows, ..
        } = cut;
        let writes = |piece: &ScriptPiece<W>| piece.direction == Direction::Put;
        let mut parts = None;
        let requests = match &updates[..] {
            [] => None,
            _ if !gathers => {
                return Err(NicError::Unsupported {
                    nic: NAME,
                    what: "updates of another node's memory by hardware (with TIDEGATE_ENGINE=software, its agent makes them)".into(),
                });
            }
            updates => {
                let word_in = resolve::<W>(&program.signal.word)?;
                let offset = program.signal.word.offset;
                // SAFETY: the caller's promise.
                Some(unsafe { Requests::new(updates, (&word_in, offset), line) }?)
            }
        };
        // Hardware makes whole signals by itself.
        if gathers && requests.is_none() && pieces.iter().all(writes) {
            // It is worth more that all pieces bring parts than that they are cut into stripes.
            if striped(&pieces) <= Notice::PARTS {
                pieces = stripes(pieces);
            }
            parts = Some(pieces.len()).filter(|parts| (2..=Notice::PARTS).contains(parts));
        }
        if parts.is_none()
            && let Some(write) = pieces.iter().rposition(writes)
        {
            let last = pieces.len() - 1;
            pieces.swap(write, last);
        }
        let (word, bell) = (&program.signal.word, &program.signal.bell);
        if bell.offset != 0 {
            return Err(NicError::Unsupported {
                nic: NAME,
                what: "a bell that does not begin its registration".into(),
            });
        }
        let (word_in, bell_in) = (resolve::<W>(word)?, resolve::<W>(bell)?);
        let notice = |poison| {
            Notice {
                bell: bell_in.number,
                word: word_in.number,
                offset: word.offset,
                number: 0,
                further: None,
                one_of: None,
                poison,
            }
            .encode()
        };
        let longest = pieces.iter().map(|piece| piece.bytes as u64).max();
        let longest = longest.max(requests.as_ref().map(|_| ROOM as u64));
        Ok(Script {
            asks: asks(&pieces),
            longest: longest.unwrap_or(0),
            pieces,
            rows,
            parts,
            signal: notice(false)?,
            first: program.signal.first,
            poison: notice(true)?,
            word: (word_in.clone(), word.offset),
            requests,
            _keep: program.keep,
        })
    }
}

impl<W: Wire> ScriptPiece<W> {
    /// Its address here, in a firing with an `odd` number or not. It must be contiguous here.
    pub(super) fn at(&self, odd: bool) -> *mut u8 {
        debug_assert!(self.rows.is_empty(), "it is to be gathered");
        let flip = if odd { self.local_flip } else { 0 };
        self.local.wrapping_add(flip)
    }

    /// The operation for this piece by this rail, with its bytes at `local`.
    pub(super) fn op(
        &self,
        rail: usize,
        odd: bool,
        local: *mut u8,
        notice: Option<u64>,
    ) -> Op<'_, W::Remote> {
        let (remote, bytes) = (self.remote.by(rail), self.bytes);
        let offset = self.offset + if odd { self.flip } else { 0 };
        match self.direction {
            Direction::Put => Op::Write {
                from: local.cast_const(),
                bytes,
                to: remote,
                offset,
                notice,
            },
            Direction::Get => Op::Read {
                to: local,
                bytes,
                from: remote,
                offset,
            },
        }
    }

    /// How many stripes it is cut into. A long piece that is contiguous at both ends gets one for each rail to its
    /// peer.
    fn stripes(&self) -> usize {
        if self.bytes > LONG && self.rows.is_empty() {
            1 + self.remote.rails.len()
        } else {
            1
        }
    }
}

/// How many pieces there are up to the last one that asks for data.
fn asks<W: Wire>(pieces: &[ScriptPiece<W>]) -> usize {
    let asks = |piece: &ScriptPiece<W>| piece.direction == Direction::Get;
    pieces.iter().rposition(asks).map_or(0, |last| last + 1)
}

/// How many pieces there are after they are cut into stripes.
fn striped<W: Wire>(pieces: &[ScriptPiece<W>]) -> usize {
    pieces.iter().map(ScriptPiece::stripes).sum()
}

/// Cuts pieces into stripes.
fn stripes<W: Wire>(pieces: Vec<ScriptPiece<W>>) -> Vec<ScriptPiece<W>> {
    let mut cut = Vec::with_capacity(striped(&pieces));
    for piece in pieces {
        let stripes = piece.stripes();
        if stripes == 1 {
            cut.push(piece);
            continue;
        }
        let each = piece.bytes.div_ceil(stripes).next_multiple_of(PAGE);
        // The engine's own stripe comes last, because its post takes a while, and the other rails work meanwhile.
        for rail in (0..stripes).rev() {
            let from = rail * each;
            cut.push(ScriptPiece {
                rows: 0..0,
                local: piece.local.wrapping_add(from),
                bytes: each.min(piece.bytes - from),
                remote: piece.remote.clone(),
                offset: piece.offset.wrapping_add(from),
                rail,
                ..piece
            });
        }
    }
    cut
}

/// Cuts transfers into pieces.
struct Cut<W: Wire> {
    /// The most bytes of a piece that is contiguous here.
    most: usize,
    /// The most bytes of a piece that is not: 0 if nothing gathers.
    gathered: usize,
    pieces: Vec<ScriptPiece<W>>,
    rows: Vec<Row>,
}

impl<W: Wire> Cut<W> {
    /// # Safety
    ///
    /// As for `NicQueue::prepare`, for the transfer.
    unsafe fn transfer(&mut self, transfer: &Transfer) -> Result<(), NicError> {
        let remote = resolve::<W>(&transfer.remote.base)?;
        let size = transfer.size as isize;
        let (local, there) = (&transfer.local, &transfer.remote);
        // Pieces from here on may grow.
        let mut open = self.pieces.len();
        let mut each = |here: isize, away: isize, count: usize| {
            let bytes = count * transfer.size as usize;
            // This is within the sides, by the caller's promise.
            let at = local.base.0.wrapping_offset(here * size);
            let offset = there.base.offset.wrapping_add_signed(away * size);
            let is_short = bytes < SHORT;
            if is_short && self.goes_on(open, at, offset, bytes) {
                return;
            }
            for from in (0..bytes).step_by(self.most) {
                self.pieces.push(ScriptPiece {
                    direction: transfer.direction,
                    rows: 0..0,
                    local: at.wrapping_add(from),
                    local_flip: local.flip,
                    bytes: self.most.min(bytes - from),
                    remote: remote.clone(),
                    offset: offset.wrapping_add(from),
                    flip: there.flip,
                    stage: transfer.stage,
                    rail: 0,
                });
            }
            if !is_short {
                open = self.pieces.len();
            }
        };
        // SAFETY: index tables are live, by the caller's promise.
        unsafe { for_each_run(&local.shape, &there.shape, transfer.count, &mut each) };
        Ok(())
    }

    /// Adds a stretch to the last piece, if that is at or after `open`, and ends at the peer where the stretch begins.
    fn goes_on(&mut self, open: usize, at: *mut u8, offset: usize, bytes: usize) -> bool {
        let Some(last) = self.pieces[open..].last_mut() else {
            return false;
        };
        if last.offset.wrapping_add(last.bytes) != offset || last.bytes + bytes > self.gathered {
            return false;
        }
        if last.rows.is_empty() {
            let first = self.rows.len();
            last.rows = first..first;
            rows::add(&mut self.rows, first, last.local, last.bytes);
        }
        rows::add(&mut self.rows, last.rows.start, at, bytes);
        last.rows.end = self.rows.len();
        last.bytes += bytes;
        true
    }
}

#[cfg(test)]
mod tests;
