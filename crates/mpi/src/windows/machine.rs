//! The machine: every call of MPI, with the state that it needs, under one lock.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::Arc;

use mpi::ffi;
use tidegate_hal::batch::{Op, POISON, Scalar};
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::{BusError, MAILBOX, Piece, Update};
use tidegate_hal::memory::Ptr;
use tidegate_words::Word;

use super::call::{bits, byte, check, failed, op, scalar};
use super::messages::{HEAD, LONGEST, Messages, PIECE_HEAD};
use super::names::{FarPlace, Names};
use super::options::Form;
use super::ranks::Ranks;
use super::segment::{InUse, Segment};
use crate::calls::call;

/// MPI counts with an `int`.
const MOST: usize = 1 << 30;

/// The kinds of messages.
const ADDS: u64 = 0;
const POISONS: u64 = 1;
const LAST: u64 = 2;
/// The bit of a header at which the number of words begins; the kind is below it.
const WORDS: u32 = 8;

/// This rank's state for calls of MPI.
pub(super) struct Machine {
    pub(super) ranks: Arc<Ranks>,
    pub(super) segments: Vec<Segment>,
    pub(super) names: Names,
    pub(super) in_use: InUse,
    pub(super) messages: Messages,
    pub(super) form: Form,
    /// Segments and ranks with operations that have not been flushed.
    dirty: Vec<(usize, usize)>,
    /// Small data that is sent with the next signal to a rank.
    along: Vec<(usize, Vec<u64>)>,
    /// Words that were poisoned already.
    poisoned: BTreeSet<usize>,
    /// Ranks to which messages were sent, and ranks that have said that they send no more.
    told: BTreeSet<usize>,
    left: BTreeSet<usize>,
    /// The value that is added to a mailbox. It stays at its address, since a failed call may still read it.
    operand: Box<u64>,
    /// Why no more operations begin.
    pub(super) closed: Option<BusError>,
    /// MPI has ended, so no more calls of it are made.
    pub(super) ended: bool,
}

// SAFETY: handles of MPI are valid on all threads (`MPI_THREAD_MULTIPLE`, which `open` asks for). The pointers are to
// memory of this process that belongs to them.
unsafe impl Send for Machine {}

impl Machine {
    pub(super) fn new(ranks: Ranks, names: Names, messages: Messages) -> Self {
        Machine {
            ranks: Arc::new(ranks),
            segments: Vec::new(),
            names,
            in_use: InUse::default(),
            messages,
            form: Form::Measured,
            dirty: Vec::new(),
            along: Vec::new(),
            poisoned: BTreeSet::new(),
            told: BTreeSet::new(),
            left: BTreeSet::new(),
            operand: Box::default(),
            closed: None,
            ended: false,
        }
    }

    #[inline]
    pub(super) fn open(&self) -> Result<(), BusError> {
        match &self.closed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// After an error nothing is tried again. It is unknown how much of a failed operation was done, and MPI need not
    /// report an error twice.
    #[inline]
    fn once<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, BusError>,
    ) -> Result<T, BusError> {
        self.open()?;
        let outcome = call(self);
        if let Err(error) = &outcome {
            self.closed.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    #[inline]
    fn begun(&mut self, place: FarPlace) {
        let at = (place.segment, place.rank);
        if !self.dirty.contains(&at) {
            self.dirty.push(at);
        }
    }

    /// The far address of a rank's part of a segment.
    pub(super) fn name(&mut self, segment: usize, rank: usize) -> Result<Ptr, DeviceError> {
        let held = &mut self.segments[segment];
        match held.names[rank] {
            Some(part) => Ok(part),
            None => {
                let part = self.names.deal(segment, rank, held.bytes[rank])?;
                Ok(*held.names[rank].insert(part))
            }
        }
    }

    fn window(&self, place: FarPlace) -> ffi::MPI_Win {
        self.segments[place.segment].window
    }

    /// # Safety
    ///
    /// As `Bus::put` and `Bus::get`.
    pub(super) unsafe fn copy(&mut self, pieces: &[Piece], put: bool) -> Result<(), BusError> {
        self.once(|machine| {
            // SAFETY: the caller's promise.
            if put && machine.form == Form::Messages && unsafe { machine.take_along(pieces) } {
                return Ok(());
            }
            for piece in pieces {
                // SAFETY: as above.
                unsafe { machine.copy_one(piece, put) }?;
            }
            match pieces.first() {
                Some(piece) if !put => machine.flush(machine.names.resolve(piece.far).rank),
                _ => Ok(()),
            }
        })
    }

    /// # Safety
    ///
    /// As [`Machine::copy`].
    unsafe fn copy_one(&mut self, piece: &Piece, put: bool) -> Result<(), BusError> {
        let mut at = 0;
        while at < piece.bytes {
            let place = self.names.resolve(piece.far.byte_add(at));
            let (local, count) = (piece.local.byte_add(at).0, (piece.bytes - at).min(MOST));
            let (rank, there) = (place.rank as c_int, place.at as ffi::MPI_Aint);
            let (n, window, byte) = (count as c_int, self.window(place), byte());
            // SAFETY: both sides are live for this many bytes, and nobody else uses them (the caller's promise). The
            // window is live, and this rank has locked it.
            let code = unsafe {
                if put {
                    ffi::MPI_Put(local.cast(), n, byte, rank, there, n, byte, window)
                } else {
                    ffi::MPI_Get(local.cast(), n, byte, rank, there, n, byte, window)
                }
            };
            check(if put { "MPI_Put" } else { "MPI_Get" }, code)?;
            self.begun(place);
            at += count;
        }
        Ok(())
    }

    /// Packs small data into the message that will carry its signal. Returns whether there was room for all of it.
    ///
    /// # Safety
    ///
    /// As `Bus::put`.
    unsafe fn take_along(&mut self, pieces: &[Piece]) -> bool {
        let words = |piece: &Piece| PIECE_HEAD + piece.bytes.div_ceil(8);
        let more = pieces.iter().map(words).fold(0, usize::saturating_add);
        let Some(first) = pieces.first() else {
            return true;
        };
        let rank = self.names.resolve(first.far).rank;
        let index = self.along.iter().position(|(other, _)| *other == rank);
        let used = index.map_or(HEAD, |index| self.along[index].1.len());
        if more > LONGEST - used {
            return false;
        }
        let index = index.unwrap_or_else(|| {
            let mut message = self.messages.buffer();
            message.resize(HEAD, 0);
            self.along.push((rank, message));
            self.along.len() - 1
        });
        let message = &mut self.along[index].1;
        for piece in pieces {
            let Some((round, at)) = self.in_use.block_of(piece.far) else {
                return false;
            };
            message.extend([u64::from(round), at as u64, piece.bytes as u64]);
            let from = message.len();
            message.resize(from + piece.bytes.div_ceil(8), 0);
            // SAFETY: the source is live for this many bytes (the caller's promise), and there is room for them now.
            unsafe {
                let to = message[from..].as_mut_ptr().cast::<u8>();
                to.copy_from_nonoverlapping(piece.local.0, piece.bytes);
            }
        }
        true
    }

    /// # Safety
    ///
    /// As `Bus::update`.
    pub(super) unsafe fn update(
        &mut self,
        update: Update,
        of: Scalar,
        far: Ptr,
        local: Ptr,
        count: usize,
    ) -> Result<(), BusError> {
        let size = of.bytes();
        let most = MOST / size;
        if let Update::Accumulate(Op::Keep) = update {
            // MPI_Accumulate does not take MPI_NO_OP.
            return self.open();
        }
        self.once(|machine| {
            for first in (0..count).step_by(most) {
                let n = (count - first).min(most);
                let at = |ptr: Ptr| ptr.byte_add(first * size).0;
                let place = machine.names.resolve(Ptr(at(far)));
                // SAFETY: the caller's promise, for a part of the elements.
                unsafe { machine.update_some(update, of, place, at, local, n) }?;
                machine.begun(place);
            }
            let rank = machine.names.resolve(far).rank;
            match update {
                Update::Accumulate(_) if !machine.ranks.is_near(rank) => Ok(()),
                // No far signal follows to a near rank, which would complete the accumulate.
                Update::Accumulate(_) => {
                    machine.flush(rank)?;
                    machine.sync()
                }
                _ => machine.flush(rank).and_then(|()| machine.sync()),
            }
        })
    }

    /// # Safety
    ///
    /// As `Bus::update`, for `n` elements at `place` and at offset `at` of the local sides.
    unsafe fn update_some(
        &self,
        update: Update,
        of: Scalar,
        place: FarPlace,
        at: impl Fn(Ptr) -> *mut u8,
        local: Ptr,
        n: usize,
    ) -> Result<(), BusError> {
        let (rank, there) = (place.rank as c_int, place.at as ffi::MPI_Aint);
        let (window, kind, c) = (self.window(place), scalar(of), n as c_int);
        let local = at(local);
        // SAFETY: all sides are live for this many elements of the type (the caller's promise). The window is live, and
        // this rank has locked it.
        unsafe {
            match update {
                Update::Accumulate(with) => call!(MPI_Accumulate(
                    local.cast(),
                    c,
                    kind,
                    rank,
                    there,
                    c,
                    kind,
                    op(with),
                    window,
                )),
                Update::Fetch(with, result) if n == 1 => call!(MPI_Fetch_and_op(
                    local.cast(),
                    at(result).cast(),
                    kind,
                    rank,
                    there,
                    op(with),
                    window,
                )),
                Update::Fetch(with, result) => call!(MPI_Get_accumulate(
                    local.cast(),
                    c,
                    kind,
                    at(result).cast(),
                    c,
                    kind,
                    rank,
                    there,
                    c,
                    kind,
                    op(with),
                    window,
                )),
                Update::Swap { compare, result } => {
                    let (kind, size) = (scalar(bits(of)), of.bytes());
                    (0..n).try_for_each(|index| {
                        let by = |ptr: *mut u8| ptr.wrapping_add(index * size).cast();
                        call!(MPI_Compare_and_swap(
                            by(local),
                            by(at(compare)),
                            by(at(result)),
                            kind,
                            rank,
                            there + (index * size) as ffi::MPI_Aint,
                            window,
                        ))
                    })
                }
            }
        }
    }

    /// Orders this process's stores and loads with the operations that come through all windows.
    pub(super) fn sync(&self) -> Result<(), BusError> {
        self.segments.iter().try_for_each(Segment::sync)
    }

    /// Completes all operations to a rank.
    #[inline]
    fn flush(&mut self, rank: usize) -> Result<(), BusError> {
        let mut index = 0;
        while let Some((segment, other)) = self.dirty.get(index).copied() {
            if other != rank {
                index += 1;
                continue;
            }
            // SAFETY: the window is live, and this rank has locked it.
            unsafe { call!(MPI_Win_flush(rank as c_int, self.segments[segment].window)) }?;
            self.dirty.swap_remove(index);
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As `Bus::signal`.
    #[inline]
    pub(super) unsafe fn signal(&mut self, word: Ptr, value: u64) -> Result<(), BusError> {
        self.once(|machine| {
            let place = machine.names.resolve(word);
            machine.flush(place.rank)?;
            machine.sync()?;
            // SAFETY: the caller's promise.
            unsafe { machine.tell(word, place, value, false) }
        })
    }

    /// # Safety
    ///
    /// As `Bus::signal`.
    unsafe fn tell(
        &mut self,
        word: Ptr,
        place: FarPlace,
        value: u64,
        poison: bool,
    ) -> Result<(), BusError> {
        if self.form == Form::Messages {
            let (round, at) = self
                .in_use
                .block_of(word)
                .ok_or_else(|| failed("a word in a block that is not held"))?;
            let index = self.along.iter().position(|(rank, _)| *rank == place.rank);
            let mut message = match index {
                Some(index) => self.along.swap_remove(index).1,
                None => self.messages.buffer(),
            };
            // Data that any stream has put is sent even if the word is poisoned, since this rank was entitled to put
            // it.
            message.resize(message.len().max(HEAD), 0);
            let kind = if poison { POISONS } else { ADDS };
            let words = message.len() as u64;
            message[..HEAD].copy_from_slice(&[
                u64::from(round),
                at as u64,
                value,
                kind | words << WORDS,
            ]);
            self.told.insert(place.rank);
            return self.messages.send(place.rank, message);
        }
        *self.operand = if poison { POISON } else { value };
        let (rank, window) = (place.rank as c_int, self.window(place));
        let (there, kind) = (place.at + MAILBOX, scalar(Scalar::U64));
        // SAFETY: the word has a mailbox of 8 bytes there (the caller's promise), which only MPI writes. The window is
        // live, and this rank has locked it.
        unsafe {
            call!(MPI_Accumulate(
                (&raw const *self.operand).cast(),
                1,
                kind,
                rank,
                there as ffi::MPI_Aint,
                1,
                kind,
                ffi::RSMPI_SUM,
                window,
            ))?;
            call!(MPI_Win_flush(rank, window))
        }
    }

    /// # Safety
    ///
    /// As `Bus::poison`.
    pub(super) unsafe fn poison(&mut self, word: Ptr) -> Result<(), BusError> {
        self.once(|machine| {
            let place = machine.names.resolve(word);
            machine.flush(place.rank)?;
            if machine.poisoned.insert(word.0.addr()) {
                // SAFETY: the caller's promise.
                unsafe { machine.tell(word, place, 0, true) }?;
            }
            Ok(())
        })
    }

    /// Notes a new block at far addresses. Words that were poisoned there before belonged to another block.
    pub(super) fn is_new(&mut self, far: Ptr, bytes: usize) {
        let from = far.0.addr();
        let old: Vec<_> = self.poisoned.range(from..from + bytes).copied().collect();
        for each in old {
            self.poisoned.remove(&each);
        }
    }

    /// Drives MPI, and handles what has come. Returns whether something has.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<bool, BusError> {
        let outcome = self.take_all();
        if let Err(error) = &outcome {
            self.closed.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    fn take_all(&mut self) -> Result<bool, BusError> {
        let mut came = false;
        while self.messages.received()? {
            came = true;
            // SAFETY: the message has come, and the next receive is posted after it has been handled.
            let message = unsafe { self.messages.inbound() };
            self.take(message)?;
            self.messages.post()?;
        }
        Ok(came)
    }

    fn take(&mut self, message: &[u64; LONGEST]) -> Result<(), BusError> {
        let (head, rest) = message.split_at(HEAD);
        let (value, kind) = (head[2], head[3] & ((1 << WORDS) - 1));
        if kind == LAST {
            self.left.insert(value as usize);
            return Ok(());
        }
        let words = (head[3] >> WORDS) as usize;
        let mut data = rest
            .get(..words.saturating_sub(HEAD))
            .ok_or_else(|| failed("a message that is longer than any"))?;
        while let Some((head, more)) = data.split_at_checked(PIECE_HEAD) {
            let bytes = head[2] as usize;
            let (piece, more) = more
                .split_at_checked(bytes.div_ceil(8))
                .ok_or_else(|| failed("a message that is cut off"))?;
            data = more;
            // A message for a block that does not exist any more came too late; nobody waits for it.
            let place = self
                .in_use
                .place_of(head[0] as u32, head[1] as usize, bytes);
            if let Some((segment, at)) = place {
                // SAFETY: the bytes lie within a live block of this rank. This rank has exposed them to the sender, as
                // for data by `MPI_Put`, until the signal that comes with them.
                unsafe {
                    let to = self.segments[segment].base.add(at);
                    to.copy_from_nonoverlapping(piece.as_ptr().cast(), bytes);
                }
            }
        }
        let (round, at) = (head[0] as u32, head[1] as usize);
        let place = self.in_use.place_of(round, at, 8);
        let Some((segment, at)) = place.filter(|(_, at)| at.is_multiple_of(8)) else {
            return Ok(());
        };
        self.sync()?;
        let held = &self.segments[segment];
        // SAFETY: the place is aligned, and lies within a live block of this rank in the segment. A signal names a
        // word, which is only accessed atomically.
        let word = unsafe { &*held.base.add(at).cast::<Word>() };
        match kind {
            POISONS => word.poison(),
            _ => word.add(value),
        }
        Ok(())
    }

    /// Tells all ranks to which messages were sent that there will be no more.
    pub(super) fn say_last(&mut self, me: usize) -> Result<(), BusError> {
        self.open()?;
        for rank in std::mem::take(&mut self.told) {
            if !self.left.contains(&rank) {
                let mut message = self.messages.buffer();
                message.extend([0, 0, me as u64, LAST]);
                self.messages.send_last(rank, message)?;
            }
        }
        Ok(())
    }

    /// Whether all of them have received it, except for ranks that have said so themselves.
    pub(super) fn all_heard(&mut self) -> Result<bool, BusError> {
        self.open()?;
        self.turn()?;
        self.messages.all_sent_but(&self.left)
    }
}
