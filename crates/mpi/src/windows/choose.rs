//! Which form signals have: the one that is faster here.
//!
//! Which that is depends on how an MPI does its accumulates, and nothing that it tells says that. So neighbours play a few rounds of 8 bytes and a signal in each form when the ranks meet, and all ranks take the form with the lesser sum of best times.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::control::Packet;
use tidegate_hal::far::{Bus, CELL, Piece};
use tidegate_hal::memory::Ptr;
use tidegate_words::{State, Word};

use super::bus::{Rma, system};
use super::{Form, JoinError};

/// Rounds of a trial, and trials of a form, of which the best counts.
const ROUNDS: u32 = 30;
const TRIALS: u32 = 6;
/// Whoever waits longer than this for a neighbour waits no more: it is of no use here, and all else has its own end.
const LIMIT: Duration = Duration::from_secs(2);
const FORMS: [Form; 2] = [Form::Words, Form::Messages];

/// What each rank says: how long its best trial took, in ns.
#[derive(Serialize, Deserialize)]
struct Times([u64; FORMS.len()]);

/// Two ranks that take turns.
struct Pair<'a> {
    bus: &'a Rma,
    first: bool,
    own: Ptr,
    there: Ptr,
    operand: u64,
}

/// The form for all ranks. Collective.
pub(super) fn choose(bus: &Rma, rank: usize, size: usize) -> Result<Form, JoinError> {
    let own = bus.alloc(2 * CELL)?;
    let keys = Packet {
        bytes: own.key.clone(),
        handles: Vec::new(),
    };
    let keys = bus.control().exchange("form of signals", keys)?;
    let mut times = Times([0; FORMS.len()]);
    if let Some(key) = keys.get(rank ^ 1).filter(|_| size > 1) {
        let there = bus.reach(&key.bytes, 2 * CELL)?;
        let mut pair = Pair {
            bus,
            first: rank & 1 == 0,
            own: own.base,
            there: there.base,
            operand: 0,
        };
        for (form, best) in FORMS.into_iter().zip(&mut times.0) {
            bus.set_form(form);
            *best = u64::MAX >> 32;
            for _ in 0..TRIALS {
                let took = pair.play()?;
                *best = took.map_or(*best, |took| took.min(*best));
            }
        }
    }
    let packet = Packet {
        bytes: postcard::to_stdvec(&times).expect("plain data can be encoded"),
        handles: Vec::new(),
    };
    let mut sums = [0; FORMS.len()];
    for packet in bus.control().exchange("times of signals", packet)? {
        let times: Times = postcard::from_bytes(&packet.bytes).map_err(system)?;
        sums.iter_mut()
            .zip(times.0)
            .for_each(|(sum, time)| *sum += time);
    }
    let form = FORMS[usize::from(sums[1] < sums[0])];
    tracing::debug!(?form, words = sums[0], messages = sums[1], "signals of MPI");
    Ok(form)
}

impl Pair<'_> {
    /// A trial: ns, unless the neighbour does not answer.
    fn play(&mut self) -> Result<Option<u64>, JoinError> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            if self.first {
                self.send()?;
            }
            if !self.wait(begun) {
                return Ok(None);
            }
            if !self.first {
                self.send()?;
            }
        }
        Ok(Some(begun.elapsed().as_nanos() as u64))
    }

    fn send(&self) -> Result<(), JoinError> {
        let data = 1u64;
        let piece = Piece {
            far: self.there.byte_add(CELL),
            local: Ptr((&raw const data).cast_mut().cast()),
            bytes: size_of_val(&data),
        };
        // SAFETY: the neighbour's block has two cells, of which the second is for this; both blocks are held; the value lives until the signal has completed the put.
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
