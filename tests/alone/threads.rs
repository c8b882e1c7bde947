//! A program that has left its job has no thread of the job.

use std::time::{Duration, Instant};

use tidegate::host::prelude::*;

use crate::counting::alone;

/// The names of the threads that tidegate has started in this process.
fn ours() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| {
        // A thread that ends meanwhile has no name any more.
        std::fs::read_to_string(thread.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("tidegate")).collect()
}

/// Waits until there are some, or none. False if that takes longer.
fn soon(there_are_some: bool, at_most: Duration) -> bool {
    let begin = Instant::now();
    while ours().is_empty() == there_are_some {
        if begin.elapsed() > at_most {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// The thread that watches a rank sleeps 200 ms between two looks. Dropping the world wakes it.
#[test]
fn a_world_that_is_dropped_leaves_no_thread() {
    let _alone = alone();
    let leaves_none = |_| {
        // A thread sets its name when it begins.
        World::local(2, |_world| {
            assert!(soon(true, Duration::from_secs(60)), "no thread begins");
        });
        // The system may list a thread a moment longer than its end, but not as long as it would have slept.
        soon(false, Duration::from_millis(50))
    };
    // A busy machine may stop this thread for longer than that, but not each time.
    assert!((0..20).any(leaves_none), "{:?}", ours());
}
