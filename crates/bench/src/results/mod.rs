//! Samples of ranks, and rows made of them.
//!
//! # Model
//!
//! Each rank makes one [`RankSample`] a variant and round, and sends it to rank 0. Several *rounds* run all variants in
//! turn, so a disturbance hits all alike. Rank 0 gives the samples of a variant to [`Row::new`]. That takes the average, the
//! least and the greatest time over the ranks of each round, and of each of these the median over the rounds. The number to
//! compare is the greatest: the time of the slowest rank.
//!
//! Rows of other libraries' programs ([`crate::peers`]) are [`Row`]s too: [`Row::who`] names the library, and [`comparison`]
//! puts all into one table.
//!
//! # Failures
//!
//! A rank that failed, did not report, or reported no time makes its row a failed one
//! ([`Row::failure`] says why), and [`exit_code`] is 1 when any row is.

pub mod comparison;
pub mod files;
pub mod meaning;
mod meter;
pub mod stats;
pub mod table;

pub use meter::{Clock, Meter, Run};

use crate::faces::layout::Geometry;
use serde::{Deserialize, Deserializer, Serialize};
use stats::{Summary, median};

/// The result of one rank in one round of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankSample {
    /// The rank that found it.
    pub rank: usize,
    /// Time per share in microseconds; `None` when no time was taken.
    pub us_per_share: Option<f64>,
    /// Of that, time to enqueue a share: all but the last synchronisation.
    pub enqueue_us: Option<f64>,
    /// Processor time of the process per share, all threads together.
    pub cpu_us: Option<f64>,
    /// Kernels and batches (or graphs of them) that were enqueued per share.
    pub launches: Option<f64>,
    /// The largest error of all its final blocks (see [`crate::faces::verify::error`]).
    pub max_error: f64,
    /// Why this rank failed, if it did: the first reason.
    pub failure: Option<String>,
}

impl RankSample {
    /// A sample without a time, not failed.
    pub fn new(rank: usize) -> RankSample {
        RankSample {
            rank,
            us_per_share: None,
            enqueue_us: None,
            cpu_us: None,
            launches: None,
            max_error: 0.0,
            failure: None,
        }
    }

    /// The sample of a rank that came to no result.
    pub fn failed(rank: usize, reason: impl Into<String>) -> RankSample {
        let mut sample = RankSample::new(rank);
        sample.fail(reason);
        sample
    }

    /// Notes a failure; the first one stays.
    pub fn fail(&mut self, reason: impl Into<String>) {
        self.failure.get_or_insert_with(|| reason.into());
    }

    /// Whether this rank has a time and did not fail.
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.us_per_share.is_some_and(f64::is_finite)
    }
}

/// The setting of a run, the same for all its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The device: `host`, or a GPU's name.
    pub device: String,
    /// How messages travel between ranks: `mapped`, …
    pub transport: String,
    /// How many ranks there are.
    pub ranks: usize,
    /// The grid that the ranks form, as `2x2x2`.
    pub grid: String,
    /// Elements of a block: `15x14x13`.
    pub elements: String,
    /// Points along a side of an element.
    pub points: usize,
    /// How often each loop of the benchmark was run: `[nk, nj, ni]`.
    pub counts: [u64; 3],
    /// Whether the compute kernel ran.
    pub compute: bool,
    /// `same` or `global`; `words` of the exchange alone.
    pub init: String,
    /// `faces`, `exchange` or `pair`.
    pub benchmark: String,
    /// Buffers of a slot: `single` or `double`.
    pub buffers: String,
    /// Messages that a rank in the middle of the grid sends in a share.
    pub messages: usize,
    /// The bytes of these.
    pub bytes: u64,
    /// How many trigger slots the NIC of a node had, where that was varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<usize>,
    /// The policy of throttling: `application`, `static` or `adaptive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<String>,
}

impl Setting {
    /// From the parameters, which are valid.
    pub fn new(params: &crate::faces::params::Params, device: &str, transport: &str) -> Setting {
        let counts = params.counts;
        let middle = params.grid.0.map(|side| (side - 1) / 2);
        let geometry = Geometry::new(params.grid, params.size, params.grid.rank(middle));
        let geometry = geometry.expect("the parameters are valid");
        Setting {
            device: device.into(),
            transport: transport.into(),
            ranks: params.grid.ranks(),
            grid: params.grid.to_string(),
            elements: params.size.elements_text(),
            points: params.size.n,
            counts: [counts.nk, counts.nj, counts.ni],
            compute: params.compute,
            init: params.init.to_string(),
            benchmark: "faces".into(),
            buffers: "double".into(),
            messages: geometry.neighbours().count(),
            bytes: geometry.sent_bytes() as u64,
            budget: None,
            throttle: None,
        }
    }
}

/// [`Row::who`] of rows of this library.
pub const OURS: &str = "tidegate";

/// One variant's result. Fields of the setting lie beside its own, so this is for self-describing
/// formats such as JSON; ranks send each other [`RankSample`]s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The library: [`OURS`], or a peer's name.
    #[serde(default = "ours")]
    pub who: String,
    /// The variant: `st`, `st-graph`, …
    pub variant: String,
    /// The setting that it ran with.
    #[serde(flatten)]
    pub setting: Setting,
    /// How many rounds were run.
    pub rounds: usize,
    /// Average time per share over the ranks, in microseconds; like the next two the median of the
    /// rounds. `None` when a round has no time.
    pub us_avg: Option<f64>,
    /// The fastest rank's time per share, in microseconds.
    pub us_min: Option<f64>,
    /// The slowest rank's time per share, in microseconds: the one to compare.
    pub us_max: Option<f64>,
    /// The slowest rank's time in the best round, in microseconds.
    #[serde(default)]
    pub us_least: Option<f64>,
    /// The slowest rank's time in the worst round, in microseconds.
    #[serde(default)]
    pub us_most: Option<f64>,
    /// Each rank's median time over the rounds.
    pub us_by_rank: Vec<Option<f64>>,
    /// Time to enqueue a share; like the next two that of the greatest rank, and the median of the rounds.
    pub enqueue_us: Option<f64>,
    /// Processor time of a rank's process per share.
    pub cpu_us: Option<f64>,
    /// How many kernels and batches (or graphs of them) a rank enqueues per share.
    pub launches: Option<f64>,
    /// The largest error of any rank; JSON has no infinity, and says `null`.
    #[serde(deserialize_with = "or_infinity")]
    pub max_error: f64,
    /// How many ranks were right in every round.
    pub verified: usize,
    /// Whether any rank was not.
    pub failed: bool,
    /// Why, for a failed row.
    pub failure: Option<String>,
    /// A remark on the figure.
    #[serde(default)]
    pub note: Option<String>,
}

fn ours() -> String {
    OURS.to_owned()
}

fn or_infinity<'de, R: Deserializer<'de>>(reader: R) -> Result<f64, R::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or(f64::INFINITY))
}

impl Row {
    /// Puts the samples of one variant together: `rounds[r]` holds those of round `r`, in any order
    /// of ranks.
    pub fn new(variant: impl Into<String>, setting: Setting, rounds: &[Vec<RankSample>]) -> Row {
        let ranks = setting.ranks;
        let mut failure = None;
        let mut right = vec![!rounds.is_empty(); ranks];
        let mut times = vec![Vec::with_capacity(rounds.len()); ranks];
        let mut summaries = Vec::with_capacity(rounds.len());
        if rounds.is_empty() {
            failure = Some("nothing was run".to_owned());
        }
        for round in rounds {
            let mut by_rank = vec![None; ranks];
            for sample in round {
                match by_rank.get_mut(sample.rank) {
                    Some(slot) if slot.is_none() => *slot = Some(sample),
                    _ => {
                        _ = failure
                            .get_or_insert_with(|| format!("rank {} reported twice", sample.rank))
                    }
                }
            }
            for (rank, sample) in by_rank.iter().enumerate() {
                let time = sample
                    .and_then(|s| s.us_per_share)
                    .filter(|t| t.is_finite());
                times[rank].extend(time);
                if sample.is_some_and(RankSample::passed) {
                    continue;
                }
                right[rank] = false;
                failure.get_or_insert_with(|| match sample {
                    None => format!("rank {rank}: did not report"),
                    Some(s) => format!(
                        "rank {rank}: {}",
                        s.failure.as_deref().unwrap_or("no time was taken")
                    ),
                });
            }
            let round: Option<Vec<f64>> = by_rank.iter().map(|s| (*s)?.us_per_share).collect();
            summaries.push(round.and_then(|times| Summary::of(&times)));
        }
        let of_rounds = |part: fn(&Summary) -> f64| -> Option<f64> {
            median(
                &mut summaries
                    .iter()
                    .map(|s| s.as_ref().map(part))
                    .collect::<Option<Vec<_>>>()?,
            )
        };
        let greatest = |part: fn(&RankSample) -> Option<f64>| -> Option<f64> {
            let round = |samples: &Vec<RankSample>| {
                let values: Option<Vec<f64>> = samples.iter().map(part).collect();
                values
                    .and_then(|values| Summary::of(&values))
                    .map(|s| s.max)
            };
            median(&mut rounds.iter().map(round).collect::<Option<Vec<_>>>()?)
        };
        let slowest: Option<Vec<f64>> = summaries.iter().map(|s| Some(s.as_ref()?.max)).collect();
        let slowest = slowest.and_then(|all| Summary::of(&all));
        Row {
            who: ours(),
            variant: variant.into(),
            rounds: rounds.len(),
            us_avg: of_rounds(|s| s.avg),
            us_min: of_rounds(|s| s.min),
            us_max: of_rounds(|s| s.max),
            us_least: slowest.map(|s| s.min),
            us_most: slowest.map(|s| s.max),
            us_by_rank: times.iter_mut().map(|t| median(t)).collect(),
            enqueue_us: greatest(|s| s.enqueue_us),
            cpu_us: greatest(|s| s.cpu_us),
            launches: greatest(|s| s.launches),
            max_error: rounds
                .iter()
                .flatten()
                .map(|s| s.max_error)
                .fold(0.0, f64::max),
            verified: right.iter().filter(|r| **r).count(),
            failed: failure.is_some(),
            failure,
            note: None,
            setting,
        }
    }

    /// Its name among rows of several libraries.
    pub fn name(&self) -> String {
        match self.is_ours() {
            true => self.variant.clone(),
            false => format!("{}: {}", self.who, self.variant),
        }
    }

    /// Whether it is one of this library.
    pub fn is_ours(&self) -> bool {
        self.who == OURS
    }

    /// The bytes that a rank sends in a second, in GB (10^9 bytes), at the pace of the slowest rank.
    pub fn gb_per_s(&self) -> Option<f64> {
        let us = self.us_max.filter(|us| *us > 0.0)?;
        (self.setting.bytes > 0).then_some(self.setting.bytes as f64 / us / 1e3)
    }

    /// This row's slowest rank as a multiple of that of the row `base` (below 1 is faster); `None`
    /// when one of them failed or has no time.
    pub fn ratio_to(&self, base: &Row) -> Option<f64> {
        if self.failed || base.failed {
            return None;
        }
        Some(self.us_max? / base.us_max?).filter(|r| r.is_finite())
    }
}

/// The row to compare with: the first of ours whose variant is `rma`.
pub fn baseline(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|r| r.is_ours() && r.variant == "rma")
}

/// 0 when there are rows and all of them are right, else 1.
pub fn exit_code(rows: &[Row]) -> u8 {
    u8::from(rows.is_empty() || rows.iter().any(|r| r.failed))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn setting(ranks: usize) -> Setting {
        Setting {
            device: "host".into(),
            transport: "mapped".into(),
            ranks,
            grid: format!("{ranks}x1x1"),
            elements: "4x4x4".into(),
            points: 6,
            counts: [3, 4, 50],
            compute: false,
            init: "same".into(),
            benchmark: "faces".into(),
            buffers: "double".into(),
            messages: 1,
            bytes: 4608,
            budget: None,
            throttle: None,
        }
    }

    fn sample(rank: usize, us: f64) -> RankSample {
        RankSample {
            us_per_share: Some(us),
            enqueue_us: Some(us / 4.0),
            cpu_us: Some(us * 2.0),
            launches: Some(3.0),
            ..RankSample::new(rank)
        }
    }

    /// A row of one round in which every rank took the same time.
    pub(crate) fn row(
        variant: &str,
        ranks: usize,
        us: f64,
        change: impl FnOnce(&mut Setting),
    ) -> Row {
        let mut setting = setting(ranks);
        change(&mut setting);
        let samples = (0..setting.ranks).map(|rank| RankSample {
            us_per_share: Some(us),
            ..RankSample::new(rank)
        });
        Row::new(variant, setting.clone(), &[samples.collect()])
    }

    pub(crate) fn rows() -> Vec<Row> {
        let row = |name: &str, us: f64| {
            let round = |f: f64| (0..4).map(|r| sample(r, (us + r as f64) * f)).collect();
            Row::new(name, setting(4), &[round(1.0), round(1.5), round(0.9)])
        };
        vec![
            row("st", 61.0),
            row("st-graph", 52.0),
            row("rma", 81.0),
            row("p2p", 97.0),
        ]
    }

    #[test]
    fn medians_of_rounds() {
        let rounds = [
            vec![sample(1, 4.0), sample(0, 2.0)],
            vec![sample(0, 9.0), sample(1, 9.0)],
            vec![sample(0, 3.0), sample(1, 5.0)],
        ];
        let row = Row::new("st", setting(2), &rounds);
        assert_eq!(
            (row.us_avg, row.us_min, row.us_max),
            (Some(4.0), Some(3.0), Some(5.0))
        );
        assert_eq!(row.us_by_rank, [Some(3.0), Some(5.0)]);
        assert_eq!((row.us_least, row.us_most), (Some(4.0), Some(9.0)));
        assert_eq!((row.verified, row.failed, row.rounds), (2, false, 3));
    }

    #[test]
    fn every_way_to_fail() {
        let fail = |rounds: &[Vec<RankSample>]| {
            let row = Row::new("st", setting(2), rounds);
            assert!(row.failed);
            assert_eq!(exit_code(std::slice::from_ref(&row)), 1);
            (row.verified, row.failure.unwrap())
        };
        assert_eq!(fail(&[]), (0, "nothing was run".into()));
        assert_eq!(
            fail(&[vec![sample(0, 1.0)]]),
            (1, "rank 1: did not report".into())
        );
        assert_eq!(
            fail(&[vec![sample(0, 1.0), RankSample::new(1)]]),
            (1, "rank 1: no time was taken".into())
        );
        assert_eq!(
            fail(&[vec![sample(0, f64::NAN), sample(1, 1.0)]]),
            (1, "rank 0: no time was taken".into())
        );
        let wrong = RankSample {
            failure: Some("wrong".into()),
            ..sample(1, 1.0)
        };
        assert_eq!(
            fail(&[vec![sample(0, 1.0), wrong]]),
            (1, "rank 1: wrong".into())
        );
        let twice = vec![sample(0, 1.0), sample(0, 1.0), sample(1, 1.0)];
        assert_eq!(fail(&[twice]), (2, "rank 0 reported twice".into()));
        assert_eq!(
            fail(&[vec![sample(0, 1.0), sample(1, 1.0), sample(7, 1.0)]]).0,
            2
        );
        assert_eq!(exit_code(&[]), 1);
        assert_eq!(exit_code(&rows()), 0);
    }

    #[test]
    fn ratios_need_two_good_rows() {
        let mut rows = rows();
        let base = baseline(&rows).unwrap();
        assert_eq!(base.ratio_to(base), Some(1.0));
        assert!(rows[0].ratio_to(base).unwrap() < 0.8);
        rows[2].failed = true;
        assert_eq!(rows[0].ratio_to(&rows[2]), None);
    }
}
