//! Rounds of measurements, and the samples of all ranks.
//!
//! # Model
//!
//! Each round runs all measurements in turn, so a disturbance hits all alike. After each measurement, every rank gets
//! the samples of all ranks.
//!
//! # Failures
//!
//! If a rank dies, the rounds end, and the samples so far are returned.

use crate::progress::Progress;
use crate::results::RankSample;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use tidegate_core::World;
use tidegate_hal::device::Device;

/// Does `count` measurements in turn, `rounds` times; collective. Returns, for each measurement and each round, the
/// samples of all ranks.
pub(crate) fn gather<D: Device>(
    world: &World<D>,
    rounds: u32,
    count: usize,
    progress: &Progress,
    mut measure: impl FnMut(usize) -> RankSample,
) -> Vec<Vec<Vec<RankSample>>> {
    let mut samples = vec![Vec::new(); count];
    'rounds: for _ in 0..rounds {
        for (index, samples) in samples.iter_mut().enumerate() {
            let sample = measure(index);
            match everybodys(world, &sample) {
                Ok(all) => samples.push(all),
                Err(error) => {
                    progress.note(&format!("faces: rank {}: {error}", world.rank()));
                    samples.push(vec![sample]);
                    break 'rounds;
                }
            }
        }
    }
    samples
}

/// Gathers the samples of all ranks, in order of ranks. All ranks call it.
fn everybodys<D: Device>(
    world: &World<D>,
    sample: &RankSample,
) -> Result<Vec<RankSample>, Box<dyn Error>> {
    let all = world.all_gather("faces sample", postcard::to_stdvec(sample)?)?;
    let samples = all.iter().map(|bytes| postcard::from_bytes(bytes));
    Ok(samples.collect::<Result<_, _>>()?)
}

/// As [`bind_to`], for a rank that the launcher has started.
pub(crate) fn bind_launched(ranks: usize) {
    let rank = std::env::var("RANK").ok();
    if let Some(rank) = rank.and_then(|rank| rank.parse().ok()) {
        bind_to(rank, ranks);
    }
}

/// Binds this process to one of the processors that it may use, if there are fewer of them than ranks. Threads that it
/// starts later are bound, too.
///
/// If it cannot be bound, only the times differ.
pub(crate) fn bind_to(rank: usize, ranks: usize) {
    let Ok(usable) = sched_getaffinity(None) else {
        return;
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| usable.is_set(*cpu))
        .collect();
    if !usable.is_empty() && usable.len() < ranks {
        let mut set = CpuSet::new();
        set.set(usable[rank % usable.len()]);
        _ = sched_setaffinity(None, &set);
    }
}
