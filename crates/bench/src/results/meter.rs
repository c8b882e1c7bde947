//! The clocks of a run.
//!
//! A [`Meter`] adds up runs. A [`Clock`] times each: from its start until everything is enqueued, and on to its stop. It also
//! takes the processor time of the process meanwhile, all threads together.

use super::RankSample;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The times of several runs together.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Meter(Run);

/// The times of one run.
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

    /// Notes the average times of each of `shares` shares.
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
    /// Everything is enqueued; from here on the run only waits.
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

/// The processor time of the process, in user and in system mode.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
