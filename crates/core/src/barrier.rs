//! A barrier on the stream.
//!
//! # Model
//!
//! What is enqueued behind a barrier on any rank comes after what was enqueued before it on every rank. The host does
//! not wait. It is a dissemination barrier: in round k a rank tells the rank 2^k further on, and waits for the one 2^k
//! before; after `log2(size)` rounds, rounded up, everybody has heard of everybody. All rounds are one lane of one
//! batch.
//!
//! A barrier orders work; it moves no data, and it does not say that puts have arrived: epochs say that.
//!
//! # Failure
//!
//! As a window's: the wait ends with the death or departure of a rank, with an error that names the barrier as the window;
//! or because a rank could not create its part of it.

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::batch::{Add, Awaited, Batch, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::{Device, Reclaim, Stream as _};
use tidegate_hal::far;
use tidegate_hal::memory::{Block as _, Sharing};

use crate::capture::{Carry, Visitor};
use crate::error::{Cause, Error, Result};
use crate::place::Brand;
use crate::region::{ReclaimOf, fresh_id};
use crate::stream::Stream;
use crate::window::myself::Side;
use crate::world::{Watched, World};

/// Bytes of a round's word and operand: a cache line.
const CELL: usize = 64;
const _: () = assert!(CELL == far::CELL && 2 * size_of::<u64>() <= far::MAILBOX);

/// A barrier is no two halves, but one piece: it stands for the first.
const PIECE: &[Side] = &[Side::Inbox];

/// A barrier of all ranks, at home on stream `'s`.
pub struct Barrier<'s, D: Device> {
    body: Body<D>,
    brand: PhantomData<Brand<'s>>,
}

/// What the batch points into.
struct Words<D: Device> {
    _there: Vec<D::Block>,
    _here: Arc<Watched<D>>,
}

struct Body<D: Device> {
    id: u64,
    world: World<D>,
    home: Arc<ReclaimOf<D>>,
    window: Arc<Watched<D>>,
    /// The words of this rank and of those that it tells; moved to the stream's reclaimer at the end.
    words: Option<Words<D>>,
    batch: Arc<Batch>,
}

impl<D: Device> Drop for Body<D> {
    fn drop(&mut self) {
        if !self.world.process().is_this() {
            return std::mem::forget(self.words.take());
        }
        self.world.drops(self.window.id, PIECE);
        // Barriers in the queue still use the words.
        if let Some(words) = self.words.take() {
            self.home.retire(Box::new(words));
        }
    }
}

impl<'s, D: Device> Barrier<'s, D> {
    /// Creates a barrier. Collective over all ranks of the job.
    ///
    /// # Errors
    ///
    /// [`Error::WindowMismatch`], on all ranks alike, if they create barriers of different names; [`Error::NameTaken`],
    /// on all ranks alike, if one of them holds a barrier of this name; [`Error::Control`],
    /// [`Error::Device`] (the others get `WindowMismatch`, if this rank has no memory for its words), [`Error::Capturing`]; [`Error::Invalid`] if there is no way to a rank. The others find the
    /// barrier revoked where only this rank could not create it.
    pub fn open(stream: &Stream<'s, D>, name: &str) -> Result<Self> {
        stream.not_capturing("creating a barrier")?;
        let world = stream.world();
        let (rank, size) = (world.rank(), world.size());
        let name: Arc<str> = name.into();
        let collective = world.collective(format!("opening barrier `{name}`"))?;
        let rounds = size.next_power_of_two().trailing_zeros() as usize;
        let bytes = CELL * rounds.max(1);
        let own = world.device().alloc(bytes, Sharing::Peers);
        let (own, said) = match own.and_then(|block| Ok((block.share()?, block))) {
            Ok((handle, block)) => (Some(Arc::new(block)), Ok(((), vec![handle]))),
            Err(error) => (None, Err(error.into())),
        };
        let (which, mut all) = collective.begin("opening a barrier", &name, said)?;
        let own = own.expect("who has failed gets its own error");
        let id = which.number;

        let mut connect = || -> Result<_> {
            let mut blocks = Vec::new();
            let (mut words, mut steps) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                let (to, from) = (
                    (rank + (1 << round)) % size,
                    (rank + size - (1 << round)) % size,
                );
                let no_way = || {
                    Error::Invalid(format!(
                        "barrier `{name}`: there is no transport to rank {to}"
                    ))
                };
                let handle = all[to].1.pop().ok_or_else(no_way)?;
                let bell = world.bell(to).ok_or_else(no_way)?;
                let there = world.device().map(handle, bytes)?;
                let (cell, word) = (round * CELL, own.base().byte_add(round * CELL));
                steps.push(Step::Add(Add {
                    word: there.base().byte_add(cell),
                    value: QUANTUM,
                    bell,
                }));
                let tag = Tag {
                    window: id,
                    peer: from as u32,
                    awaited: Awaited::Barrier,
                };
                steps.push(Step::Wait(Wait {
                    word,
                    operand: word.byte_add(size_of::<u64>()),
                    quantum: QUANTUM,
                    tag,
                    landed: None,
                }));
                words.push((word, from));
                blocks.push(there);
            }
            Ok((blocks, words, steps))
        };
        let (blocks, words, steps) = connect().inspect_err(|error| {
            // The others may have theirs, and wait in it for this rank.
            let reason = error.to_string();
            world.revoke_unborn(id, Cause::NotCreated { rank, reason });
        })?;
        let window = Arc::new(Watched::new(name.clone(), id, words, own, 1, None));
        world.watch_window(&window);
        world.holds(id, PIECE);
        drop(collective);
        // SAFETY: the words lie in `blocks` and in the window's block, which are retired in stream order; only this stream
        // advances the operands.
        let batch = Arc::new(unsafe { Batch::new([steps], Vec::new()) });
        let home = stream.raw().reclaim().clone();
        let words = Some(Words {
            _there: blocks,
            _here: window.clone(),
        });
        let body = Body {
            id: fresh_id(),
            world: world.clone(),
            home,
            window,
            words,
            batch,
        };
        Ok(Barrier {
            body,
            brand: PhantomData,
        })
    }

    /// Enqueues the barrier.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`], or what made the stream fail.
    pub fn enqueue(&mut self, stream: &Stream<'s, D>) -> Result<()> {
        self.body.window.usable()?;
        stream.healthy()?;
        // SAFETY: as promised where the batch was made; the blocks live until the stream has passed it.
        unsafe { stream.raw().submit(&self.body.batch) }?;
        Ok(())
    }
}

// SAFETY: the one leaf is visited; the brand's marker is the only mention of it.
unsafe impl<'s, D: Device> Carry<'s, D> for Barrier<'s, D> {
    type At<'t> = Barrier<'t, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        visitor.leaf(self.body.id, &mut self.body.home, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tidegate_host::Host;

    #[test]
    fn nobody_passes_before_everybody_has_come() {
        static ARRIVED: AtomicUsize = AtomicUsize::new(0);
        for size in [1, 2, 3, 5, 8] {
            ARRIVED.store(0, Ordering::Relaxed);
            World::<Host>::local(size, |world| {
                crate::stream!(let s = world.stream().unwrap());
                let mut barrier = Barrier::open(&s, "b").unwrap();
                let mut nothing = Region::<u8, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
                for round in 1..=50 {
                    let arrive = |_: &mut [u8]| {
                        ARRIVED.fetch_add(1, Ordering::SeqCst);
                    };
                    s.launch(arrive, &mut nothing).unwrap();
                    barrier.enqueue(&s).unwrap();
                    let check =
                        move |_: &mut [u8]| assert!(ARRIVED.load(Ordering::SeqCst) >= round * size);
                    s.launch(check, &mut nothing).unwrap();
                }
                s.synchronize().unwrap();
            });
            assert_eq!(ARRIVED.load(Ordering::Relaxed), 50 * size);
        }
    }
}
