//! Faces with few trigger slots, by each policy of throttling.
//!
//! # Model
//!
//! One job measures every [variant](crate::faces::variants) with every number of slots of a node's NIC and every
//! [policy](ThrottleOf). Between two measurements, when nothing is armed, the NIC gets another number of slots. A round
//! has all of these in turn, so a disturbance hits all alike. A figure is the median of the rounds.
//!
//! # Failures
//!
//! As [`crate::faces::driver`]. Without a NIC there is nothing to measure.

use crate::faces::device::FacesDevice;
use crate::faces::driver;
use crate::faces::params::Variant;
use crate::faces::variants::{self, SetupOn};
use crate::progress::Progress;
use crate::results::{RankSample, Row, Setting};
use crate::rounds;
use crate::table::Table;
use crate::transport::ThrottleOf;
use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tidegate_hal::slots::TriggerSlots;

/// The budgets of the published comparison.
pub const BUDGETS: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// How long armed operations of the measurement before may take to end.
const LEFT_OVER: Duration = Duration::from_secs(30);

/// One rank's part; collective. The rows, on every rank.
///
/// # Errors
///
/// A grid that does not fit the job.
pub(crate) fn rank<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
    budgets: &[u32],
    slots: &TriggerSlots,
    rounds: u32,
    progress: &Progress,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let (world, params) = (setup.world, setup.params);
    let kernels = driver::kernels(setup)?;
    let cases: Vec<(Variant, u32, ThrottleOf)> = (params.variants.iter())
        .flat_map(|variant| budgets.iter().map(move |budget| (*variant, *budget)))
        .flat_map(|(variant, budget)| ThrottleOf::ALL.map(|throttle| (variant, budget, throttle)))
        .collect();
    let samples = rounds::gather(world, rounds, cases.len(), progress, |index| {
        let (variant, budget, throttle) = cases[index];
        progress.say(format!("{variant}, {budget} slots, {}", throttle.name()));
        let setup = SetupOn {
            throttle: throttle.into(),
            ..*setup
        };
        let resized = resize(slots, budget as usize);
        let measured = resized.and_then(|()| {
            variants::run(&setup, &kernels, variant, &mut || progress.step())
                .map_err(|error| error.to_string())
        });
        measured.unwrap_or_else(|error| RankSample::failed(world.rank(), error))
    });
    let setting = Setting::new(params, &world.device().label(), "mapped");
    let rows = cases
        .iter()
        .zip(&samples)
        .map(|((variant, budget, throttle), samples)| {
            let setting = Setting {
                budget: Some(*budget as usize),
                throttle: Some(throttle.name().to_owned()),
                ..setting.clone()
            };
            Row::new(variant.name(), setting, samples)
        });
    Ok(rows.collect())
}

/// How many runs one round has.
pub(crate) fn runs(setup: &crate::faces::params::Params, budgets: &[u32]) -> u64 {
    let cases = setup.variants.len() * budgets.len() * ThrottleOf::ALL.len();
    cases as u64 * driver::runs(setup)
}

fn resize(slots: &TriggerSlots, budget: usize) -> Result<(), String> {
    let begun = Instant::now();
    while !slots.resize(budget) {
        if begun.elapsed() > LEFT_OVER {
            return Err("what was armed before does not come to its end".into());
        }
        slots.wait(0, Duration::from_millis(10));
    }
    Ok(())
}

/// The rows as a table, for a terminal: for each variant and budget the time of a share (of the slowest rank, in
/// microseconds) by policy, and how many times as long as `adaptive` the other two take.
pub fn table(rows: &[Row]) -> String {
    let head = [
        "variant",
        "slots",
        "application us",
        "static us",
        "adaptive us",
        "static / adaptive",
        "application / adaptive",
    ];
    let mut table = Table::new(head, &[0]);
    let mut seen: Vec<(&str, Option<usize>)> = Vec::new();
    for row in rows.iter().filter(|row| row.setting.budget.is_some()) {
        let case = (&*row.variant, row.setting.budget);
        if seen.contains(&case) {
            continue;
        }
        seen.push(case);
        let us = |throttle: ThrottleOf| {
            let mut same = (rows.iter()).filter(|row| (&*row.variant, row.setting.budget) == case);
            let row = same.find(|row| row.setting.throttle.as_deref() == Some(throttle.name()))?;
            row.us_max.filter(|_| !row.failed)
        };
        let [application, still, adaptive] = ThrottleOf::ALL.map(us);
        let time = |us: Option<f64>| us.map_or("FAILED".to_owned(), |us| format!("{us:.1}"));
        let ratio = |other: Option<f64>| match (other, adaptive) {
            (Some(other), Some(adaptive)) => format!("{:.2}", other / adaptive),
            _ => "-".to_owned(),
        };
        table.row([
            row.variant.clone(),
            row.setting.budget.unwrap_or(0).to_string(),
            time(application),
            time(still),
            time(adaptive),
            ratio(still),
            ratio(application),
        ]);
    }
    let mut text = table.text();
    if let Some(row) = rows.first() {
        let setting = &row.setting;
        _ = writeln!(
            text,
            "us a share of the slowest of {} ranks, median of {} rounds; {}, {}; the ranks of a node divide its slots",
            setting.ranks, row.rounds, setting.device, setting.transport
        );
    }
    for row in rows.iter().filter(|row| row.failed) {
        let setting = &row.setting;
        _ = writeln!(
            text,
            "FAILED {}, {} slots, {}: {}",
            row.variant,
            setting.budget.unwrap_or(0),
            setting.throttle.as_deref().unwrap_or("-"),
            row.failure.as_deref().unwrap_or("for an unknown reason")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::row;

    #[test]
    fn what_adaptive_gains_is_said() {
        let row = |budget, throttle: ThrottleOf, us: f64| {
            row("st", 1, us, |s| {
                (s.budget, s.throttle) = (Some(budget), Some(throttle.name().into()));
            })
        };
        let mut rows = vec![
            row(16, ThrottleOf::Application, 121.0),
            row(16, ThrottleOf::Static, 110.0),
            row(16, ThrottleOf::Adaptive, 100.0),
            row(512, ThrottleOf::Application, 50.0),
        ];
        rows[3].failed = true;
        rows[3].failure = Some("why".into());
        let table = table(&rows);
        assert!(
            table.contains("16           121.0      110.0        100.0               1.10                    1.21"),
            "{table}"
        );
        assert!(table.contains("512          FAILED"), "{table}");
        assert!(
            table.contains("FAILED st, 512 slots, application: why"),
            "{table}"
        );
    }
}
