//! The clocks of a run.
//!
//! A [`Meter`] adds up runs. Each is timed by a [`Clock`]: from its start to the point where everything is
//! enqueued, and on to its stop; and by the processor time of the whole process meanwhile, all its threads.

use super::RankSample;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// What several runs took together.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Meter(Run);

/// What one run took.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Run {
    elapsed: Duration,
    enqueue: Duration,
    cpu: Duration,
    launches: u64,
}

/// A run that is under way.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    cpu: Duration,
    enqueue: Option<Duration>,
}

impl Meter {
    /// Starts a clock that stands for one run.
    pub fn start(&self) -> Clock {
        let cpu = cpu_time();
        Clock {
            cpu,
            enqueue: None,
            start: Instant::now(),
        }
    }

    /// Adds the times of a run to the sums.
    pub fn add(&mut self, run: Run) {
        let all = &mut self.0;
        all.elapsed += run.elapsed;
        all.enqueue += run.enqueue;
        all.cpu += run.cpu;
        all.launches += run.launches;
    }

    /// Notes what each of `shares` shares took, on average.
    pub fn note(&self, sample: &mut RankSample, shares: u64) {
        let all = &self.0;
        let us = |time: Duration| Some(time.as_secs_f64() * 1e6 / shares as f64);
        sample.us_per_share = us(all.elapsed);
        sample.enqueue_us = us(all.enqueue);
        sample.cpu_us = us(all.cpu);
        sample.launches = Some(all.launches as f64 / shares as f64);
    }
}

impl Clock {
    /// Everything is enqueued: what follows is waiting.
    pub fn enqueued(&mut self) {
        self.enqueue = Some(self.start.elapsed());
    }

    /// Stops the clock; meanwhile there were so many launches.
    pub fn stop(self, launches: u64) -> Run {
        let elapsed = self.start.elapsed();
        Run {
            elapsed,
            enqueue: self.enqueue.unwrap_or(elapsed),
            cpu: cpu_time().saturating_sub(self.cpu),
            launches,
        }
    }
}

/// What the process has had of its processors, in user and in system mode.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
