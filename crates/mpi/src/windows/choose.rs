//! Which form signals have: the one that is faster here.
//!
//! Which that is depends on how an MPI does its accumulates, and nothing that it tells says that; and where all ranks have memory in common, windows that are made shared are faster with one MPI and slower with another. So neighbours play a few rounds in each way when the ranks meet, with puts of 8 bytes and of
//! 64 KiB, and all ranks take the way with the least sum of best times.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::control::Packet;
use tidegate_hal::far::{Bus, CELL, Piece, Reached, Span};
use tidegate_hal::memory::Ptr;
use tidegate_words::{State, Word};

use super::bus::{Rma, system};
use super::{Form, JoinError};

/// Rounds of a trial, and trials of a form, of which the best counts.
const ROUNDS: u32 = 10;
const TRIALS: u32 = 4;
/// Whoever waits longer than this for a neighbour waits no more: it is of no use here, and all else has its own end.
const LIMIT: Duration = Duration::from_millis(300);
/// What is tried: forms, and whether windows are made shared.
const WAYS: [(Form, bool); 4] = [
    (Form::Words, true),
    (Form::Messages, true),
    (Form::Words, false),
    (Form::Messages, false),
];
/// Bytes of a large put. A small one counts as much as this many times as long a large one.
const LARGE: usize = 1 << 16;
const WEIGHT: u64 = 4;

/// What each rank says: how long its best trial took, in ns.
#[derive(Serialize, Deserialize)]
struct Times([u64; WAYS.len()]);

/// Two ranks that take turns.
struct Pair<'a> {
    bus: &'a Rma,
    first: bool,
    own: Ptr,
    there: Ptr,
    operand: u64,
    data: Vec<u8>,
}

/// The form for all ranks, and whether windows are made shared. Collective; what is given is not tried otherwise.
pub(super) fn choose(
    bus: &Rma,
    rank: usize,
    given: Form,
    shared: bool,
) -> Result<(Form, bool), JoinError> {
    // Open MPI 4.1 (`osc/rdma` over `btl/vader`) crashes in a compare-and-swap of windows that are not.
    let always =
        shared && mpi::environment::library_version().is_ok_and(|name| name.contains("Open MPI"));
    let fits = |(form, in_common): (Form, bool)| {
        (given == Form::Measured || given == form)
            && (shared || !in_common)
            && (in_common || !always)
    };
    // Whoever cannot choose, or plays alone, needs no trial.
    let first = WAYS
        .into_iter()
        .find(|way| fits(*way))
        .expect("each form has a way");
    if WAYS.into_iter().filter(|way| fits(*way)).count() == 1 || bus.control().size() == 1 {
        return Ok(first);
    }
    let mut times = Times([0; WAYS.len()]);
    let mut last = None;
    let mut blocks: Option<(Span, Option<Reached>, u64)> = None;
    for (index, (form, in_common)) in WAYS.into_iter().enumerate() {
        if !fits((form, in_common)) {
            continue;
        }
        bus.set(form, in_common);
        if last != Some(in_common) {
            last = Some(in_common);
            let own = bus.alloc_anew(CELL + LARGE)?;
            let keys = Packet {
                bytes: own.key.clone(),
                handles: Vec::new(),
            };
            let keys = bus.control().exchange("trial of MPI", keys)?;
            let key = keys.get(rank ^ 1);
            let there = key.map(|key| bus.reach(&key.bytes, CELL + LARGE));
            blocks = Some((own, there.transpose()?, 0));
        }
        let Some((own, Some(there), operand)) = &mut blocks else {
            continue;
        };
        let mut pair = Pair {
            bus,
            first: rank & 1 == 0,
            own: own.base,
            there: there.base,
            operand: *operand,
            data: vec![1; LARGE],
        };
        for (bytes, weight) in [(8, WEIGHT), (LARGE, 1)] {
            let mut best = u64::MAX >> 40;
            for _ in 0..TRIALS {
                best = pair.play(bytes)?.map_or(best, |took| took.min(best));
            }
            times.0[index] += weight * best;
        }
        *operand = pair.operand;
    }
    drop(blocks);
    let packet = Packet {
        bytes: postcard::to_stdvec(&times).expect("plain data can be encoded"),
        handles: Vec::new(),
    };
    let mut sums = [0; WAYS.len()];
    for packet in bus.control().exchange("times of MPI", packet)? {
        let times: Times = postcard::from_bytes(&packet.bytes).map_err(system)?;
        sums.iter_mut()
            .zip(times.0)
            .for_each(|(sum, time)| *sum += time);
    }
    let tried = WAYS.into_iter().zip(sums).filter(|(way, _)| fits(*way));
    let (form, in_common) = tried
        .min_by_key(|(_, sum)| *sum)
        .expect("some were tried")
        .0;
    tracing::debug!(?form, in_common, ?sums, "signals of MPI");
    Ok((form, in_common))
}

impl Pair<'_> {
    /// A trial: ns, unless the neighbour does not answer.
    fn play(&mut self, bytes: usize) -> Result<Option<u64>, JoinError> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            if self.first {
                self.send(bytes)?;
            }
            if !self.wait(begun) {
                return Ok(None);
            }
            if !self.first {
                self.send(bytes)?;
            }
        }
        Ok(Some(begun.elapsed().as_nanos() as u64))
    }

    fn send(&self, bytes: usize) -> Result<(), JoinError> {
        let piece = Piece {
            far: self.there.byte_add(CELL),
            local: Ptr(self.data.as_ptr().cast_mut()),
            bytes,
        };
        // SAFETY: behind the first cell the neighbour's block is for this; both blocks are held; the data lives until the signal has completed the put.
        unsafe {
            self.bus.put(&[piece])?;
            self.bus.signal(self.there, QUANTUM)?;
        }
        Ok(())
    }

    fn wait(&mut self, begun: Instant) -> bool {
        // SAFETY: the first cell of the block, which is alive, begins with a word.
        let word = unsafe { &*self.own.0.cast::<Word>() };
        let mut looks = 0u32;
        loop {
            // SAFETY: as above.
            unsafe { self.bus.look(self.own) };
            if word.look(self.operand, QUANTUM) == State::Reached {
                self.operand += QUANTUM;
                return true;
            }
            looks += 1;
            if looks.is_multiple_of(self.bus.looks()) {
                self.bus.turn();
            }
            if looks.is_multiple_of(64) {
                if self.bus.failure().is_some() || begun.elapsed() > LIMIT {
                    return false;
                }
                std::thread::yield_now();
            }
        }
    }
}
