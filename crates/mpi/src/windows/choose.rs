//! Chooses the faster form of signals.
//!
//! It depends on how an MPI implements accumulates, and MPI does not tell that. So when the ranks meet, neighbours try
//! a few rounds in each form, with puts of 8 bytes and of 64 KiB. All ranks take the form with the smaller sum of best
//! times.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::far::{Bus, CELL, Piece, Reached, Span};
use tidegate_hal::memory::Ptr;
use tidegate_words::{State, Word};

use super::bus::Rma;
use super::error::JoinError;
use super::options::Form;
use super::tell::tell;

/// Rounds of a trial. Each form has several trials, of which the best counts.
const ROUNDS: u32 = 10;
const TRIALS: u32 = 4;
/// A trial that waits longer for a neighbour is given up. It is not needed, and other waits have their own limits.
const LIMIT: Duration = Duration::from_millis(300);
const FORMS: [Form; 2] = [Form::Words, Form::Messages];
/// Bytes of a large put. A small put counts as much as a large one that takes this many times as long.
const LARGE: usize = 1 << 16;
const WEIGHT: u64 = 4;

/// What each rank reports: the time of its best trial, in ns.
#[derive(Default, Serialize, Deserialize)]
struct Times([u64; FORMS.len()]);

/// Two ranks that take turns.
pub(super) struct Pair<'a> {
    bus: &'a Rma,
    first: bool,
    own: Ptr,
    there: Ptr,
    operand: u64,
    data: Vec<u8>,
}

/// The form for all ranks. Collective.
pub(super) fn choose(bus: &Rma) -> Result<Form, JoinError> {
    if !bus.has_far() {
        return Ok(Form::Words);
    }
    let met = Met::new(bus, CELL + LARGE, "trial of MPI", |_| {})?;
    let times = met.pair().map_or(Ok(Times::default()), trials);
    let mut sums = [0; FORMS.len()];
    for times in tell(bus.control(), "times of MPI", times)? {
        sums.iter_mut()
            .zip(times.0)
            .for_each(|(sum, time)| *sum += time);
    }
    let form = FORMS[usize::from(sums[1] < sums[0])];
    tracing::debug!(?form, ?sums, "signals of MPI");
    Ok(form)
}

fn trials(mut pair: Pair<'_>) -> Result<Times, JoinError> {
    let mut times = Times::default();
    for (form, time) in FORMS.into_iter().zip(&mut times.0) {
        pair.bus.set(form);
        for (bytes, weight) in [(8, WEIGHT), (LARGE, 1)] {
            let mut best = LIMIT.as_nanos() as u64;
            for _ in 0..TRIALS {
                best = pair.play(bytes)?.map_or(best, |took| took.min(best));
            }
            *time += weight * best;
        }
    }
    Ok(times)
}

/// Memory of all ranks for trials, and this rank's mate, if it has one.
pub(super) struct Met<'a> {
    bus: &'a Rma,
    pub(super) own: Span,
    mate: Option<(usize, Reached)>,
}

/// Each rank's report: the lowest rank of its node, and the key of its memory.
#[derive(Serialize, Deserialize)]
struct Mine {
    first_near: usize,
    key: Vec<u8>,
}

impl<'a> Met<'a> {
    /// Makes `bytes` bytes at each rank. The first cell is for a word, and `fill` may write into the rest. Collective.
    pub(super) fn new(
        bus: &'a Rma,
        bytes: usize,
        what: &str,
        fill: impl FnOnce(Ptr),
    ) -> Result<Self, JoinError> {
        let (own, mine) = match bus.alloc(bytes) {
            Ok(own) => {
                fill(own.base.byte_add(CELL));
                let (first_near, key) = (bus.first_near(), own.key.clone());
                let mine = bus.publish().map(|()| Mine { first_near, key });
                (Some(own), mine.map_err(JoinError::from))
            }
            Err(error) => (None, Err(error.into())),
        };
        let all = tell(bus.control(), what, mine)?;
        let nodes: Vec<_> = all.iter().map(|rank| rank.first_near).collect();
        let reach = |rank: usize| Ok((rank, bus.reach(&all[rank].key, bytes)?));
        let mate = mate(&nodes, bus.control().rank());
        let mate: Result<_, JoinError> = mate.map(reach).transpose();
        // Both mates begin, or none.
        let (mate, mine) = match mate {
            Ok(mate) => (mate, Ok(())),
            Err(error) => (None, Err(error)),
        };
        tell(bus.control(), what, mine)?;
        let own = own.expect("it was told so");
        Ok(Met { bus, own, mate })
    }

    /// The mate, and the beginning of its memory.
    pub(super) fn mate(&self) -> Option<(usize, Ptr)> {
        let (rank, there) = self.mate.as_ref()?;
        Some((*rank, there.base))
    }

    /// This rank and its mate.
    pub(super) fn pair(&self) -> Option<Pair<'a>> {
        let (mate, there) = self.mate()?;
        let first = self.bus.control().rank() < mate;
        Some(Pair {
            bus: self.bus,
            first,
            own: self.own.base,
            there,
            operand: 0,
            data: vec![1; LARGE],
        })
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if self.bus.failure().is_some() {
            // MPI may still read it.
            std::mem::forget(std::mem::take(&mut self.data));
        }
    }
}

/// The mate of a rank. It is on another node, so that the two have no memory in common, and mates choose each other.
/// Nodes are named by their lowest rank. They form pairs, in which the first ranks of both are mates, and so on.
fn mate(nodes: &[usize], rank: usize) -> Option<usize> {
    let mut firsts = nodes.to_vec();
    firsts.sort_unstable();
    firsts.dedup();
    let on = |node: usize| (0..nodes.len()).filter(move |rank| nodes[*rank] == node);
    let number = firsts.iter().position(|first| *first == nodes[rank])?;
    let index = on(nodes[rank]).position(|other| other == rank)?;
    on(*firsts.get(number ^ 1)?).nth(index)
}

impl Pair<'_> {
    /// A trial, in ns. `None`: the neighbour does not answer.
    fn play(&mut self, bytes: usize) -> Result<Option<u64>, JoinError> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            if self.first {
                self.send(bytes)?;
            }
            if !self.wait(begun, LIMIT) {
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
        // SAFETY: behind the first cell the neighbour's block is for this trial. Both blocks are held, and the data
        // lives until the signal has completed the put.
        unsafe {
            self.bus.put(&[piece])?;
            self.bus.signal(self.there, QUANTUM)?;
        }
        Ok(())
    }

    /// Waits for the neighbour's next signal, but at most `limit` from `begun` on.
    pub(super) fn wait(&mut self, begun: Instant, limit: Duration) -> bool {
        // SAFETY: the first cell of the live block begins with a word.
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
                if self.bus.failure().is_some() || begun.elapsed() > limit {
                    return false;
                }
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mate;

    #[test]
    fn mates_are_of_two_nodes_and_of_one_mind() {
        let jobs: [&[usize]; 5] = [
            &[0, 1],
            &[0, 0, 2, 2],
            &[0, 1, 0, 1],
            &[0, 0, 2, 3, 3, 3],
            &[0, 1, 2, 0, 1, 2, 0],
        ];
        for nodes in jobs {
            let mates: Vec<_> = (0..nodes.len()).map(|rank| mate(nodes, rank)).collect();
            assert!(mates.iter().any(Option::is_some), "{nodes:?}");
            for (rank, mate) in mates.iter().enumerate() {
                let Some(mate) = *mate else { continue };
                assert_ne!(nodes[mate], nodes[rank], "{nodes:?}");
                assert_eq!(mates[mate], Some(rank), "{nodes:?}");
            }
        }
    }
}
