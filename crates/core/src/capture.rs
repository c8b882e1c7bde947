//! Recording a step of a program once, and replaying it.
//!
//! # Model
//!
//! [`Stream::capture`] lends what a step needs (regions, inboxes, outboxes, structs of them) under a brand that exists
//! only inside, runs the step once to record what it enqueues, executes nothing, and gives everything back. The
//! [`Graph`] can then be replayed with the *same* regions and window halves, mixed with eager steps.
//!
//! Because the brand inside is new, the step can use nothing that it was not lent; because the stream is taken exclusively, it
//! can be used by nobody else meanwhile.
//!
//! # Failure
//!
//! A step that ends with other things than it was lent, or with the same in other places (swapped buffers) or in another
//! state (an inbox that was posted), is refused as [`Error::NotReplayable`]: record two steps in one capture instead. A replay
//! with other regions than those recorded, or with an inbox that is exposed where it was not then (or to another group), is refused
//! as [`Error::OtherGraph`]. Synchronisation, allocation and collectives inside are errors.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::device::{Device, Stream as _};

use crate::element::Element;
use crate::error::{Error, Rejected, Result};
use crate::place::{Brand, On};
use crate::region::{ReclaimOf, Region};
use crate::stream::Stream;

/// Goes through the regions and window halves in a [`Carry`] value. Only this crate can make one, or see what it meets.
pub struct Visitor<'a, D: Device>(Purpose<'a, D>);

enum Purpose<'a, D: Device> {
    /// Lists their numbers, and in what state they are.
    Identify(&'a mut Vec<(u64, State)>),
    /// Compares them with such a list: how many there were, and the first that differs. (A replay allocates nothing.)
    Compare {
        with: &'a [(u64, State)],
        met: usize,
        differs: Option<usize>,
    },
    /// Makes them at home on a stream, which must come as far as the mark before their last work is done.
    Settle(&'a Arc<ReclaimOf<D>>, u64),
}

/// Whether a window half is in an epoch. It is part of what a recording fits: one that begins with a post fits an inbox,
/// and one that begins with a wait fits what is exposed to that very group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A region, or a window half between its epochs.
    Closed,
    /// An inbox that is exposed to the group with this number.
    Exposed(u64),
}

impl<D: Device> Visitor<'_, D> {
    /// One region or window half: its number, the stream that it is at home on, and the mark of its last work there if it keeps one.
    pub(crate) fn leaf(&mut self, id: u64, home: &mut Arc<ReclaimOf<D>>, mark: Option<&mut u64>) {
        self.leaf_in(State::Closed, id, home, mark);
    }

    /// As [`Visitor::leaf`], of one that may be in an epoch.
    pub(crate) fn leaf_in(
        &mut self,
        state: State,
        id: u64,
        home: &mut Arc<ReclaimOf<D>>,
        mark: Option<&mut u64>,
    ) {
        match &mut self.0 {
            Purpose::Identify(ids) => ids.push((id, state)),
            Purpose::Compare { with, met, differs } => {
                if with.get(*met) != Some(&(id, state)) {
                    differs.get_or_insert(*met);
                }
                *met += 1;
            }
            Purpose::Settle(to, at) => {
                if !Arc::ptr_eq(home, to) {
                    *home = Arc::clone(to);
                }
                if let Some(mark) = mark {
                    *mark = *at;
                }
            }
        }
    }
}

/// Things that are at home on one stream and can be carried over to another, or into a capture: regions, window halves,
/// epochs that are open on the target's side, and structs of them (`#[derive(Carry)]`).
///
/// # Safety
///
/// - `At<'t>` is `Self` with `'s` replaced by `'t`: the same type but for that lifetime.
/// - `visit` visits every region and window half in it exactly once, in an order that depends on nothing but the type and the
///   lengths of its collections.
/// - Nothing in it but those leaves mentions `'s`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be lent to a capture or handed over to another stream",
    label = "neither at home on a stream, nor plain",
    note = "what can be: regions and parts that are on the stream, inboxes (exposed or not), outboxes, barriers, numbers, and tuples, arrays, `Vec`s, `Option`s and structs of them with `#[derive(Carry)]`"
)]
pub unsafe trait Carry<'s, D: Device>: Sized {
    /// The same on another stream.
    type At<'t>: Carry<'t, D>;

    /// Visits the regions and window halves.
    fn visit(&mut self, visitor: &mut Visitor<'_, D>);
}

/// Takes a value from one brand to another, at home with `to`.
pub(crate) fn settle<'s, 't, D: Device, X: Carry<'s, D>>(
    mut value: X,
    to: &Stream<'t, D>,
) -> X::At<'t> {
    touch(&mut value, to);
    rebrand(value)
}

/// Notes that the stream has got work with the value.
fn touch<'s, D: Device, X: Carry<'s, D>>(value: &mut X, stream: &Stream<'_, D>) {
    let raw = stream.raw();
    value.visit(&mut Visitor(Purpose::Settle(raw.reclaim(), raw.mark())));
}

fn rebrand<'s, 't, D: Device, X: Carry<'s, D>>(value: X) -> X::At<'t> {
    assert_eq!(
        size_of::<X>(),
        size_of::<X::At<'t>>(),
        "types that differ in a lifetime have one size"
    );
    let value = std::mem::ManuallyDrop::new(value);
    // SAFETY: `Carry` promises that the two types are the same but for a lifetime, which nothing at run time depends on; the
    // original is not dropped.
    unsafe { std::mem::transmute_copy(&*value) }
}

fn rebrand_ref<'a, 't, D: Device>(stream: &'a Stream<'_, D>) -> &'a Stream<'t, D> {
    // SAFETY: the two types are the same but for a brand, which nothing at run time depends on.
    unsafe { std::mem::transmute(stream) }
}

fn identify<'s, D: Device, X: Carry<'s, D>>(value: &mut X) -> Vec<(u64, State)> {
    let mut ids = Vec::new();
    value.visit(&mut Visitor(Purpose::Identify(&mut ids)));
    ids
}

/// How many things there are in a value, and the first that is not as listed, if there is one.
fn compare<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    with: &[(u64, State)],
) -> (usize, Option<usize>) {
    let (met, differs) = (0, None);
    let mut visitor = Visitor(Purpose::Compare { with, met, differs });
    value.visit(&mut visitor);
    match visitor.0 {
        Purpose::Compare { met, differs, .. } => {
            (met, differs.or((met < with.len()).then_some(met)))
        }
        _ => unreachable!("visits do not change the purpose"),
    }
}

/// A recorded step. It belongs to the stream with the brand `'s` (and the second one, if it was recorded with two).
pub struct Graph<'s, D: Device> {
    raw: Arc<<D::Stream as tidegate_hal::device::Stream>::Graph>,
    ids: Vec<(u64, State)>,
    brand: Brand<'s>,
}

/// A recorded step of two streams.
pub struct PairGraph<'s, 't, D: Device> {
    one: Graph<'s, D>,
    other: Brand<'t>,
}

impl<'s, D: Device> Stream<'s, D> {
    /// Records one step: runs `step` with what it is lent, executing nothing.
    ///
    /// # Errors
    ///
    /// What `step` returns; [`Error::NotReplayable`]. What was lent comes back where the step gave it back, and is lost
    /// (poisoning windows whose halves were in it) where the step failed.
    pub fn capture<R, F>(&mut self, lent: R, step: F) -> Result<(Graph<'s, D>, R), Error>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        F: for<'c> FnOnce(&Stream<'c, D>, R::At<'c>) -> Result<R::At<'c>>,
    {
        self.healthy()?;
        let mut lent = lent;
        let ids = identify(&mut lent);
        self.raw().begin_capture(&[])?;
        let stream = &*self;
        let result = Recording {
            stream,
            others: &[],
        }
        .run(|| step(rebrand_ref(stream), rebrand(lent)));
        let (raw, returned) = result?;
        let (graph, returned) = close(raw, ids, returned)?;
        Ok((graph, rebrand(returned)))
    }

    /// As [`Stream::capture`], for a step that hands some of its things over to a second stream and back.
    ///
    /// # Errors
    ///
    /// As [`Stream::capture`]; [`Error::Capturing`] if the second stream's work does not end in a hand-off back.
    pub fn capture_with<'t, R, F>(
        &mut self,
        other: &mut Stream<'t, D>,
        lent: R,
        step: F,
    ) -> Result<(PairGraph<'s, 't, D>, R), Error>
    where
        R: Carry<'s, D>,
        for<'c> R::At<'c>: Carry<'c, D, At<'s> = R>,
        F: for<'c, 'd> FnOnce(&Stream<'c, D>, &Stream<'d, D>, R::At<'c>) -> Result<R::At<'c>>,
    {
        self.healthy()?;
        other.healthy()?;
        let mut lent = lent;
        let ids = identify(&mut lent);
        self.raw().begin_capture(&[other.raw()])?;
        let (stream, side) = (&*self, &*other);
        let result = Recording {
            stream,
            others: &[side.raw()],
        }
        .run(|| step(rebrand_ref(stream), rebrand_ref(side), rebrand(lent)));
        let (raw, returned) = result?;
        let (one, returned) = close(raw, ids, returned)?;
        Ok((
            PairGraph {
                one,
                other: PhantomData,
            },
            rebrand(returned),
        ))
    }
}

/// A capture under way: ends it whatever the step does.
struct Recording<'a, 's, D: Device> {
    stream: &'a Stream<'s, D>,
    others: &'a [&'a D::Stream],
}

type RawGraph<D> = <<D as Device>::Stream as tidegate_hal::device::Stream>::Graph;

impl<D: Device> Recording<'_, '_, D> {
    fn run<T>(self, step: impl FnOnce() -> Result<T>) -> Result<(RawGraph<D>, T)> {
        let value = step();
        let graph = self.stream.raw().end_capture(self.others);
        std::mem::forget(self);
        Ok((graph?, value?))
    }
}

impl<D: Device> Drop for Recording<'_, '_, D> {
    fn drop(&mut self) {
        // Only when the step panics.
        drop(self.stream.raw().end_capture(self.others));
    }
}

fn close<'s, 'c, D: Device, X: Carry<'c, D>>(
    raw: RawGraph<D>,
    ids: Vec<(u64, State)>,
    mut returned: X,
) -> Result<(Graph<'s, D>, X)> {
    let (count, differs) = compare(&mut returned, &ids);
    if let Some(position) = differs {
        return Err(Error::NotReplayable {
            lent: ids.len(),
            returned: count,
            position,
        });
    }
    Ok((
        Graph {
            raw: Arc::new(raw),
            ids,
            brand: PhantomData,
        },
        returned,
    ))
}

impl<'s, D: Device> Graph<'s, D> {
    /// Enqueues the recorded step, `times` times, with what it was recorded with.
    ///
    /// # Errors
    ///
    /// [`Error::OtherGraph`] if `lent` is something else; what made the stream fail. `lent` comes back.
    pub fn replay<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        lent: R,
        times: u64,
    ) -> Result<R, Rejected<R>> {
        self.replay_over(stream, &[], lent, times)
    }

    fn replay_over<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        others: &[&D::Stream],
        mut lent: R,
        times: u64,
    ) -> Result<R, Rejected<R>> {
        if let (_, Some(position)) = compare(&mut lent, &self.ids) {
            return Err(Rejected::new(Error::OtherGraph { position }, lent));
        }
        if let Err(error) = stream.healthy() {
            return Err(Rejected::new(error, lent));
        }
        // SAFETY: everything that the recording touches is in `lent` (its brand let in nothing else), which the caller holds, at
        // home on this stream; it is given back on the same stream, so that what follows is ordered after the replay.
        match unsafe { stream.raw().replay(others, &self.raw, times) } {
            Ok(()) => {
                touch(&mut lent, stream);
                Ok(lent)
            }
            Err(error) => Err(Rejected::new(error, lent)),
        }
    }
}

impl<'s, 't, D: Device> PairGraph<'s, 't, D> {
    /// As [`Graph::replay`], on both streams.
    ///
    /// # Errors
    ///
    /// As [`Graph::replay`].
    pub fn replay<R: Carry<'s, D>>(
        &self,
        stream: &Stream<'s, D>,
        other: &Stream<'t, D>,
        lent: R,
        times: u64,
    ) -> Result<R, Rejected<R>> {
        if let Err(error) = other.healthy() {
            return Err(Rejected::new(error, lent));
        }
        self.one.replay_over(stream, &[other.raw()], lent, times)
    }
}

// SAFETY: the one leaf is visited; `On<'s, D>` is the only mention of the brand.
unsafe impl<'s, T: Element, D: Device> Carry<'s, D> for Region<T, On<'s, D>> {
    type At<'t> = Region<T, On<'t, D>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.body.visit(visitor);
    }
}

macro_rules! carry_tuple {
    ($($name:ident),*) => {
        // SAFETY: each member is carried and visited once, in order.
        unsafe impl<'s, Dev: Device, $($name: Carry<'s, Dev>),*> Carry<'s, Dev> for ($($name,)*) {
            type At<'t> = ($($name::At<'t>,)*);

            #[allow(non_snake_case, unused_variables)]
            fn visit(&mut self, visitor: &mut Visitor<'_, Dev>) {
                let ($($name,)*) = self;
                $($name.visit(visitor);)*
            }
        }
    };
}

carry_tuple!();
carry_tuple!(A);
carry_tuple!(A, B);
carry_tuple!(A, B, C);
carry_tuple!(A, B, C, E);
carry_tuple!(A, B, C, E, F);
carry_tuple!(A, B, C, E, F, G);
carry_tuple!(A, B, C, E, F, G, H);
carry_tuple!(A, B, C, E, F, G, H, I);

macro_rules! carry_plain {
    ($($plain:ty)*) => {$(
        // SAFETY: there is no leaf, and no brand.
        unsafe impl<'s, D: Device> Carry<'s, D> for $plain {
            type At<'t> = $plain;

            fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
        }
    )*};
}

carry_plain!(bool usize isize u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

// SAFETY: the elements are carried and visited once, in order.
unsafe impl<'s, D: Device, X: Carry<'s, D>, const N: usize> Carry<'s, D> for [X; N] {
    type At<'t> = [X::At<'t>; N];

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.iter_mut().for_each(|each| each.visit(visitor));
    }
}

// SAFETY: the elements are carried and visited once, in order.
unsafe impl<'s, D: Device, X: Carry<'s, D>> Carry<'s, D> for Vec<X> {
    type At<'t> = Vec<X::At<'t>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.iter_mut().for_each(|each| each.visit(visitor));
    }
}

// SAFETY: what there is is carried and visited once.
unsafe impl<'s, D: Device, X: Carry<'s, D>> Carry<'s, D> for Option<X> {
    type At<'t> = Option<X::At<'t>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.iter_mut().for_each(|each| each.visit(visitor));
    }
}

/// Keeps something alive in a batch.
pub(crate) fn keep<T: Send + Sync + 'static>(value: &Arc<T>) -> Arc<dyn Any + Send + Sync> {
    value.clone()
}
