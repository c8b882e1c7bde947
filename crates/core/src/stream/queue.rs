//! The stream: a device's queue with a brand and a world.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::device::{Call, Device, Reclaim, Stream as _, StreamName};
use tidegate_hal::process::Process;
use tidegate_hal::site::CallSite;

use super::arm::Arm;
use super::noted::{Noted, NotedStep};
use super::passed::Passed;
use crate::epochs::Epochs;
use crate::error::{CaptureError, Error, Result};
use crate::ground::fresh_id;
use crate::myself::RecordedAct;
use crate::observe::ObservedStream;
use crate::place::{Brand, Guard};
use crate::world::World;

/// A stream before it has a brand. `world.stream()` returns it, and [`stream!`](crate::stream!) makes a [`Stream`] of
/// it. (If the compiler expects `&Stream` and finds `&UnboundStream`, write `stream!(let s = …);` instead of `let s =
/// …;`.)
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(1, |world| {
/// let unbound = world.stream()?;
/// stream!(let s = unbound); // `s` has a brand, and calls take it
/// s.synchronize()?;
/// # Ok(()) });
/// ```
pub struct UnboundStream<D: Device> {
    raw: D::Stream,
    observed: Option<ObservedStream>,
    world: World<D>,
    name: StreamName,
}

impl<D: Device> UnboundStream<D> {
    pub(crate) fn new(
        raw: D::Stream,
        world: World<D>,
        name: StreamName,
        observed: Option<ObservedStream>,
    ) -> Self {
        UnboundStream {
            raw,
            world,
            name,
            observed,
        }
    }

    /// Gives the stream the brand of the guard, which nothing else can have, and a name if it has none.
    /// [`stream!`](crate::stream!) makes guards, and calls this.
    pub fn bind<'s>(self, guard: Guard<'s>, name: &str) -> Stream<'s, D> {
        let _: Guard<'s> = guard;
        self.name.set(name);
        if let Some(observed) = &self.observed {
            observed.made(self.name.as_str());
        }
        Stream {
            _unwinding: Unwinding(self.world.clone(), self.name.clone()),
            raw: Unshared(self.raw),
            process: self.world.process(),
            world: self.world,
            name: self.name,
            observed: self.observed,
            noted: Unshared(RefCell::default()),
            brand: PhantomData,
            _not_sync: OneThreadAtATime(PhantomData),
        }
    }
}

#[doc(hidden)]
#[allow(missing_docs, clippy::unused_self, reason = "nobody can call them")]
impl<D: Device> UnboundStream<D>
where
    Self: HasABrand,
{
    pub fn launch(&self) {}
    pub fn capture(&self) {}
    pub fn synchronize(&self) {}
}

/// A bound that no [`UnboundStream`] fulfils. Its error message says how to give the stream a brand.
#[diagnostic::on_unimplemented(
    message = "a stream has no calls before it has a brand",
    label = "`world.stream()` returns this; it has no brand yet",
    note = "write `stream!(let s = world.stream()?);` instead of `let s = world.stream()?;`"
)]
pub trait HasABrand {}

/// A queue of work that is executed in order. Dropping it waits until the remaining work is done. (If the thread is
/// unwinding, dropping ends the stream's waits with an error instead.)
///
/// A stream can move to another thread, but threads cannot share it, since enqueueing takes no lock.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream()?);
/// let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
/// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?; // enqueued: the stream's thread executes it
/// s.launch(|x: &mut [f64]| x[0] *= x[1], &mut x)?; // executed after the first
/// assert_eq!(x.into_host(&s)?[0], 4.0);
/// # Ok(()) });
/// ```
pub struct Stream<'s, D: Device> {
    /// The first field, so that it is dropped first.
    _unwinding: Unwinding<D>,
    raw: Unshared<D::Stream>,
    /// If somebody observes the rank. It is dropped after the stream, whose last work may fail, and before the world,
    /// with which the rank may leave.
    observed: Option<ObservedStream>,
    process: Process,
    world: World<D>,
    name: StreamName,
    /// What replays must arm and count. It is filled while the stream is captured.
    noted: Unshared<RefCell<Noted<D>>>,
    brand: Brand<'s>,
    _not_sync: OneThreadAtATime<D>,
}

/// When a panic unwinds past one stream of the rank, this ends the waits of all its streams. The stream may wait for
/// another one, which is dropped only after it.
struct Unwinding<D: Device>(World<D>, StreamName);

impl<D: Device> Drop for Unwinding<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort_streams(&self.1);
        }
    }
}

/// Makes a stream `!Sync`, since nothing implements [`SharedByThreads`].
struct OneThreadAtATime<D>(PhantomData<fn(D)>);

/// A bound that no stream fulfils. Its error message says what to do instead of sharing one.
#[diagnostic::on_unimplemented(
    message = "a stream is used by one thread at a time",
    label = "not shared between threads",
    note = "a stream can be moved to another thread, and each thread can have one of its own: `stream!(let s = world.stream()?);`",
    note = "a task that moves between threads (`tokio::spawn`) makes its streams itself, and holds no `&Stream` across an `.await`: `tidegate::guide::in_async_programs` has both"
)]
trait SharedByThreads {}

// SAFETY: no type fulfils the bound, so this implements nothing.
unsafe impl<D> Sync for OneThreadAtATime<D> where OneThreadAtATime<D>: SharedByThreads {}

/// A cell that threads do not share, because it is in a [`Stream`].
struct Unshared<S>(S);

// SAFETY: it is used only in a `Stream`, which `OneThreadAtATime` makes `!Sync`. So the compiler reports one error
// about sharing a stream, and not one for each cell in a device's stream.
unsafe impl<S: Send> Sync for Unshared<S> {}

impl<'s, D: Device> Stream<'s, D> {
    pub(crate) fn raw(&self) -> &D::Stream {
        &self.raw.0
    }

    /// The world that the stream was made for.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// println!("rank {}", s.world().rank());
    /// # Ok(()) });
    /// ```
    pub fn world(&self) -> &World<D> {
        &self.world
    }

    /// If somebody observes the rank: what tells them.
    #[inline]
    pub(crate) fn observed(&self) -> Option<&ObservedStream> {
        self.observed.as_ref()
    }

    /// The stream's name: that of its variable, if the program gave no other.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// stream!(let s = world.named_stream("halo")?);
    /// assert_eq!(s.name(), "halo");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How many blocks the widest call of an epoch or a collective has had that was enqueued on this stream or recorded
    /// by it. Each block takes at most one multiprocessor of a GPU away from kernels while the call runs. On the host it
    /// is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    /// AllReduce::once(&s, &mut x, Op::Sum)?;
    /// println!("the sum takes up to {} multiprocessors", s.widest());
    /// # assert_eq!(s.widest(), 0);
    /// # Ok(()) });
    /// ```
    pub fn widest(&self) -> usize {
        self.raw.0.widest()
    }

    /// Refuses a call if the stream is being captured, or belongs to another process.
    pub(crate) fn not_capturing(&self, what: &'static str) -> Result<()> {
        self.process.check()?;
        if self.raw.0.capturing() {
            Err(Error::Capture(CaptureError::Inside { what }))
        } else {
            Ok(())
        }
    }

    /// Notes the arms for each replay, while the stream is captured.
    pub(crate) fn note_arms(&self, arms: &[Arm<D>]) {
        // The numbers order the arms with those of another stream of the same capture.
        let numbered = arms.iter().map(|arm| (fresh_id(), arm.clone()));
        self.noted.0.borrow_mut().arms.extend(numbered);
    }

    /// Notes an act of each replay towards this rank itself, while the stream is captured.
    pub(crate) fn note_act(&self, act: RecordedAct<D>) {
        let number = fresh_id();
        self.noted.0.borrow_mut().acts.push((number, act));
    }

    /// Notes an epoch of each replay, while the stream is captured.
    pub(crate) fn note_epoch(&self, epochs: &Arc<Epochs>, members: Option<&[usize]>) {
        self.noted.0.borrow_mut().epochs.note(epochs, members);
    }

    /// Notes a half that each replay lends to a kernel.
    pub(crate) fn note_lent(&self, epochs: &Arc<Epochs>) {
        self.noted.0.borrow_mut().epochs.note_lent(epochs);
    }

    /// Notes work of each replay, while the stream is captured.
    pub(crate) fn note_step(&self, step: NotedStep) {
        let number = fresh_id();
        self.noted.0.borrow_mut().steps.push((number, 0, step));
    }

    /// Takes what was noted since the last call.
    pub(crate) fn noted(&self) -> Noted<D> {
        self.noted.0.take()
    }

    /// Refuses a call if the stream has failed, or belongs to another process.
    #[inline]
    pub(crate) fn healthy(&self) -> Result<()> {
        self.process.check()?;
        match self.raw.0.fault() {
            None => Ok(()),
            Some(fault) => Err(self.world.explain(fault, self.name())),
        }
    }

    /// Blocks until the stream has done everything that is enqueued.
    ///
    /// # Errors
    ///
    /// The error that made the stream fail, [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the
    /// stream is captured, [`Error::Device`] if the device refuses, or [`Error::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// s.synchronize()?;
    /// assert!(s.is_idle());
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_in(Call::Synchronize, Location::caller())
    }

    /// Notes the place of a call of the program that may block on the stream.
    #[inline]
    pub(crate) fn called_at(&self, site: CallSite) {
        self.raw().reclaim().calls().called_at(site);
    }

    /// Like [`Stream::synchronize`], for a call that reports can name.
    pub(crate) fn synchronize_in(&self, call: Call, site: CallSite) -> Result<()> {
        let raw = self.raw();
        self.called_at(site);
        let wait = || (raw.reclaim().calls()).during(call, || raw.synchronize());
        let waited = match self.observed() {
            None => wait(),
            Some(observed) => {
                // A lock may be held for ever in a forked child.
                self.process.check()?;
                observed.synchronizes(call, site, wait)
            }
        };
        waited?.map_err(|fault| self.world.explain(fault, self.name()))
    }

    /// Like [`Stream::synchronize`], without blocking the thread: waits for everything that was enqueued before this
    /// call. It works on any executor. The future is `Send`, so a task that awaits its streams may move between threads
    /// (`tokio::spawn`). Dropping the future has no effect on the stream.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// async fn solve(world: World) -> Result<f64> {
    ///     stream!(let s = world.stream()?);
    ///     let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
    ///     s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?;
    ///     s.synchronized().await?;
    ///     Ok(x.into_host_async(&s).await?[0])
    /// }
    /// fn is_send<F: Send>(future: F) -> F {
    ///     future
    /// }
    /// # tidegate::doc::ranks(1, |world| {
    /// # use std::task::{Context, Poll, Waker};
    /// let mut solved = Box::pin(is_send(solve(world)));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # let x = loop {
    /// #     if let Poll::Ready(x) = solved.as_mut().poll(&mut context) { break x? }
    /// # };
    /// # assert_eq!(x, 2.0);
    /// # Ok(()) });
    /// ```
    ///
    /// Everything that a task holds while it awaits must be `Send`, too. A stream that the task owns is `Send`; a
    /// `&Stream` in a variable is not, since a stream is not `Sync`.
    ///
    /// # Errors
    ///
    /// The same as [`Stream::synchronize`].
    #[track_caller]
    pub fn synchronized<'a>(&'a self) -> impl Future<Output = Result<()>> + Send + use<'a, 's, D> {
        let begun = self.not_capturing("synchronisation");
        // The future borrows parts of the stream, and not the stream itself, which is not `Sync`.
        let (world, name, process) = (&self.world, self.name(), self.process);
        let (reclaim, followed) = (&**self.raw.0.reclaim(), self.raw.0.followed());
        let passed = Passed::new(reclaim, self.raw.0.mark(), Location::caller());
        async move {
            begun?;
            passed.await;
            process.check()?;
            let fault = reclaim.fault();
            match fault.or_else(|| followed.iter().find_map(|other| other.fault())) {
                None => Ok(()),
                Some(fault) => Err(world.explain(fault, name)),
            }
        }
    }

    /// Whether the stream has done everything that is enqueued.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// assert!(s.is_idle());
    /// # Ok(()) });
    /// ```
    pub fn is_idle(&self) -> bool {
        self.raw.0.reclaim().passed() >= self.raw.0.mark()
    }
}

impl<D: Device> std::fmt::Debug for Stream<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("name", &self.name)
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}

impl<D: Device> std::fmt::Debug for UnboundStream<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnboundStream")
            .field("name", &self.name)
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}
