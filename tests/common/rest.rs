//! The activity of this process's threads while a test watches. How often they go to sleep depends only on them. How
//! long they run between two sleeps depends on the machine, so it is checked only roughly: a thread that never sleeps
//! runs all the time.

use std::path::Path;
use std::time::{Duration, Instant};

/// The activity of the threads.
pub(crate) struct Rest {
    /// How often they went to sleep, per second.
    pub sleeps: f64,
    /// Their share of one processor.
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

/// More than this share of a processor is no rest on any machine. A thread that spins takes all that it gets, while one
/// that wakes as seldom as it should takes a twentieth on a slow machine.
const SPINS: f64 = 0.2;

/// Checks that all threads, except for the caller and those whose names begin as in `tests`, sleep at most `most` times
/// a second. If they sleep more often it looks again, three times in all, since the machine may have been slow, or
/// earlier work may not have ended.
///
/// # Panics
///
/// If they sleep more often each time.
#[track_caller]
pub(crate) fn rests(what: &str, most: f64, tests: &[&str]) -> Rest {
    let mut looks = Vec::new();
    for _ in 0..3 {
        match look(Duration::from_secs(2), tests) {
            Some(rest) if rest.sleeps <= most && rest.share <= SPINS => return rest,
            Some(rest) => looks.push(rest.to_string()),
            None => looks.push("a thread has ended".into()),
        }
    }
    panic!(
        "{what}, a second: {looks:?}; at most {most} sleeps, {SPINS} of a processor: {:#?}",
        threads(|_, _| true)
    );
}

/// A thread: its number, its name, its number of sleeps, and the nanoseconds that it has run.
type Thread = (u32, String, u64, u64);

/// All threads that count.
fn threads(counts: impl Fn(&Path, &str) -> bool) -> Vec<Thread> {
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
        let number = task.file_name()?.to_str()?.parse().ok()?;
        Some((number, name.trim().to_owned(), sleeps, ran))
    };
    tasks
        .map(|task| task.unwrap().path())
        .filter_map(|task| read(&task).map(|thread| (task, thread)))
        .filter(|(task, thread)| counts(task, &thread.1))
        .map(|(_, thread)| thread)
        .collect()
}

/// The nanoseconds that the other threads have run, without those named in `tests`.
#[allow(dead_code, reason = "not every test program asks for it")]
pub(crate) fn ran(tests: &[&str]) -> u64 {
    others(tests).iter().map(|thread| thread.3).sum()
}

fn others(tests: &[&str]) -> Vec<Thread> {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    threads(|task, name| {
        task.file_name() != own.file_name() && !tests.iter().any(|test| name.starts_with(test))
    })
}

/// The threads' activity while the caller sleeps; nothing if one of them ends meanwhile.
fn look(time: Duration, tests: &[&str]) -> Option<Rest> {
    let (before, since) = (others(tests), Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (others(tests), since.elapsed().as_secs_f64());
    let find = |all: &[Thread], number| all.iter().find(|thread| thread.0 == number).cloned();
    if before.iter().any(|thread| find(&after, thread.0).is_none()) {
        return None;
    }
    let sum = |of: fn(&Thread) -> u64| {
        let each = after.iter().map(|now| {
            let then = find(&before, now.0);
            of(now) - then.as_ref().map_or(0, of)
        });
        each.sum::<u64>() as f64
    };
    Some(Rest {
        sleeps: sum(|thread| thread.2) / seconds,
        share: sum(|thread| thread.3) / 1e9 / seconds,
    })
}
