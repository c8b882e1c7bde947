//! Rounds of measurements, and everybody's samples.
//!
//! # Model
//!
//! Several measurements are done in turn, and all of that several times, so that a disturbance hits all
//! alike. After each, every rank gets the samples of all.
//!
//! # Failures
//!
//! A rank that dies ends the rounds: what there is by then is returned, without it.

use crate::progress::Progress;
use crate::results::RankSample;
use std::error::Error;
use tidegate_core::World;
use tidegate_hal::device::Device;

/// Does `count` measurements in turn, `rounds` times; collective. For each measurement, for each round, the
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

/// Everybody's samples; collective.
fn everybodys<D: Device>(
    world: &World<D>,
    sample: &RankSample,
) -> Result<Vec<RankSample>, Box<dyn Error>> {
    let all = world.gather("faces sample", postcard::to_stdvec(sample)?)?;
    let samples = all.iter().map(|bytes| postcard::from_bytes(bytes));
    Ok(samples.collect::<Result<_, _>>()?)
}
