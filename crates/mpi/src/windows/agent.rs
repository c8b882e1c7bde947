//! The agent, which drives MPI while no stream waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::inner::Inner;

/// The length of its naps: the shortest after recent activity, and at most the longest.
const NAPS: std::ops::Range<Duration> = Duration::from_micros(50)..Duration::from_millis(1);

/// A thread that drives MPI from time to time. Dropping it ends the thread.
pub(super) struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(inner: &Arc<Inner>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, inner) = (stop.clone(), Arc::downgrade(inner));
        let thread = std::thread::Builder::new()
            .name("tidegate-mpi".into())
            .spawn(move || run(&asked, &inner))?;
        Ok(Agent {
            stop,
            thread: Some(thread),
        })
    }
}

fn run(stop: &AtomicBool, inner: &Weak<Inner>) {
    let mut nap = NAPS.start;
    let mut seen = 0;
    while !stop.load(Ordering::Acquire) {
        let Some(inner) = inner.upgrade() else { return };
        let turns = inner.activity();
        // A stream that waits drives MPI more often than this would.
        let came = turns.waits == 0 && inner.turn();
        nap = if came || turns.signals != seen {
            NAPS.start
        } else {
            (nap * 2).min(NAPS.end)
        };
        seen = turns.signals;
        drop(inner);
        std::thread::park_timeout(nap);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The agent itself may drop the last handle. Then the flag ends it.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
