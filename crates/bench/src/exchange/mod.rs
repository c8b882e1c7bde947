//! The exchange alone: no kernels between the epochs, and whatever messages are asked for.
//!
//! # Model
//!
//! A [`Pattern`] says what each rank sends to whom in one *epoch*; a [`Case`] is a pattern with how it is
//! enqueued; [`run`] measures cases. What is sent are words that depend on the sender, the message, the
//! place in it, and the run: so what arrives elsewhere or torn is seen, and epochs that bring nothing are, too, since
//! those before the clock bring other words. Every run is verified, the first one (which is not counted) too: all slots
//! are copied to the host and compared word by word, as the last epoch has left them. (Within a run all epochs bring the
//! same: what comes an epoch late is for the tests of schedules, and for Faces, whose values grow. In turns, what the
//! second rank answers first within the time is the last message from before it: so there the first rank has one message
//! of the right words at least.)
//!
//! | [`Order`] | an epoch |
//! |---|---|
//! | [`Together`](Order::Together) | every rank posts, puts, completes and waits, in one batch |
//! | [`Turns`](Order::Turns) | two ranks; the second one sends when it has got what the first one sent, and the first one waits for that: an epoch is a round trip, of two messages one after the other. Each of the second one's batches answers what the one before it has waited for, and exposes for the next |
//!
//! ```text
//! for k in 0..nk {
//!     build windows and buffers; record                          (not timed)
//!     for j in 0..=nj {
//!         fill the sources anew; some epochs with other words, so that ranks begin together; synchronise
//!         start the clock; enqueue ni epochs; synchronise; stop the clock      (the run j = 0 is not counted)
//!         verify what the last epoch brought
//!     }
//! }
//! ```
//!
//! # Failures
//!
//! As those of Faces: a mismatch or an error makes the row a failed one, and the exit code 1.

mod cases;
mod engine;
mod pattern;

pub(crate) use cases::counts;
pub use cases::{exchanges, pairs};
pub use pattern::{Message, Pattern, PatternError};

use crate::device::BenchDevice;
use crate::faces::params::Counts;
use crate::progress::Progress;
use crate::results::{RankSample, Row, Setting};
use crate::rounds;
use std::error::Error;
use tidegate_core::World;
use tidegate_core::window::Buffers;

/// Who sends when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All at a time.
    Together,
    /// One after the other: a ping and its answer. Two ranks.
    Turns,
}

impl Order {
    /// Messages (or exchanges) one after the other in an epoch: what a time is divided by.
    fn hops(self) -> u64 {
        match self {
            Order::Together => 1,
            Order::Turns => 2,
        }
    }
}

/// What is measured, on one rank.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// What this rank sends and receives.
    pub pattern: Pattern,
    /// Who sends when.
    pub order: Order,
    /// How many epochs are recorded in one graph; 0 if none are.
    pub recorded: u64,
    /// Buffers of a slot.
    pub buffers: Buffers,
    /// Builds, runs, and epochs of a run: a multiple of `recorded`.
    pub counts: Counts,
    /// What the row says besides.
    pub setting: Setting,
    /// So many words of each message are sent, as the stream counts them: `put_counted`.
    pub counted: Option<usize>,
    /// Sends something else than it should: for tests that want a wrong result.
    pub spoil: bool,
}

/// One rank's part of all cases, `rounds` times in turn; collective. The rows (on every rank).
///
/// # Errors
///
/// If the device does not take the kernels. What becomes of the messages is no error: the rows say so.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::FacesArgs;
    use crate::results::{exit_code, table::table};
    use tidegate_host::Host;

    fn rows(line: &str, change: impl Fn(usize, &mut Case) + Sync) -> Vec<Row> {
        let words = std::iter::once("faces").chain(line.split_whitespace());
        let args = FacesArgs::try_from_iter(words).unwrap();
        let mut ranks = World::<Host>::local(args.ranks(), |world| {
            let cases = |device: &str| match args.pair {
                true => pairs(&args, world.rank(), device),
                false => exchanges(&args, world.rank(), device),
            };
            let mut cases = cases("host").unwrap();
            for case in &mut cases {
                change(world.rank(), case);
            }
            run(&world, &cases, 2, &Progress::hidden(0)).map_err(|error| error.to_string())
        });
        ranks.remove(0).unwrap()
    }

    fn all_right(line: &str) -> Vec<Row> {
        let rows = rows(line, |_, _| {});
        assert_eq!(exit_code(&rows), 0, "{line}\n{}", table(&rows));
        rows
    }

    #[test]
    fn faces_shaped() {
        for buffers in ["double", "single"] {
            let line = format!(
                "--exchange --grid 3x2x1 --size 2x3x2x4 --counts 2,1,7 --buffers {buffers}"
            );
            let rows = all_right(&line);
            let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
            assert_eq!(names, ["st", "st-graph"]);
            assert_eq!(rows[0].launches, Some(1.0));
            assert_eq!(rows[0].setting.messages, 5);
        }
        let rows = all_right("--exchange --grid 3x3x3 --size 2x2x2x3 --counts 1,1,5");
        assert_eq!(rows[0].setting.messages, 26);
    }

    #[test]
    fn several_epochs_in_a_graph() {
        let line = "--exchange --grid 2x1x1 --size 2x2x2x3 --counts 1,2,7 --unroll 4";
        let rows = all_right(line);
        // 7 epochs are two graphs of four.
        assert_eq!(rows[1].setting.counts, [1, 2, 8]);
        assert_eq!(rows[1].launches, Some(0.25));
    }

    #[test]
    fn some_neighbours_in_a_ring() {
        for (grid, neighbours) in [("2x1x1", 5), ("4x1x1", 1), ("4x1x1", 3), ("3x1x1", 7)] {
            let line = format!(
                "--exchange --grid {grid} --neighbours {neighbours} --bytes 72 --counts 1,1,3"
            );
            let rows = all_right(&line);
            assert_eq!(rows[0].setting.messages, neighbours);
            assert_eq!(rows[0].setting.bytes, 72 * neighbours as u64);
        }
    }

    #[test]
    fn pairs_of_all_kinds() {
        for buffers in ["double", "single"] {
            let line = format!("--pair --bytes 4096 --counts 1,1,5 --buffers {buffers}");
            let rows = all_right(&line);
            let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
            assert_eq!(
                names,
                [
                    "ping 4 KiB",
                    "ping-graph 4 KiB",
                    "both 4 KiB",
                    "both-graph 4 KiB"
                ]
            );
        }
    }

    #[test]
    fn counted_messages_of_a_pair() {
        let rows = all_right("--pair --bytes 4096 --counted 264 --counts 1,1,5");
        let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
        assert_eq!(names[0], "ping 264 B of 4 KiB");
        // What is looked at is what was sent, and not more.
        for row in self::rows(
            "--pair --bytes 4096 --counted 264 --counts 1,1,5",
            |_, case| {
                case.counted = case.counted.map(|words| words - 1);
            },
        ) {
            assert_eq!(row.failure, None);
        }
        let rows = self::rows(
            "--pair --bytes 4096 --counted 264 --counts 1,1,5",
            |rank, case| {
                case.counted = case.counted.map(|words| words - rank);
            },
        );
        for row in rows {
            let failure = row.failure.expect("it was seen");
            assert!(failure.contains(": 1 of 33 words are wrong"), "{failure}");
        }
    }

    #[test]
    fn several_puts_of_a_pair() {
        let rows = all_right("--pair --bytes 4096 --puts 3 --counts 1,1,5 --buffers single");
        assert_eq!(rows[0].setting.messages, 3);
        assert_eq!(rows[0].setting.bytes, 3 * 4096);
    }

    #[test]
    fn what_is_wrong_fails() {
        for line in [
            "--exchange --grid 2x2x1 --size 2x2x2x3 --counts 1,1,3",
            "--pair --bytes 8 --counts 1,1,3",
        ] {
            let rows = rows(line, |rank, case| case.spoil = rank == 1);
            assert_eq!(exit_code(&rows), 1);
            for row in rows {
                let failure = row.failure.expect("it was seen");
                assert!(failure.contains("from rank 1"), "{failure}");
            }
        }
    }

    /// As if what is timed moved nothing.
    #[test]
    fn the_epochs_before_the_clock_bring_other_words() {
        for buffers in ["double", "single"] {
            let line = format!(
                "--exchange --grid 2x1x1 --size 2x2x2x3 --counts 1,1,4 --buffers {buffers}"
            );
            for row in rows(&line, |_, case| case.counts.ni = 0) {
                let failure = row.failure.expect("it was seen");
                assert!(failure.contains("words are wrong"), "{failure}");
            }
        }
    }
}
