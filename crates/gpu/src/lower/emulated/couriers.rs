//! Couriers of streams that fail.
//!
//! # Model
//!
//! A word is poisoned, or a rank is ended, at a random time of a job. A courier's wait is represented by a stream that
//! launches only that wait. As on a device, it waits for ever if its rank fails before telling it to go. The test ends
//! it when the rank is done.

use std::ops::Range;

use tidegate_hal::batch::{POISON, QUANTUM};

use super::machine::{Do, Event, Machine};
use super::memory::{change, value};
use super::protocol::{CARRY, FILL, Form, Job, LOOK};
use crate::lower::random::Rng;

const EPOCHS: u64 = 8;

/// However a rank ends, its couriers make exactly the copies whose exposure has come and whose lane has told them to
/// go. And every rank ends without waiting for them.
pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    let (mut carried, mut left) = (0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0xc0a1);
        let job = Job::new(machine, rng, Form::Apart);
        if job.couriers.is_empty() {
            continue;
        }
        let ranks = job.ranks.len();
        let mut streams = job.streams(EPOCHS);
        streams.extend(job.couriers(EPOCHS));
        let last = streams.len();
        let time = rng.of(&[0, 500, 5_000, 50_000, 200_000]);
        streams.push((vec![Do::Delay(time), Do::Call(0)], 1));
        let mut went = vec![0; job.couriers.len()];
        let mut wrong = Vec::new();
        machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called { stream, .. } if stream == last => {
                if rng.once_in(2) {
                    let edge = &job.edges[rng.below(job.edges.len())];
                    change(rng.of(&[edge.exposed.0, edge.done.0]), |value| {
                        value | POISON
                    });
                } else {
                    job.ranks[rng.below(ranks)].home.stop();
                }
            }
            Event::Called {
                stream,
                value: CARRY,
                ..
            } => {
                let (index, courier) = (stream - ranks, &job.couriers[stream - ranks]);
                if value(courier.words.go) / QUANTUM <= went[index] {
                    return;
                }
                went[index] += 1;
                carried += 1;
                let exposed = value(job.edges[courier.edge].exposed.0) & !POISON;
                if exposed / QUANTUM < went[index] {
                    wrong.push(format!("a copy of epoch {} is early", went[index] - 1));
                }
                courier.carry();
            }
            Event::Called {
                stream,
                value: FILL,
                time,
            } => job.fill(stream, time),
            Event::Called {
                stream,
                value: LOOK,
                time,
            } if time + 1 == EPOCHS => {
                let mine = job.couriers.iter().filter(|courier| courier.rank == stream);
                if job.ranks[stream].home.failed() {
                    mine.for_each(|courier| courier.home.stop());
                }
            }
            _ => {}
        })?;
        for (courier, went) in job.couriers.iter().zip(went) {
            let (go, back) = (value(courier.words.go), value(courier.words.back));
            // Nothing else adds to it, and it is never poisoned.
            if (go, back) != (went * QUANTUM, went * QUANTUM) {
                wrong.push(format!("{go:#x} times told, {back:#x} back, went {went}"));
            }
            let failed = job.ranks[courier.rank].home.failed();
            if !failed && went != EPOCHS {
                wrong.push(format!("went {went} times, and its rank is well"));
            }
            left += u64::from(went < EPOCHS);
        }
        if !wrong.is_empty() {
            return Err(format!("seed {seed}: {wrong:?}"));
        }
    }
    if carried < 100 || left < 20 {
        return Err(format!("{carried} copies, and {left} couriers left behind"));
    }
    Ok(())
}
