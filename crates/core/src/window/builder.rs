//! Opening windows.

use std::sync::Arc;

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::device::Device;
use tidegate_hal::far;
use tidegate_hal::ids::TeamId;
use tidegate_hal::memory::Block as _;
use tidegate_hal::process::memory::Readable;

use super::check::{check, check_own, differ};
use super::declare::Window;
use super::describe::{Inbound, Purpose, Terms};
use super::edges::Edges;
use super::meeting::Meeting;
use super::orders::{check_orders, orders};
use super::routes::{Offer, Own, Routes, Way};
use super::shape::{Shape, words_of};
use super::{Discipline, Inbox, Kind, Outbox};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Disagreement, EpochError, Result, TeamError};
use crate::half_kind::HalfKind;
use crate::members::Members;
use crate::nic::NicLine;
use crate::stream::Stream;
use crate::world::{Agreement, Roster, Team, Trouble, Watched, Which, World};

// The operands must lie outside of the memory that a bus keeps beside a word.
const _: () = assert!(Shape::CELL == far::CELL && Shape::FIRED + size_of::<u64>() <= far::MAILBOX);

impl<T: Element, K: Discipline> Window<T, K> {
    fn purpose(&self) -> Purpose {
        self.description.terms.purpose
    }

    /// Opens the window on a stream. All [members](Members) call this, and no other ranks: with `&s` all ranks of the
    /// job, with `&team.on(&s)` those of a team. They open their windows in the same order.
    ///
    /// In a team, the ranks of the declaration are those of the team, from 0 to its size. So are those of a
    /// [`Group`](super::Group), and of [`Inbox::origins`] and [`Outbox::targets`]. Errors name ranks by their numbers
    /// in the job, and the window by the names of both: `rows/halo`. Other teams may have a window of the same name.
    /// The window may outlive the last handle of its team.
    ///
    /// # Errors
    ///
    /// The window is open on all ranks or on none.
    ///
    /// All ranks get the same error in these cases:
    ///
    /// - [`WindowError::Disagreement`](crate::error::WindowError::Disagreement): the declarations do not fit together,
    ///   or belong to different windows.
    /// - [`WindowError::NameTaken`](crate::error::WindowError::NameTaken): a rank still holds a window with this name.
    /// - [`WindowError::NotCreated`](crate::error::WindowError::NotCreated): a rank is short of memory, descriptors, or
    ///   queues of its NIC. The error names the rank and the limit.
    /// - [`TeamError::Transport`]: a team, and windows of MPI.
    ///
    /// If this rank cannot reach a peer, it gets [`Error::Nic`],
    /// [`WindowError::NotMapped`](crate::error::WindowError::NotMapped),
    /// [`WindowError::NoNic`](crate::error::WindowError::NoNic) or
    /// [`WindowError::NewNic`](crate::error::WindowError::NewNic); and [`TeamError::OtherWorld`] if the stream belongs
    /// to another world than the team. The others get
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), which names this rank and its error.
    ///
    /// The same holds if [`layout_to`](Window::layout_to) could not take a layout: this rank gets
    /// [`EpochError::NotDistinct`](crate::error::EpochError::NotDistinct),
    /// [`EpochError::OtherDevice`](crate::error::EpochError::OtherDevice), [`Error::Device`] or
    /// [`WindowError::TooManyRuns`](crate::error::WindowError::TooManyRuns).
    ///
    /// If a rank ends meanwhile, the error is [`Error::Control`].
    ///
    /// Two errors concern this rank alone, and the others wait for its next attempt:
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside), and [`Error::Control`] if the declaration is too
    /// long for a message.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let peer = 1 - world.rank();
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let (from, to) = (window.slot_from(peer, 0, 100), window.slot_to(peer, 0));
    /// let (inbox, outbox) = window.open(&s)?; // all ranks call it
    /// # Ok(()) });
    /// ```
    ///
    /// In a team:
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(4, |world| {
    /// # stream!(let s = world.stream()?);
    /// let row = world.split("rows", world.rank() / 2, world.rank())?.unwrap();
    /// let peer = 1 - row.rank();
    /// let mut window = SlotWindow::<u64>::new("halo");
    /// let (from, to) = (window.slot_from(peer, 0, 1), window.slot_to(peer, 0));
    /// let (inbox, outbox) = window.open(&row.on(&s))?; // the ranks of a row call it
    /// assert_eq!(inbox.name(), "rows/halo");
    /// # let _ = (from, to, outbox);
    /// # Ok(()) });
    /// ```
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub fn open<'s, D: Device>(
        self,
        on: &impl Members<'s, D>,
    ) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>)> {
        let (halves, ()) = self.open_with(&on.team(), on.stream(), |_, _| Ok(()))?;
        Ok(halves)
    }

    /// Like [`Window::open`], and makes a value of the two halves. If one rank cannot make it, no rank has the
    /// window.
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub(crate) fn open_with<'s, D: Device, R>(
        mut self,
        team: &Team<D>,
        stream: &Stream<'s, D>,
        make: impl FnOnce(&Inbox<'s, T, D, K>, &Outbox<'s, T, D, K>) -> Result<R>,
    ) -> Result<((Inbox<'s, T, D, K>, Outbox<'s, T, D, K>), R)> {
        const { assert!(size_of::<T>() != 0, "elements have a size other than 0") };
        const {
            assert!(
                align_of::<T>() <= Shape::CELL,
                "elements are aligned to a cache line at most"
            )
        };
        stream.not_capturing("creating a window")?;
        let (world, roster) = (team.world(), &*team.roster);
        self.name = roster.named(&self.name);
        if !stream.world().is(world) {
            self.refuse_by(TeamError::OtherWorld {
                rank: world.rank(),
                team: roster.name.clone(),
            });
        } else if roster.id != TeamId::WORLD && world.device().allocates_together() {
            self.refuse_by(TeamError::Transport {
                team: roster.name.clone(),
            });
        }
        // This is held until all exchanges about this window are made: see `Agreement`.
        let what = format!("{} `{}`", self.purpose().opening(), self.name);
        let agreement = world.agreement(roster, what)?;
        let declaration = self.id;
        let (which, met) = self.meet(&agreement)?;
        let mut size = (0, 0, 0);
        let built = met.and_then(|meeting| {
            let watched = meeting.watched.clone();
            size = meeting.size();
            let halves = meeting
                .build(stream, &team.roster, declaration)
                .inspect_err(|_| {
                    world.drops(watched.id, &HalfKind::BOTH);
                })?;
            let made = make(&halves.0, &halves.1)?;
            watched.may_open();
            Ok((watched, halves, made))
        });
        let refused = |(watched, ..): &(Arc<Watched<D>>, _, _)| watched.is_refused();
        let (watched, halves, made) = agreement.agree(&which, built, refused)?;
        // A program that hears of the window may open others.
        drop(agreement);
        let (name, id) = (&watched.name, watched.id);
        let (targets, origins, bytes) = size;
        tidegate_hal::tell(
            || tracing::info!(window = %name, %id, targets, origins, bytes, "a window is open"),
        );
        Ok((halves, made))
    }

    fn refuse_by(&mut self, error: TeamError) {
        self.refused.get_or_insert(error.into());
    }

    /// Adds to the description what the program has not declared, and names ranks by their numbers in the job.
    fn describe<D: Device>(
        &mut self,
        world: &World<D>,
        roster: &Roster,
    ) -> std::result::Result<(), Disagreement> {
        let description = &mut self.description;
        description.fill_in(roster.rank, roster.size());
        description.terms.staged = world.staged();
        description.started_alone = world.started_alone();
        let known = description.in_job(roster);
        // What is no rank is neither near nor far, and is refused later.
        let is_far = |other: usize| matches!(world.reaches_by_nic(other), Ok(true));
        let is_near = |other: usize| {
            matches!(world.reaches_by_nic(other), Ok(false)) && world.bell(other).is_some()
        };
        let size = description.terms.size;
        let near = || !description.neighbours().into_iter().any(is_far);
        let up_to = match self.reduces_at_once && near() {
            true => world.device().reduce_up_to(),
            false => world.device().land_up_to(),
        };
        let is_long = |slot: &Inbound| slot.len.saturating_mul(size) > up_to;
        description.land_up_to = match &description.terms.purpose {
            _ if self.for_kernels => 0,
            // The waits of a long call stand in the batch of the next round, with a post behind them. A wait that looks
            // at a landing cannot.
            Purpose::Collective(_) if description.inbound.iter().any(is_long) => 0,
            _ => up_to,
        };
        if matches!(description.terms.purpose, Purpose::Collective(_)) && world.device().rings() {
            description.rings = description.neighbours();
            description.rings.retain(|other| is_near(*other));
            description.readable = match &description.terms.purpose {
                Purpose::Collective(joint) if joint.kind.pulls() => Some(Readable::here()),
                _ => None,
            };
        }
        if world.staged() {
            description.far = description.neighbours();
            description.far.retain(|other| is_far(*other));
            if let Err(error) = check_orders(&self.name, description) {
                self.refused.get_or_insert(error.into());
            }
        } else {
            (description.outbound.iter_mut()).for_each(|out| out.order = None);
        }
        let mut layouts = self.layouts.values();
        if !layouts.all(|layout| layout.fits(world.device())) {
            let refusal = || EpochError::OtherDevice.into();
            self.refused.get_or_insert_with(refusal);
        }
        known
    }

    /// Meets the neighbours: tells them what this rank declares, and then where its memory is. The inner error is a
    /// failure of this rank that the others have not heard of yet.
    fn meet<D: Device>(
        mut self,
        agreement: &Agreement<'_, D>,
    ) -> Result<(Which, Result<Meeting<D>>)> {
        let world = agreement.world();
        let rank = world.rank();
        let known = self.describe(world, agreement.roster());
        let name = self.name.clone();
        let mine = &self.description;
        let mut edges = Edges::new(rank, mine);
        let said = match self.refused.take() {
            Some(error) => Err(error.into()),
            None => known
                .and_then(|()| check_own(&edges))
                .map(|()| edges.letters())
                .map_err(Trouble::from),
        };
        let lowest = agreement.roster().members.lowest();
        let terms_differ = |first: &[u8], other_rank, other: &[u8]| {
            let first = Terms::decoded(first).map_err(|error| (lowest, error))?;
            let other = Terms::decoded(other).map_err(|error| (other_rank, error))?;
            Ok(differ((lowest, &first), other_rank, &other))
        };
        let label = self.purpose().label();
        let terms = mine.terms.encoded();
        let (which, letters) = agreement.begin(label, &name, terms, terms_differ, said)?;
        let id = which.id;

        // Now this rank knows what its neighbours declare, and allocates its memory.
        let offer = || -> Result<_, Trouble> {
            edges.hear(letters)?;
            check(&edges)?;
            let orders = orders(world, &edges)?;
            let shape = Shape::of(&edges);
            let (own, offer) = allocate(world, &edges, &shape)?;
            let letters = offer.letters(&edges, &shape);
            Ok((letters, (shape, own, orders)))
        };
        let (letters, kept) = match offer() {
            Ok((letters, kept)) => (Ok(letters), Some(kept)),
            Err(trouble) => (Err(trouble), None),
        };
        let letters = agreement.tell("sharing a window's memory", &which, letters)?;
        let (shape, own, orders) = kept.expect("a rank in trouble has objected");
        let routes = match Routes::find(world, &which, K::KIND, (&shape, own.block.base()), letters)
        {
            Ok(routes) => routes,
            Err(error) => return Ok((which, Err(error))),
        };
        // This rank must be able to hear of failures before it waits for a word. So this thread registers the window
        // before it can enqueue anything; until then, words only wait to be read.
        let word = |(index, peer): (usize, &usize), at: fn(&Shape, usize) -> usize| {
            let block = shape.of_rank(*peer, &own.block, own.far.as_ref());
            (block.base().byte_add(at(&shape, index)), *peer)
        };
        let exposed = shape.targets.iter().enumerate();
        let done = shape.origins.iter().enumerate();
        let words = exposed
            .map(|each| word(each, Shape::exposed))
            .chain(done.map(|each| word(each, Shape::done)));
        let readers = shape.targets.iter().enumerate();
        let readers = readers.filter(|(_, target)| routes.of(**target).place.reads);
        let words = words.chain(readers.map(|each| word(each, Shape::read)));
        let size = size_of::<T>();
        let (words, block) = (words.collect(), own.block.clone());
        let mut watched =
            Watched::new(name, id, words, block, size, self.limit).with_throttle(self.throttle);
        if let Some(lines) = &own.lines {
            let ranks = shape.targets.iter().chain(&shape.origins).enumerate();
            let is_by_nic = |rank: usize| matches!(routes.of(rank).way, Way::Nic(_));
            let by_nic = ranks.filter(|(_, rank)| is_by_nic(**rank));
            let sent = by_nic.map(|(line, _)| NicLine::sent_of(words_of(lines.base(), line)));
            let sent: Vec<_> = sent.collect();
            if shape.is_staged() {
                // All buffers of staged memory are free at first: see `NicLine::wait_for_buffer`.
                for word in &sent {
                    let free = u64::from(self.description.terms.buffers) * QUANTUM;
                    // SAFETY: the word lies in the block of the lines, of which no line has been made yet.
                    unsafe { world.device().init_word(*word, free) };
                }
            }
            let blocks = own.far.iter().chain([lines]).cloned();
            watched = watched.with_lines(sent, blocks.collect());
        }
        let watched = Arc::new(watched);
        world.watch_window(&watched);
        world.holds(id, self.description.exposed_at_first());
        let outbound = self.description.outbound.iter().enumerate();
        let at_targets = outbound.map(|(index, out)| {
            let target = edges.of(out.target)?;
            match K::KIND {
                Kind::Slot => target.slot(out.key),
                Kind::Range => {
                    let place = target.outbound.binary_search(&index).ok()?;
                    Some((place, out.elements.count()))
                }
                Kind::Atomic => None,
            }
        });
        let at_targets = at_targets.collect();
        let here = edges.neighbours.iter().flat_map(|each| &each.said.outbound);
        let here = here.filter(|_| K::KIND == Kind::Range);
        let footprints = here.map(|out| out.elements.clone()).collect();
        let meeting = Meeting {
            at_targets,
            footprints,
            orders,
            layouts: self.layouts,
            sites: self.sites,
            description: self.description,
            shape,
            watched,
            own,
            routes,
        };
        Ok((which, Ok(meeting)))
    }
}

/// Allocates this rank's memory of a window, with words that are ready for the first epoch.
fn allocate<D: Device>(
    world: &World<D>,
    edges: &Edges<'_>,
    shape: &Shape,
) -> Result<(Own<D>, Offer)> {
    let mine = edges.mine;
    let (block, far) = shape.allocate(world.device())?;
    // All buffers are free at first, so the exposure for epoch 0 has been given already.
    let (before, early) = (mine.terms.before, mine.exposed_at_first());
    let exposed = (shape.targets.iter().enumerate()).map(|(index, rank)| {
        let count = shape.exposures(edges, *rank, (before, early));
        (*rank, shape.exposed(index), count)
    });
    let done =
        (shape.origins.iter().enumerate()).map(|(index, rank)| (*rank, shape.done(index), before));
    for (rank, cell, count) in exposed.chain(done) {
        let there = shape.of_rank(rank, &block, far.as_ref()).base();
        let word = (there.byte_add(cell), count);
        let operand = (block.base().byte_add(cell + Shape::OPERAND), before);
        for (at, count) in [word, operand].into_iter().filter(|(_, count)| *count != 0) {
            // This rank has checked that `before` is no more than `MOST`, so this does not overflow.
            // SAFETY: the cells lie in this rank's blocks, which no other rank knows yet.
            unsafe { world.device().init_word(at, count * QUANTUM) };
        }
    }
    for (index, rank) in shape.targets.iter().enumerate() {
        if shape.is_far(*rank) {
            // So much has been sent before the first firing: see `NicLine::wait_for_buffer`.
            let free = u64::from(mine.terms.buffers) * QUANTUM;
            let at = block.base().byte_add(shape.exposed(index) + Shape::FIRED);
            // SAFETY: as above.
            unsafe { world.device().init_word(at, free) };
        }
    }
    // A NIC needs memory of its own for the updates of far origins.
    let by_nic = |rank: &usize| match world.staged() {
        true => shape.is_far(*rank),
        false => world.by_nic(*rank, world.bell(*rank).is_some()),
    };
    let mut neighbours = shape.targets.iter().chain(&shape.origins);
    let updated = mine.terms.kind != Kind::Slot && neighbours.any(by_nic);
    Own::offer(world, block, far, (shape.lines(), updated))
}
