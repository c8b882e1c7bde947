//! What is at home on one stream: regions and window halves of all types, by their numbers.
//!
//! A brand is a type, so what is where cannot be a field: there is a bag a stream, and handing off moves things from bag to bag.

use tidegate::prelude::*;
use tidegate::{Atomic, ByRange, BySlot, Host, window::Discipline};

use super::job::{Job, Kind, Res};
use super::value::Ty;

/// An element type.
pub(crate) trait Elem: tidegate::Element + super::reduce::Reduce {
    const TY: Ty;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    /// Where things of this type are in a bag.
    fn shelf<'a, 's>(bag: &'a mut Bag<'s>) -> &'a mut Shelf<'s, Self>;
}

/// A struct of plain data.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub(crate) struct Pixel {
    a: u32,
    b: u16,
    c: [u8; 2],
}

pub(crate) type Halves<'s, T, K> = (
    Vec<Option<Inbox<'s, T, K>>>,
    Vec<Option<Exposed<'s, T, K>>>,
    Vec<Option<Outbox<'s, T, K>>>,
);
pub(crate) type Shelf<'s, T> = (
    Vec<Option<Region<T, On<'s>>>>,
    Halves<'s, T, BySlot>,
    Halves<'s, T, ByRange>,
    Halves<'s, T, Atomic>,
);

/// Everything that is at home on a stream.
#[derive(Default, Carry)]
pub(crate) struct Bag<'s> {
    u64s: Shelf<'s, u64>,
    u32s: Shelf<'s, u32>,
    bytes: Shelf<'s, u8>,
    ints: Shelf<'s, i32>,
    floats: Shelf<'s, f64>,
    pixels: Shelf<'s, Pixel>,
    triples: Shelf<'s, [u16; 3]>,
}

macro_rules! elems {
    ($($ty:ty, $name:ident, $field:ident, |$bits:ident| $of:expr, |$value:ident| $into:expr;)*) => {$(
        impl Elem for $ty {
            const TY: Ty = Ty::$name;
            fn of($bits: u64) -> Self {
                $of
            }
            fn bits(self) -> u64 {
                let $value = self;
                $into
            }
            fn shelf<'a, 's>(bag: &'a mut Bag<'s>) -> &'a mut Shelf<'s, Self> {
                &mut bag.$field
            }
        }
    )*};
}

elems! {
    u64, U64, u64s, |bits| bits, |value| value;
    u32, U32, u32s, |bits| bits as u32, |value| u64::from(value);
    u8, U8, bytes, |bits| bits as u8, |value| u64::from(value);
    i32, I32, ints, |bits| bits as u32 as i32, |value| u64::from(value as u32);
    f64, F64, floats, |bits| f64::from_bits(bits), |value| value.to_bits();
    Pixel, Pixel, pixels,
        |bits| Pixel { a: bits as u32, b: (bits >> 32) as u16, c: ((bits >> 48) as u16).to_le_bytes() },
        |value| u64::from(value.a) | u64::from(value.b) << 32 | u64::from(u16::from_le_bytes(value.c)) << 48;
    [u16; 3], Triple, triples,
        |bits| [bits as u16, (bits >> 16) as u16, (bits >> 32) as u16],
        |value| u64::from(value[0]) | u64::from(value[1]) << 16 | u64::from(value[2]) << 32;
}

/// Evaluates an expression with a type that is known only at run time.
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

/// As `with_ty`, with the discipline.
macro_rules! with_kind {
    ($win:expr, $T:ident, $K:ident => $body:expr) => {{
        use $crate::schedules::job::Kind;
        use tidegate::{Atomic, ByRange, BySlot};
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
    fn halves<'a, 's, T: Elem>(shelf: &'a mut Shelf<'s, T>) -> &'a mut Halves<'s, T, Self>;

    /// The memory, unless it is slots.
    fn memory<'b, 's, T: Elem>(
        inbox: &'b mut Inbox<'s, T, Self>,
        stream: &Stream<'s>,
    ) -> Result<Option<&'b mut [T]>>;

    /// The slots, or the memory as one.
    fn see<'s, T: Elem>(
        inbox: &mut Inbox<'s, T, Self>,
        stream: &Stream<'s>,
    ) -> Result<Vec<Vec<u64>>> {
        let memory = Self::memory(inbox, stream)?;
        Ok(memory.into_iter().map(|memory| bits_of(memory)).collect())
    }
}

fn bits_of<T: Elem>(elements: &[T]) -> Vec<u64> {
    elements.iter().map(|element| element.bits()).collect()
}

impl Keep for BySlot {
    fn halves<'a, 's, T: Elem>(shelf: &'a mut Shelf<'s, T>) -> &'a mut Halves<'s, T, Self> {
        &mut shelf.1
    }
    fn memory<'b, 's, T: Elem>(
        _: &'b mut Inbox<'s, T, Self>,
        _: &Stream<'s>,
    ) -> Result<Option<&'b mut [T]>> {
        Ok(None)
    }
    fn see<'s, T: Elem>(
        inbox: &mut Inbox<'s, T, Self>,
        stream: &Stream<'s>,
    ) -> Result<Vec<Vec<u64>>> {
        Ok(inbox.read(stream)?.iter().map(bits_of).collect())
    }
}
impl Keep for ByRange {
    fn halves<'a, 's, T: Elem>(shelf: &'a mut Shelf<'s, T>) -> &'a mut Halves<'s, T, Self> {
        &mut shelf.2
    }
    fn memory<'b, 's, T: Elem>(
        inbox: &'b mut Inbox<'s, T, Self>,
        stream: &Stream<'s>,
    ) -> Result<Option<&'b mut [T]>> {
        inbox.host_mut(stream).map(Some)
    }
}
impl Keep for Atomic {
    fn halves<'a, 's, T: Elem>(shelf: &'a mut Shelf<'s, T>) -> &'a mut Halves<'s, T, Self> {
        &mut shelf.3
    }
    fn memory<'b, 's, T: Elem>(
        inbox: &'b mut Inbox<'s, T, Self>,
        stream: &Stream<'s>,
    ) -> Result<Option<&'b mut [T]>> {
        inbox.host_mut(stream).map(Some)
    }
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

impl<'s> Bag<'s> {
    /// Moves things to another bag of the same stream.
    pub(crate) fn shift(&mut self, job: &Job, rank: usize, what: &[Res], to: &mut Bag<'s>) {
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

    pub(crate) fn lend(&mut self, job: &Job, rank: usize, what: &[Res]) -> Bag<'s> {
        let mut lent = Bag::default();
        self.shift(job, rank, what, &mut lent);
        lent
    }

    /// Opens a window on the stream, which is collective.
    pub(crate) fn open(
        &mut self,
        stream: &Stream<'s>,
        job: &Job,
        number: usize,
        adjust: &Adjust,
    ) -> Result<()> {
        let (win, rank) = (&job.windows[number], stream.world().rank());
        let name = format!("{number}: {:?} of {:?}", win.kind, win.ty);
        macro_rules! keep {
            ($T:ident, $K:ident, $window:expr) => {{
                let window = match adjust.limit {
                    Some(limit) => $window.fail_after(limit),
                    None => $window,
                };
                let (mut inbox, outbox) = window.open(stream)?;
                fill(<$K as Keep>::memory(&mut inbox, stream)?, win, rank);
                let halves = <$K as Keep>::halves($T::shelf(self));
                put(&mut halves.0, number, inbox);
                put(&mut halves.2, number, outbox);
            }};
        }
        with_ty!(win.ty, T => match win.kind {
            Kind::Slots { double } => {
                let buffers = if double != adjust.swap_buffers {
                    tidegate::Buffers::Double
                } else {
                    tidegate::Buffers::Single
                };
                let mut window = Window::<T, BySlot>::by_slot(&name).buffers(buffers);
                for edge in win.inbound(rank) {
                    window = window.slot_from(edge.origin, edge.key, edge.len);
                }
                for edge in win.outbound(rank) {
                    window = window.slot_to(edge.target, edge.key);
                }
                keep!(T, BySlot, window);
            }
            Kind::Ranges => {
                let mut window = Window::<T, ByRange>::by_range(&name, win.memory);
                for edge in win.outbound(rank) {
                    window = window.range_to(edge.target, edge.first..edge.first + edge.len);
                }
                keep!(T, ByRange, window);
            }
            Kind::Atomic { .. } => {
                let mut window = Window::<T, Atomic>::atomic(&name, win.memory);
                for target in win.targets(rank) {
                    window = window.target(target);
                }
                keep!(T, Atomic, window);
            }
        });
        Ok(())
    }
}

/// How a run differs from what the job says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adjust {
    /// How long a wait may last.
    pub(crate) limit: Option<std::time::Duration>,
    /// One buffer where the job says two, and the other way round.
    pub(crate) swap_buffers: bool,
}

fn fill<T: Elem>(memory: Option<&mut [T]>, win: &super::job::Win, rank: usize) {
    let values = win.first_memory(rank);
    for (element, value) in memory.into_iter().flatten().zip(values) {
        *element = T::of(value);
    }
}

/// The layouts of a rank, made once, so that an epoch that is repeated is recognised.
pub(crate) type Layouts = std::collections::HashMap<super::job::Lay, tidegate::Layout<Host>>;
/// The groups of a rank, made once.
pub(crate) type Groups = std::collections::HashMap<Vec<usize>, Group>;
