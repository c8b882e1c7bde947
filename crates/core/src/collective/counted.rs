//! All-to-alls of rows whose numbers only the stream knows.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;

use super::algorithms::{Counts, What};
use super::choice::Choice;
use super::executor::Executor;
use super::handle::once;
use crate::carry::{Carry, Visitor};
use crate::element::Element;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{EpochError, Error, StreamError, WindowError};
use crate::members::Members;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;
use crate::window::JointKind;

/// Brings rows of each rank to each rank, as many as kernels have found: dispatch and combine of a mixture of experts,
/// for instance. The host knows only how many there may be, and waits for nothing.
///
/// A *row* is a run of elements that belong together. The input and the output have a block for each rank, in the order
/// of the ranks, and a block has room for the same number of rows everywhere. A call sends the first rows of each
/// block, as many as a number in device memory says. They become the first rows of the sender's block at the receiver,
/// which also gets their number. What is behind them in the output stays as it was.
///
/// So a kernel knows where each row is without looking at the numbers of other ranks. The place of a row does not
/// depend on how many others come, and rows need not be moved before they can be sent. Between ranks that map each
/// other's memory, a call sends only as many rows as the number says. A NIC sends whole blocks.
///
/// If a number is greater than a block has room for, the stream fails with [`StreamError::CountTooGreat`], which names
/// the rank and the number. Nothing is sent to that rank, and other ranks that wait for this one get an error that says
/// the same.
///
/// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
/// more.
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// // Blocks of up to 3 rows of 2 numbers.
/// let mut dispatch = CountedAllToAll::open(&s, "tokens", 3, 2)?;
/// let rank = world.rank() as f32;
/// let x = Region::from_slice(&world, &[rank; 12])?.on(&s)?;
/// let mut counts = Region::<u64>::zeroed(&world, 2)?.on(&s)?;
/// let (mut y, mut received) = (Region::zeroed(&world, 12)?.on(&s)?, Region::zeroed(&world, 2)?.on(&s)?);
///
/// // A kernel finds out how many rows go to each rank: 2 to rank 0, and 1 to rank 1.
/// s.launch(|counts: &mut [u64]| counts.copy_from_slice(&[2, 1]), &mut counts)?;
/// dispatch.enqueue(&s, &x, &counts, &mut y, &mut received)?; // the host does not wait here
///
/// let rows = 2 - world.rank() as u64;
/// assert_eq!(received.into_host(&s)?[..], [rows; 2]);
/// // Rank 1's block begins at row 3.
/// assert_eq!(y.into_host(&s)?[6..], if rows == 2 { [1., 1., 1., 1., 0., 0.] } else { [1., 1., 0., 0., 0., 0.] });
/// # Ok(()) });
/// ```
#[must_use = "the other ranks' calls wait for this one's"]
pub struct CountedAllToAll<'s, T: Element, D: Device> {
    executor: Executor<'s, u8, D>,
    most: usize,
    width: usize,
    marker: PhantomData<T>,
}

impl<'s, T: Element, D: Device> CountedAllToAll<'s, T, D> {
    /// Opens a counted all-to-all. A block has up to `most` rows, each of `width` elements. The call is collective over
    /// the [members](Members): with `&s` over all ranks of the job, with `&team.on(&s)` over those of a team. Then
    /// ranks have their numbers in the team, and blocks are in their order. No open window of these ranks may have this
    /// name.
    ///
    /// Each rank has room for two blocks of each other rank.
    ///
    /// # Errors
    ///
    /// - [`WindowError::Disagreement`], on all ranks, if their numbers, types or names differ.
    /// - [`WindowError::Rows`], on this rank, if a row has no elements or 4 GiB, or if the blocks are longer than
    ///   memory can be.
    /// - The other errors of [`Window::open`](crate::Window::open).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let dispatch = CountedAllToAll::<f32>::open(&s, "tokens", 128, 16)?;
    /// # Ok(()) });
    /// ```
    pub fn open(on: &impl Members<'s, D>, name: &str, most: usize, width: usize) -> Result<Self> {
        // What does not fit is refused by all ranks together.
        let row = width.saturating_mul(size_of::<T>());
        let what = What {
            kind: JointKind::Counted { row },
            counts: Counts::Equal(most.saturating_mul(row)),
            reduction: None,
        };
        Ok(CountedAllToAll {
            executor: Executor::open_parts::<T>(
                &on.team(),
                on.stream(),
                name,
                what,
                Choice::on(on.stream()),
            )?,
            most,
            width,
            marker: PhantomData,
        })
    }

    /// Enqueues a call. `x` and `y` have a block for each rank, `counts` and `received` a number for each rank. The
    /// first `counts[j]` rows of block j of `x` become the first rows of this rank's block of rank j's `y`.
    /// `received[i]` says how many rows have come from rank i, to block i of `y`.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if a region has another length.
    /// - [`Error::Revoked`], [`EpochError::LastEpoch`], or the error that made the stream fail.
    /// - [`Error::Device`] and [`Error::Nic`].
    ///
    /// The call has then enqueued nothing. If a device or NIC refuses only a later part of the call, the collective is
    /// revoked, since the other ranks count on the rest.
    ///
    /// A number that is too great is found later, by the stream: [`StreamError::CountTooGreat`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let [mut there, mut back] = ["there", "back"].map(|name| CountedAllToAll::open(&s, name, 3, 1).unwrap());
    /// # let x = Region::from_slice(&world, &[7, 8, 9, 7, 8, 9])?.on(&s)?;
    /// # let counts = Region::from_slice(&world, &[2, 1])?.on(&s)?;
    /// # let mut y = Region::zeroed(&world, 6)?.on(&s)?;
    /// # let mut z = Region::zeroed(&world, 6)?.on(&s)?;
    /// # let [mut received, mut returned] = [0, 1].map(|_| Region::zeroed(&world, 2).unwrap().on(&s).unwrap());
    /// there.enqueue(&s, &x, &counts, &mut y, &mut received)?;
    /// s.launch(|y: &mut [u64]| y.iter_mut().for_each(|y| *y += 100), &mut y)?;
    /// // Each row goes back to where it was.
    /// back.enqueue(&s, &y, &received, &mut z, &mut returned)?;
    /// assert_eq!(z.into_host(&s)?[..], [107, 108, 0, 107, 0, 0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        counts: &Region<u64, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
        received: &mut Region<u64, On<'s, D>>,
    ) -> Result<()> {
        let ranks = self.executor.ranks();
        let all = ranks * self.most * self.width;
        let buffers = [
            (&x.body, all),
            (&y.body, all),
            (&counts.body, ranks),
            (&received.body, ranks),
        ];
        self.executor.run_counted(stream, buffers)
    }

    /// Opens a counted all-to-all of rows of `width` elements, enqueues one call, and drops it. A program that calls
    /// more than once saves time with [`CountedAllToAll::open`].
    ///
    /// # Errors
    ///
    /// Those of [`CountedAllToAll::open`] and of the call. The length of `x` must be a multiple of that of a row of
    /// each rank.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[world.rank() as f64; 4])?.on(&s)?;
    /// # let counts = Region::from_slice(&world, &[2, 1])?.on(&s)?;
    /// # let (mut y, mut received) = (Region::zeroed(&world, 4)?.on(&s)?, Region::zeroed(&world, 2)?.on(&s)?);
    /// CountedAllToAll::once(&s, 1, &x, &counts, &mut y, &mut received)?;
    /// # assert_eq!(received.into_host(&s)?[..], [2 - world.rank() as u64; 2]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        width: usize,
        x: &Region<T, On<'s, D>>,
        counts: &Region<u64, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
        received: &mut Region<u64, On<'s, D>>,
    ) -> Result<()> {
        let most = x.len() / on.team().size() / width.max(1);
        let mut it = Self::open(on, &once("counted all-to-all"), most, width)?;
        it.enqueue(on.stream(), x, counts, y, received)
    }

    /// Sets a limit for each wait, like [`Window::fail_after`](crate::Window::fail_after). A call that waits longer for
    /// another rank fails, and the collective is revoked on all ranks. Without a limit, a call waits as long as the
    /// peers live. Each rank may choose a limit of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::time::Duration;
    ///
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let it = CountedAllToAll::<f32>::open(&s, "tokens", 128, 16)?;
    /// let it = it.fail_after(Duration::from_secs(60));
    /// # Ok(()) });
    /// ```
    pub fn fail_after(self, limit: Duration) -> Self {
        self.executor.inbox().fail_after(limit);
        self
    }

    /// The name. Errors give it as the window's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let it = CountedAllToAll::<f32>::open(&s, "tokens", 128, 16)?;
    /// assert_eq!(it.name(), "tokens");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        self.executor.inbox().name()
    }

    /// The id, which is the same on all ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let it = CountedAllToAll::<f32>::open(&s, "tokens", 128, 16)?;
    /// println!("reports call it {}", it.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> WindowId {
        self.executor.inbox().id()
    }
}

// SAFETY: the leaves are those of the executor, which visits them. Only they mention the brand.
unsafe impl<'s, T: Element, D: Device> Carry<'s, D> for CountedAllToAll<'s, T, D> {
    type At<'t> = CountedAllToAll<'t, T, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.executor.visit(visitor);
    }
}

impl<T: Element, D: Device> fmt::Debug for CountedAllToAll<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedAllToAll")
            .field("name", &self.name())
            .field("id", &self.id())
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("device", &D::NAME)
            .field("most", &self.most)
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}
