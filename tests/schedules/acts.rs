//! The operations of an epoch, and the state of a rank's regions when they are chosen.

use tidegate::Op as Reduction;

use super::genes::Choices;
use super::job::{
    Act, Job, Kind, Lay, PER_WINDOW, Reg, Role, SHARED, Verb, What, locked, mine, ones, own,
    tickets, zeros,
};
use super::value::Ty;

/// The regions of a rank at some point of its program.
pub(crate) struct Book {
    pub(crate) regions: Vec<Reg>,
    /// The regions that are split, each with its second part.
    split: Vec<(usize, usize)>,
    /// The first region of fixed length that is not a window's own.
    first_free: usize,
}

impl Book {
    pub(crate) fn new(job: &Job, rank: usize) -> Self {
        Book {
            regions: job.regions[rank].clone(),
            split: Vec::new(),
            first_free: job.windows.len() * PER_WINDOW,
        }
    }

    /// Whether it may be changed freely.
    pub(crate) fn is_data(&self, id: usize) -> bool {
        let Reg { len, role, .. } = self.regions[id];
        role == Role::Data || role == Role::Rest && len > 0
    }

    fn data(&self, ty: Ty) -> Vec<usize> {
        let fits = |id: &usize| self.regions[*id].ty == ty && self.is_data(*id);
        // Small regions that belong to windows come last.
        (0..self.regions.len()).rev().filter(fits).collect()
    }

    /// An operation that can be done at any time, but not captured.
    pub(crate) fn extra(&mut self, streams: usize, choices: &mut Choices<'_>) -> Option<What> {
        let all: Vec<_> = (0..self.regions.len())
            .filter(|id| self.is_data(*id))
            .collect();
        let (region, salt) = (choices.of(&all), choices.salt());
        Some(match choices.pick(8) {
            0 => What::Change { region, salt },
            1 => What::Trip { region, salt },
            2 => What::Renew {
                region: self.unsplit(choices)?,
                salt,
            },
            3 => What::Synchronize,
            4 | 5 => What::Parts {
                region,
                step: 1 + choices.pick(4),
                side: choices.pick(streams),
                salt,
            },
            6 if !self.split.is_empty() => {
                let (region, rest) = self.split.swap_remove(choices.pick(self.split.len()));
                self.join(region, rest)
            }
            _ => {
                let region = self.unsplit(choices)?;
                let rest = self.rest(region)?;
                let len = self.regions[region].len;
                // The cut is not at an end, because nothing could be done with an empty part.
                let at = 1 + choices.pick(len.checked_sub(2)? + 1);
                self.regions[region].len = at;
                self.regions[rest].len = len - at;
                self.split.push((region, rest));
                What::Split { region, at, rest }
            }
        })
    }

    fn join(&mut self, region: usize, rest: usize) -> What {
        self.regions[region].len += self.regions[rest].len;
        self.regions[rest].len = 0;
        What::Join { region, rest }
    }

    /// A region in one piece.
    fn unsplit(&self, choices: &mut Choices<'_>) -> Option<usize> {
        let whole = |id: &usize| {
            self.regions[*id].role == Role::Data && !self.split.iter().any(|(a, _)| a == id)
        };
        let all: Vec<_> = (self.first_free..self.regions.len())
            .filter(whole)
            .collect();
        (!all.is_empty()).then(|| choices.of(&all))
    }

    /// A free region for its second part.
    fn rest(&self, region: usize) -> Option<usize> {
        let reg = self.regions[region];
        let fits = |id: &usize| {
            let other = self.regions[*id];
            other.role == Role::Rest && other.ty == reg.ty && other.len == 0
        };
        (0..self.regions.len()).find(fits)
    }

    /// Joins of everything that is still split.
    pub(crate) fn into_joins(mut self) -> impl Iterator<Item = What> {
        let split = std::mem::take(&mut self.split);
        split
            .into_iter()
            .map(move |(region, rest)| self.join(region, rest))
    }

    /// A kernel that reads one of some slots into a region.
    pub(crate) fn fold(
        &self,
        ty: Ty,
        window: usize,
        slots: usize,
        choices: &mut Choices<'_>,
    ) -> Option<What> {
        let data = self.data(ty);
        (!data.is_empty() && slots > 0).then(|| What::Fold {
            window,
            slot: choices.pick(slots),
            region: choices.of(&data),
        })
    }
}

/// The same epoch, in which all puts have every n-th element of some region as their source.
pub(crate) fn surface(
    job: &Job,
    rank: usize,
    what: What,
    book: &Book,
    choices: &mut Choices<'_>,
) -> What {
    let What::Complete { window, group, .. } = &what else {
        return what;
    };
    let win = &job.windows[*window];
    let data = book.data(win.ty);
    if !matches!(win.kind, Kind::Slots { .. }) || data.is_empty() {
        return what;
    }
    let region = choices.of(&data);
    let step = 1 + choices.pick(4);
    let chosen = (book.regions[region].len - 1) / step + 1;
    let targets = group.clone().unwrap_or(win.targets(rank));
    let act = |(edge, len): (usize, usize)| Act {
        edge,
        verb: Verb::Put,
        local: region,
        lay: Lay::Strided {
            first: 0,
            loops: vec![(chosen.min(len) as u32, step as i32)],
        },
        at: 0,
        remote: Lay::Whole,
    };
    let edges = win.outbound(rank).enumerate();
    let edges = edges.filter(|(_, edge)| targets.contains(&edge.target));
    What::Surface {
        window: *window,
        group: group.clone(),
        acts: edges.map(|(index, edge)| act((index, edge.len))).collect(),
        region,
        step,
        side: choices.pick(job.lanes[rank].len()),
        salt: choices.salt(),
    }
}

/// Chooses the operations of one epoch.
struct Chooser<'a, 'c, 't> {
    book: &'a Book,
    choices: &'c mut Choices<'t>,
    ty: Ty,
    reads: Vec<usize>,
    writes: Vec<usize>,
    acts: Vec<Act>,
}

/// The operations of an epoch that names these targets.
pub(crate) fn acts(
    job: &Job,
    rank: usize,
    window: usize,
    targets: &[usize],
    book: &Book,
    choices: &mut Choices<'_>,
) -> Vec<Act> {
    let win = &job.windows[window];
    let mut chooser = Chooser {
        book,
        choices,
        ty: win.ty,
        reads: Vec::new(),
        writes: Vec::new(),
        acts: Vec::new(),
    };
    if let Kind::Atomic { own: size } = win.kind {
        for target in targets {
            for _ in 0..chooser.choices.of(&[1, 0, 2, 3, 4]) {
                chooser.atomic(window, *target, rank * size, size, win.shared());
            }
            if !chooser.choices.once_in(3) {
                let (local, into) = (ones(window), tickets(window));
                let op = Reduction::Sum;
                chooser.whole(*target, Verb::Fetch { op, into }, local, win.tickets());
            }
            if !chooser.choices.once_in(3) {
                let (local, compare, into) = (mine(window), zeros(window), locked(window));
                chooser.whole(
                    *target,
                    Verb::Swap { compare, into },
                    local,
                    win.locks().start,
                );
            }
        }
        return chooser.acts;
    }
    for (index, edge) in win.outbound(rank).enumerate() {
        if !targets.contains(&edge.target) {
            continue;
        }
        // The pieces are disjoint, since puts of one epoch must not overlap.
        let pieces = chooser.choices.of(&[1, 0, 1, 2, 1, 3]).min(edge.len);
        for piece in 0..pieces {
            let bounds = piece * edge.len / pieces..(piece + 1) * edge.len / pieces;
            let layout = edge.layout().map(|_| edge.len);
            chooser.piece(index, bounds, win.kind == Kind::Ranges, layout);
        }
    }
    chooser.acts
}

impl Chooser<'_, '_, '_> {
    /// An operation between whole small regions and as many elements, unless the regions are taken.
    fn whole(&mut self, edge: usize, verb: Verb, local: usize, at: usize) {
        let act = Act {
            edge,
            verb,
            local,
            lay: Lay::Whole,
            at,
            remote: Lay::Whole,
        };
        self.add(act);
    }

    /// Adds an operation, unless it would write elements that another one reads or writes.
    fn add(&mut self, act: Act) -> bool {
        let taken = |id: usize| self.writes.contains(&id);
        if act.reads().any(taken) {
            return false;
        }
        if let Some(id) = act.writes()
            && (taken(id) || self.reads.contains(&id) || act.reads().any(|read| read == id))
        {
            return false;
        }
        self.reads.extend(act.reads());
        self.writes.extend(act.writes());
        self.acts.push(act);
        true
    }

    fn reduction(&mut self) -> Reduction {
        use Reduction::{BitAnd, BitOr, BitXor, Keep, Max, Min, Prod, Replace, Sum};
        if self.ty == Ty::F64 {
            self.choices.of(&[Sum, Max, Min, Replace, Keep])
        } else {
            let all = [Sum, Prod, Max, Min, BitXor, BitAnd, BitOr, Replace, Keep];
            self.choices.of(&all)
        }
    }

    /// A source for `count` elements. With `as_run`, it is contiguous.
    fn source(&mut self, count: usize, as_run: bool) -> Option<(usize, Lay)> {
        let regions = &self.book.regions;
        let fits = |id: &usize| !as_run || regions[*id].len >= count;
        let free = |id: &usize| !self.writes.contains(id) && fits(id);
        let data: Vec<_> = self.book.data(self.ty).into_iter().filter(free).collect();
        if data.is_empty() {
            return None;
        }
        let region = self.choices.of(&data);
        let len = self.book.regions[region].len;
        Some((region, self.lay(len, count, false, as_run)))
    }

    /// `count` of `len` elements. If there are not enough, or by chance, some occur more than once.
    fn lay(&mut self, len: usize, count: usize, distinct: bool, as_run: bool) -> Lay {
        let style = if as_run { 1 } else { self.choices.pick(5) };
        if count == 0 {
            let first = self.choices.pick(len + 1);
            return Lay::Run { first, count };
        }
        if count > len || style == 4 {
            let span = len;
            let factor = self.factor(span, distinct);
            return Lay::Indexed {
                first: 0,
                count,
                factor,
                span,
            };
        }
        let most = (len - 1).checked_div(count - 1).unwrap_or(1);
        match style {
            0 if count == len => Lay::Whole,
            2 | 3 if most > 0 => {
                let stride = 1 + self.choices.pick(most.min(6));
                let reach = (count - 1) * stride;
                let first = self.choices.pick(len - reach);
                if style == 2 {
                    let loops = vec![(count as u32, stride as i32)];
                    Lay::Strided { first, loops }
                } else {
                    let loops = vec![(count as u32, -(stride as i32))];
                    let first = first + reach;
                    Lay::Strided { first, loops }
                }
            }
            _ => Lay::Run {
                first: self.choices.pick(len - count + 1),
                count,
            },
        }
    }

    /// A factor that reaches the whole span if elements must be distinct.
    fn factor(&mut self, span: usize, distinct: bool) -> usize {
        let first = 1 + self.choices.pick(span.max(2) - 1);
        let fits = |factor: &usize| !distinct || gcd(*factor, span) == 1;
        (first..).find(fits).expect("there are such numbers")
    }

    /// An operation on some elements of a slot or range. If that is a layout of this many elements, its order is the
    /// layout's, and the local side is a run unless all elements are used.
    fn piece(
        &mut self,
        edge: usize,
        bounds: std::ops::Range<usize>,
        ranged: bool,
        layout: Option<usize>,
    ) {
        let (mut at, size) = (bounds.start, bounds.len());
        if size == 0 {
            return;
        }
        let style = match layout {
            None => self.choices.pick(7),
            Some(_) => self.choices.of(&[0, 1, 6]),
        };
        let (count, remote) = match style {
            1 => {
                let count = 1 + self.choices.pick(size);
                at += self.choices.pick(size - count + 1);
                (count, Lay::Whole)
            }
            2 => {
                let stride = 2 + self.choices.pick(3);
                let count = (size - 1) / stride + 1;
                let loops = vec![(count as u32, stride as i32)];
                (count, Lay::Strided { first: 0, loops })
            }
            3 => {
                let loops = vec![(size as u32, -1)];
                let first = size - 1;
                (size, Lay::Strided { first, loops })
            }
            4 => {
                let count = 1 + self.choices.pick(size);
                let factor = self.factor(size, true);
                let (first, span) = (0, size);
                let lay = Lay::Indexed {
                    first,
                    count,
                    factor,
                    span,
                };
                (count, lay)
            }
            // Pairs of neighbours.
            5 if size >= 3 => {
                let loops = vec![(2, 1), (size as u32 / 3, 3)];
                (size / 3 * 2, Lay::Strided { first: 0, loops })
            }
            6 if self.choices.once_in(3) => (0, Lay::Whole),
            _ => (size, Lay::Whole),
        };
        let verb = if ranged {
            match self.choices.pick(3) {
                1 => Verb::Get,
                2 if self.ty.number() => Verb::Accumulate(self.reduction()),
                _ => Verb::Put,
            }
        } else {
            Verb::Put
        };
        if verb == Verb::Get {
            self.get(edge, at, count, remote, size, layout);
            return;
        }
        let as_run = layout.is_some_and(|all| all != count);
        let Some((local, lay)) = self.source(count, as_run) else {
            return;
        };
        let act = Act {
            edge,
            verb,
            local,
            lay,
            at,
            remote,
        };
        // Accumulates of one kind may overlap.
        let again = matches!(verb, Verb::Accumulate(_)) && self.choices.once_in(2);
        if self.add(act.clone()) && again {
            self.add(act);
        }
    }

    fn get(
        &mut self,
        edge: usize,
        at: usize,
        count: usize,
        remote: Lay,
        size: usize,
        layout: Option<usize>,
    ) {
        let free = |id: &usize| !self.writes.contains(id) && !self.reads.contains(id);
        let data: Vec<_> = self.book.data(self.ty).into_iter().filter(free).collect();
        if data.is_empty() {
            return;
        }
        let local = self.choices.of(&data);
        let len = self.book.regions[local].len;
        let (count, remote, at) = if count <= len {
            (count, remote, at)
        } else if remote == Lay::Whole {
            (len, remote, at)
        } else {
            (len.min(size), Lay::Whole, at)
        };
        let as_run = layout.is_some_and(|all| all != count);
        let lay = self.lay(len, count, true, as_run);
        self.add(Act {
            edge,
            verb: Verb::Get,
            local,
            lay,
            at,
            remote,
        });
    }

    /// An atomic operation on this rank's own elements, or on a shared one.
    fn atomic(&mut self, window: usize, target: usize, base: usize, size: usize, shared: usize) {
        let into = own(window, 0);
        match self.choices.pick(7) {
            0 | 6 => {
                let index = self.choices.pick(SHARED);
                use Reduction::{BitOr, BitXor, Max, Min, Sum};
                let (op, local) = if self.ty == Ty::F64 {
                    ([Sum, Max, Min, Sum][index], Some(mine(window)))
                } else {
                    let data = self.book.data(self.ty).into_iter();
                    let free: Vec<_> = data.filter(|id| !self.writes.contains(id)).collect();
                    let local = (!free.is_empty()).then(|| self.choices.of(&free));
                    ([Sum, BitXor, Max, BitOr][index], local)
                };
                let Some(local) = local else { return };
                let first = self.choices.pick(self.book.regions[local].len);
                self.add(Act {
                    edge: target,
                    verb: Verb::Accumulate(op),
                    local,
                    lay: Lay::Run { first, count: 1 },
                    at: shared + index,
                    remote: Lay::Whole,
                });
            }
            1 => {
                let count = 1 + self.choices.pick(size);
                let at = base + self.choices.pick(size - count + 1);
                let (op, source) = (self.reduction(), self.source(count, false));
                let Some((local, lay)) = source else { return };
                self.add(Act {
                    edge: target,
                    verb: Verb::Accumulate(op),
                    local,
                    lay,
                    at,
                    remote: Lay::Whole,
                });
            }
            2 => {
                let (op, source) = (self.reduction(), self.source(size, false));
                let Some((local, lay)) = source else { return };
                self.add(Act {
                    edge: target,
                    verb: Verb::Fetch { op, into },
                    local,
                    lay,
                    at: base,
                    remote: Lay::Whole,
                });
            }
            3 => {
                let compare = own(window, 1);
                self.whole(target, Verb::Swap { compare, into }, own(window, 2), base);
            }
            4 => self.whole(target, Verb::Get, own(window, 1), base),
            _ => self.whole(target, Verb::Get, into, base),
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
