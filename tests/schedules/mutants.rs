//! Wrong programs. The oracle must notice each of them.
//!
//! A mutant changes one place of one rank's program (or how windows are opened). Programs that the types rule out
//! cannot be written here. They are tests of programs that do not compile:
//!
//! - A kernel that reads an inbox while it is exposed. [`Mutant::PostEarly`] is as close as possible, and reads it
//!   after the *next* wait.
//! - A source that is written before the epoch is complete. [`Mutant::SourceOverwritten`] moves the kernel in front of
//!   the whole epoch.
//! - An inbox that is read without a wait, an epoch that is completed twice, a hand-off that is left out.
//!
//! No program can express a complete that does not wait for the exposure. But a window with two buffers gives one
//! exposure in advance. So with [`Mutant::OtherBuffers`] completes come an epoch early, and the target reads the wrong
//! buffer.

use std::time::Duration;

use super::bag::Adjust;
use super::job::{Act, Item, Job, Kind, Lay, Op, Verb, What, Win};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The next post comes before the data of the last epoch is read.
    PostEarly,
    /// An epoch's inbox is read before the epoch.
    StaleView,
    /// There are two buffers instead of one, or the other way round.
    OtherBuffers,
    /// A put is forgotten.
    LostPut,
    /// A put goes to another slot of the same target.
    WrongSlot,
    /// An operation goes to the neighbouring elements.
    WrongPlace,
    /// A source is overwritten before it is sent, and not after.
    SourceOverwritten,
    /// A complete is left out, so the target is not released.
    ReleaseLeftOut,
    /// A wait counts one origin too few.
    CountTooLow,
    /// A post and its wait are left out.
    PostLeftOut,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 10] = [
        Mutant::PostEarly,
        Mutant::StaleView,
        Mutant::OtherBuffers,
        Mutant::LostPut,
        Mutant::WrongSlot,
        Mutant::WrongPlace,
        Mutant::SourceOverwritten,
        Mutant::ReleaseLeftOut,
        Mutant::CountTooLow,
        Mutant::PostLeftOut,
    ];

    /// Whether ranks may wait for ever.
    pub(crate) fn may_hang(self) -> bool {
        matches!(
            self,
            Mutant::ReleaseLeftOut | Mutant::CountTooLow | Mutant::PostLeftOut
        )
    }

    /// The job's programs with one place changed, if there is such a place. `which` chooses among them.
    pub(crate) fn apply(self, job: &Job, which: usize) -> Option<(Vec<Vec<Item>>, Adjust)> {
        let limit = self.may_hang().then_some(Duration::from_millis(400));
        let mut adjust = Adjust {
            limit,
            swap_buffers: false,
            nic: None,
        };
        if self == Mutant::OtherBuffers {
            adjust.swap_buffers = true;
            let slots = |win: &Win| matches!(win.kind, Kind::Slots { .. });
            return (job.windows.iter().any(slots)).then(|| (job.programs.clone(), adjust));
        }
        let mut all = Vec::new();
        for (rank, program) in job.programs.iter().enumerate() {
            for (number, block) in blocks(program).into_iter().enumerate() {
                for at in 0..block.ops().len() {
                    let mut ops = block.ops().to_vec();
                    if self.edit(job, rank, &mut ops, at).is_some() {
                        all.push((rank, number, ops));
                    }
                }
            }
        }
        if all.is_empty() {
            return None;
        }
        let (rank, number, ops) = all.swap_remove(which % all.len());
        let mut programs = job.programs.clone();
        let mut changed = blocks(&programs[rank]);
        changed[number].set(ops);
        programs[rank] = changed.into_iter().flat_map(Block::into_items).collect();
        Some((programs, adjust))
    }

    /// Changes operation `at`, if the mutant can.
    fn edit(self, job: &Job, rank: usize, ops: &mut Vec<Op>, at: usize) -> Option<()> {
        let later = |ops: &[Op], from: usize, is: &dyn Fn(&What) -> bool| {
            (from + 1..ops.len()).find(|index| is(&ops[*index].what))
        };
        let earlier = |ops: &[Op], from: usize, is: &dyn Fn(&What) -> bool| {
            (0..from).rev().find(|index| is(&ops[*index].what))
        };
        match self {
            Mutant::OtherBuffers => None,
            Mutant::PostEarly => {
                let What::Consume { window, .. } = ops[at].what else {
                    return None;
                };
                let next = later(ops, at, &|what| ends(what, window))?;
                let moved = ops.remove(at);
                ops.insert(next, moved);
                Some(())
            }
            Mutant::StaleView => {
                let What::Consume { window, .. } = ops[at].what else {
                    return None;
                };
                let begin = earlier(ops, at, &|what| begins(what, window))?;
                let moved = ops.remove(at);
                ops.insert(begin, moved);
                Some(())
            }
            Mutant::LostPut => {
                let (_, acts) = epoch(&mut ops[at].what)?;
                let index = acts.iter().position(|act| act.verb == Verb::Put)?;
                acts.remove(index);
                Some(())
            }
            Mutant::WrongSlot => {
                let (window, acts) = epoch(&mut ops[at].what)?;
                let win = &job.windows[window];
                let edges: Vec<_> = win.outbound(rank).collect();
                let (act, edge) = (0..acts.len()).find_map(|index| {
                    let act = &acts[index];
                    let from = edges.get(act.edge).filter(|_| act.verb == Verb::Put)?;
                    let fits = |edge: &usize| {
                        edges[*edge].target == from.target
                            && edges[*edge].len >= from.len
                            && acts.iter().all(|other| other.edge != *edge)
                    };
                    Some((index, (0..edges.len()).find(fits)?))
                })?;
                acts[act].edge = edge;
                Some(())
            }
            Mutant::WrongPlace => {
                let (window, acts) = epoch(&mut ops[at].what)?;
                let win = &job.windows[window];
                let lens: Vec<_> = win.outbound(rank).map(|edge| edge.len).collect();
                // It is the only one on its edge, so that the library has no reason to refuse it.
                let alone = |act: &Act| acts.iter().filter(|a| a.edge == act.edge).count() == 1;
                let fits = |act: &Act| matches!(act.lay, Lay::Run { count, .. } if count > 0 && act.at + count < lens[act.edge]);
                let is = |act: &Act| {
                    !matches!(win.kind, Kind::Atomic { .. })
                        && act.remote == Lay::Whole
                        && alone(act)
                        && fits(act)
                };
                let index = acts.iter().position(is)?;
                acts[index].at += 1;
                Some(())
            }
            Mutant::SourceOverwritten => {
                let (_, acts) = epoch(&mut ops[at].what)?;
                let read: Vec<_> = acts.iter().flat_map(|act| act.reads()).collect();
                let change = later(
                    ops,
                    at,
                    &|what| matches!(what, What::Change { region, .. } if read.contains(region)),
                )?;
                let moved = ops.remove(change);
                ops.insert(at, moved);
                Some(())
            }
            Mutant::ReleaseLeftOut => {
                let What::Complete { .. } = ops[at].what else {
                    return None;
                };
                ops.remove(at);
                Some(())
            }
            Mutant::CountTooLow => {
                let (What::Post { window, group } | What::Expose { window, group }) =
                    &mut ops[at].what
                else {
                    return None;
                };
                let all = job.windows[*window].origins(rank);
                let mut some = group.clone().unwrap_or(all);
                if some.len() < 2 {
                    return None;
                }
                some.pop();
                *group = Some(some);
                Some(())
            }
            Mutant::PostLeftOut => {
                let What::Post { window, .. } = ops[at].what else {
                    return None;
                };
                let wait = later(ops, at, &|what| ends(what, window))?;
                ops.remove(wait);
                ops.remove(at);
                Some(())
            }
        }
    }
}

fn epoch(what: &mut What) -> Option<(usize, &mut Vec<Act>)> {
    match what {
        What::Complete { window, acts, .. } | What::Exchange { window, acts, .. } => {
            Some((*window, acts))
        }
        _ => None,
    }
}

/// Whether it opens an exposure of the window.
fn begins(what: &What, of: usize) -> bool {
    matches!(what, What::Post { window, .. } | What::Expose { window, .. } | What::Exchange { window, .. } if *window == of)
}

/// Whether it ends one.
fn ends(what: &What, of: usize) -> bool {
    matches!(what, What::Wait { window, .. } | What::Expose { window, .. } | What::Exchange { window, .. } if *window == of)
}

/// Operations that follow one another, or the body of a loop.
enum Block {
    Free(Vec<Op>),
    Loop(Item),
}

fn blocks(program: &[Item]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for item in program {
        match (item, blocks.last_mut()) {
            (Item::Do(op), Some(Block::Free(ops))) => ops.push(op.clone()),
            (Item::Do(op), _) => blocks.push(Block::Free(vec![op.clone()])),
            (looped, _) => blocks.push(Block::Loop(looped.clone())),
        }
    }
    blocks
}

impl Block {
    fn ops(&self) -> &[Op] {
        match self {
            Block::Free(ops) => ops,
            Block::Loop(Item::Loop { body, .. }) => body,
            Block::Loop(Item::Do(_)) => unreachable!("made by `blocks`"),
        }
    }

    fn set(&mut self, new: Vec<Op>) {
        match self {
            Block::Free(ops) => *ops = new,
            Block::Loop(Item::Loop { body, .. }) => *body = new,
            Block::Loop(Item::Do(_)) => unreachable!("made by `blocks`"),
        }
    }

    fn into_items(self) -> Vec<Item> {
        match self {
            Block::Free(ops) => ops.into_iter().map(Item::Do).collect(),
            Block::Loop(item) => vec![item],
        }
    }
}
