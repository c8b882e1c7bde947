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

/// More than this of a processor is no rest, on whatever machine: a thread that spins takes all that it gets, and one
/// that wakes as seldom as it may takes a twentieth on a slow one.
const SPINS: f64 = 0.2;

/// Looks what all threads do but the caller and those of `tests` (names begin so): at most so many sleeps a second. If
/// they do more it looks again, for a machine may have been slow, or something from before not over: three times.
///
/// # Panics
///
/// They do more each time.
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

/// A thread: its number, its name, its sleeps, and for how many nanoseconds it has run.
type Thread = (u32, String, u64, u64);

/// All that are not left out.
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

/// Nanoseconds that those threads have run that are not the caller and not named so.
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

/// What they do while the caller sleeps; nothing, if one of them ends meanwhile.
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
