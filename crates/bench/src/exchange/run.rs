//! Measures cases.

use super::case::Case;
use super::engine;
use crate::device::BenchDevice;
use crate::progress::Progress;
use crate::results::{RankSample, Row};
use crate::rounds;
use std::error::Error;
use tidegate_core::World;

/// One rank's part of all cases, `rounds` times in turn; collective. Returns the rows, on every rank.
///
/// # Errors
///
/// If the device does not take the kernels. A failed message is no error here: its row says so.
pub fn run<D: BenchDevice>(
    world: &World<D>,
    cases: &[Case],
    rounds: u32,
    progress: &Progress,
) -> Result<Vec<Row>, Box<dyn Error>> {
    // Before there is a stream: code cannot be loaded behind a wait.
    let gather = D::gather_kernel(world)?;
    let samples = rounds::gather(world, rounds, cases.len(), progress, |index| {
        let case = &cases[index];
        progress.say(&case.name);
        engine::measure(world, &gather, case, &mut || progress.step())
            .unwrap_or_else(|error| RankSample::failed(world.rank(), error.to_string()))
    });
    let rows = cases.iter().zip(&samples);
    Ok(rows
        .map(|(case, samples)| Row::new(&*case.name, case.setting.clone(), samples))
        .collect())
}
