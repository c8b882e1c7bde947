//! The job done sequentially, on vectors.
//!
//! Each rank runs its program in order, one operation at a time. A rank that must wait lets others go on. The real
//! streams, at the same time or in advance, must have the same results. They may only choose the order between ranks,
//! which posts, completes and waits restrict. The rules:
//!
//! - The k-th post that names an origin belongs to that origin's k-th complete that names the target. A complete waits
//!   for its post, or, if slots have two buffers, for the one before. A wait waits for its completes.
//! - A slot with one buffer keeps the elements to which nobody puts. With two buffers, epoch k writes buffer k mod 2,
//!   and the target sees the one of the last epoch for which it waited.
//! - A range or an atomic window is one array.
//!
//! If no rank can go on, the schedule has a deadlock. This is an error of the generator, or the effect of a mutant.
//!
//! If several origins fetch from one element, any order is right. The oracle takes one; [`Tag`]s say which entries of
//! the logs belong together, so that the real ones can be judged as a set.

use std::collections::HashMap;

use super::job::{
    Act, CONTESTED, Edge, Item, Job, Kind, Lay, Op, Ranks, Verb, What, Win, log, sums,
};
use super::value::{changed, checksum};

/// The final state, also of the real run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) regions: Vec<Vec<u64>>,
    /// The contents of each window: its slots, or its memory.
    pub(crate) windows: Vec<Vec<Vec<u64>>>,
    /// The values that the host has read during the run.
    pub(crate) reads: Vec<u64>,
}

/// The meaning of an entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) window: usize,
    pub(crate) target: usize,
    pub(crate) cell: usize,
    /// The target's exposure, counted from 1.
    pub(crate) exposure: u64,
    pub(crate) kind: Fetched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fetched {
    Ticket,
    /// The value that a try to lock has found.
    Lock,
    /// The value that the target found in the lock at the end.
    Holder,
    /// The same as an earlier entry, since nothing was fetched in between.
    Stale,
}

/// The right results.
pub(crate) struct Truth {
    pub(crate) outcomes: Vec<Outcome>,
    /// For each rank and window, the meanings of the log's entries.
    pub(crate) tags: Vec<Vec<Vec<Tag>>>,
}

#[derive(Default)]
struct Pair {
    posts: u64,
    completes: u64,
    waits: u64,
}

struct State<'j> {
    job: &'j Job,
    regions: Vec<Vec<Vec<u64>>>,
    /// By window and rank.
    memory: Vec<Vec<Vec<u64>>>,
    /// By window and edge.
    slots: Vec<Vec<[Vec<u64>; 2]>>,
    pairs: HashMap<(usize, usize, usize), Pair>,
    /// By window and rank: the group of the open exposure, and how many there were.
    exposed: Vec<Vec<(Vec<usize>, u64)>>,
    reads: Vec<Vec<u64>>,
    tags: Vec<Vec<Vec<Tag>>>,
    /// The meanings of the values in regions for fetched values.
    fetched: HashMap<(usize, usize), Vec<Tag>>,
}

/// A program in single steps. An exchange has three, and a whole exposure has two.
fn flatten(items: &[Item]) -> Vec<What> {
    let mut all = Vec::new();
    let mut add = |op: &Op| match &op.what {
        What::Exchange {
            window,
            group,
            acts,
        } => all.extend([
            What::Post {
                window: *window,
                group: None,
            },
            What::Complete {
                window: *window,
                group: group.clone(),
                acts: acts.clone(),
            },
            What::Wait {
                window: *window,
                polls: 0,
            },
        ]),
        What::Expose { window, group } => all.extend([
            What::Post {
                window: *window,
                group: group.clone(),
            },
            What::Wait {
                window: *window,
                polls: 0,
            },
        ]),
        what => all.push(what.clone()),
    };
    for item in items {
        match item {
            Item::Do(op) => add(op),
            Item::Loop { body, chunks, .. } => {
                for _ in 0..chunks.iter().map(|chunk| chunk.times()).sum() {
                    body.iter().for_each(&mut add);
                }
            }
        }
    }
    all
}

/// Runs the job.
///
/// # Errors
///
/// If the schedule has a deadlock.
pub(crate) fn run(job: &Job) -> Result<Truth, String> {
    let programs: Vec<_> = job.programs.iter().map(|items| flatten(items)).collect();
    let mut next = vec![0; job.ranks];
    let mut state = State::new(job);
    loop {
        let mut moved = false;
        for rank in 0..job.ranks {
            while let Some(what) = programs[rank].get(next[rank]) {
                if !state.step(rank, what) {
                    break;
                }
                next[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for rank in 0..job.ranks {
        if let Some(what) = programs[rank].get(next[rank]) {
            return Err(format!(
                "rank {rank} cannot go on at step {}: {what:?}",
                next[rank]
            ));
        }
    }
    Ok(state.finish())
}

impl<'j> State<'j> {
    fn new(job: &'j Job) -> Self {
        let region = |rank: usize, id: usize| {
            let reg = &job.regions[rank][id];
            (0..reg.len)
                .map(|index| reg.first_value(rank, id, index))
                .collect()
        };
        let ranks = 0..job.ranks;
        let of_windows = |win: &Win| ranks.clone().map(|rank| win.first_memory(rank)).collect();
        let slots = |win: &Win| {
            let buffer = |edge: &Edge| vec![0; edge.len];
            win.edges.iter().map(|e| [buffer(e), buffer(e)]).collect()
        };
        State {
            job,
            regions: ranks
                .clone()
                .map(|rank| {
                    (0..job.regions[rank].len())
                        .map(|id| region(rank, id))
                        .collect()
                })
                .collect(),
            memory: job.windows.iter().map(of_windows).collect(),
            slots: job.windows.iter().map(slots).collect(),
            pairs: HashMap::new(),
            exposed: vec![vec![(Vec::new(), 0); job.ranks]; job.windows.len()],
            reads: vec![Vec::new(); job.ranks],
            tags: vec![vec![Vec::new(); job.windows.len()]; job.ranks],
            fetched: HashMap::new(),
        }
    }

    fn pair(&mut self, window: usize, origin: usize, target: usize) -> &mut Pair {
        self.pairs.entry((window, origin, target)).or_default()
    }

    /// Does one step. Returns false if it must wait.
    fn step(&mut self, rank: usize, what: &What) -> bool {
        let job = self.job;
        let ty_of = |region: usize| job.regions[rank][region].ty;
        match what {
            What::Post { window, group } => self.post(rank, *window, group),
            What::Wait { window, .. } => return self.wait(rank, *window),
            What::Complete {
                window,
                group,
                acts,
            } => return self.complete(rank, *window, group, acts),
            What::Exchange { .. } | What::Expose { .. } => unreachable!("taken apart by `flatten`"),
            What::Change { region, salt } | What::Trip { region, salt } => {
                let ty = ty_of(*region);
                let elements = self.regions[rank][*region].iter_mut().enumerate();
                elements.for_each(|(index, old)| *old = changed(ty, *old, index, *salt));
            }
            What::Parts {
                region, step, salt, ..
            } => {
                let ty = ty_of(*region);
                for (index, old) in self.regions[rank][*region].iter_mut().enumerate() {
                    let salt = salt + u64::from(index % step == 0);
                    *old = changed(ty, *old, index, salt);
                }
            }
            What::Surface {
                window,
                group,
                acts,
                region,
                step,
                salt,
                ..
            } => {
                if !self.complete(rank, *window, group, acts) {
                    return false;
                }
                let ty = ty_of(*region);
                let elements = self.regions[rank][*region].iter_mut().enumerate();
                elements
                    .filter(|(index, _)| index % step != 0)
                    .for_each(|(index, old)| *old = changed(ty, *old, index, *salt));
            }
            What::Renew { region, salt } => {
                let ty = ty_of(*region);
                let elements = self.regions[rank][*region].iter_mut().enumerate();
                elements.for_each(|(index, old)| *old = changed(ty, 0, index, *salt));
            }
            What::Consume { window, salt } => self.consume(rank, *window, *salt),
            What::Fold {
                window,
                slot,
                region,
            } => {
                let (ty, seen) = (ty_of(*region), self.seen(rank, *window, *slot));
                for (index, old) in self.regions[rank][*region].iter_mut().enumerate() {
                    *old = changed(ty, *old, index, seen[index % seen.len()]);
                }
            }
            What::Log { window, fetched } => {
                let values = self.regions[rank][*fetched].clone();
                let tags = self.fetched.entry((rank, *fetched)).or_default().clone();
                for (value, tag) in values.into_iter().zip(tags) {
                    self.note(rank, *window, value, tag);
                }
            }
            What::Read { window, salt } => self.read(rank, *window, *salt),
            What::Split { region, at, rest } => {
                let tail = self.regions[rank][*region].split_off(*at);
                self.regions[rank][*rest] = tail;
            }
            What::Join { region, rest } => {
                let tail = std::mem::take(&mut self.regions[rank][*rest]);
                self.regions[rank][*region].extend(tail);
            }
            What::Synchronize => {}
        }
        true
    }

    fn post(&mut self, rank: usize, window: usize, group: &Ranks) {
        let origins = self.job.windows[window].origins(rank);
        let group = group.clone().unwrap_or(origins);
        for origin in &group {
            self.pair(window, *origin, rank).posts += 1;
        }
        let (members, count) = &mut self.exposed[window][rank];
        *members = group;
        *count += 1;
    }

    fn wait(&mut self, rank: usize, window: usize) -> bool {
        let group = self.exposed[window][rank].0.clone();
        let come = group.iter().all(|origin| {
            let pair = self.pair(window, *origin, rank);
            pair.completes > pair.waits
        });
        if come {
            for origin in group {
                self.pair(window, origin, rank).waits += 1;
            }
        }
        come
    }

    fn complete(&mut self, rank: usize, window: usize, group: &Ranks, acts: &[Act]) -> bool {
        let win = &self.job.windows[window];
        let targets = group.clone().unwrap_or(win.targets(rank));
        let early = u64::from(win.double());
        let free = targets.iter().all(|target| {
            let pair = self.pair(window, rank, *target);
            pair.posts + early > pair.completes
        });
        if !free {
            return false;
        }
        for act in acts {
            self.act(rank, window, act);
        }
        for target in targets {
            self.pair(window, rank, target).completes += 1;
        }
        true
    }

    fn act(&mut self, rank: usize, window: usize, act: &Act) {
        let job = self.job;
        let win = &job.windows[window];
        let (number, edge) = if let Kind::Atomic { .. } = win.kind {
            (0, edge_of_target(win, rank, act.edge))
        } else {
            let mut mine = win.edges.iter().enumerate();
            mine.by_ref()
                .filter(|(_, edge)| edge.origin == rank)
                .nth(act.edge)
                .map(|(number, edge)| (number, *edge))
                .expect("acts name slots that exist")
        };
        let local = act.lay.elements(self.regions[rank][act.local].len());
        let remote: Vec<_> = match &act.remote {
            Lay::Whole => (act.at..act.at + local.len()).collect(),
            lay => lay.elements(0).into_iter().map(|e| e + act.at).collect(),
        };
        assert_eq!(local.len(), remote.len(), "{act:?}");
        let exposure = self.exposed[window][edge.target].1;
        let epoch = self.pair(window, rank, edge.target).completes;
        let far = match win.kind {
            Kind::Slots { double } => {
                let odd = double && epoch % 2 == 1;
                &mut self.slots[window][number][usize::from(odd)][..]
            }
            _ => &mut self.memory[window][edge.target][..],
        };
        let place = |index: usize| match win.kind {
            Kind::Slots { .. } => index,
            _ => edge.element(index),
        };
        let near = &mut self.regions[rank];
        let (ty, locks) = (win.ty, win.locks());
        let mut tags = Vec::new();
        for (index, (l, r)) in local.into_iter().zip(remote).enumerate() {
            let r = place(r);
            let value = near[act.local][l];
            let old = far[r];
            match act.verb {
                Verb::Put => far[r] = value,
                Verb::Get => near[act.local][l] = old,
                Verb::Accumulate(op) => far[r] = ty.apply(op, old, value),
                Verb::Fetch { op, into } => {
                    far[r] = ty.apply(op, old, value);
                    near[into][index] = old;
                }
                Verb::Swap { compare, into } => {
                    if old == near[compare][index] {
                        far[r] = value;
                    }
                    near[into][index] = old;
                }
            }
            tags.push(Tag {
                window,
                target: edge.target,
                cell: r,
                exposure,
                kind: if locks.contains(&r) {
                    Fetched::Lock
                } else {
                    Fetched::Ticket
                },
            });
        }
        if let Verb::Fetch { into, .. } | Verb::Swap { into, .. } = act.verb {
            self.fetched.insert((rank, into), tags);
        }
    }

    /// The contents of the rank's `slot`-th slot, as it sees them.
    fn seen(&mut self, rank: usize, window: usize, slot: usize) -> Vec<u64> {
        let win = &self.job.windows[window];
        let (number, edge) = win
            .edges
            .iter()
            .enumerate()
            .filter(|(_, edge)| edge.target == rank)
            .nth(slot)
            .expect("it exists");
        // Before the first epoch this is the second buffer, since the origin may have filled the first already.
        let waits = self.pair(window, edge.origin, rank).waits;
        let odd = waits.is_multiple_of(2);
        self.slots[window][number][usize::from(win.double() && odd)].clone()
    }

    fn consume(&mut self, rank: usize, window: usize, salt: u64) {
        let win = &self.job.windows[window];
        if let Kind::Slots { .. } = win.kind {
            for slot in 0..win.inbound(rank).count() {
                let seen = self.seen(rank, window, slot);
                let sum = &mut self.regions[rank][sums(window)][slot];
                *sum = checksum(*sum, seen.into_iter());
            }
            return;
        }
        let locks = win.locks();
        let exposure = self.exposed[window][rank].1;
        let memory = &mut self.memory[window][rank];
        let sum = &mut self.regions[rank][sums(window)][0];
        *sum = checksum(*sum, memory[..memory.len() - locks.len()].iter().copied());
        if let Kind::Ranges = win.kind {
            let elements = memory.iter_mut().enumerate();
            elements.for_each(|(index, old)| *old = changed(win.ty, *old, index, salt));
        }
        for cell in locks {
            let value = std::mem::take(&mut self.memory[window][rank][cell]);
            let tag = Tag {
                window,
                target: rank,
                cell,
                exposure,
                kind: Fetched::Holder,
            };
            self.note(rank, window, value, tag);
        }
    }

    /// Appends to a log.
    fn note(&mut self, rank: usize, window: usize, value: u64, mut tag: Tag) {
        let tags = &mut self.tags[rank][window];
        if tag.kind != Fetched::Holder && tags.contains(&tag) {
            tag.kind = Fetched::Stale;
        }
        tags.push(tag);
        let log = &mut self.regions[rank][log(window)];
        log[tags.len()] = value;
        log[0] = tags.len() as u64;
    }

    fn read(&mut self, rank: usize, window: usize, salt: u64) {
        let win = &self.job.windows[window];
        let mut sum = 0;
        if let Kind::Slots { .. } = win.kind {
            for slot in 0..win.inbound(rank).count() {
                sum = checksum(sum, self.seen(rank, window, slot).into_iter());
            }
        } else {
            let memory = &mut self.memory[window][rank];
            let certain = memory.len() - win.locks().len();
            sum = checksum(sum, memory[..certain].iter().copied());
            let elements = memory[..certain].iter_mut().enumerate();
            elements.for_each(|(index, old)| *old = changed(win.ty, *old, index, salt));
        }
        self.reads[rank].push(sum);
    }

    fn finish(mut self) -> Truth {
        let job = self.job;
        let mut outcomes = Vec::new();
        for rank in 0..job.ranks {
            let mut windows = Vec::new();
            for (window, win) in job.windows.iter().enumerate() {
                windows.push(match win.kind {
                    Kind::Slots { .. } => (0..win.inbound(rank).count())
                        .map(|slot| self.seen(rank, window, slot))
                        .collect(),
                    _ => vec![self.memory[window][rank].clone()],
                });
            }
            outcomes.push(Outcome {
                regions: std::mem::take(&mut self.regions[rank]),
                windows,
                reads: std::mem::take(&mut self.reads[rank]),
            });
        }
        Truth {
            outcomes,
            tags: self.tags,
        }
    }
}

/// Atomic windows are addressed by rank, as a whole.
fn edge_of_target(win: &Win, origin: usize, target: usize) -> Edge {
    Edge {
        origin,
        target,
        key: 0,
        first: 0,
        step: 1,
        len: win.memory,
    }
}

/// The most entries for which a log needs room, without the count.
pub(crate) fn log_room(job: &Job) -> usize {
    let entries = |what: &What| match what {
        What::Log { .. } | What::Consume { .. } => CONTESTED,
        _ => 0,
    };
    let of_rank = |items: &Vec<Item>| flatten(items).iter().map(entries).sum();
    job.programs.iter().map(of_rank).max().unwrap_or(0)
}
