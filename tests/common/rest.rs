//! What the threads of this process do while a test looks on. How often they go to sleep is theirs to say, on any
//! machine; for how long they run between two sleeps is the machine's, so that is asked for roughly only: a thread that
//! never sleeps runs all the time, and goes to sleep never.

use std::path::Path;
use std::time::{Duration, Instant};

/// What they did.
pub(crate) struct Rest {
    /// How often they went to sleep, a second.
    pub sleeps: f64,
    /// How much of one processor they took.
    pub share: f64,
}

impl std::fmt::Display for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100. * self.share;
        write!(
            f,
            "{share:.2} % of a processor in {:.0} sleeps",
            self.sleeps
        )
    }
}

/// More than this of a processor is no rest, on whatever machine: a thread that spins takes all that it gets.
const SPINS: f64 = 0.5;

impl Rest {
    /// # Panics
    ///
    /// More sleeps than that a second, or a thread that does not sleep.
    #[track_caller]
    pub(crate) fn check(&self, what: &str, most: f64) {
        assert!(
            self.sleeps <= most && self.share <= SPINS,
            "{what}: {self} a second; at most {most} sleeps, {SPINS} of a processor: {:#?}",
            threads(|_, _| true)
        );
    }
}

/// The name of each thread that is not left out, its sleeps, and for how many nanoseconds it has run.
fn threads(counts: impl Fn(&Path, &str) -> bool) -> Vec<(String, u64, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read = |task: &Path| {
        // It may end meanwhile.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).ok();
        let (name, status) = (read("comm")?, read("status")?);
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = line.expect("the kernel counts").trim().parse().ok()?;
        let ran = read("schedstat")?.split(' ').next()?.parse().ok()?;
        Some((name.trim().to_owned(), sleeps, ran))
    };
    tasks
        .map(|task| task.unwrap().path())
        .filter_map(|task| read(&task).map(|thread| (task, thread)))
        .filter(|(task, (name, ..))| counts(task, name))
        .map(|(_, thread)| thread)
        .collect()
}

/// Nanoseconds that those threads have run that are not the caller and not named so.
#[allow(dead_code, reason = "not every test program asks for it")]
pub(crate) fn ran(tests: &[&str]) -> u64 {
    sums(tests).1
}

/// Sleeps, and nanoseconds that they have run.
fn sums(tests: &[&str]) -> (u64, u64) {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    let counts = |task: &Path, name: &str| {
        task.file_name() != own.file_name() && !tests.iter().any(|test| name.starts_with(test))
    };
    let threads = threads(counts);
    let sum = |of: fn(&(String, u64, u64)) -> u64| threads.iter().map(of).sum();
    (sum(|thread| thread.1), sum(|thread| thread.2))
}

/// What all threads do but the caller, which sleeps meanwhile, and those of `tests`: names begin so.
pub(crate) fn look(time: Duration, tests: &[&str]) -> Rest {
    let (before, since) = (sums(tests), Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (sums(tests), since.elapsed().as_secs_f64());
    let sleeps = after.0.checked_sub(before.0).expect("no thread has ended");
    let ran = after.1.checked_sub(before.1).expect("no thread has ended");
    Rest {
        sleeps: sleeps as f64 / seconds,
        share: ran as f64 / 1e9 / seconds,
    }
}
