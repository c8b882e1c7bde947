//! Regions: memory that belongs to the host or to one stream at a time.
//!
//! # Model
//!
//! A [`Region`] is a contiguous run of elements in the memory of a device. Its second type parameter says where it is at
//! home. A region with [`OnHost`] is at home with the host: the CPU reads and writes it. A region with [`On`] is at home on a
//! stream: only kernels and epochs of that stream can use it. A region moves between the two by value: [`Region::on`] costs
//! nothing, and [`Region::into_host`] waits for the stream.
//!
//! A program can drop a region at any time. Its memory is freed when its stream has done all work that was enqueued before
//! the drop. A region that is forgotten leaks.
//!
//! # Failure
//!
//! A call that takes a region drops it when it fails. To keep the contents, use the call's twin, which returns the region:
//! [`Region::try_into_host`] on a stream that has failed, say. The region then holds what the last finished work left in it.

mod debug;
mod host;
mod look;
mod memory;
mod split;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use tidegate_hal::device::{Call, Device, Reclaim, Stream as _};
use tidegate_hal::memory::{Allocation, Block as _, Ptr, Sharing};
use tidegate_hal::nic::Keep;
use tidegate_hal::site::CallSite;

use crate::carry::{Carry, Visitor};
use crate::element::{Element, LARGEST};
use crate::error::{Error, RegionError, Rejected, Result, no_memory};
use crate::ground::{ReclaimOf, fresh_id};
use crate::nic::{Tickets, Touch};
use crate::place::{On, OnHost, Place};
use crate::stream::Stream;
use crate::world::World;

/// A contiguous run of elements. `P` says who may touch it now: [`OnHost`] or [`On`].
///
/// `Debug` shows the first 8 elements of a region that is at home with the host:
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(1, |world| {
/// let region = Region::from_slice(&world, &[1.5, 2.0])?;
/// let said = r#"Region { element: f64, device: "host", home: host, len: 2, values: [1.5, 2.0] }"#;
/// assert_eq!(format!("{region:?}"), said);
/// stream!(let s = world.stream()?);
/// let region = region.on(&s)?;
/// let said = r#"Region { element: f64, device: "host", home: stream, len: 2 }"#;
/// assert_eq!(format!("{region:?}"), said);
/// # Ok(()) });
/// ```
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::stream(|world, s| {
/// let x = Region::from_slice(world, &[1.0, 2.0])?; // with the host
/// let mut x = x.on(s)?; // on the stream
/// s.launch(|x: &mut [f64]| x.reverse(), &mut x)?;
/// let x = x.into_host(s)?; // waits for the stream
/// assert_eq!(x[..], [2.0, 1.0]);
/// # Ok(()) });
/// ```
pub struct Region<T, P: Place> {
    pub(crate) body: Body<P::Device>,
    marker: PhantomData<(T, P)>,
}

/// The alignment of all memory of a device, and the greatest of an element.
const ALIGN: usize = 64;

/// Where the elements of an empty region lie: there is no memory, and a slice of no elements may begin there.
const NOWHERE: Ptr = Ptr(std::ptr::without_provenance_mut(ALIGN));

/// A region less its types.
pub(crate) struct Body<D: Device> {
    /// Shared with the other parts, if the region was split.
    block: Option<Arc<D::Block>>,
    device: D,
    /// Its first byte, in the block, or [`NOWHERE`]. (Each operation of an epoch asks for it.)
    base: Ptr,
    /// Elements.
    len: usize,
    /// What kernels need beside the memory, and for as long.
    keep: Option<Arc<dyn Any + Send + Sync>>,
    /// Never used twice in a process, so that a recording and a cached plan know a region again.
    pub(crate) id: u64,
    /// The stream that it is at home on.
    pub(crate) home: Option<Arc<ReclaimOf<D>>>,
    /// What a NIC may still be doing with it; nothing, as long as no NIC has had to do with it. None of another stream
    /// than its home's.
    tickets: OnceLock<Arc<Tickets>>,
}

impl<D: Device> Body<D> {
    /// The first element. It is never null, and aligned as elements are, also where the region has none.
    pub(crate) fn ptr(&self) -> Ptr {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The same memory once more, for a part of it; `keep` lives as long as the memory.
    pub(crate) fn share(&self, keep: Arc<dyn Any + Send + Sync>) -> Self {
        let mut body = self.whole();
        body.keep = Some(keep);
        body
    }

    /// The same memory once more. Whoever calls this sees to it that the two do not both give access to an element.
    pub(crate) fn whole(&self) -> Self {
        Body {
            block: self.block.clone(),
            device: self.device.clone(),
            base: self.base,
            len: self.len,
            keep: None,
            id: fresh_id(),
            home: self.home.clone(),
            // Not shared: each part waits on its own, perhaps on another stream.
            tickets: match self.outstanding() {
                Some(tickets) => OnceLock::from(Arc::new(tickets.copy())),
                None => OnceLock::new(),
            },
        }
    }

    /// Its tickets, made the first time.
    pub(crate) fn tickets(&self) -> &Arc<Tickets> {
        self.tickets.get_or_init(|| {
            let memory: Keep = match &self.block {
                Some(block) => block.clone(),
                None => Arc::new(()),
            };
            Arc::new(Tickets::new(memory))
        })
    }

    /// Its tickets, if it holds any.
    #[inline]
    pub(crate) fn outstanding(&self) -> Option<&Arc<Tickets>> {
        self.tickets.get().filter(|tickets| tickets.any())
    }

    /// Enqueues the wait for tickets that stand against `touch`, if there are any.
    #[inline]
    pub(crate) fn settle(
        &self,
        stream: &Stream<'_, D>,
        touch: Touch,
        site: CallSite,
    ) -> Result<()> {
        match self.outstanding() {
            None => Ok(()),
            Some(tickets) => tickets.settle(stream, touch, site),
        }
    }

    /// An error if it cannot be brought to a stream, now or at all.
    pub(crate) fn may_be_on(&self, stream: &Stream<'_, D>) -> Result<()> {
        stream.not_capturing("bringing memory to the stream")?;
        if self.device.same(stream.world().device()) {
            Ok(())
        } else {
            Err(RegionError::OtherDevice.into())
        }
    }

    /// Enqueues all that must be over before the host may have it.
    pub(crate) fn leave(&self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        stream.not_capturing("synchronisation")?;
        self.settle(stream, Touch::Write, site)
    }

    /// Takes over the tickets of another part of the memory.
    pub(crate) fn inherit(&self, other: &Self) {
        if let Some(others) = other.outstanding() {
            self.tickets().merge(others);
        }
    }

    /// What `Debug` says of what is made of it, of elements `T`.
    pub(crate) fn debug<'a, 'b, T>(
        &self,
        name: &str,
        home: &str,
        f: &'a mut fmt::Formatter<'b>,
    ) -> fmt::DebugStruct<'a, 'b> {
        let mut said = f.debug_struct(name);
        said.field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("device", &D::NAME)
            .field("home", &format_args!("{home}"));
        said
    }

    pub(crate) fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        if let Some(tickets) = self.outstanding() {
            visitor.tickets(tickets);
        }
        let id = self.id;
        if let Some(home) = &mut self.home {
            visitor.leaf(id, home, None);
        }
    }
}

impl<D: Device> Drop for Body<D> {
    fn drop(&mut self) {
        // Work of the stream may still touch the memory; the host's own memory nobody touches. Of a part of an empty
        // region there is no memory, but its kernels look at what it keeps all the same.
        let (block, keep) = (self.block.take(), self.keep.take());
        if let Some(home) = &self.home
            && (block.is_some() || keep.is_some())
        {
            home.retire(Box::new((block, keep)));
        }
    }
}

impl<T: Element, P: Place> Region<T, P> {
    pub(crate) fn from_body(body: Body<P::Device>) -> Self {
        Region {
            body,
            marker: PhantomData,
        }
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.body.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.body.len == 0
    }
}

pub(crate) fn bounds(what: &'static str, range: Range<usize>, len: usize) -> Error {
    let (first, end) = (range.start, range.end);
    Error::Region(RegionError::OutOfBounds {
        what,
        first,
        end,
        len,
    })
}

// The bound is on each function, so that an error about it says what an element is.
impl<T, D: Device> Region<T, OnHost<D>> {
    /// Allocates `len` elements, all bytes zero. A region may have none.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is not enough memory (an overflow of the size counts as that).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::<f64>::zeroed(world, 1000)?;
    /// assert_eq!((x.len(), x[999]), (1000, 0.0));
    /// # Ok(()) });
    /// ```
    pub fn zeroed(world: &World<D>, len: usize) -> Result<Self>
    where
        T: Element,
    {
        Self::allocate(world.device(), len)
    }

    /// Allocates a copy of `values`.
    ///
    /// # Errors
    ///
    /// As [`Region::zeroed`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.5, 2.5])?;
    /// assert_eq!(x[..], [1.5, 2.5]);
    /// # Ok(()) });
    /// ```
    pub fn from_slice(world: &World<D>, values: &[T]) -> Result<Self>
    where
        T: Element,
    {
        let mut region = Self::zeroed(world, values.len())?;
        region.write(0, values)?;
        Ok(region)
    }
}

impl<T: Element, D: Device> Region<T, OnHost<D>> {
    /// A copy of the first elements, at most so many.
    fn first(&self, most: usize) -> Result<Vec<T>> {
        let len = most.min(self.len());
        if len == 0 {
            return Ok(Vec::new());
        }
        // Not as copies of one element: that may be larger than a stack, and its `Clone` is the program's.
        let layout = std::alloc::Layout::array::<T>(len).ok();
        let memory = layout.and_then(Allocation::zeroed);
        let memory = memory.ok_or_else(|| no_memory::<T>(len))?;
        // SAFETY: there is room for so many elements, and all bytes are valid ones.
        let values = unsafe { memory.into_vec(len) };
        let mut values = values.expect("it was allocated for these");
        self.read(0, &mut values)?;
        Ok(values)
    }

    fn over(block: Option<Arc<D::Block>>, device: &D, len: usize) -> Self {
        const { assert!(size_of::<T>() != 0, "elements have a size other than 0") };
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "elements are aligned to 64 bytes at most"
            )
        };
        const { assert!(size_of::<T>() <= LARGEST, "elements have less than 4 GiB") };
        let base = block.as_ref().map_or(NOWHERE, |block| block.base());
        Self::from_body(Body {
            block,
            device: device.clone(),
            base,
            len,
            keep: None,
            id: fresh_id(),
            home: None,
            tickets: OnceLock::new(),
        })
    }

    fn allocate(device: &D, len: usize) -> Result<Self> {
        let block = if len == 0 {
            None
        } else {
            let bytes = len
                .checked_mul(size_of::<T>())
                .filter(|bytes| isize::try_from(*bytes).is_ok());
            let bytes = bytes.ok_or_else(|| {
                let detail = format!("{len} elements of {} bytes", size_of::<T>());
                tidegate_hal::device::DeviceError::Exhausted {
                    what: "memory",
                    detail,
                }
            })?;
            Some(Arc::new(device.alloc(bytes, Sharing::Private)?))
        };
        Ok(Self::over(block, device, len))
    }

    /// Hands the region to a stream: from now on, only work of that stream can touch it.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the stream is captured;
    /// [`RegionError::OtherDevice`] if it is a stream of another device; [`Error::Forked`]. The region is gone then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// # Ok(()) });
    /// ```
    pub fn on<'s>(self, stream: &Stream<'s, D>) -> Result<Region<T, On<'s, D>>> {
        self.try_on(stream).map_err(Rejected::into_error)
    }

    /// As [`Region::on`], but the region comes back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Region::on`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0])?;
    /// match x.try_on(s) {
    ///     Ok(x) => s.launch(|x: &[f64]| println!("{}", x[0]), &x)?,
    ///     Err(refused) => println!("{}", refused.value[0]), // the host still has it
    /// }
    /// # Ok(()) });
    /// ```
    pub fn try_on<'s>(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Region<T, On<'s, D>>, Rejected<Self>> {
        if let Err(error) = self.body.may_be_on(stream) {
            return Err(Rejected::new(error, self));
        }
        self.body.home = Some(stream.raw().reclaim().clone());
        Ok(Region {
            body: self.body,
            marker: PhantomData,
        })
    }
}

impl<'s, T: Element, D: Device> Region<T, On<'s, D>> {
    /// Waits until the stream has done everything that was enqueued, and gives the region to the host.
    ///
    /// # Errors
    ///
    /// The error that made the stream fail; [`CaptureError::Inside`](crate::error::CaptureError::Inside) while it is captured. The region is gone then: its memory is freed
    /// when the stream has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    /// let x = x.into_host(s)?; // waits for the kernel
    /// assert_eq!(x[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn into_host(self, stream: &Stream<'s, D>) -> Result<Region<T, OnHost<D>>> {
        self.try_into_host(stream).map_err(Rejected::into_error)
    }

    /// As [`Region::into_host`], but the region comes back if it fails, still on the stream.
    ///
    /// # Errors
    ///
    /// As [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
    /// s.launch(|_: &mut [f64]| panic!("no number"), &mut x)?;
    /// let refused = x.try_into_host(s).unwrap_err();
    /// println!("{}; {:?} is still on the stream", refused.error, refused.value);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_into_host(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<Region<T, OnHost<D>>, Rejected<Self>> {
        let site = Location::caller();
        let left = self.body.leave(stream, site);
        match left.and_then(|()| stream.synchronize_in(Call::IntoHost, site)) {
            Ok(()) => Ok(self.at_host()),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// As [`Region::into_host`], without blocking the thread; the future is `Send`, as that of [`Stream::synchronized`]. If
    /// it is dropped before its end, the region goes with it: its memory is freed when the stream has passed.
    ///
    /// # Errors
    ///
    /// As [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// async fn double(world: World, value: f64) -> Result<f64> {
    ///     stream!(let s = world.stream()?);
    ///     let mut x = Region::from_slice(&world, &[value])?.on(&s)?;
    ///     s.launch(|x: &mut [f64]| x[0] *= 2.0, &mut x)?;
    ///     Ok(x.into_host_async(&s).await?[0])
    /// }
    /// # use std::task::{Context, Poll, Waker};
    /// # tidegate::doc::ranks(1, |world| {
    /// # let mut future = Box::pin(double(world, 1.5));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # loop {
    /// #     if let Poll::Ready(x) = future.as_mut().poll(&mut context) { break assert_eq!(x?, 3.0) }
    /// # }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn into_host_async<'a>(
        self,
        stream: &'a Stream<'s, D>,
    ) -> impl Future<Output = Result<Region<T, OnHost<D>>>> + Send + use<'a, 's, T, D> {
        let host = self.try_into_host_async(stream);
        async move { host.await.map_err(Rejected::into_error) }
    }

    /// As [`Region::into_host_async`], but the region comes back if it fails, still on the stream.
    ///
    /// # Errors
    ///
    /// As [`Region::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// async fn see<'s>(s: &Stream<'s>, x: Region<f64, On<'s>>) {
    ///     match x.try_into_host_async(s).await {
    ///         Ok(x) => println!("{}", x[0]),
    ///         Err(refused) => println!("{}; {:?}", refused.error, refused.value),
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn try_into_host_async<'a>(
        self,
        stream: &'a Stream<'s, D>,
    ) -> impl Future<Output = Result<Region<T, OnHost<D>>, Rejected<Self>>> + Send + use<'a, 's, T, D>
    {
        let left = match self.body.leave(stream, Location::caller()) {
            Ok(()) => Ok(stream.synchronized()),
            Err(error) => Err(error),
        };
        async move {
            let left = match left {
                Ok(synchronized) => synchronized.await,
                Err(error) => Err(error),
            };
            match left {
                Ok(()) => Ok(self.at_host()),
                Err(error) => Err(Rejected::new(error, self)),
            }
        }
    }

    fn at_host(mut self) -> Region<T, OnHost<D>> {
        self.body.home = None;
        Region {
            body: self.body,
            marker: PhantomData,
        }
    }
}

// SAFETY: the one leaf is visited; `On<'s, D>` is the only mention of the brand.
unsafe impl<'s, T: Element, D: Device> Carry<'s, D> for Region<T, On<'s, D>> {
    type At<'t> = Region<T, On<'t, D>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.body.visit(visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_host::Host;

    #[test]
    fn regions_can_be_sent_and_those_of_the_host_shared() {
        fn send<T: Send>() {}
        fn sync<T: Sync>() {}
        send::<Region<u64, OnHost<Host>>>();
        send::<Region<u64, On<'_, Host>>>();
        sync::<Region<u64, OnHost<Host>>>();
    }

    #[test]
    fn what_is_in_no_window_is_said_to_be_in_none() {
        World::<Host>::local(1, |world| {
            let region = Region::<u64, _>::zeroed(&world, 100).unwrap();
            let error = region.read(95, &mut [0; 6]).unwrap_err().to_string();
            assert_eq!(
                error,
                "elements 95..101 do not fit in a region of 100 elements"
            );
            crate::stream!(let s = world.stream().unwrap());
            let region = region.on(&s).unwrap();
            let error = region.slice(0..101).err().unwrap().to_string();
            assert_eq!(
                error,
                "elements 0..101 do not fit in a region of 100 elements"
            );
        });
    }
}
