//! How a window keeps origins apart.

/// How a window keeps origins apart. Sealed.
pub trait Discipline: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    const KIND: Kind;
}

/// One slot an origin (and key), disjoint by construction.
#[derive(Clone, Copy, Debug)]
pub struct BySlot;

/// Ranges of displacements, declared by the origins and checked to be disjoint.
#[derive(Clone, Copy, Debug)]
pub struct ByRange;

/// Any displacement, atomic operations only: each origin's in the order in which it notes them.
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
