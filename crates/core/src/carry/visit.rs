//! What can be carried, and what goes through the things in it.

use std::sync::Arc;

use tidegate_hal::device::Device;

use crate::ground::ReclaimOf;
use crate::myself::Myself;
use crate::nic::{NicLine, Tickets, Touch};
use crate::place::Brand;
use crate::side::Side;
use crate::stake::Stake;

/// Values that are at home on one stream and can be handed over to another, or lent to a capture: regions and their parts,
/// window halves, epochs that are open on the target's side, barriers and all-reduces, and structs of them
/// (`#[derive(Carry)]`). Numbers, layouts and handles of slots belong to no stream, and may stand beside them.
///
/// # Safety
///
/// - `At<'t>` is `Self` with `'s` replaced by `'t`: the same type but for that lifetime.
/// - `visit` visits every region and window half in it exactly once, in an order that depends on nothing but the type and the
///   lengths of its collections.
/// - Nothing in it but those leaves mentions `'s`.
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
    label = "neither at home on a stream, nor plain",
    note = "what can be: regions and parts that are on the stream, inboxes (exposed or not), outboxes, barriers, all-reduces, numbers, layouts, handles of slots, and tuples, arrays, `Vec`s, `Option`s and structs of them with `#[derive(Carry)]`",
    note = "a struct of one device derives the `Carry` of that device's prelude (`tidegate::host::prelude`, `tidegate::cuda::prelude`); one that is generic names the device as a parameter, `D: Device`"
)]
pub unsafe trait Carry<'s, D: Device>: Sized {
    /// The same on another stream.
    type At<'t>: Carry<'t, D>;

    /// Visits the regions and window halves.
    fn visit(&mut self, visitor: &mut Visitor<'_, D>);
}

/// Goes through the regions and window halves in a [`Carry`] value. Only this crate can make one, or see what it meets.
pub struct Visitor<'a, D: Device>(VisitFor<'a, D>);

enum VisitFor<'a, D: Device> {
    /// Lists their numbers, and in what state they are.
    Identify(&'a mut Vec<(u64, LeafState)>),
    /// Compares them with such a list: how many there were, and the first that differs. (A replay allocates nothing.)
    Compare {
        with: &'a [(u64, LeafState)],
        met: usize,
        differs: Option<usize>,
    },
    /// Makes them at home on a stream, which must come as far as the mark before their last work is done.
    Settle(&'a Arc<ReclaimOf<D>>, u64),
    /// Gathers the lines of their tickets.
    Gather(&'a mut Vec<Arc<NicLine>>),
    /// Forgets their tickets.
    Clear,
    /// Lists the window halves whose peer is this rank itself.
    Own(&'a mut Vec<(Side, Arc<Myself<D>>)>),
    /// Lists what peers have of its window halves.
    Stakes(&'a mut Vec<Stake<D>>),
    /// Looks for the name of one of them, for an error.
    Name(&'a mut Name),
}

/// The name of the thing that so many others come before, and the names of what it is in, while it is looked for.
struct Name {
    before: usize,
    path: Vec<String>,
    found: Option<String>,
}

/// Whether a window half is in an epoch. It is part of what a recording fits: one that begins with a post fits an
/// inbox, and one that begins with a wait fits what is exposed to that very group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafState {
    /// A region, or a window half between its epochs.
    Closed,
    /// An inbox that is exposed to the group with this number.
    Exposed(u64),
}

impl<D: Device> Visitor<'_, D> {
    /// Visits a field of the struct `S`; the derive calls it. The function borrows the same field of the struct with any
    /// other brand, so that the compiler sees that it is what the field's `Carry` says. (It does so in an array, since a
    /// bare reference would be coerced: one to a `Box` would do for one to its contents.)
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

    /// Visits what a value has at the place of this name.
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

    /// Visits what a collection has, each by its place in it.
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

    /// One region or window half: its number, the stream that it is at home on, and the mark of its last work there if
    /// it keeps one.
    pub(crate) fn leaf(&mut self, id: u64, home: &mut Arc<ReclaimOf<D>>, mark: Option<&mut u64>) {
        self.leaf_in(LeafState::Closed, id, home, mark);
    }

    /// As [`Visitor::leaf`], of one that may be in an epoch.
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

    /// A window half, and what it knows of the other one, if this rank is its own peer.
    pub(crate) fn own(&mut self, side: Side, myself: Option<&Arc<Myself<D>>>) {
        let Some(myself) = myself else { return };
        match &mut self.0 {
            VisitFor::Settle(to, _) => myself.moved(side, Arc::as_ptr(to).addr()),
            VisitFor::Own(halves) => halves.push((side, myself.clone())),
            _ => {}
        }
    }

    /// A window half, and what peers have of it.
    pub(crate) fn stake(&mut self, stake: impl FnOnce() -> Stake<D>) {
        if let VisitFor::Stakes(stakes) = &mut self.0 {
            stakes.push(stake());
        }
    }

    /// The tickets of a region that holds some.
    pub(crate) fn tickets(&mut self, tickets: &Tickets) {
        match &mut self.0 {
            VisitFor::Gather(lines) => tickets.gather(Touch::Write, lines),
            VisitFor::Clear => tickets.clear(Touch::Write),
            _ => {}
        }
    }
}

/// The window halves in a value whose peer is this rank itself.
pub(crate) fn own_halves<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
) -> Vec<(Side, Arc<Myself<D>>)> {
    let mut halves = Vec::new();
    value.visit(&mut Visitor(VisitFor::Own(&mut halves)));
    halves
}

/// What peers have of the window halves in a value.
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

/// Forgets all tickets in a value: the wait for them has been enqueued.
pub(crate) fn forget_tickets<'s, D: Device, X: Carry<'s, D>>(value: &mut X) {
    value.visit(&mut Visitor(VisitFor::Clear));
}

/// Makes a value at home on a stream, which must come as far as the mark before its last work is done.
pub(crate) fn settle_on<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    home: &Arc<ReclaimOf<D>>,
    mark: u64,
) {
    value.visit(&mut Visitor(VisitFor::Settle(home, mark)));
}

/// The numbers of the things in a value, and in what state they are.
pub(crate) fn identify<'s, D: Device, X: Carry<'s, D>>(value: &mut X) -> Vec<(u64, LeafState)> {
    let mut ids = Vec::new();
    value.visit(&mut Visitor(VisitFor::Identify(&mut ids)));
    ids
}

/// How many things there are in a value, and the first that is not as listed, if there is one.
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

/// How a value names the thing at this place, as in `energy.inbox`, if it has one there, and names it.
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
