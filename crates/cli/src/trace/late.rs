//! Which rank kept others waiting.
//!
//! # Model
//!
//! For each wait, the way back from its signal ([`Walk`]) is followed until the time when the wait began. What lies on
//! it is the cause of the wait: a kernel of some rank, or time in which its program had enqueued nothing. A rank that
//! itself waited meanwhile is passed on the way, and is no cause. Neither is the time until a stream notices a signal, nor
//! time in which a thread could have run and other threads had the processors.
//!
//! A cause makes a rank late if it stands out: it is long, and at least twice as long as any cause of another rank.

use std::collections::HashMap;

use super::job::Job;
use super::rank::{Time, total};
use super::walk::{Kind, Step, Walk};

/// Shorter waits are not looked at.
const SHORT: Time = 50_000;
/// A cause that is shorter is never called late.
const FLOOR: Time = 1_000_000;
/// The same if processors are short. Then threads come to a halt for reasons that nobody sees.
const BUSY_FLOOR: Time = 5_000_000;
/// Processors are short if the ranks lose one of so many parts of their own time to other threads.
const BUSY: Time = 100;
/// How many times as long as the causes of other ranks it must be.
const TIMES: Time = 2;

/// Something that a rank did while others waited for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// What it was. Its times are the part in which others waited.
    pub(super) step: Step,
    /// The longest that a rank waited for it.
    pub(super) longest: Time,
    /// How long all ranks waited for it, together.
    pub(super) total: Time,
    /// How many waits it caused.
    pub(super) waits: usize,
}

/// All causes of waits, the longest first.
pub(super) fn causes(job: &Job) -> Vec<Cause> {
    let mut causes: HashMap<_, Cause> = HashMap::new();
    for (_, _, leg) in job.legs() {
        let Some(signal) = leg.signal else { continue };
        if leg.waited() < SHORT {
            continue;
        }
        for step in Walk::from_leg(job, signal) {
            if step.ended <= leg.begun {
                break;
            }
            if !matches!(step.kind, Kind::Kernel | Kind::Program | Kind::Move(_)) {
                continue;
            }
            let begun = step.begun.max(leg.begun);
            let step = Step { begun, ..step };
            let long = (step.ended - begun - step.lost).max(0);
            if is_setup(job, &step) {
                continue;
            }
            let of = (step.rank, step.stream, step.item, step.kind);
            let cause = causes.entry(of).or_insert(Cause {
                step,
                longest: 0,
                total: 0,
                waits: 0,
            });
            if cause.longest < long {
                (cause.longest, cause.step) = (long, step);
            }
            cause.total = total([cause.total, long]);
            cause.waits += 1;
        }
    }
    let mut causes: Vec<_> = causes.into_values().collect();
    causes.sort_by_key(|cause| (-cause.longest, cause.step.rank, cause.step.item));
    causes
}

/// Whether the program has not come to its first epoch on this stream.
fn is_setup(job: &Job, step: &Step) -> bool {
    let items = &job.ranks[step.rank].streams[step.stream].items;
    step.kind == Kind::Program && items[..step.item].iter().all(|item| item.work.is_kernel())
}

/// The cause that stands out, if one does.
pub(super) fn late(job: &Job, causes: &[Cause]) -> Option<Cause> {
    let own = |cause: &&Cause| matches!(cause.step.kind, Kind::Kernel | Kind::Program);
    let first = causes.iter().find(own)?;
    let others = causes.iter().filter(own);
    let next = others
        .filter(|cause| cause.step.rank != first.step.rank)
        .map(|cause| cause.longest)
        .next();
    let stands_out =
        first.longest >= floor(job) && first.longest >= next.unwrap_or(0).saturating_mul(TIMES);
    stands_out.then_some(*first)
}

/// How long a cause must be.
fn floor(job: &Job) -> Time {
    let kernels = job.items().filter(|(_, item)| item.work.is_kernel());
    let kernels = kernels.map(|(_, item)| (item.ended - item.begun, item.lost));
    let gaps = job.ranks.iter().flat_map(|rank| {
        rank.calls.windows(2).map(|calls| {
            let begun = calls[1].waited.map_or(calls[1].at, |(_, begun)| begun);
            let long = (begun - calls[0].at).max(0);
            (long, calls[1].lost.min(long))
        })
    });
    let sum = |(all, lost): (Time, Time), (long, part)| (total([all, long]), total([lost, part]));
    let (all, lost) = kernels.chain(gaps).fold((0, 0), sum);
    match lost > all / BUSY {
        true => BUSY_FLOOR,
        false => FLOOR,
    }
}
