//! The trait `Carry`, and the visitor that goes through the things in a value.

use std::sync::Arc;

use tidegate_hal::device::Device;

use crate::ground::ReclaimOf;
use crate::half_kind::HalfKind;
use crate::myself::Myself;
use crate::nic::{NicLine, Tickets, Touch};
use crate::place::Brand;
use crate::stake::Stake;

/// A value that is at home on one stream, and can be handed over to another stream or lent to a capture. Regions and
/// their parts, window halves, exposed inboxes, and collectives implement it, and structs of them derive it
/// (`#[derive(Carry)]`). Numbers, layouts and handles of slots belong to no stream, and may be fields beside them.
///
/// # Safety
///
/// - `At<'t>` is `Self` with `'s` replaced by `'t`: the types differ only in that lifetime.
/// - `visit` visits every region and window half in the value exactly once. The order depends only on the type and on
///   the lengths of its collections.
/// - Nothing but these leaves mentions `'s`.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// #[derive(Carry)]
/// struct State<'s> {
///     x: Region<f64, On<'s>>,
///     time: f64,
/// }
///
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// # stream!(let t = world.stream()?);
/// let state = State { x: Region::from_slice(&world, &[1.0])?.on(&s)?, time: 0.5 };
/// let state = s.hand_off(state, &t)?;
/// assert_eq!((state.x.into_host(&t)?[0], state.time), (1.0, 0.5));
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be lent to a capture or handed over to another stream",
    label = "neither at home on a stream nor plain data",
    note = "these can be: regions and parts that are on the stream, inboxes (exposed or not), outboxes, collectives, numbers, layouts, handles of slots, and tuples, arrays, `Vec`s, `Option`s and structs of them with `#[derive(Carry)]`",
    note = "a struct of one device derives the `Carry` of that device's prelude (`tidegate::host::prelude`, `tidegate::cuda::prelude`); a generic struct has the device as a parameter, `D: Device`"
)]
pub unsafe trait Carry<'s, D: Device>: Sized {
    /// The same type on another stream.
    type At<'t>: Carry<'t, D>;

    /// Visits all regions and window halves.
    fn visit(&mut self, visitor: &mut Visitor<'_, D>);
}

/// Goes through the regions and window halves in a [`Carry`] value. Only this crate can make a visitor, or see what it
/// visits.
pub struct Visitor<'a, D: Device>(VisitFor<'a, D>);

enum VisitFor<'a, D: Device> {
    /// Lists the numbers of the things, and their states.
    Identify(&'a mut Vec<(u64, LeafState)>),
    /// Compares the things with such a list: counts them, and finds the first that differs. A replay uses this because
    /// it allocates nothing.
    Compare {
        with: &'a [(u64, LeafState)],
        met: usize,
        differs: Option<usize>,
    },
    /// Makes the things at home on a stream. Their last work is done when the stream reaches the mark.
    Settle(&'a Arc<ReclaimOf<D>>, u64),
    /// Collects the lines of their tickets.
    Gather(&'a mut Vec<Arc<NicLine>>),
    /// Forgets their tickets.
    Clear,
    /// Lists the window halves that have this rank itself as a peer.
    Own(&'a mut Vec<(HalfKind, Arc<Myself<D>>)>),
    /// Lists what peers may wait for from the window halves.
    Stakes(&'a mut Vec<Stake<D>>),
    /// Finds the name of one thing, for an error.
    Name(&'a mut Name),
}

/// The search for the name of the thing at index `before`, and the names of the fields that contain the current one.
struct Name {
    before: usize,
    path: Vec<String>,
    found: Option<String>,
}

/// Whether a window half is in an epoch. A recording requires the same state: one that begins with a post needs an
/// inbox, and one that begins with a wait needs an inbox that is exposed to the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafState {
    /// A region, or a window half between its epochs.
    Closed,
    /// An inbox that is exposed to the group with this number.
    Exposed(u64),
}

impl<D: Device> Visitor<'_, D> {
    /// Visits a field of the struct `S`; the derive calls this. The function borrows the same field of the struct with
    /// any other brand, so the compiler checks that the field has the type that its `Carry` says. (It borrows it in an
    /// array, because a bare reference would be coerced: a reference to a `Box` would pass for one to its contents.)
    #[doc(hidden)]
    #[inline]
    pub fn field<'s, S: Carry<'s, D>, X: Carry<'s, D>>(
        &mut self,
        name: &str,
        field: &mut X,
        _: for<'a, 't> fn(&'a mut S::At<'t>, Brand<'t>) -> [&'a mut X::At<'t>; 1],
    ) {
        self.within(name, field);
    }

    /// Visits the part of a value that has this name.
    #[inline]
    pub(super) fn within<'s>(&mut self, name: &str, value: &mut impl Carry<'s, D>) {
        if let VisitFor::Name(found) = &mut self.0 {
            found.path.push(name.to_owned());
        }
        value.visit(self);
        if let VisitFor::Name(found) = &mut self.0 {
            found.path.pop();
        }
    }

    /// Visits the elements of a collection, each with its index as its name.
    pub(crate) fn each<'s, X: Carry<'s, D>>(&mut self, all: &mut [X]) {
        for (index, each) in all.iter_mut().enumerate() {
            if let VisitFor::Name(name) = &mut self.0 {
                name.path.push(index.to_string());
            }
            each.visit(self);
            if let VisitFor::Name(name) = &mut self.0 {
                name.path.pop();
            }
        }
    }

    /// Visits a region or window half: its number, the stream that it is at home on, and the mark of its last work
    /// there, if it keeps one.
    pub(crate) fn leaf(&mut self, id: u64, home: &mut Arc<ReclaimOf<D>>, mark: Option<&mut u64>) {
        self.leaf_in(LeafState::Closed, id, home, mark);
    }

    /// Like [`Visitor::leaf`], for a thing that may be in an epoch.
    pub(crate) fn leaf_in(
        &mut self,
        state: LeafState,
        id: u64,
        home: &mut Arc<ReclaimOf<D>>,
        mark: Option<&mut u64>,
    ) {
        match &mut self.0 {
            VisitFor::Identify(ids) => ids.push((id, state)),
            VisitFor::Compare { with, met, differs } => {
                if with.get(*met) != Some(&(id, state)) {
                    differs.get_or_insert(*met);
                }
                *met += 1;
            }
            VisitFor::Settle(to, at) => {
                if !Arc::ptr_eq(home, to) {
                    *home = Arc::clone(to);
                }
                if let Some(mark) = mark {
                    *mark = *at;
                }
            }
            VisitFor::Name(name) => match name.before.checked_sub(1) {
                Some(before) => name.before = before,
                None if name.path.is_empty() => {}
                None => {
                    name.found.get_or_insert_with(|| name.path.join("."));
                }
            },
            VisitFor::Gather(_) | VisitFor::Clear | VisitFor::Own(_) | VisitFor::Stakes(_) => {}
        }
    }

    /// Visits a window half that may have this rank itself as a peer; then `myself` is what it knows of the other half.
    pub(crate) fn own(&mut self, half: HalfKind, myself: Option<&Arc<Myself<D>>>) {
        let Some(myself) = myself else { return };
        match &mut self.0 {
            VisitFor::Settle(to, _) => myself.moved(half, to),
            VisitFor::Own(halves) => halves.push((half, myself.clone())),
            _ => {}
        }
    }

    /// Visits a window half, with what peers may wait for from it.
    pub(crate) fn stake(&mut self, stake: impl FnOnce() -> Stake<D>) {
        if let VisitFor::Stakes(stakes) = &mut self.0 {
            stakes.push(stake());
        }
    }

    /// Visits the tickets of a region.
    pub(crate) fn tickets(&mut self, tickets: &Tickets) {
        match &mut self.0 {
            VisitFor::Gather(lines) => tickets.gather(Touch::Write, lines),
            VisitFor::Clear => tickets.clear(Touch::Write),
            _ => {}
        }
    }
}

/// The window halves in a value that have this rank itself as a peer.
pub(crate) fn own_halves<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
) -> Vec<(HalfKind, Arc<Myself<D>>)> {
    let mut halves = Vec::new();
    value.visit(&mut Visitor(VisitFor::Own(&mut halves)));
    halves
}

/// What peers may wait for from the window halves in a value.
pub(crate) fn stakes<'s, D: Device, X: Carry<'s, D>>(value: &mut X) -> Vec<Stake<D>> {
    let mut stakes = Vec::new();
    value.visit(&mut Visitor(VisitFor::Stakes(&mut stakes)));
    stakes
}

/// The lines of all tickets in a value.
pub(crate) fn lines<'s, D: Device, X: Carry<'s, D>>(value: &mut X) -> Vec<Arc<NicLine>> {
    let mut lines = Vec::new();
    value.visit(&mut Visitor(VisitFor::Gather(&mut lines)));
    lines
}

/// Forgets all tickets in a value, because the wait for them has been enqueued.
pub(crate) fn forget_tickets<'s, D: Device, X: Carry<'s, D>>(value: &mut X) {
    value.visit(&mut Visitor(VisitFor::Clear));
}

/// Makes a value at home on a stream. Its last work is done when the stream reaches the mark.
pub(crate) fn settle_on<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    home: &Arc<ReclaimOf<D>>,
    mark: u64,
) {
    value.visit(&mut Visitor(VisitFor::Settle(home, mark)));
}

/// The numbers of the things in a value, and their states.
pub(crate) fn identify<'s, D: Device, X: Carry<'s, D>>(value: &mut X) -> Vec<(u64, LeafState)> {
    let mut ids = Vec::new();
    value.visit(&mut Visitor(VisitFor::Identify(&mut ids)));
    ids
}

/// The number of things in a value, and the index of the first that differs from the list.
pub(crate) fn compare<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    with: &[(u64, LeafState)],
) -> (usize, Option<usize>) {
    let (met, differs) = (0, None);
    let mut visitor = Visitor(VisitFor::Compare { with, met, differs });
    value.visit(&mut visitor);
    match visitor.0 {
        VisitFor::Compare { met, differs, .. } => {
            (met, differs.or((met < with.len()).then_some(met)))
        }
        _ => unreachable!("visits do not change the purpose"),
    }
}

/// The name of the thing at this index in a value, such as `energy.inbox`, if it has one.
pub(crate) fn name_of<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    position: usize,
) -> Option<String> {
    let mut name = Name {
        before: position,
        path: Vec::new(),
        found: None,
    };
    value.visit(&mut Visitor(VisitFor::Name(&mut name)));
    name.found
}
