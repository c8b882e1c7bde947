//! The stamped kernel: the same effects, and a stamp for each leg of each lane.
//!
//! # Model
//!
//! The rings are small. In some runs the test takes the stamps after each epoch, and then all of them must be there. In
//! other runs nobody takes them. Then the ring has the oldest, and the others are counted. A failed launch stamps no
//! more legs than a whole one.

use std::collections::BTreeMap;
use std::ops::Range;

use tidegate_hal::batch::{Awaited, POISON, Step};

use super::super::RawStamp;
use super::edge::Edge;
use super::launched::{Launched, RING};
use super::machine::{Event, Machine};
use super::memory::change;
use super::protocol::{FILL, Form, Job, LOOK};
use crate::lower::random::Rng;

/// Errors that the test must find: a text of the stamped kernel, and another one in its place.
pub(super) const ERRORS: [(&str, &str); 6] = [
    // What nobody has taken is overwritten.
    (
        "if ((i64)(head - taken) >= (i64)state->slots) return false;",
        "",
    ),
    // Two teams claim one place.
    (
        "head = swap64((u64)&state->head, position, position + 1);",
        "store_relaxed((u64)&state->head, position + 1);",
    ),
    // All blocks of a lane stamp.
    (
        "at.batch = record.index == 0 ? record.batch : 0;",
        "at.batch = record.batch;",
    ),
    // A wait begins no leg; the wait for a courier begins one.
    ("    end_leg();\n    at.leg++;\n", ""),
    (
        "if (!at.used || is_for_courier(wait)) return;",
        "if (!at.used) return;",
    ),
    // A wait's epoch is the next one's.
    (
        "        epoch = from >> QUANTUM_BITS;",
        "epoch = (from + quantum) >> QUANTUM_BITS;",
    ),
];

/// Runs random jobs in all forms.
pub(super) fn check_all(machine: &mut Machine) -> Result<(), String> {
    let forms = [Form::Whole, Form::Parts, Form::Apart];
    let mut all = forms.into_iter();
    all.try_for_each(|form| check(machine, form, 0..40, 12))
}

/// The legs of a lane: whether each has a wait.
pub(super) fn legs(steps: &[Step]) -> Vec<bool> {
    let (mut legs, mut used, mut waits) = (Vec::new(), false, false);
    for step in steps {
        match step {
            Step::Wait(wait) if wait.tag.awaited != Awaited::Event => {
                if used {
                    legs.push(waits);
                }
                (used, waits) = (true, true);
            }
            Step::Check(_) | Step::Flush | Step::Store(_) => {}
            _ => used = true,
        }
    }
    legs.push(waits);
    legs
}

/// All legs of a launch's batch, by lane.
fn all_legs(launched: &Launched) -> u64 {
    launched.legs.iter().map(|legs| legs.len() as u64).sum()
}

/// Checks the stamps of `epochs` launches of each program. Some may be missing at the end, unless they are `whole`.
fn check_stamps(
    launches: &[Launched],
    stamps: &[RawStamp],
    epochs: u64,
    whole: bool,
) -> Result<(), String> {
    let known: BTreeMap<_, _> = launches.iter().map(|each| (each.id, &each.legs)).collect();
    // The stamps of each lane, in order.
    let mut lanes: BTreeMap<(u64, usize), Vec<&RawStamp>> = BTreeMap::new();
    for stamp in stamps {
        let wrong = |what: &str| Err(format!("{what}: {stamp:?}"));
        let times = [stamp.begun, stamp.satisfied, stamp.moved, stamp.ended];
        if !times.is_sorted() {
            return wrong("times");
        }
        let lane = stamp.leg as u32 as usize;
        let Some(legs) = known.get(&stamp.batch).and_then(|lanes| lanes.get(lane)) else {
            return wrong("no such lane");
        };
        let of_lane = lanes.entry((stamp.batch, lane)).or_default();
        let (epoch, leg) = (of_lane.len() / legs.len(), of_lane.len() % legs.len());
        if stamp.leg >> 32 != leg as u64 {
            return wrong("the number of the leg");
        }
        if stamp.epoch != if legs[leg] { epoch as u64 } else { 0 } {
            return wrong("the epoch");
        }
        if let Some(last) = of_lane.last()
            && (stamp.begun < last.ended || leg > 0 && stamp.begun != last.ended)
        {
            return wrong("its beginning");
        }
        of_lane.push(stamp);
    }
    for (launched, lane, legs) in launches.iter().flat_map(|launched| {
        let lanes = launched.legs.iter().enumerate();
        lanes.map(move |(lane, legs)| (launched, lane, legs))
    }) {
        let found = lanes.get(&(launched.id, lane)).map_or(0, Vec::len);
        if whole && found as u64 != epochs * legs.len() as u64 {
            return Err(format!("lane {lane} has {found} stamps of {legs:?}"));
        }
    }
    Ok(())
}

/// Runs epochs of random jobs. In some of them a word is poisoned.
fn check(machine: &mut Machine, form: Form, seeds: Range<u64>, epochs: u64) -> Result<(), String> {
    let (mut all, mut lost, mut failed) = (0, 0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x57a3);
        let job = Job::new(machine, rng, form);
        let ranks = job.ranks.len();
        let (takes, poisons) = (!rng.once_in(3), rng.once_in(4));
        let end = rng.below(epochs as usize) as u64;
        let mut taken = vec![Vec::new(); ranks];
        let mut streams = job.streams(epochs);
        streams.extend(job.couriers(epochs));
        machine.run(seed, &streams, &[], &mut |event| {
            let Event::Called {
                stream,
                value,
                time,
            } = event
            else {
                return;
            };
            match job.ranks.get(stream) {
                Some(_) if value == FILL => job.fill(stream, time),
                Some(rank) if value == LOOK => {
                    if takes {
                        taken[stream].extend(rank.home.take());
                    }
                    if poisons && stream == 0 && time == end {
                        let words = |edge: &Edge| [edge.exposed.0, edge.done.0];
                        for word in job.edges.iter().flat_map(words) {
                            change(word, |value| value | POISON);
                        }
                    }
                    if rank.home.failed() {
                        let mine = job.couriers.iter().filter(|courier| courier.rank == stream);
                        mine.for_each(|courier| courier.home.stop());
                    }
                }
                Some(_) => {}
                None => job.couriers[stream - ranks].carry(),
            }
        })?;
        for (rank, mut stamps) in job.ranks.iter().zip(taken) {
            stamps.extend(rank.home.take());
            let (count, dropped) = (stamps.len() as u64, rank.home.dropped());
            let most = epochs * rank.launches.iter().map(all_legs).sum::<u64>();
            let is_well = !rank.home.failed();
            let adds_up = count + dropped == most || !is_well && count + dropped < most;
            if !adds_up || (!takes && dropped > 0 && count != RING as u64) {
                return Err(format!("seed {seed}: {count} and {dropped} of {most}"));
            }
            check_stamps(&rank.launches, &stamps, epochs, is_well && dropped == 0)
                .map_err(|why| format!("seed {seed}: {why}"))?;
            (all, lost) = (all + count, lost + dropped);
            failed += u64::from(!is_well);
        }
    }
    if all < 1000 || lost < 100 || failed < 5 {
        return Err(format!(
            "{all} stamps, {lost} dropped, {failed} streams failed"
        ));
    }
    Ok(())
}
