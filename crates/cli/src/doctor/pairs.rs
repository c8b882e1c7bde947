//! Measuring each pair of ranks, in rounds in which each rank has one partner.

use super::figures::{Figure, Figures, Pair};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tidegate_core::window::{BySlot, Inbox, Outbox, SlotWindow};
use tidegate_core::{Error, On, Out, Region, Result, Stream, World, stream};
use tidegate_hal::device::Device;

/// The slots of a window, in elements of 8 bytes: a short one, one for a first try, and a large one.
const SLOTS: [usize; 3] = [1, 4 << 10, 128 << 10];
const SHORT: usize = 0;
const TRY: usize = 1;
const LARGE: usize = 2;
/// In how many parts a figure is measured in a round.
const PARTS: usize = 3;
/// How often all pairs are measured at most, if there is time. Other processes disturb one time, and not another.
const PASSES: usize = 8;
/// If a put to the large slot would take longer, the figure is that of the first try.
const TOO_LONG: f64 = 0.25;

/// The partner of a rank in a round. There are [`rounds`] of them, in which each rank has each other one as its partner
/// once. If the number of ranks is odd, one of them has no partner in each round.
fn partner(rank: usize, round: usize, size: usize) -> Option<usize> {
    // All but the last stand in a circle, in which a round pairs those that are mirrored at its own place.
    let circle = rounds(size);
    let other = match rank {
        _ if rank == circle => round,
        _ if rank == round => circle,
        _ => (2 * round + circle - rank) % circle,
    };
    (other < size).then_some(other)
}

/// How many rounds it takes.
fn rounds(size: usize) -> usize {
    (size.next_multiple_of(2) - 1).max(1)
}

/// Seconds that a rank has measured, as the lower one or as the higher one of its pair.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Sample {
    /// One short put.
    short: f64,
    /// One put of the size below, from this rank to its partner.
    large: f64,
    /// Bytes of that put.
    bytes: usize,
    /// Since the rank began to measure.
    since: f64,
}

/// Measures all pairs that `may` meet, within a limit. All ranks get the same figures. Then pairs that `again` finds are
/// measured once more, as long as there is time. Collective.
pub(super) fn measure<D: Device>(
    world: &World<D>,
    limit: Duration,
    may: impl Fn(usize, usize) -> bool,
    again: impl Fn(&Figures) -> Vec<Pair>,
) -> Result<Figures> {
    let (rank, size) = (world.rank(), world.size());
    stream!(let s = world.named_stream("doctor")?);
    let all = (0..size).flat_map(|high| (0..high).map(move |low| (low, high)));
    let mut figures = Figures::new(size, all.filter(|(low, high)| may(*low, *high)).count());
    let begun = Instant::now();
    // Three measurements a round, and as much time for what is around them, in half of the time.
    let share = limit.as_secs_f64() / (12 * rounds(size)) as f64;
    let meter = Meter {
        begun,
        share: share.clamp(0.001, 0.02),
    };
    // Notes what these pairs measure, and returns which part of the time is over, by the clock of rank 0.
    let step = |figures: &mut Figures, pairs: &[Pair]| -> Result<f64> {
        let mine = pairs
            .iter()
            .find(|(low, high)| [low, high].contains(&&rank));
        let samples = meter.round(world, &s, mine.map(|(low, high)| low + high - rank))?;
        for (low, high) in pairs {
            figures.note((*low, *high), figure(&samples[*low], &samples[*high]));
        }
        Ok(samples[0].since / limit.as_secs_f64())
    };
    for pass in 0..PASSES {
        let mut over = 0.0;
        for round in 0..rounds(size) {
            let pairs = (0..size).filter_map(|low| Some((low, partner(low, round, size)?)));
            let pairs = pairs.filter(|(low, high)| low < high && may(*low, *high));
            over = step(&mut figures, &pairs.collect::<Vec<_>>())?;
            if over > 1.0 {
                return Ok(figures);
            }
        }
        // Another pass takes about as long as each one before.
        if over * (pass + 2) as f64 / (pass + 1) as f64 > 0.7 {
            break;
        }
    }
    let mut left = again(&figures);
    while !left.is_empty() {
        let (now, later) = disjoint(left);
        left = later;
        if step(&mut figures, &now)? > 1.0 {
            break;
        }
    }
    Ok(figures)
}

/// Pairs of which no two have a rank in common, and the others.
fn disjoint(pairs: Vec<Pair>) -> (Vec<Pair>, Vec<Pair>) {
    let mut busy = std::collections::BTreeSet::new();
    pairs.into_iter().partition(|(low, high)| {
        let is_free = !busy.contains(low) && !busy.contains(high);
        if is_free {
            busy.extend([*low, *high]);
        }
        is_free
    })
}

fn figure(low: &Sample, high: &Sample) -> Figure {
    let gbs = |sample: &Sample| sample.bytes as f64 / sample.large / 1e9;
    Figure {
        latency: low.short * 1e6,
        bandwidth: [gbs(low), gbs(high)],
    }
}

struct Meter {
    begun: Instant,
    /// Seconds of each measurement.
    share: f64,
}

impl Meter {
    /// One round, in which this rank has this partner. Collective. Returns the samples of all ranks.
    fn round<D: Device>(
        &self,
        world: &World<D>,
        s: &Stream<'_, D>,
        partner: Option<usize>,
    ) -> Result<Vec<Sample>> {
        let rank = world.rank();
        let mut window = SlotWindow::<u64>::new("tidegate doctor");
        let to = partner.map(|peer| {
            SLOTS.map(|len| {
                window.slot_from(peer, len as u64, len);
                window.slot_to(peer, len as u64)
            })
        });
        let (inbox, outbox) = window.open(s)?;
        let source = Region::zeroed(world, SLOTS[LARGE])?.on(s)?;
        let mut pair = to.map(|to| Two {
            is_lower: partner.is_some_and(|peer| rank < peer),
            to,
            source,
            halves: Some((inbox, outbox)),
        });
        let mut tried = Sample::default();
        if let Some(pair) = &mut pair {
            // The first turns touch the memory, and make connections.
            pair.turns(s, 2)?;
            tried.short = pair.turns(s, 8)?;
            for from_lower in [true, false] {
                let seconds = pair.stream_of(s, from_lower, TRY, 2)?;
                if from_lower == pair.is_lower {
                    tried.large = seconds;
                }
            }
        }
        let tried = gather(world, &tried)?;
        let mut sample = Sample::default();
        if let (Some(pair), Some(peer)) = (&mut pair, partner) {
            // Both ranks compute with the same numbers, so both make as many turns.
            let (low, high) = (tried[rank.min(peer)], tried[rank.max(peer)]);
            let plan = |seconds: f64, most: f64| {
                (self.share / PARTS as f64 / seconds).clamp(2.0, most) as usize
            };
            let turns = plan(low.short, 100.0);
            sample.short = best(|| pair.turns(s, turns))?;
            for (from_lower, tried) in [(true, low), (false, high)] {
                let expected = tried.large * (SLOTS[LARGE] / SLOTS[TRY]) as f64;
                let (slot, expected) = match expected > TOO_LONG {
                    true => (TRY, tried.large),
                    false => (LARGE, expected),
                };
                // The first puts of a size touch its memory.
                pair.stream_of(s, from_lower, slot, 2)?;
                let puts = plan(expected, 16.0);
                let seconds = best(|| pair.stream_of(s, from_lower, slot, puts))?;
                if from_lower == pair.is_lower {
                    (sample.large, sample.bytes) = (seconds, 8 * SLOTS[slot]);
                }
            }
        }
        sample.since = self.begun.elapsed().as_secs_f64();
        gather(world, &sample)
    }
}

/// The best of some measurements: other processes disturb some of them.
fn best(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..PARTS).try_fold(f64::INFINITY, |best, _| Ok(measure()?.min(best)))
}

/// Tells all ranks the sample of each.
fn gather<D: Device>(world: &World<D>, sample: &Sample) -> Result<Vec<Sample>> {
    let bytes = postcard::to_stdvec(sample).expect("plain data can be encoded");
    let all = world.all_gather("tidegate doctor", bytes)?;
    let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(Error::other);
    all.iter().map(read).collect()
}

type Halves<'s, D> = (Inbox<'s, u64, D, BySlot>, Outbox<'s, u64, D, BySlot>);

/// This rank and its partner.
struct Two<'s, D: Device> {
    is_lower: bool,
    to: [Out<u64>; 3],
    source: Region<u64, On<'s, D>>,
    /// `None` after a call has failed.
    halves: Option<Halves<'s, D>>,
}

impl<'s, D: Device> Two<'s, D> {
    /// Short puts in turn, `count` from each rank. Seconds of one.
    fn turns(&mut self, s: &Stream<'s, D>, count: usize) -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..count {
            if self.is_lower {
                self.put(s, SHORT)?;
                self.wait(s)?;
            } else {
                self.wait(s)?;
                self.put(s, SHORT)?;
            }
        }
        s.synchronize()?;
        Ok(begun.elapsed().as_secs_f64() / (2 * count) as f64)
    }

    /// `count` puts from one of the ranks, and a short answer at the end. Seconds of one put, on the rank that puts.
    fn stream_of(
        &mut self,
        s: &Stream<'s, D>,
        from_lower: bool,
        slot: usize,
        count: usize,
    ) -> Result<f64> {
        let begun = Instant::now();
        if from_lower == self.is_lower {
            for _ in 0..count {
                self.put(s, slot)?;
            }
            self.wait(s)?;
        } else {
            for _ in 0..count {
                self.wait(s)?;
            }
            self.put(s, SHORT)?;
        }
        s.synchronize()?;
        Ok(begun.elapsed().as_secs_f64() / count as f64)
    }

    fn put(&mut self, s: &Stream<'s, D>, slot: usize) -> Result<()> {
        if let Some((inbox, outbox)) = self.halves.take() {
            let mut epoch = outbox.start();
            epoch.put(self.source.slice(0..SLOTS[slot])?, self.to[slot])?;
            self.halves = Some((inbox, epoch.complete(s)?));
        }
        Ok(())
    }

    fn wait(&mut self, s: &Stream<'s, D>) -> Result<()> {
        if let Some((inbox, outbox)) = self.halves.take() {
            self.halves = Some((inbox.expose(s)?, outbox));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tidegate_host::Host;

    #[test]
    fn each_pair_meets_in_one_round() {
        for size in 1..=33 {
            let mut met = BTreeSet::new();
            for round in 0..rounds(size) {
                for rank in 0..size {
                    match partner(rank, round, size) {
                        Some(other) => {
                            assert_ne!(other, rank);
                            assert_eq!(partner(other, round, size), Some(rank));
                            assert!(met.insert((rank, other)), "{size} {round}: {rank} {other}");
                        }
                        None => assert_eq!(size % 2, 1),
                    }
                }
            }
            assert_eq!(met.len(), size * (size - 1), "{size}");
        }
    }

    #[test]
    fn pairs_of_a_round_have_no_rank_in_common() {
        let (now, later) = disjoint(vec![(0, 1), (1, 2), (2, 3), (0, 3), (4, 5)]);
        assert_eq!(now, [(0, 1), (2, 3), (4, 5)]);
        assert_eq!(later, [(1, 2), (0, 3)]);
    }

    #[test]
    fn all_ranks_get_the_figures_of_all_pairs() {
        let limit = Duration::from_secs(600);
        let all = World::<Host>::local(3, |world| {
            // Ranks 0 and 2 have no route, and the pair of 0 and 1 is measured again.
            let may = |a: usize, b: usize| a + b != 2;
            measure(&world, limit, may, |_| vec![(0, 1)]).unwrap()
        });
        for figures in &all {
            assert_eq!((figures.measured(), figures.expected), (2, 2));
            assert_eq!(figures.between(0, 2), None);
            for (_, latency, bandwidth) in figures.ways() {
                assert!(latency > 0.0 && bandwidth > 0.0 && bandwidth.is_finite());
            }
            assert_eq!(figures.between(0, 1), all[0].between(0, 1));
        }
    }

    #[test]
    fn a_limit_ends_the_measurement_after_a_round() {
        let figures = World::<Host>::local(4, |world| {
            measure(&world, Duration::ZERO, |_, _| true, |_| Vec::new()).unwrap()
        });
        assert_eq!((figures[0].measured(), figures[0].expected), (2, 6));
    }
}
