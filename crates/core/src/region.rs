//! Regions: memory that belongs to the host or to one stream at a time.
//!
//! # Model
//!
//! A [`Region`] is a contiguous run of elements in the memory of a device. Its second type parameter says where it is
//! at home. The CPU reads and writes a region with [`OnHost`]. Only kernels and epochs of one stream can use a region
//! with [`On`]. A region moves between the two by value: [`Region::on`] costs nothing, and [`Region::into_host`] waits
//! for the stream.
//!
//! A program can drop a region at any time. Its memory is freed when its stream has done all work that was enqueued
//! before the drop. A region that is forgotten (`std::mem::forget`) leaks.
//!
//! # Failure
//!
//! A call that takes a region drops it when it fails. To keep the contents, use the twin whose name begins with `try_`,
//! which returns the region: [`Region::try_into_host`] on a stream that has failed, say. The region then holds what the
//! last finished work left in it.

mod debug;
mod home;
mod host;
mod look;
mod memory;
mod split;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tidegate_hal::device::{Device, Reclaim};
use tidegate_hal::memory::{Allocation, Block as _, Ptr, Sharing};
use tidegate_hal::nic::Keep;
use tidegate_hal::site::CallSite;

use crate::carry::{Carry, Visitor};
use crate::element::{Element, LARGEST};
use crate::error::{Error, RegionError, Result, no_memory};
use crate::ground::{ReclaimOf, fresh_id};
use crate::nic::{Tickets, Touch};
use crate::place::{On, OnHost, Place};
use crate::stream::Stream;
use crate::world::World;

/// A contiguous run of elements. `P` says who may touch it now: [`OnHost`] or [`On`].
///
/// `Debug` shows the first 8 elements of a region that is at home on the host:
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
    pub(crate) body: RegionBody<P::Device>,
    marker: PhantomData<(T, P)>,
}

/// The alignment of all device memory, and the greatest alignment of an element.
const ALIGN: usize = 64;

/// The address of an empty region, which has no memory. A slice of no elements may begin there.
const NOWHERE: Ptr = Ptr(std::ptr::without_provenance_mut(ALIGN));

/// A region without its types.
pub(crate) struct RegionBody<D: Device> {
    /// The memory, shared with the other parts if the region was split.
    block: Option<Arc<D::Block>>,
    device: D,
    /// The address of the first element, or [`NOWHERE`]. It is kept here because each operation of an epoch needs it.
    base: Ptr,
    /// The number of elements.
    len: usize,
    /// Something that kernels need beside the memory, for as long as they need the memory.
    keep: Option<Arc<dyn Any + Send + Sync>>,
    /// A number that is used once in a process. By it a recording and a cached plan recognise the region.
    pub(crate) id: u64,
    /// The stream that it is at home on.
    pub(crate) home: Option<Arc<ReclaimOf<D>>>,
    /// The operations of a NIC that may still access the region; unset until a NIC first does. All of them belong to
    /// the region's home stream.
    tickets: OnceLock<Arc<Tickets>>,
}

impl<D: Device> RegionBody<D> {
    /// The address of the first element. It is never null and always aligned, even if the region is empty.
    pub(crate) fn ptr(&self) -> Ptr {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A second handle to the same memory, for a part of it. `keep` lives as long as the memory.
    pub(crate) fn share(&self, keep: Arc<dyn Any + Send + Sync>) -> Self {
        let mut body = self.whole();
        body.keep = Some(keep);
        body
    }

    /// A second handle to the same memory. The caller makes sure that only one of the two gives access to an element.
    pub(crate) fn whole(&self) -> Self {
        RegionBody {
            block: self.block.clone(),
            device: self.device.clone(),
            base: self.base,
            len: self.len,
            keep: None,
            id: fresh_id(),
            home: self.home.clone(),
            // Tickets are not shared: each part waits for its own, perhaps on another stream.
            tickets: match self.outstanding() {
                Some(tickets) => OnceLock::from(Arc::new(tickets.copy())),
                None => OnceLock::new(),
            },
        }
    }

    /// The tickets, which are made on first use.
    pub(crate) fn tickets(&self) -> &Arc<Tickets> {
        self.tickets.get_or_init(|| {
            let memory: Keep = match &self.block {
                Some(block) => block.clone(),
                None => Arc::new(()),
            };
            Arc::new(Tickets::new(memory))
        })
    }

    /// The tickets, if there are any.
    #[inline]
    pub(crate) fn outstanding(&self) -> Option<&Arc<Tickets>> {
        self.tickets.get().filter(|tickets| tickets.any())
    }

    /// Enqueues the wait for those tickets that conflict with `touch`.
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

    /// Checks whether the region can move to this stream.
    pub(crate) fn may_be_on(&self, stream: &Stream<'_, D>) -> Result<()> {
        stream.not_capturing("bringing memory to the stream")?;
        if self.device.same(stream.world().device()) {
            Ok(())
        } else {
            Err(RegionError::OtherDevice.into())
        }
    }

    /// Enqueues the waits for everything that must end before the host may have the region.
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

    /// The `Debug` text of a value that consists of this region with elements `T`.
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

impl<D: Device> Drop for RegionBody<D> {
    fn drop(&mut self) {
        // Work of the stream may still use the memory, so it is retired in stream order. At home on the host nothing
        // uses it. A part of an empty region has no memory, but its kernels may still use what it keeps.
        let (block, keep) = (self.block.take(), self.keep.take());
        if let Some(home) = &self.home
            && (block.is_some() || keep.is_some())
        {
            home.retire(Box::new((block, keep)));
        }
    }
}

impl<T: Element, P: Place> Region<T, P> {
    pub(crate) fn from_body(body: RegionBody<P::Device>) -> Self {
        Region {
            body,
            marker: PhantomData,
        }
    }

    /// The number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// assert_eq!(Region::<f64>::zeroed(world, 3)?.len(), 3);
    /// # Ok(()) });
    /// ```
    pub fn len(&self) -> usize {
        self.body.len
    }

    /// Whether it has no elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// assert!(Region::<f64>::zeroed(world, 0)?.is_empty());
    /// # Ok(()) });
    /// ```
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

// The bound is on each function, so that the compiler's error about it explains what an element is.
impl<T, D: Device> Region<T, OnHost<D>> {
    /// Allocates `len` elements, which may be 0. All bytes are zero.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is not enough memory, also if the size overflows; [`Error::Forked`].
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
    /// The same as [`Region::zeroed`].
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
    /// Copies the first elements, at most `most`.
    fn first(&self, most: usize) -> Result<Vec<T>> {
        let len = most.min(self.len());
        if len == 0 {
            return Ok(Vec::new());
        }
        // This does not clone an element: it may be larger than a stack, and `Clone` is the program's code.
        let layout = std::alloc::Layout::array::<T>(len).ok();
        let memory = layout.and_then(Allocation::zeroed);
        let memory = memory.ok_or_else(|| no_memory::<T>(len))?;
        // SAFETY: there is room for `len` elements, and any bytes are valid elements.
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
        Self::from_body(RegionBody {
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
}

// SAFETY: the one leaf is visited, and only `On<'s, D>` mentions the brand.
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
