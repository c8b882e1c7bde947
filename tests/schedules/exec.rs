//! Enqueues one operation on one stream, eagerly or in a capture: all that it needs is in the stream's bag.

use std::collections::HashMap;

use tidegate::prelude::*;
use tidegate::window::{Dest, Source, SourceMut, Tested};
use tidegate::{Atomic, ByRange, BySlot, Host};

use super::bag::{Bag, Elem, Groups, Keep, Layouts, put, take, with_kind, with_ty};
use super::job::{Act, Job, Kind, Lay, Op, Ranks, Verb, What, log, sums};
use super::value::{Ty, changed, checksum};

/// What does not change while a rank runs.
pub(crate) struct Context<'j> {
    pub(crate) job: &'j Job,
    pub(crate) rank: usize,
    pub(crate) layouts: Layouts,
    pub(crate) groups: Groups,
}

impl Context<'_> {
    fn ty(&self, region: usize) -> Ty {
        self.job.regions[self.rank][region].ty
    }
}

/// Enqueues an operation that can be captured.
pub(crate) fn enqueue<'s>(
    cx: &Context<'_>,
    s: &Stream<'s>,
    bag: &mut Bag<'s>,
    op: &Op,
) -> Result<()> {
    match &op.what {
        What::Post { window, group } => with_kind!(cx.job.windows[*window], T, K => {
            let halves = K::halves(T::shelf(bag));
            let inbox = take(&mut halves.0, *window);
            let exposed = match group {
                None => inbox.post(s)?,
                Some(ranks) => inbox.post_to(s, &cx.groups[ranks])?,
            };
            put(&mut halves.1, *window, exposed);
            Ok(())
        }),
        What::Wait { window, polls } => with_kind!(cx.job.windows[*window], T, K => {
            let halves = K::halves(T::shelf(bag));
            let exposed = take(&mut halves.1, *window);
            put(&mut halves.0, *window, wait(s, exposed, *polls)?);
            Ok(())
        }),
        What::Complete {
            window,
            group,
            acts,
        } => with_kind!(cx.job.windows[*window], T, K => {
            epoch::<T, K>(cx, s, bag, *window, group, acts, false)
        }),
        What::Exchange {
            window,
            group,
            acts,
        } => with_kind!(cx.job.windows[*window], T, K => {
            epoch::<T, K>(cx, s, bag, *window, group, acts, true)
        }),
        What::Change { region, salt } => with_ty!(cx.ty(*region), T => {
            let salt = *salt;
            let region = T::shelf(bag).0[*region].as_mut().expect("it is here");
            s.launch(move |all: &mut [T]| change(all, salt), region)
        }),
        What::Consume { window, salt } => consume(cx, s, bag, *window, *salt),
        What::Fold {
            window,
            slot,
            region,
        } => with_ty!(cx.ty(*region), T => {
            let mut held = take(&mut T::shelf(bag).0, *region);
            let inbox = T::shelf(bag).1.0[*window].as_ref().expect("it is here");
            let slot = *slot;
            let kernel = move |slots: Slots<'_, T>, all: &mut [T]| {
                let seen = slots.slot(slot);
                for (index, element) in all.iter_mut().enumerate() {
                    let with = seen[index % seen.len()].bits();
                    *element = T::of(changed(T::TY, element.bits(), index, with));
                }
            };
            s.launch(kernel, (inbox.view(), &mut held))?;
            put(&mut T::shelf(bag).0, *region, held);
            Ok(())
        }),
        What::Log { window, fetched } => with_ty!(cx.ty(*fetched), T => {
            let mut entries = take(&mut u64::shelf(bag).0, log(*window));
            let fetched = T::shelf(bag).0[*fetched].as_ref().expect("it is here");
            let kernel = |fetched: &[T], log: &mut [u64]| {
                fetched.iter().for_each(|value| append(log, value.bits()));
            };
            s.launch(kernel, (fetched, &mut entries))?;
            put(&mut u64::shelf(bag).0, log(*window), entries);
            Ok(())
        }),
        other => unreachable!("not on one stream: {other:?}"),
    }
}

pub(crate) fn change<T: Elem>(all: &mut [T], salt: u64) {
    for (index, element) in all.iter_mut().enumerate() {
        *element = T::of(changed(T::TY, element.bits(), index, salt));
    }
}

fn append(log: &mut [u64], value: u64) {
    log[0] += 1;
    log[log[0] as usize] = value;
}

fn wait<'s, T: Elem, K: Keep>(
    s: &Stream<'s>,
    mut exposed: Exposed<'s, T, K>,
    polls: u8,
) -> Result<Inbox<'s, T, K>> {
    let mut left = polls;
    while left > 0 {
        exposed = match exposed.test(s)? {
            Tested::Done(inbox) => return Ok(inbox),
            Tested::Pending(exposed) => exposed,
        };
        if polls == 255 {
            std::thread::sleep(std::time::Duration::from_micros(30));
        } else {
            left -= 1;
            std::thread::yield_now();
        }
    }
    Ok(exposed.wait(s)?)
}

fn consume<'s>(
    cx: &Context<'_>,
    s: &Stream<'s>,
    bag: &mut Bag<'s>,
    window: usize,
    salt: u64,
) -> Result<()> {
    let win = &cx.job.windows[window];
    let mut held = take(&mut u64::shelf(bag).0, sums(window));
    let mut entries = take(&mut u64::shelf(bag).0, log(window));
    with_ty!(win.ty, T => match win.kind {
        Kind::Slots { .. } => {
            let inbox = T::shelf(bag).1.0[window].as_ref().expect("it is here");
            let kernel = |slots: Slots<'_, T>, sums: &mut [u64]| {
                for (slot, sum) in slots.iter().zip(sums) {
                    *sum = checksum(*sum, slot.iter().map(|element| element.bits()));
                }
            };
            s.launch(kernel, (inbox.view(), &mut held))?;
        }
        Kind::Ranges => {
            let inbox = T::shelf(bag).2.0[window].as_mut().expect("it is here");
            // Two kernels: one that only reads, one that writes.
            let kernel = |memory: &[T], sums: &mut [u64]| {
                sums[0] = checksum(sums[0], memory.iter().map(|element| element.bits()));
            };
            s.launch(kernel, (inbox.memory(), &mut held))?;
            s.launch(move |memory: &mut [T]| change(memory, salt), inbox.memory_mut())?;
        }
        Kind::Atomic { .. } => {
            let inbox = T::shelf(bag).3.0[window].as_mut().expect("it is here");
            let locks = win.locks();
            let kernel = move |memory: &mut [T], sums: &mut [u64], log: &mut [u64]| {
                let certain = memory[..locks.start].iter().map(|element| element.bits());
                sums[0] = checksum(sums[0], certain);
                for lock in &mut memory[locks.clone()] {
                    append(log, lock.bits());
                    *lock = T::of(0);
                }
            };
            s.launch(kernel, (inbox.memory_mut(), &mut held, &mut entries))?;
        }
    });
    put(&mut u64::shelf(bag).0, sums(window), held);
    put(&mut u64::shelf(bag).0, log(window), entries);
    Ok(())
}

/// The regions of an epoch, each borrowed as its operations need it.
pub(crate) struct Lent<'b, 's, T: Elem>(HashMap<usize, Loan<'b, 's, T>>);

enum Loan<'b, 's, T: Elem> {
    Shared(&'b Region<T, On<'s>>),
    Own(Option<&'b mut Region<T, On<'s>>>),
}

impl<'b, 's, T: Elem> Lent<'b, 's, T> {
    fn new(regions: &'b mut [Option<Region<T, On<'s>>>], acts: &[Act]) -> Self {
        let mut loans = HashMap::new();
        for (id, region) in regions.iter_mut().enumerate() {
            let Some(region) = region else { continue };
            if acts.iter().any(|act| act.writes() == Some(id)) {
                loans.insert(id, Loan::Own(Some(region)));
            } else if acts.iter().any(|act| act.reads().any(|read| read == id)) {
                loans.insert(id, Loan::Shared(region));
            }
        }
        Lent(loans)
    }

    pub(crate) fn shared(&self, id: usize) -> &'b Region<T, On<'s>> {
        match self.0[&id] {
            Loan::Shared(region) => region,
            Loan::Own(_) => panic!("region {id} is read and written in one epoch"),
        }
    }

    pub(crate) fn own(&mut self, id: usize) -> &'b mut Region<T, On<'s>> {
        match self.0.get_mut(&id) {
            Some(Loan::Own(region)) => region.take().expect("it is written once an epoch"),
            _ => panic!("region {id} is not there"),
        }
    }

    pub(crate) fn source(&self, cx: &'b Context<'_>, act: &Act) -> Result<Source<'b, 's, T, Host>> {
        let region = self.shared(act.local);
        match &act.lay {
            Lay::Whole => Ok(region.into()),
            Lay::Run { first, count } => region.slice(*first..first + count),
            lay => region.with(&cx.layouts[lay]),
        }
    }

    fn dest(&mut self, cx: &'b Context<'_>, act: &Act) -> Result<SourceMut<'b, 's, T, Host>> {
        let region = self.own(act.local);
        match &act.lay {
            Lay::Whole => Ok(region.into()),
            Lay::Run { first, count } => region.slice_mut(*first..first + count),
            lay => region.with_mut(&cx.layouts[lay]),
        }
    }
}

/// Notes an operation of an epoch.
pub(crate) trait Note: Keep {
    fn note<'s, 'b, T: Elem>(
        cx: &'b Context<'_>,
        epoch: &mut Access<'s, 'b, T, Self>,
        lent: &mut Lent<'b, 's, T>,
        act: &Act,
    ) -> Result<()>;
}

pub(crate) fn remote<'b>(cx: &'b Context<'_>, act: &Act) -> Dest<'b, Host> {
    let dest = Slot(act.edge as u32).at(act.at);
    match &act.remote {
        Lay::Whole => dest,
        lay => dest.with(&cx.layouts[lay]),
    }
}

impl Note for BySlot {
    fn note<'s, 'b, T: Elem>(
        cx: &'b Context<'_>,
        epoch: &mut Access<'s, 'b, T, Self>,
        lent: &mut Lent<'b, 's, T>,
        act: &Act,
    ) -> Result<()> {
        epoch.put(lent.source(cx, act)?, remote(cx, act))
    }
}

impl Note for ByRange {
    fn note<'s, 'b, T: Elem>(
        cx: &'b Context<'_>,
        epoch: &mut Access<'s, 'b, T, Self>,
        lent: &mut Lent<'b, 's, T>,
        act: &Act,
    ) -> Result<()> {
        match act.verb {
            Verb::Put => epoch.put(lent.source(cx, act)?, remote(cx, act)),
            Verb::Get => epoch.get(lent.dest(cx, act)?, remote(cx, act)),
            _ => T::ranged(cx, epoch, lent, act),
        }
    }
}

impl Note for Atomic {
    fn note<'s, 'b, T: Elem>(
        cx: &'b Context<'_>,
        epoch: &mut Access<'s, 'b, T, Self>,
        lent: &mut Lent<'b, 's, T>,
        act: &Act,
    ) -> Result<()> {
        T::atomically(cx, epoch, lent, act)
    }
}

fn epoch<'s, T: Elem, K: Note>(
    cx: &Context<'_>,
    s: &Stream<'s>,
    bag: &mut Bag<'s>,
    window: usize,
    group: &Ranks,
    acts: &[Act],
    fused: bool,
) -> Result<()> {
    let shelf = T::shelf(bag);
    let outbox = take(&mut K::halves(shelf).2, window);
    let inbox = fused.then(|| take(&mut K::halves(shelf).0, window));
    let mut epoch = match group {
        None => outbox.start(),
        Some(ranks) => outbox.start_with(&cx.groups[ranks])?,
    };
    let mut lent = Lent::new(&mut shelf.0, acts);
    for act in acts {
        K::note(cx, &mut epoch, &mut lent, act)?;
    }
    let (inbox, outbox) = match inbox {
        Some(inbox) => {
            let (inbox, outbox) = exchange(s, inbox, epoch)?;
            (Some(inbox), outbox)
        }
        None => (None, epoch.complete(s)?),
    };
    let halves = K::halves(shelf);
    put(&mut halves.2, window, outbox);
    if let Some(inbox) = inbox {
        put(&mut halves.0, window, inbox);
    }
    Ok(())
}
