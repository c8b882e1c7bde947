//! The things that are at home on one stream: regions and halves of windows of all types, by their numbers.
//!
//! A brand is a type, so the place of a thing cannot be a field. So there is a bag for each stream, and handing off
//! moves things from bag to bag.

use tidegate::capture::Visitor;
use tidegate::generic::{Device, HostAccess};
use tidegate::generic::{Exposed, Inbox, Layout, On, Outbox, Region, Stream};
use tidegate::host::prelude::*;
use tidegate::window::{Discipline, Memory, MemoryMut};

use super::job::{Job, Res};
use super::value::Ty;

/// An element type.
pub(crate) trait Elem: tidegate::Element {
    const TY: Ty;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    /// The place of things of this type in a bag.
    fn shelf<'a, 's, D: Device>(bag: &'a mut Bag<'s, D>) -> &'a mut Shelf<'s, Self, D>;
}

/// A struct of plain data.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub(crate) struct Pixel {
    a: u32,
    b: u16,
    c: [u8; 2],
}

pub(crate) type Halves<'s, T, K, D> = (
    Vec<Option<Inbox<'s, T, D, K>>>,
    Vec<Option<Exposed<'s, T, D, K>>>,
    Vec<Option<Outbox<'s, T, D, K>>>,
);
pub(crate) type Shelf<'s, T, D> = (
    Vec<Option<Region<T, On<'s, D>>>>,
    Halves<'s, T, BySlot, D>,
    Halves<'s, T, ByRange, D>,
    Halves<'s, T, Atomic, D>,
);

type Shelves<'s, D> = (
    Shelf<'s, u64, D>,
    Shelf<'s, u32, D>,
    Shelf<'s, u8, D>,
    Shelf<'s, i32, D>,
    Shelf<'s, f64, D>,
    Shelf<'s, Pixel, D>,
    Shelf<'s, [u16; 3], D>,
);

/// Everything that is at home on a stream.
pub(crate) struct Bag<'s, D: Device>(Shelves<'s, D>);

// SAFETY: this is what `#[derive(Carry)]` would write, which needs one device by name. `At` is the same struct with
// another brand; its one field is `Carry`, and is visited once.
unsafe impl<'s, D: Device> Carry<'s, D> for Bag<'s, D> {
    type At<'t> = Bag<'t, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.0.visit(visitor);
    }
}

impl<D: Device> Default for Bag<'_, D> {
    fn default() -> Self {
        Bag(Shelves::default())
    }
}

macro_rules! elems {
    ($($ty:ty, $name:ident, $field:tt, |$bits:ident| $of:expr, |$value:ident| $into:expr;)*) => {$(
        impl Elem for $ty {
            const TY: Ty = Ty::$name;
            fn of($bits: u64) -> Self {
                $of
            }
            fn bits(self) -> u64 {
                let $value = self;
                $into
            }
            fn shelf<'a, 's, D: Device>(bag: &'a mut Bag<'s, D>) -> &'a mut Shelf<'s, Self, D> {
                &mut bag.0.$field
            }
        }
    )*};
}

elems! {
    u64, U64, 0, |bits| bits, |value| value;
    u32, U32, 1, |bits| bits as u32, |value| u64::from(value);
    u8, U8, 2, |bits| bits as u8, |value| u64::from(value);
    i32, I32, 3, |bits| bits as u32 as i32, |value| u64::from(value as u32);
    f64, F64, 4, |bits| f64::from_bits(bits), |value| value.to_bits();
    Pixel, Pixel, 5,
        |bits| Pixel { a: bits as u32, b: (bits >> 32) as u16, c: ((bits >> 48) as u16).to_le_bytes() },
        |value| u64::from(value.a) | u64::from(value.b) << 32 | u64::from(u16::from_le_bytes(value.c)) << 48;
    [u16; 3], Triple, 6,
        |bits| [bits as u16, (bits >> 16) as u16, (bits >> 32) as u16],
        |value| u64::from(value[0]) | u64::from(value[1]) << 16 | u64::from(value[2]) << 32;
}

/// Evaluates an expression with a type that is only known at run time.
macro_rules! with_ty {
    ($ty:expr, $T:ident => $body:expr) => {{
        use $crate::schedules::{bag::Pixel, value::Ty};
        macro_rules! arm {
            ($real:ty) => {{
                type $T = $real;
                $body
            }};
        }
        match $ty {
            Ty::U64 => arm!(u64),
            Ty::U32 => arm!(u32),
            Ty::U8 => arm!(u8),
            Ty::I32 => arm!(i32),
            Ty::F64 => arm!(f64),
            Ty::Pixel => arm!(Pixel),
            Ty::Triple => arm!([u16; 3]),
        }
    }};
}
pub(crate) use with_ty;

/// Like `with_ty`, also with the discipline.
macro_rules! with_kind {
    ($win:expr, $T:ident, $K:ident => $body:expr) => {{
        use $crate::schedules::job::Kind;
        with_ty!($win.ty, $T => match $win.kind {
            Kind::Slots { .. } => {
                type $K = BySlot;
                $body
            }
            Kind::Ranges => {
                type $K = ByRange;
                $body
            }
            Kind::Atomic { .. } => {
                type $K = Atomic;
                $body
            }
        })
    }};
}
pub(crate) use with_kind;

/// A discipline whose halves have a place in the bag.
pub(crate) trait Keep: Discipline + Sized {
    fn halves<'a, 's, T: Elem, D: Device>(
        shelf: &'a mut Shelf<'s, T, D>,
    ) -> &'a mut Halves<'s, T, Self, D>;
}

impl Keep for BySlot {
    fn halves<'a, 's, T: Elem, D: Device>(
        shelf: &'a mut Shelf<'s, T, D>,
    ) -> &'a mut Halves<'s, T, Self, D> {
        &mut shelf.1
    }
}

/// A discipline whose memory is one run of elements.
#[allow(
    dead_code,
    reason = "a device needs the views, or the access in place: not all test programs have both"
)]
pub(crate) trait Flat: Keep {
    fn memory<'b, 's, T: Elem, D: Device>(inbox: &'b Inbox<'s, T, D, Self>)
    -> Memory<'b, 's, T, D>;
    fn memory_mut<'b, 's, T: Elem, D: Device>(
        inbox: &'b mut Inbox<'s, T, D, Self>,
    ) -> MemoryMut<'b, 's, T, D>;
    fn host_mut<'b, 's, T: Elem, D: HostAccess>(
        inbox: &'b mut Inbox<'s, T, D, Self>,
        stream: &Stream<'s, D>,
    ) -> Result<&'b mut [T]>;
}

macro_rules! flat {
    ($($kind:ty, $place:tt;)*) => {$(
        impl Keep for $kind {
            fn halves<'a, 's, T: Elem, D: Device>(
                shelf: &'a mut Shelf<'s, T, D>,
            ) -> &'a mut Halves<'s, T, Self, D> {
                &mut shelf.$place
            }
        }

        impl Flat for $kind {
            fn memory<'b, 's, T: Elem, D: Device>(
                inbox: &'b Inbox<'s, T, D, Self>,
            ) -> Memory<'b, 's, T, D> {
                inbox.memory()
            }
            fn memory_mut<'b, 's, T: Elem, D: Device>(
                inbox: &'b mut Inbox<'s, T, D, Self>,
            ) -> MemoryMut<'b, 's, T, D> {
                inbox.memory_mut()
            }
            fn host_mut<'b, 's, T: Elem, D: HostAccess>(
                inbox: &'b mut Inbox<'s, T, D, Self>,
                stream: &Stream<'s, D>,
            ) -> Result<&'b mut [T]> {
                inbox.host_mut(stream)
            }
        }
    )*};
}
flat! {
    ByRange, 2;
    Atomic, 3;
}

pub(crate) fn put<X>(places: &mut Vec<Option<X>>, index: usize, value: X) {
    if places.len() <= index {
        places.resize_with(index + 1, || None);
    }
    places[index] = Some(value);
}

pub(crate) fn take<X>(places: &mut [Option<X>], index: usize) -> X {
    let taken = places.get_mut(index).and_then(Option::take);
    taken.unwrap_or_else(|| panic!("number {index} is not in this bag"))
}

fn shift<X>(from: &mut [Option<X>], to: &mut Vec<Option<X>>, index: usize) {
    if let Some(value) = from.get_mut(index).and_then(Option::take) {
        put(to, index, value);
    }
}

impl<'s, D: Device> Bag<'s, D> {
    /// Moves things to another bag of the same stream.
    pub(crate) fn shift(&mut self, job: &Job, rank: usize, what: &[Res], to: &mut Self) {
        for res in what {
            match *res {
                Res::Region(id) => with_ty!(job.regions[rank][id].ty, T => {
                    shift(&mut T::shelf(self).0, &mut T::shelf(to).0, id);
                }),
                Res::Inbox(window) => with_kind!(job.windows[window], T, K => {
                    let (from, to) = (K::halves(T::shelf(self)), K::halves(T::shelf(to)));
                    shift(&mut from.0, &mut to.0, window);
                    shift(&mut from.1, &mut to.1, window);
                }),
                Res::Outbox(window) => with_kind!(job.windows[window], T, K => {
                    shift(&mut K::halves(T::shelf(self)).2, &mut K::halves(T::shelf(to)).2, window);
                }),
            }
        }
    }

    pub(crate) fn lend(&mut self, job: &Job, rank: usize, what: &[Res]) -> Self {
        let mut lent = Bag::default();
        self.shift(job, rank, what, &mut lent);
        lent
    }
}

/// How a run differs from the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adjust {
    /// The limit for waits.
    pub(crate) limit: Option<std::time::Duration>,
    /// One buffer instead of two, and the other way round.
    pub(crate) swap_buffers: bool,
    /// All ranks reach each other by this NIC.
    pub(crate) nic: Option<ByNic>,
}

/// A NIC with few trigger slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByNic {
    /// Trigger slots of each rank.
    pub(crate) slots: usize,
    /// What windows do if there are too few slots.
    pub(crate) throttle: tidegate::Throttle,
    /// The mutant that keeps no slot for operations that were rung for.
    pub(crate) greedy: bool,
}

/// The layouts of a rank. Each is made once, so that a repeated epoch is recognised.
pub(crate) type Layouts<D> = std::collections::HashMap<super::job::Lay, Layout<D>>;
/// The groups of a rank, each made once.
pub(crate) type Groups = std::collections::HashMap<Vec<usize>, Group>;
