//! Updates of a peer's elements, as the requests that ask the peer's engine to make them: see [`crate::mail`].

use std::sync::Arc;

use tidegate_hal::batch::Action;
use tidegate_hal::nic::{NicError, Transfer};
use tidegate_host::for_each_run;

use crate::base::NAME;
use crate::mail::{HEAD, Letter, Mail, ROOM, STEP, code_of, padded};
use crate::remote::{RemoteRegion, resolve};
use crate::wire::Wire;

/// Bytes that lie side by side here and in a letter.
struct Stretch {
    here: *mut u8,
    /// Their offset in the letter.
    at: usize,
    bytes: usize,
}

// SAFETY: only the thread that holds the engine uses the pointer; by `NicQueue::prepare`, any thread may access the
// memory there.
unsafe impl Send for Stretch {}
// SAFETY: as above; a shared stretch allows no more than to read its fields.
unsafe impl Sync for Stretch {}

/// One request.
#[derive(Default)]
pub(super) struct Request {
    /// Its bytes, without the operands and what each firing writes anew.
    form: Vec<u8>,
    operands: Vec<Stretch>,
    /// Where the old values go.
    results: Vec<Stretch>,
    /// The bytes of the answer.
    answer: usize,
    steps: u32,
}

/// The requests of a program, in order, and the memory that they and their answers go to.
pub(super) struct Requests<W: Wire> {
    pub(super) all: Vec<Request>,
    /// The peer's mail, the notice of the word there, and the offset of the room.
    pub(super) to: Arc<RemoteRegion<W>>,
    pub(super) notice: u64,
    pub(super) room: usize,
    /// This end's mail, and the line to the peer.
    pub(super) mail: Arc<Mail>,
    pub(super) line: usize,
    /// Whether any of them returns old values.
    pub(super) fetch: bool,
}

fn unsupported(what: &str) -> NicError {
    NicError::Unsupported {
        nic: NAME,
        what: what.into(),
    }
}

impl<W: Wire> Requests<W> {
    /// The requests for these updates of a program that signals the word `signalled`. `line` finds this end's mail.
    ///
    /// # Safety
    ///
    /// As for `NicQueue::prepare`.
    pub(super) unsafe fn new(
        updates: &[&Transfer],
        (memory, word): (&Arc<RemoteRegion<W>>, usize),
        line: impl FnOnce() -> Option<(Arc<Mail>, usize)>,
    ) -> Result<Self, NicError> {
        let there = memory.mail.as_ref();
        let there = there.and_then(|mail| Some((mail, mail.place(word, Letter::Request)?)));
        let (Some((there, (notice, _, room))), Some((mail, line))) = (there, line()) else {
            return Err(unsupported(
                "updates of memory that the two ranks have not opened for them (both must reach each other by the NIC)",
            ));
        };
        let mut all = vec![Request::begin()];
        for update in updates {
            if !Arc::ptr_eq(memory, &resolve::<W>(&update.remote.base)?) {
                return Err(unsupported(
                    "updates of other memory than that of the signal",
                ));
            }
            // SAFETY: the caller's promise.
            unsafe { add(&mut all, update) }?;
        }
        for request in &mut all {
            request.end();
        }
        Ok(Requests {
            fetch: all.iter().any(|request| request.answer > 0),
            all,
            to: there.region.clone(),
            notice,
            room,
            mail,
            line,
        })
    }
}

/// Adds an update to the last request, and to new ones behind it.
///
/// # Safety
///
/// As for `NicQueue::prepare`.
unsafe fn add(all: &mut Vec<Request>, update: &Transfer) -> Result<(), NicError> {
    let Some(code) = code_of(update.action) else {
        return Err(unsupported("counts that only the stream knows"));
    };
    if update.local.flip != 0 || update.remote.flip != 0 || update.stage != 0 {
        return Err(unsupported("updates of memory with two buffers"));
    }
    let size = update.size as usize;
    let (compare, result) = match update.action {
        Action::FetchOp { result, .. } => (None, Some(result)),
        Action::CompareSwap {
            compare, result, ..
        } => (Some(compare), Some(result)),
        _ => (None, None),
    };
    let each = 1 + usize::from(compare.is_some());
    // Comparands and results are side by side, in the order of the elements.
    let mut element = 0;
    let run = |here: isize, away: isize, count: usize| {
        let mut from = 0;
        while from < count {
            let request = all.last_mut().expect("one is open");
            let room = (ROOM - request.form.len()).saturating_sub(STEP) / each;
            let some = ((room & !7) / size).min(count - from);
            if some == 0 {
                all.push(Request::begin());
                continue;
            }
            let bytes = some * size;
            let first = from as isize;
            let offset = update.remote.base.offset as isize + (away + first) * size as isize;
            request.step(offset as u64, some as u32, code);
            if let Some(compare) = compare {
                request.operand(compare.0.wrapping_add(element * size), bytes);
            }
            let operand = update.local.base.0;
            request.operand(
                operand.wrapping_offset((here + first) * size as isize),
                bytes,
            );
            if let Some(result) = result {
                request.result(result.0.wrapping_add(element * size), bytes);
            }
            (from, element) = (from + some, element + some);
        }
    };
    let (here, there) = (&update.local.shape, &update.remote.shape);
    // SAFETY: index tables are live, by the caller's promise.
    unsafe { for_each_run(here, there, update.count, run) };
    Ok(())
}

impl Request {
    fn begin() -> Self {
        Request {
            form: vec![0; HEAD],
            ..Request::default()
        }
    }

    fn step(&mut self, offset: u64, count: u32, code: u32) {
        self.form.extend(offset.to_ne_bytes());
        let what = u64::from(count) | u64::from(code) << 32;
        self.form.extend(what.to_ne_bytes());
        self.steps += 1;
    }

    fn operand(&mut self, here: *mut u8, bytes: usize) {
        let at = self.form.len();
        self.operands.push(Stretch { here, at, bytes });
        self.form.resize(at + padded(bytes), 0);
    }

    fn result(&mut self, here: *mut u8, bytes: usize) {
        let at = self.answer;
        self.results.push(Stretch { here, at, bytes });
        self.answer += padded(bytes);
    }

    fn end(&mut self) {
        let sizes = u64::from(self.steps) | (self.answer as u64) << 32;
        self.form[16..HEAD].copy_from_slice(&sizes.to_ne_bytes());
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.form.len()
    }

    /// Writes the request with this number. `notice` is what the peer carries out behind it, or 0.
    ///
    /// # Safety
    ///
    /// `to` has as many bytes, which nobody else accesses. The operands may be read.
    pub(super) unsafe fn write(&self, number: u64, notice: u64, to: *mut u8) {
        // SAFETY: the caller's promise; operands lie within the form.
        unsafe {
            to.copy_from_nonoverlapping(self.form.as_ptr(), self.form.len());
            to.cast::<u64>().write_unaligned(number);
            to.cast::<u64>().add(1).write_unaligned(notice);
            for Stretch { here, at, bytes } in &self.operands {
                to.add(*at).copy_from_nonoverlapping(*here, *bytes);
            }
        }
    }

    /// Takes the old values from the answer.
    ///
    /// # Safety
    ///
    /// The answer has come to `from`, and the results may be written.
    pub(super) unsafe fn read(&self, from: *const u8) {
        for Stretch { here, at, bytes } in &self.results {
            // SAFETY: the caller's promise; an answer has as many bytes.
            unsafe { here.copy_from_nonoverlapping(from.add(*at), *bytes) };
        }
    }
}
