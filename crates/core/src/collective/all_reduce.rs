//! Sums and the like over all ranks, on the stream.
//!
//! # Model
//!
//! Every rank has a vector, and gets the sum (or product, minimum, maximum) of the vectors of all ranks in its place:
//! [`AllReduce`]. The host enqueues and does not wait. Each element is reduced in the order of the ranks, on every
//! rank: so the result has the same bits on all ranks, and in every run, and control flow that depends on it (does a
//! solver go on?) does not diverge.
//!
//! It is an epoch of a window by slot, in which each rank puts its vector to a slot of every rank, its own among them;
//! then a batch of one lane, which goes through the slots in the order of the ranks: the first replaces the vector, the
//! others are accumulated. Nothing else is needed: the slots have two buffers, and that which the next epoch but one
//! writes is exposed by a post behind this batch. Which of them a move reads is said by the operand of the wait for the
//! rank, in device memory, as for the window's views; so the two batches can be recorded, and replayed between eager
//! calls. All moves of the lane are accumulates of one linear destination, the first, too, since a device keeps the
//! order of those for each element ([`Action::Accumulate`]), and not that of an accumulate behind a copy.
//!
//! The result is written once the epoch is over, for this rank: all have been put, and put to all. Over a NIC that
//! reads the vector itself its ticket is waited for.
//!
//! # Failure
//!
//! As a window's of that name; what users must know stands with [`AllReduce`].
//!
//! A call that is refused has enqueued nothing, but for one case. If, against what the device has said before, it
//! refuses the second batch, the epoch has been enqueued and the vector is not reduced; the others take this rank's part
//! for given, so that a second try would be an epoch ahead of them. So the window is revoked.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::{Action, Batch, Move, Op, Shape, Side, Step};
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::Ptr;

use crate::carry::{Carry, Visitor};
use crate::element::Arithmetic;
#[cfg(doc)]
use crate::error::WindowError;
use crate::error::{AllReduceLimit, EpochError, Error, Rejected, Result};
use crate::nic::Touch;
use crate::place::On;
use crate::region::Region;
use crate::stream::{Stream, prepare_wait};
use crate::window::{BySlot, Inbox, Outbox, Window, check_op, try_exchange};

/// The most bytes of a vector.
const LONGEST: usize = 1 << 20;

/// The most bytes of a rank's slots, both buffers together.
const MOST: usize = 1 << 30;

/// The most ranks: each checks what all say of their slots for all when it is opened, which takes the square of this.
const RANKS: usize = 1024;

/// Lanes of an exchange for each rank: the post, the put, the wait.
const LANES: usize = 3;

/// How many batches are remembered: one for each reduction of each region.
const COMBINATIONS: usize = 8;

/// The window's.
type Halves<'s, T, D> = (Inbox<'s, T, D, BySlot>, Outbox<'s, T, D, BySlot>);

/// What is said of an all-reduce whose halves a call has not given back.
const WHOLE: &str = "a call that fails gives the halves back";

/// Sums, products, minima and maxima over all ranks, of vectors of one length, at home on stream `'s`.
///
/// The result has the same bits on all ranks and in every run of a program: each element is reduced in the order of the
/// ranks, from rank 0 on.
///
/// It is made for short vectors: dot products, energies, norms, time steps. Each call puts the vector to every rank, so each
/// rank pays for as many puts as there are ranks, and for one trip of the data. A rank keeps two slots of the vector's length
/// for each rank, and reduces them in one pass. Opening an all-reduce takes time and memory on each rank that grow with the
/// square of the number of ranks. A vector may have at most 1 MiB, the slots of a rank 1 GiB, and a job 1024 ranks.
///
/// *On a GPU* there can be fewer ranks. Each rank takes three lanes of one batch, a block carries out 16 lanes, and all blocks of
/// a batch must be resident together. On a GPU of 132 multiprocessors, 99 blocks may wait, and the waiting streams share
/// them. With two such streams (the default) an all-reduce spans 261 ranks; with one stream, 528; with twelve, 42. Twelve is
/// the default if ranks are threads of one process; [`WorldOptions::waiting_streams`](crate::WorldOptions::waiting_streams) sets another number. Processes that
/// share a GPU by MPS divide the blocks further. [`AllReduce::open`] refuses too many ranks.
///
/// The first call for a region and a reduction prepares a batch. The last eight batches are kept.
///
/// To read the result on the host, call `x.to_vec(&s)?`, which waits and copies. If only kernels need the result, as a
/// solver's step length, nobody waits.
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(3, |world| {
/// # stream!(let s = world.stream()?);
/// # let rank = world.rank() as f64;
/// # let x = Region::from_slice(&world, &[rank, 1.0])?.on(&s)?;
/// # let y = Region::from_slice(&world, &[2.0, 0.5])?.on(&s)?;
/// # let mut dot = Region::<f64>::zeroed(&world, 1)?.on(&s)?;
/// let mut dots = AllReduce::open(&s, "dots", 1)?;
/// let product = |x: &[f64], y: &[f64], dot: &mut [f64]| dot[0] = x.iter().zip(y).map(|(x, y)| x * y).sum();
/// s.launch(product, (&x, &y, &mut dot))?; // this rank's part of the dot product
/// dots.sum(&s, &mut dot)?; // enqueued: later work of the stream sees the dot product of all ranks
/// # assert_eq!(dot.into_host(&s)?[0], 7.5);
/// # Ok(()) });
/// ```
///
/// All ranks must make the same calls in the same order, as with a [`Barrier`](crate::Barrier). tidegate does not notice if a
/// rank asks for another reduction than the others. If ranks call two all-reduces in different orders, or a call was
/// refused on one rank only, they wait for each other. Like all long waits this is reported, and a limit can end it
/// ([`AllReduce::fail_after`]).
///
/// If a rank is lost, the last call may succeed on some ranks and fail on others. Where it fails, the vector is unchanged.
///
/// *Integers*, with a sign or without, wrap in sums and products.
///
/// *Floats.* For [`Op::Min`] and [`Op::Max`] a NaN loses against a number. The result has the bits of one rank's value, on every
/// device: the last rank's value if several zeros tie, whatever their signs, and the first rank's if all values are NaN. A
/// sum or product is NaN on all ranks and on every kind of device or on none, but the bits of that NaN depend on the device.
#[must_use = "the other ranks' calls wait for this one's"]
pub struct AllReduce<'s, T: Arithmetic, D: Device> {
    /// None only while a call has them.
    halves: Option<Halves<'s, T, D>>,
    len: usize,
    combinations: Vec<Combination>,
}

/// The second batch, for a region and a reduction.
struct Combination {
    /// Where the region is, and its number, so that another region at the same address is another region.
    local: (Ptr, u64),
    op: Op,
    batch: Arc<Batch>,
}

impl<'s, T: Arithmetic, D: Device> AllReduce<'s, T, D> {
    /// Opens an all-reduce of vectors of `len` elements. (With `len` 0, a call only makes the ranks meet.) The call is collective
    /// over all ranks of the job. No open window may have this name.
    ///
    /// # Errors
    ///
    /// [`WindowError::AllReduce`] for vectors of more than 1 MiB, for more than 1024 ranks, for more ranks than the stream has
    /// lanes for, and if the slots of all ranks would have more than 1 GiB.
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), on all ranks alike, if their lengths, types or names differ; and as [`Window::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut energy = AllReduce::open(&s, "energy", 1)?;
    /// let mut x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// energy.sum(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 0.0 + 1.0 + 2.0);
    /// # Ok(()) });
    /// ```
    pub fn open(stream: &Stream<'s, D>, name: &str, len: usize) -> Result<Self> {
        let ranks = stream.world().size();
        let fits = check_size(len, size_of::<T>(), ranks)
            .and_then(|()| check_lanes(ranks, stream.raw().most_lanes()));
        let window = match fits {
            Ok(()) => Window::of_all_reduce(name, len),
            Err(limit) => Window::refused(name, limit),
        };
        let halves = window.open(stream)?;
        Ok(AllReduce {
            halves: Some(halves),
            len,
            combinations: Vec::new(),
        })
    }

    /// Sets a limit for each wait, as [`Window::fail_after`] does. A call that waits longer for another rank fails, and the
    /// all-reduce is revoked on all ranks. Without a limit, a call waits as long as the peers live. Each rank may choose a
    /// limit of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::time::Duration;
    ///
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[world.rank() as u64])?.on(&s)?;
    /// let mut votes = AllReduce::open(&s, "votes", 1)?.fail_after(Duration::from_secs(60));
    /// votes.max(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 2);
    /// # Ok(()) });
    /// ```
    pub fn fail_after(self, limit: Duration) -> Self {
        self.halves.as_ref().expect(WHOLE).0.fail_after(limit);
        self
    }

    /// Its name, which errors call the window's.
    pub fn name(&self) -> &str {
        self.halves.as_ref().expect(WHOLE).0.name()
    }

    /// Its id, the same on all ranks.
    pub fn id(&self) -> WindowId {
        self.halves.as_ref().expect(WHOLE).0.id()
    }

    /// How many elements the vectors have.
    pub fn elements(&self) -> usize {
        self.len
    }

    /// Enqueues: each element of `x` becomes the sum of those of all ranks. Integers wrap.
    ///
    /// # Errors
    ///
    /// As [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 2)?;
    /// let mut x = Region::from_slice(&world, &[1.0, world.rank() as f64])?.on(&s)?;
    /// all.sum(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[..], [3.0, 3.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn sum(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Sum)
    }

    /// Enqueues: each element of `x` becomes the product of those of all ranks. Integers wrap.
    ///
    /// # Errors
    ///
    /// As [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut x = Region::from_slice(&world, &[world.rank() as u64 + 1])?.on(&s)?;
    /// all.prod(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 1 * 2 * 3);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn prod(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Prod)
    }

    /// Enqueues: each element of `x` becomes the least of those of all ranks; a NaN loses.
    ///
    /// # Errors
    ///
    /// As [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut step = Region::from_slice(&world, &[0.1 * (world.rank() + 1) as f64])?.on(&s)?;
    /// all.min(&s, &mut step)?; // the time step that suits all ranks
    /// assert_eq!(step.into_host(&s)?[0], 0.1);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn min(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Min)
    }

    /// Enqueues: each element of `x` becomes the greatest of those of all ranks; a NaN loses.
    ///
    /// # Errors
    ///
    /// As [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut error = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// all.max(&s, &mut error)?;
    /// assert_eq!(error.into_host(&s)?[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn max(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Max)
    }

    /// Enqueues any reduction: `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`. ([`Op::Keep`] gives all ranks the vector of
    /// rank 0, [`Op::Replace`] that of the last rank.)
    ///
    /// # Errors
    ///
    /// [`EpochError::CountMismatch`](crate::error::EpochError::CountMismatch) if `x` has another length; [`EpochError::NotForFloats`] for a bitwise operation on floats;
    /// [`Error::Revoked`], or the error that made the stream fail; [`Error::Device`], where the ranks are too many
    /// for this stream, too (another than it was opened on, or other processes use the GPU by now); [`Error::Nic`]. Nothing has
    /// been enqueued then, unless the all-reduce is revoked by it: the device has refused the second of two batches, against
    /// what it had said before, and the other ranks take this one's part for given.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut seed = Region::from_slice(&world, &[7 + world.rank() as u64])?.on(&s)?;
    /// all.reduce(&s, &mut seed, Op::Keep)?; // what rank 0 has
    /// assert_eq!(seed.into_host(&s)?[0], 7);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn reduce(
        &mut self,
        stream: &Stream<'s, D>,
        x: &mut Region<T, On<'s, D>>,
        op: Op,
    ) -> Result<()> {
        check_op::<T>(op, || self.halves.as_ref().expect(WHOLE).0.named())?;
        if x.len() != self.len {
            let (src, dst) = (x.len(), self.len);
            let window = self.halves.as_ref().expect(WHOLE).0.named();
            return Err(Error::Epoch(EpochError::CountMismatch { window, src, dst }));
        }
        // Of no elements there is nothing to reduce.
        let batch = (self.len != 0).then(|| self.combination(x, op));
        // What is known to be refused is refused before the other ranks can have heard of this epoch.
        let (inbox, outbox) = self.halves.as_ref().expect(WHOLE);
        inbox.ready(stream)?;
        // What reads the vector already, and what will: it is written when they are through.
        let tickets = x.body.outstanding();
        let readers = tickets.map(|tickets| tickets.readers());
        let readers = readers.into_iter().flatten().chain(outbox.lines());
        let waits = prepare_wait(stream, readers)?;
        if let Some(batch) = &batch {
            // The exchange waits for what writes the vector: for each window once, which is no more often than for each line.
            let mut writers = Vec::new();
            if let Some(tickets) = tickets {
                tickets.gather(Touch::Read, &mut writers);
            }
            let exchange = writers.len() + 1;
            stream.raw().prepare(batch, exchange + waits + 1)?;
        }
        let (inbox, outbox) = self.halves.take().expect(WHOLE);
        // They have the numbers of the ranks.
        let mut slots = outbox.slots();
        let mut epoch = outbox.start();
        let exchanged = match slots.try_for_each(|slot| epoch.put(&*x, slot)) {
            Ok(()) => try_exchange(stream, inbox, epoch),
            Err(error) => Err(Rejected::new(error, (inbox, epoch))),
        };
        let (inbox, _) = match exchanged {
            Ok(halves) => self.halves.insert(halves),
            Err(Rejected { error, value }) => {
                self.halves = Some((value.0, value.1.into_outbox()));
                return Err(error);
            }
        };
        let Some(batch) = batch else {
            return Ok(());
        };
        let site = Location::caller();
        let combined = x.body.settle(stream, Touch::Write, site).and_then(|()| {
            // SAFETY: the slots lie in blocks that the inbox holds and that are retired in stream order; the exchange that
            // this stream has been given before waits for all ranks, so that no other than this batch has the buffers
            // that the operands choose, until a post behind it; `x` is a region of this stream, exclusively borrowed, and
            // what a NIC reads of it has been waited for.
            Ok(unsafe { stream.raw().submit(&batch, site) }?)
        });
        combined.inspect_err(|error| inbox.revoke(error))
    }

    /// The second batch, made the first time.
    fn combination(&mut self, x: &Region<T, On<'s, D>>, op: Op) -> Arc<Batch> {
        let local = (x.body.ptr(), x.body.id);
        let known = |one: &&Combination| (one.local, one.op) == (local, op);
        if let Some(one) = self.combinations.iter().find(known) {
            return one.batch.clone();
        }
        let (inbox, _) = self.halves.as_ref().expect(WHOLE);
        let dst = Side {
            base: local.0,
            flip: 0,
            shape: Shape::Linear,
        };
        let take = |(rank, (src, parity)): (usize, (Side, Ptr))| {
            let op = if rank == 0 { Op::Replace } else { op };
            Step::Move(Move {
                action: Action::Accumulate {
                    op,
                    scalar: T::SCALAR,
                    atomic: false,
                },
                size: size_of::<T>() as u32,
                count: x.len(),
                src,
                dst,
                parity,
                early: false,
                landing: None,
            })
        };
        // Slots have the numbers of the ranks.
        let slots = (0..inbox.origins().count()).map(|rank| inbox.side(rank));
        let steps: Vec<_> = slots.enumerate().map(take).collect();
        // SAFETY: each slot has as many elements as the region, both buffers, and its operand lies in the window's block;
        // the region is not that memory; bitwise operations on floats were refused. What else must hold when the batch is
        // executed is argued where it is submitted, which is only done with that region.
        let batch = Arc::new(unsafe { Batch::new([steps], Vec::new()) });
        if self.combinations.len() == COMBINATIONS {
            // The queue holds what of it is still to run.
            self.combinations.remove(0);
        }
        self.combinations.push(Combination {
            local,
            op,
            batch: batch.clone(),
        });
        batch
    }
}

/// Why what should not be reduced so is not.
fn check_size(len: usize, size: usize, ranks: usize) -> Result<(), AllReduceLimit> {
    if len.checked_mul(size).is_none_or(|bytes| bytes > LONGEST) {
        let most = LONGEST;
        return Err(AllReduceLimit::Vector { len, size, most });
    }
    if ranks > RANKS {
        return Err(AllReduceLimit::Ranks { ranks, most: RANKS });
    }
    let slots = (2 * len * size).checked_mul(ranks);
    if slots.is_none_or(|bytes| bytes > MOST) {
        return Err(AllReduceLimit::Memory {
            len,
            size,
            ranks,
            most: MOST,
        });
    }
    Ok(())
}

/// Why a stream that carries out so many lanes at a time cannot reduce over so many ranks, if it cannot.
fn check_lanes(ranks: usize, most: usize) -> Result<(), AllReduceLimit> {
    let lanes = LANES.saturating_mul(ranks);
    match lanes > most {
        true => Err(AllReduceLimit::Lanes { ranks, lanes, most }),
        false => Ok(()),
    }
}

// SAFETY: the leaves are those of the halves, which are visited; these are the only mention of the brand.
unsafe impl<'s, T: Arithmetic, D: Device> Carry<'s, D> for AllReduce<'s, T, D> {
    type At<'t> = AllReduce<'t, T, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let (inbox, outbox) = self.halves.as_mut().expect(WHOLE);
        inbox.visit(visitor);
        outbox.visit(visitor);
    }
}

impl<T: Arithmetic, D: Device> std::fmt::Debug for AllReduce<'_, T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllReduce")
            .field(
                "name",
                &self.halves.as_ref().map_or("", |halves| halves.0.name()),
            )
            .field("id", &self.halves.as_ref().map(|halves| halves.0.id()))
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("device", &D::NAME)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
