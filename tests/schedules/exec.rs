//! Enqueues one operation on one stream, eagerly or in a capture. Everything that it needs is in the stream's bag.

use tidegate::generic::{Access, Exposed, Inbox, Stream};
use tidegate::host::prelude::*;
use tidegate::window::Tested;

use super::bag::{Bag, Elem, Keep, put, take, with_kind, with_ty};
use super::context::{Context, Lent, ways};
use super::device::Bench;
use super::job::{Act, Kind, Op, Ranks, Verb, What, log, sums};
use super::reduce::Reduce;

/// Enqueues an operation that can be captured.
pub(crate) fn enqueue<'s, D: Bench>(
    cx: &Context<'_, D>,
    s: &Stream<'s, D>,
    bag: &mut Bag<'s, D>,
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
        What::Expose { window, group } => with_kind!(cx.job.windows[*window], T, K => {
            let inboxes = &mut K::halves(T::shelf(bag)).0;
            let inbox = take(inboxes, *window);
            let inbox = match group {
                None => inbox.expose(s)?,
                Some(ranks) => inbox.expose_to(s, &cx.groups[ranks])?,
            };
            put(inboxes, *window, inbox);
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
            epoch::<T, K, D>(cx, s, bag, *window, group, acts, false)
        }),
        What::Exchange {
            window,
            group,
            acts,
        } => with_kind!(cx.job.windows[*window], T, K => {
            epoch::<T, K, D>(cx, s, bag, *window, group, acts, true)
        }),
        What::Change { region, salt } => with_ty!(cx.ty(*region), T => {
            let region = T::shelf(bag).0[*region].as_mut().expect("it is here");
            D::change(&cx.kernels, s, region, *salt)
        }),
        What::Consume { window, salt } => consume(cx, s, bag, *window, *salt),
        What::Fold {
            window,
            slot,
            region,
        } => with_ty!(cx.ty(*region), T => {
            let mut held = take(&mut T::shelf(bag).0, *region);
            let inbox = T::shelf(bag).1.0[*window].as_ref().expect("it is here");
            let slot = inbox.slots().nth(*slot).expect("the window has it");
            D::fold(&cx.kernels, s, inbox.view(), slot, &mut held)?;
            put(&mut T::shelf(bag).0, *region, held);
            Ok(())
        }),
        What::Log { window, fetched } => with_ty!(cx.ty(*fetched), T => {
            let mut entries = take(&mut u64::shelf(bag).0, log(*window));
            let fetched = T::shelf(bag).0[*fetched].as_ref().expect("it is here");
            D::log(&cx.kernels, s, fetched, &mut entries)?;
            put(&mut u64::shelf(bag).0, log(*window), entries);
            Ok(())
        }),
        other => unreachable!("not on one stream: {other:?}"),
    }
}

fn wait<'s, T: Elem, K: Keep, D: Bench>(
    s: &Stream<'s, D>,
    mut exposed: Exposed<'s, T, D, K>,
    polls: u8,
) -> Result<Inbox<'s, T, D, K>> {
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
    exposed.wait(s)
}

fn consume<'s, D: Bench>(
    cx: &Context<'_, D>,
    s: &Stream<'s, D>,
    bag: &mut Bag<'s, D>,
    window: usize,
    salt: u64,
) -> Result<()> {
    let kernels = &cx.kernels;
    let win = &cx.job.windows[window];
    let mut held = take(&mut u64::shelf(bag).0, sums(window));
    let mut entries = take(&mut u64::shelf(bag).0, log(window));
    with_ty!(win.ty, T => match win.kind {
        Kind::Slots { .. } => {
            let inbox = T::shelf(bag).1.0[window].as_ref().expect("it is here");
            D::sum_slots(kernels, s, inbox.view(), &mut held)?;
        }
        Kind::Ranges => {
            let inbox = T::shelf(bag).2.0[window].as_mut().expect("it is here");
            // There are two kernels: one only reads, and one writes.
            D::sum(kernels, s, inbox.memory(), &mut held)?;
            D::change(kernels, s, inbox.memory_mut(), salt)?;
        }
        Kind::Atomic { .. } => {
            let inbox = T::shelf(bag).3.0[window].as_mut().expect("it is here");
            D::harvest(kernels, s, inbox.memory_mut(), win.locks(), &mut held, &mut entries)?;
        }
    });
    put(&mut u64::shelf(bag).0, sums(window), held);
    put(&mut u64::shelf(bag).0, log(window), entries);
    Ok(())
}

/// Notes an operation of an epoch.
pub(crate) trait Note: Keep {
    fn note<'s, 'b, T: Elem + Reduce, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, T, D, Self>,
        lent: &mut Lent<'b, 's, T, D>,
        act: &Act,
    ) -> Result<()>;
}

impl Note for BySlot {
    fn note<'s, 'b, T: Elem + Reduce, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, T, D, Self>,
        lent: &mut Lent<'b, 's, T, D>,
        act: &Act,
    ) -> Result<()> {
        epoch.put(lent.source(cx, act)?, lent.remote(cx, act))
    }
}

impl Note for ByRange {
    fn note<'s, 'b, T: Elem + Reduce, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, T, D, Self>,
        lent: &mut Lent<'b, 's, T, D>,
        act: &Act,
    ) -> Result<()> {
        match act.verb {
            Verb::Put => epoch.put(lent.source(cx, act)?, lent.remote(cx, act)),
            Verb::Get => epoch.get(lent.dest(cx, act)?, lent.remote(cx, act)),
            _ => T::ranged(cx, epoch, lent, act),
        }
    }
}

impl Note for Atomic {
    fn note<'s, 'b, T: Elem + Reduce, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, T, D, Self>,
        lent: &mut Lent<'b, 's, T, D>,
        act: &Act,
    ) -> Result<()> {
        T::atomically(cx, epoch, lent, act)
    }
}

fn epoch<'s, T: Elem + Reduce, K: Note, D: Bench>(
    cx: &Context<'_, D>,
    s: &Stream<'s, D>,
    bag: &mut Bag<'s, D>,
    window: usize,
    group: &Ranks,
    acts: &[Act],
    fused: bool,
) -> Result<()> {
    let shelf = T::shelf(bag);
    let outbox = take(&mut K::halves(shelf).2, window);
    let inbox = fused.then(|| take(&mut K::halves(shelf).0, window));
    let ways = ways(&cx.job.windows[window], cx.rank, &outbox);
    let mut epoch = match group {
        None => outbox.start(),
        Some(ranks) => outbox.start_to(&cx.groups[ranks])?,
    };
    let mut lent = Lent::new(&mut shelf.0, acts, ways);
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
