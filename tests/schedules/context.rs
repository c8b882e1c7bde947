//! The values with which a rank enqueues: those that do not change while it runs, and those that it lends to an epoch.

use std::collections::HashMap;

use tidegate::generic::{On, Outbox, Region};
use tidegate::host::prelude::*;
use tidegate::window::{Dest, Source, SourceMut};

use super::bag::{Elem, Groups, Keep, Layouts};
use super::device::Bench;
use super::job::{Act, Job, Kind, Lay, Win};
use super::value::Ty;

/// The values that do not change while a rank runs.
pub(crate) struct Context<'j, D: Bench> {
    pub(crate) job: &'j Job,
    pub(crate) rank: usize,
    pub(crate) kernels: D::Kernels,
    pub(crate) layouts: Layouts<D>,
    pub(crate) groups: Groups,
}

impl<D: Bench> Context<'_, D> {
    pub(crate) fn ty(&self, region: usize) -> Ty {
        self.job.regions[self.rank][region].ty
    }
}

/// The regions of an epoch, each borrowed as its operations need it; and the handles to its targets, by the keys that
/// operations use.
pub(crate) struct Lent<'b, 's, T: Elem, D: Bench> {
    loans: HashMap<usize, Loan<'b, 's, T, D>>,
    ways: HashMap<usize, Out<T>>,
}

/// The handles of an outbox, by the keys that operations use: ranks for the targets of an atomic window, and numbers
/// for the edges of others.
pub(crate) fn ways<T: Elem, K: Keep, D: Bench>(
    win: &Win,
    rank: usize,
    outbox: &Outbox<'_, T, D, K>,
) -> HashMap<usize, Out<T>> {
    match win.kind {
        Kind::Atomic { .. } => win.targets(rank).into_iter().zip(outbox.slots()).collect(),
        _ => outbox.slots().enumerate().collect(),
    }
}

enum Loan<'b, 's, T: Elem, D: Bench> {
    Shared(&'b Region<T, On<'s, D>>),
    Own(Option<&'b mut Region<T, On<'s, D>>>),
}

impl<'b, 's, T: Elem, D: Bench> Lent<'b, 's, T, D> {
    pub(crate) fn new(
        regions: &'b mut [Option<Region<T, On<'s, D>>>],
        acts: &[Act],
        ways: HashMap<usize, Out<T>>,
    ) -> Self {
        let mut loans = HashMap::new();
        for (id, region) in regions.iter_mut().enumerate() {
            let Some(region) = region else { continue };
            if acts.iter().any(|act| act.writes() == Some(id)) {
                loans.insert(id, Loan::Own(Some(region)));
            } else if acts.iter().any(|act| act.reads().any(|read| read == id)) {
                loans.insert(id, Loan::Shared(region));
            }
        }
        Lent { loans, ways }
    }

    pub(crate) fn shared(&self, id: usize) -> &'b Region<T, On<'s, D>> {
        match self.loans[&id] {
            Loan::Shared(region) => region,
            Loan::Own(_) => panic!("region {id} is read and written in one epoch"),
        }
    }

    pub(crate) fn own(&mut self, id: usize) -> &'b mut Region<T, On<'s, D>> {
        match self.loans.get_mut(&id) {
            Some(Loan::Own(region)) => region.take().expect("it is written once an epoch"),
            _ => panic!("region {id} is not there"),
        }
    }

    pub(crate) fn source(&self, cx: &'b Context<'_, D>, act: &Act) -> Result<Source<'b, 's, T, D>> {
        let region = self.shared(act.local);
        match &act.lay {
            Lay::Whole => Ok(region.into()),
            Lay::Run { first, count } => region.slice(*first..first + count),
            lay => region.with(&cx.layouts[lay]),
        }
    }

    pub(crate) fn remote(&self, cx: &'b Context<'_, D>, act: &Act) -> Dest<'b, T, D> {
        remote(cx, self.ways[&act.edge], act)
    }

    pub(crate) fn dest(
        &mut self,
        cx: &'b Context<'_, D>,
        act: &Act,
    ) -> Result<SourceMut<'b, 's, T, D>> {
        let region = self.own(act.local);
        match &act.lay {
            Lay::Whole => Ok(region.into()),
            Lay::Run { first, count } => region.slice_mut(*first..first + count),
            lay => region.with_mut(&cx.layouts[lay]),
        }
    }
}

pub(crate) fn remote<'b, T, D: Bench>(
    cx: &'b Context<'_, D>,
    way: Out<T>,
    act: &Act,
) -> Dest<'b, T, D> {
    let dest = way.at(act.at);
    match &act.remote {
        Lay::Whole => dest,
        lay => dest.with(&cx.layouts[lay]),
    }
}
