//! A barrier that is enqueued on a stream.
//!
//! # Model
//!
//! Work that a rank enqueues after a barrier starts only when every rank has done the work that it enqueued before the
//! barrier. The host does not wait. It is a dissemination barrier: in round k a rank signals the rank 2^k further on,
//! and waits for the rank 2^k before it. After `log2(size)` rounds, rounded up, each rank has heard of all others. All
//! rounds are one batch of at most three lanes, over a window of empty slots. So a barrier reaches every rank that a
//! window can reach.
//!
//! A barrier orders work. It moves no data, and does not tell that puts have arrived; only epochs do.
//!
//! # Failure
//!
//! Like a window's wait, a barrier's wait ends with an error if a rank dies or leaves, or when the barrier's limit has
//! passed. The error gives the barrier's name as the window's.

use std::panic::Location;
use std::time::Duration;

use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;

use crate::carry::{Carry, Visitor};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::members::Members;
use crate::stream::Stream;
use crate::window::{BySlot, Inbox, Outbox, Rounds, Window};

/// A barrier of all ranks, or of the ranks of a team, at home on stream `'s`.
///
/// Work that a rank enqueues after the barrier starts only when every rank's stream has done the work that was enqueued
/// there before the barrier. The host does not wait. A barrier orders work and moves no data: it does not say that puts
/// have arrived. Only the epochs of a window do.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(3, |world| {
/// stream!(let s = world.stream()?);
/// let mut barrier = Barrier::open(&s, "step")?;
/// barrier.enqueue(&s)?; // the host does not wait here
/// s.synchronize()?; // now all ranks have enqueued the barrier, and their streams have come to it
/// # Ok(()) });
/// ```
pub struct Barrier<'s, D: Device> {
    inbox: Inbox<'s, u8, D, BySlot>,
    outbox: Outbox<'s, u8, D, BySlot>,
    rounds: Rounds<D>,
}

impl<'s, D: Device> Barrier<'s, D> {
    /// Opens a barrier. The call is collective over the [members](Members): with `&s` over all ranks of the job, with
    /// `&team.on(&s)` over those of a team. No other open barrier of these ranks may have this name; a window may.
    ///
    /// # Errors
    ///
    /// Those of [`Window::open`]: the barrier is open on all ranks or on none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut barrier = Barrier::open(&s, "output")?;
    /// barrier.enqueue(&s)?;
    /// let pair = world.team("pair", &[0, 1])?;
    /// let mut barrier = Barrier::open(&pair.on(&s), "output")?;
    /// barrier.enqueue(&s)?;
    /// # Ok(()) });
    /// ```
    pub fn open(on: &impl Members<'s, D>, name: &str) -> Result<Self> {
        let window = Window::of_barrier(name);
        let ((inbox, outbox), rounds) = window.open_with(&on.team(), on.stream(), Rounds::new)?;
        Ok(Barrier {
            inbox,
            outbox,
            rounds,
        })
    }

    /// Sets a limit for each wait, like [`Window::fail_after`]. A barrier that waits longer fails, and is revoked on
    /// all ranks. Without a limit, it waits as long as the peers live. Each rank may choose a limit of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::time::Duration;
    ///
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut barrier = Barrier::open(&s, "output")?.fail_after(Duration::from_secs(60));
    /// barrier.enqueue(&s)?;
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn fail_after(self, limit: Duration) -> Self {
        self.inbox.fail_after(limit);
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
    /// let barrier = Barrier::open(&s, "step")?;
    /// assert_eq!(barrier.name(), "step");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        self.inbox.name()
    }

    /// The id, which is the same on all ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let barrier = Barrier::open(&s, "step")?;
    /// println!("reports call it {}", barrier.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> WindowId {
        self.inbox.id()
    }

    /// Enqueues the barrier.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`], [`Error::Device`], or the error that made the stream fail. [`Error::Nic`] if a NIC has no
    /// room for the signals. [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch) after 2^36 - 2^20 barriers,
    /// on all ranks at the same one if they replay recordings alike. Nothing has been enqueued then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// # let mut barrier = Barrier::open(&s, "step")?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// barrier.enqueue(&s)?;
    /// s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?; // behind the first kernel of every rank
    /// # assert_eq!(x.into_host(&s)?[0], 4.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(&mut self, stream: &Stream<'s, D>) -> Result<()> {
        self.inbox.ready(stream)?;
        self.rounds.submit(stream, Location::caller())
    }
}

// SAFETY: the leaves are those of the halves, which are visited. Only the halves mention the brand.
unsafe impl<'s, D: Device> Carry<'s, D> for Barrier<'s, D> {
    type At<'t> = Barrier<'t, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.inbox.visit(visitor);
        self.outbox.visit(visitor);
    }
}

impl<D: Device> std::fmt::Debug for Barrier<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barrier")
            .field("name", &self.name())
            .field("id", &self.id())
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Cause, Error};
    use crate::{Region, World};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tidegate_host::Host;

    #[test]
    fn a_limit_ends_a_barrier_that_a_rank_does_not_come_to() {
        World::<Host>::local(2, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let limit = Duration::from_millis(100);
            let mut barrier = Barrier::open(&s, "b").unwrap().fail_after(limit);
            assert_eq!(barrier.name(), "b");
            if world.rank() == 0 {
                barrier.enqueue(&s).unwrap();
                let Err(Error::Wait(failed)) = s.synchronize() else {
                    panic!("rank 1 does not come");
                };
                let (rank, peer) = (0, Some(1));
                assert_eq!(failed.cause, Cause::Limit { rank, peer, limit });
            }
            // Rank 1 stays until rank 0 has seen the error.
            world.all_gather("seen", Vec::new()).unwrap();
        });
    }

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
