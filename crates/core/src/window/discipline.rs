//! The disciplines: how a window keeps its origins apart.

/// How a window keeps origins apart. Sealed.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::{generic, window::Discipline};
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// /// Works with an inbox of any window.
/// fn heard<K: Discipline>(inbox: &generic::Inbox<'_, u64, Host, K>) -> usize {
///     inbox.origins().count()
/// }
/// assert_eq!(heard(&inbox), 1);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the discipline of a window",
    label = "neither `BySlot`, `ByRange` nor `Atomic`",
    note = "the module of each device has aliases with the device filled in: `tidegate::host::Inbox<'s, f64>` is `tidegate::generic::Inbox<'s, f64, Host>`",
    note = "code for any device `D` uses the types of `tidegate::generic`: `use tidegate::generic::{{Inbox, On, Outbox, Region, Stream}};`"
)]
pub trait Discipline: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    const KIND: Kind;
}

/// A discipline whose epochs kernels can fill ([`Outbox::open`](super::Outbox::open)): [`BySlot`] and [`ByRange`]. Sealed.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::{generic, window::Fillable};
///
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// /// An epoch in which no kernel does anything.
/// fn pass<'s, K: Fillable>(
///     s: &Stream<'s>,
///     outbox: generic::Outbox<'s, u64, Host, K>,
/// ) -> Result<generic::Outbox<'s, u64, Host, K>> {
///     outbox.open(s)?.complete(s)
/// }
/// let exposed = inbox.post(s)?;
/// let _outbox = pass(s, outbox)?;
/// # let _inbox = exposed.wait(s)?;
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "kernels cannot fill epochs of a window of the discipline `{Self}`",
    label = "neither `BySlot` nor `ByRange`"
)]
pub trait Fillable: Discipline {}

impl Fillable for BySlot {}
impl Fillable for ByRange {}

/// Each origin has slots of its own, one for each key. Slots never share memory.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// /// `Inbox<'s, f64>` is the same type: `BySlot` is the default.
/// struct Halo<'s> {
///     inbox: Inbox<'s, f64, BySlot>,
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BySlot;

/// Each origin declares ranges or layouts of its targets' memory. All ranks check that they are disjoint.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// struct Block<'s> {
///     inbox: Inbox<'s, f64, ByRange>,
///     outbox: Outbox<'s, f64, ByRange>,
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ByRange;

/// Any origin may update any element, by atomic operations only. Each element sees the operations of one origin's epoch
/// in the order in which the origin noted them. Between elements there is no order.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// struct Counters<'s> {
///     inbox: Inbox<'s, u64, Atomic>,
///     outbox: Outbox<'s, u64, Atomic>,
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Atomic;

/// A discipline at run time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    Slot,
    Range,
    Atomic,
}

impl Discipline for BySlot {
    const KIND: Kind = Kind::Slot;
}
impl Discipline for ByRange {
    const KIND: Kind = Kind::Range;
}
impl Discipline for Atomic {
    const KIND: Kind = Kind::Atomic;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::BySlot {}
    impl Sealed for super::ByRange {}
    impl Sealed for super::Atomic {}
}
