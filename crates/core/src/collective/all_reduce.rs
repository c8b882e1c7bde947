//! Sums and other reductions over all ranks, on the stream.
//!
//! # Model
//!
//! Every rank has a vector, which is replaced by the sum (or product, minimum, maximum) of the vectors of all ranks:
//! [`AllReduce`]. The host enqueues and does not wait. Every rank reduces each element in the order of the ranks. So
//! the result has the same bits on all ranks and in every run. If a decision depends on it (whether a solver goes on,
//! say), all ranks take the same branch.
//!
//! It consists of two batches. The first is an epoch of a window by slot, in which each rank puts its vector to a slot
//! of every rank, including itself. The second has one lane, which goes through the slots in the order of the ranks:
//! the first slot replaces the vector, and the others are accumulated.
//!
//! The slots have two buffers. The next epoch but one writes the same buffer, and a post behind the second batch
//! exposes it, so nothing else has to protect it. The operand of the wait for a rank, in device memory, says which
//! buffer a move reads, as in the window's views. So both batches can be recorded, and replayed between eager calls.
//! All moves of the lane are accumulates to one linear destination, including the first. A device keeps the order of
//! accumulates for each element ([`Action::Accumulate`]), but not the order of an accumulate behind a copy.
//!
//! The vector is written when the epoch is over for this rank: all ranks have put to it, and it has put to all. If a
//! NIC reads the vector directly, its ticket is waited for.
//!
//! # Failure
//!
//! An all-reduce fails like a window with its name. [`AllReduce`] documents what users need to know.
//!
//! A refused call has enqueued nothing, except in one case: the device refuses the second batch after it said that it
//! would take it. Then the epoch has been enqueued, but the vector is not reduced. The other ranks count on this rank's
//! part, and a second try would be one epoch ahead of them. So the window is revoked.

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
use crate::observe::EpochCall;
use crate::place::On;
use crate::region::Region;
use crate::stream::{Stream, prepare_wait};
use crate::window::{BySlot, Inbox, Outbox, Window, check_op, try_exchange};

/// The most bytes of a vector.
const LONGEST: usize = 1 << 20;

/// The most bytes of a rank's slots, including both buffers.
const MOST: usize = 1 << 30;

/// The most ranks. Opening takes time that grows with the square of their number, because each rank checks what all
/// ranks say about their slots for all others.
const RANKS: usize = 1024;

/// The lanes of an exchange for each rank: the post, the put, the wait.
const LANES: usize = 3;

/// How many second batches are remembered, for different regions and reductions.
const COMBINATIONS: usize = 8;

/// The halves of the window.
type Halves<'s, T, D> = (Inbox<'s, T, D, BySlot>, Outbox<'s, T, D, BySlot>);

/// Why the halves are always there between calls.
const WHOLE: &str = "a call that fails gives the halves back";

/// Sums, products, minima and maxima over all ranks, of vectors of one length, at home on stream `'s`.
///
/// The result has the same bits on all ranks and in every run of a program: each element is reduced in the order of the
/// ranks, from rank 0 on.
///
/// It is made for short vectors: dot products, energies, norms, time steps. In each call a rank puts its vector to
/// every rank, and waits for one trip of the data. A rank keeps two slots of the vector's length for each rank, and
/// reduces them in one pass. Opening an all-reduce takes time and memory on each rank that grow with the square of the
/// number of ranks. The limits are 1 MiB for a vector, 1 GiB for the slots of a rank, and 1024 ranks.
///
/// *On a GPU* there can be fewer ranks. Each rank takes three lanes of one batch, a block carries out 16 lanes, and all
/// blocks of a batch must be resident together. On a GPU with 132 multiprocessors, 99 blocks may wait, and the waiting
/// streams share them. With two such streams (the default) an all-reduce spans 261 ranks; with one stream, 528; with
/// twelve, 42. Twelve is the default if ranks are threads of one process;
/// [`WorldOptions::waiting_streams`](crate::WorldOptions::waiting_streams) sets another number. Processes that share a
/// GPU by MPS divide the blocks further. [`AllReduce::open`] refuses too many ranks.
///
/// The first call for a region and a reduction prepares a batch. The last eight batches are kept.
///
/// To read the result on the host, call `x.to_vec(&s)?`, which waits and copies. If only kernels need the result (a
/// solver's step length, say), nobody waits.
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
/// All ranks must make the same calls in the same order, as with a [`Barrier`](crate::Barrier). tidegate does not
/// notice if a rank asks for another reduction than the others. If ranks call two all-reduces in different orders, or
/// if a call was refused on only one rank, they wait for each other. Like all long waits this is reported, and a limit
/// can end it ([`AllReduce::fail_after`]).
///
/// If a rank is lost, the last call may succeed on some ranks and fail on others. Where it fails, the vector is
/// unchanged.
///
/// *Integers*, signed or unsigned, wrap in sums and products.
///
/// *Floats.* For [`Op::Min`] and [`Op::Max`] a NaN loses against a number. The result has the bits of one rank's value,
/// on every device. If several zeros tie, whatever their signs, that is the last rank's value; if all values are NaN,
/// it is the first rank's. A sum or product is NaN on all ranks and on every kind of device or on none, but the bits of
/// that NaN depend on the device.
#[must_use = "the other ranks' calls wait for this one's"]
pub struct AllReduce<'s, T: Arithmetic, D: Device> {
    /// The halves, unless a call is just using them.
    halves: Option<Halves<'s, T, D>>,
    len: usize,
    combinations: Vec<Combination>,
}

/// The second batch, for one region and reduction.
struct Combination {
    /// The region's address and its number, which tells it from a later region at the same address.
    local: (Ptr, u64),
    op: Op,
    batch: Arc<Batch>,
}

impl<'s, T: Arithmetic, D: Device> AllReduce<'s, T, D> {
    /// Opens an all-reduce of vectors of `len` elements. (With `len` 0, a call only makes the ranks meet.) The call is
    /// collective over all ranks of the job. No open window may have this name.
    ///
    /// # Errors
    ///
    /// - [`WindowError::AllReduce`] for vectors of more than 1 MiB, for more than 1024 ranks, and for more ranks than the
    ///   stream has lanes for. Also if a rank's slots, two for each rank, would have more than 1 GiB together.
    /// - [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), on all ranks, if their lengths, types
    ///   or names differ.
    /// - The other errors of [`Window::open`].
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

    /// Sets a limit for each wait, like [`Window::fail_after`]. A call that waits longer for another rank fails, and
    /// the all-reduce is revoked on all ranks. Without a limit, a call waits as long as the peers live. Each rank may
    /// choose a limit of its own.
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

    /// The name. Errors give it as the window's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let energy = AllReduce::<f64>::open(&s, "energy", 3)?;
    /// assert_eq!(energy.name(), "energy");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        self.halves.as_ref().expect(WHOLE).0.name()
    }

    /// The id, which is the same on all ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let energy = AllReduce::<f64>::open(&s, "energy", 3)?;
    /// println!("reports call it {}", energy.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> WindowId {
        self.halves.as_ref().expect(WHOLE).0.id()
    }

    /// The number of elements of the vectors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let energy = AllReduce::<f64>::open(&s, "energy", 3)?;
    /// assert_eq!(energy.elements(), 3);
    /// # Ok(()) });
    /// ```
    pub fn elements(&self) -> usize {
        self.len
    }

    /// Enqueues a sum: each element of `x` is replaced by the sum of that element over all ranks. Integers wrap.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
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

    /// Enqueues a product: each element of `x` is replaced by the product of that element over all ranks. Integers
    /// wrap.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
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

    /// Enqueues a minimum: each element of `x` is replaced by the least value of that element on any rank. A NaN loses.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
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

    /// Enqueues a maximum: each element of `x` is replaced by the greatest value of that element on any rank. A NaN
    /// loses.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
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

    /// Enqueues any reduction: `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`. [`Op::Keep`] gives all ranks the
    /// vector of rank 0, and [`Op::Replace`] that of the last rank.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`](crate::error::EpochError::CountMismatch) if `x` has another length.
    /// - [`EpochError::NotForFloats`] for a bitwise operation on floats.
    /// - [`Error::Revoked`], or the error that made the stream fail.
    /// - [`Error::Device`], also if there are too many ranks for this stream: another stream than the all-reduce was
    ///   opened on, or one whose GPU other processes use by now.
    /// - [`Error::Nic`].
    ///
    /// The call has then enqueued nothing, except in one case: the device refuses the second of two batches after it
    /// said that it would take it. Because the other ranks count on this rank's part, the all-reduce is then revoked.
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
        // Without elements there is nothing to reduce.
        let batch = (self.len != 0).then(|| self.combination(x, op));
        // Calls that will be refused are refused here, before the other ranks can hear of this epoch.
        let (inbox, outbox) = self.halves.as_ref().expect(WHOLE);
        inbox.ready(stream)?;
        // Some operations of a NIC read the vector already, and this epoch's will. The vector is written when they have
        // ended.
        let tickets = x.body.outstanding();
        let readers = tickets.map(|tickets| tickets.readers());
        let readers = readers.into_iter().flatten().chain(outbox.lines());
        let waits = prepare_wait(stream, readers)?;
        if let Some(batch) = &batch {
            // The exchange waits for operations that write the vector: once for each window, which is at most once for
            // each line.
            let mut writers = Vec::new();
            if let Some(tickets) = tickets {
                tickets.gather(Touch::Read, &mut writers);
            }
            let exchange = writers.len() + 1;
            stream.raw().prepare(batch, exchange + waits + 1)?;
        }
        let (inbox, outbox) = self.halves.take().expect(WHOLE);
        // The slots have the numbers of the ranks.
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
            // SAFETY: the slots lie in blocks that the inbox holds and that are retired in stream order. The exchange
            // before this batch on the stream waits for all ranks. So until a post behind this batch, only this batch
            // uses the buffers that the operands choose. `x` is a region of this stream, exclusively borrowed, and a
            // NIC's reads of it have been waited for.
            unsafe { stream.submit(&batch, EpochCall::Reduce, site) }
        });
        combined.inspect_err(|error| inbox.revoke(error))
    }

    /// The second batch, which is made on first use.
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
        // The slots have the numbers of the ranks.
        let slots = (0..inbox.origins().count()).map(|rank| inbox.side(rank));
        let steps: Vec<_> = slots.enumerate().map(take).collect();
        // SAFETY: both buffers of each slot have as many elements as the region, and the slot's operand lies in the
        // window's block. The region is other memory. Bitwise operations on floats were refused. The other conditions
        // of executing the batch are argued where it is submitted, which happens only with that region.
        let batch = Arc::new(unsafe { Batch::new([steps], Vec::new()) });
        if self.combinations.len() == COMBINATIONS {
            // The queue keeps the batch if some of its work is still to be carried out.
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

/// Refuses vectors and numbers of ranks beyond the limits.
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

/// Refuses so many ranks on a stream that carries out at most `most` lanes at a time, if they need more.
fn check_lanes(ranks: usize, most: usize) -> Result<(), AllReduceLimit> {
    let lanes = LANES.saturating_mul(ranks);
    if lanes > most {
        Err(AllReduceLimit::Lanes { ranks, lanes, most })
    } else {
        Ok(())
    }
}

// SAFETY: the leaves are those of the halves, which are visited. Only the halves mention the brand.
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
