//! The table and the counts that close a run.

use std::fmt;
use std::time::Duration;

use crate::disk::Room;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All its commands succeeded.
    Passed,
    /// A command failed, with the reasons, one per line.
    Failed(String),
    /// It was not run, with the reasons, one per line.
    Skipped(String),
}

/// The result of one step.
pub(crate) struct Row {
    /// The step's name.
    pub(crate) name: &'static str,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// How long it took, with the installations that it needed.
    pub(crate) time: Duration,
    /// The processor time of its commands. On two idle processors a step takes at least half as long as this.
    pub(crate) used: Duration,
    /// What was free on the disk at its end.
    pub(crate) free: Option<Room>,
    /// The output of the command that failed.
    pub(crate) said: String,
    /// Its tests that did not run, each as `<test>: <why>`.
    pub(crate) skipped_tests: Vec<String>,
}

/// The last line of the table.
const TOTAL: &str = "in all";

/// The results of all steps. Its display begins with the output of failed commands, and ends with the line `N passed, N
/// failed, N skipped`.
#[derive(Default)]
pub(crate) struct Summary {
    /// A row for each step, in the order in which they ran.
    pub(crate) rows: Vec<Row>,
}

impl Summary {
    /// How many steps failed.
    pub(crate) fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| is(&row.outcome)).count()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.rows.iter().filter(|row| !row.said.is_empty()) {
            writeln!(f, "{} failed, and said:\n{}\n", row.name, row.said)?;
        }
        let names = self.rows.iter().map(|row| row.name.len());
        let width = names.max().unwrap_or(0).max(TOTAL.len());
        writeln!(
            f,
            "{:width$}  {:7}  {:>7}  {:>7}  {:>8}",
            "", "", "time", "used", "free"
        )?;
        for row in &self.rows {
            let (word, why) = match &row.outcome {
                Outcome::Passed => ("passed", ""),
                Outcome::Failed(why) => ("FAILED", why.as_str()),
                Outcome::Skipped(why) => ("skipped", why.as_str()),
            };
            let mut reasons = why.lines();
            let first = reasons.next().unwrap_or_default();
            let (passed, used) = (time(row.time), time(row.used));
            let free = row.free.map_or(String::new(), |room| room.to_string());
            let line = format!(
                "{:width$}  {word:7}  {passed:>7}  {used:>7}  {free:>8}  {first}",
                row.name
            );
            writeln!(f, "{}", line.trim_end())?;
            for reason in reasons {
                writeln!(
                    f,
                    "{:width$}  {:7}  {:7}  {:7}  {:8}  {reason}",
                    "", "", "", "", ""
                )?;
            }
            for test in &row.skipped_tests {
                writeln!(f, "{:width$}  test skipped: {test}", "")?;
            }
        }
        let sum = |of: fn(&Row) -> Duration| time(self.rows.iter().map(of).sum());
        let (passed, used) = (sum(|row| row.time), sum(|row| row.used));
        writeln!(f, "{TOTAL:width$}  {:7}  {passed:>7}  {used:>7}", "")?;
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        let skipped = self.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        write!(
            f,
            "\n{passed} passed, {} failed, {skipped} skipped",
            self.failed()
        )
    }
}

/// A time for people: `0.4s`, `7m05s`.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 60.. => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{:.1}s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_with_the_counts_alone_on_a_line() {
        let row = |name, outcome, seconds, tests: &[&str]| Row {
            name,
            time: Duration::from_secs(seconds),
            used: Duration::from_secs(2 * seconds),
            free: (seconds > 0).then(|| Room::of_megabytes(34_567 - 100 * seconds)),
            said: match outcome {
                Outcome::Failed(_) => "error: a lint".to_owned(),
                _ => String::new(),
            },
            outcome,
            skipped_tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        let summary = Summary {
            rows: vec![
                row("fmt", Outcome::Passed, 1, &[]),
                row(
                    "clippy",
                    Outcome::Failed("exit status: 101".to_owned()),
                    65,
                    &[],
                ),
                row(
                    "miri",
                    Outcome::Skipped("needs a\nneeds b".to_owned()),
                    0,
                    &[],
                ),
                row("unit", Outcome::Passed, 2, &["ipc: no second user"]),
            ],
        };
        assert_eq!(
            summary.to_string(),
            "clippy failed, and said:
error: a lint

\x20                   time     used      free
fmt     passed      1.0s     2.0s   34.5 GB
clippy  FAILED     1m05s    2m10s   28.1 GB  exit status: 101
miri    skipped     0.0s     0.0s            needs a
                                             needs b
unit    passed      2.0s     4.0s   34.4 GB
        test skipped: ipc: no second user
in all             1m08s    2m16s

2 passed, 1 failed, 1 skipped"
        );
        assert_eq!(summary.failed(), 1);
    }
}
