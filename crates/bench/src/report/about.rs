//! Where, when, and with which version a run took place.

use crate::results::meaning::counted;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The circumstances of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The command that was run.
    pub command: String,
    /// How the ranks ran: processes or threads, and where.
    pub placement: String,
    /// The version of tidegate, and the commit of its checkout.
    pub version: String,
    /// The name of the machine.
    pub machine: String,
    /// Its processor, and how many of its cores can be used.
    pub processor: String,
    /// How many processors all ranks share; `None` if ranks do their work elsewhere, as on GPUs.
    pub processors: Option<usize>,
    /// The name and version of its operating system.
    pub system: String,
    /// When the report was made, in UTC.
    pub date: String,
}

impl About {
    /// This machine, now. Fields that cannot be found out are `unknown`.
    pub fn detect(command: impl Into<String>, placement: impl Into<String>) -> About {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let line = |path: &str| read(path).map_or("unknown".into(), |text| text.trim().to_owned());
        let model = read("/proc/cpuinfo").and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        About {
            command: command.into(),
            placement: placement.into(),
            version: format!(
                "tidegate {}, commit {}",
                env!("CARGO_PKG_VERSION"),
                commit().unwrap_or("unknown".into())
            ),
            machine: line("/proc/sys/kernel/hostname"),
            processor: format!(
                "{}, {}",
                model.unwrap_or("unknown".into()),
                counted(cores, "core")
            ),
            processors: None,
            system: format!(
                "{} {}",
                std::env::consts::OS,
                line("/proc/sys/kernel/osrelease")
            ),
            date: date(since.map_or(0, |time| time.as_secs())),
        }
    }

    /// All but the command and the ranks, with names.
    pub(super) fn entries(&self) -> [(&'static str, &str); 5] {
        [
            ("date", &self.date),
            ("version", &self.version),
            ("machine", &self.machine),
            ("processor", &self.processor),
            ("system", &self.system),
        ]
    }
}

/// The commit of the checkout that this was built in, with `-dirty` if files differ; `None` outside of one.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let here = ["-C", env!("CARGO_MANIFEST_DIR")];
        let output = Command::new("git").args(here).args(args).output().ok()?;
        let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(said)
    };
    // A package from a registry may lie inside of another project's checkout.
    let ours = git(&["rev-parse", "--show-prefix"])? == "crates/bench/";
    let describe = ["describe", "--always", "--dirty", "--exclude", "*"];
    git(&describe).filter(|_| ours)
}

/// Seconds since 1970 as `YYYY-MM-DD hh:mm UTC`.
fn date(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!(
        "{year}-{:02}-{:02} {:02}:{:02} UTC",
        month + 1,
        days + 1,
        time / 3600,
        time / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00 UTC");
    }

    #[test]
    fn this_machine_is_described() {
        let about = About::detect("faces", "threads");
        assert!(about.entries().iter().all(|(_, value)| !value.is_empty()));
        assert!(about.processor.ends_with(" cores"));
        assert!(about.version.starts_with("tidegate ") && about.version.contains(", commit "));
    }
}
