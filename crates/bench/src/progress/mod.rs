//! A progress bar.
//!
//! # Model
//!
//! A [`Progress`] counts steps. If standard error is a terminal, it draws a bar there. Otherwise it prints a line every
//! ten seconds, so the log of a long or hanging job says where the job is. Dropping it removes the bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often it prints a line to a log.
const LONG: Duration = Duration::from_secs(10);

/// A bar that goes away when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// When it is dropped, the thread that prints to the log ends.
    _speaks: Option<Sender<()>>,
}

impl Progress {
    /// A bar of `steps` steps on standard error, if that is a terminal, and a line now and then if not.
    pub fn new(steps: u64) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::hidden(steps).speaking(LONG, |line| eprintln!("{line}"));
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{msg:<18} {wide_bar} {pos}/{len} {eta:>4}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar, _speaks: None }
    }

    /// One that only counts.
    pub fn hidden(steps: u64) -> Progress {
        Progress {
            bar: ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden()),
            _speaks: None,
        }
    }

    /// Starts a thread that reports the progress as often as this.
    fn speaking(mut self, every: Duration, say: impl Fn(String) + Send + 'static) -> Progress {
        let (speaks, over) = channel();
        let bar = self.bar.clone();
        std::thread::spawn(move || {
            while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let (done, all) = (bar.position(), bar.length().unwrap_or(0));
                say(format!("{}: {done} of {all} done", bar.message()));
            }
        });
        self._speaks = Some(speaks);
        self
    }

    /// Names the current step.
    pub fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints a line above the bar, on standard error; also without a terminal.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// How many steps are done.
    pub fn done(&self) -> u64 {
        self.bar.position()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_without_a_terminal() {
        let progress = Progress::hidden(3);
        progress.say("st");
        progress.step();
        progress.step();
        assert_eq!(progress.done(), 2);
    }

    #[test]
    fn a_log_hears_how_far_it_is_until_it_is_over() {
        let (said, heard) = channel();
        let progress = Progress::hidden(3).speaking(Duration::from_millis(1), move |line| {
            let _ = said.send(line);
        });
        progress.say("st");
        progress.step();
        while heard.recv().unwrap() != "st: 1 of 3 done" {}
        drop(progress);
        // The thread ends, and drops its end of the channel.
        while heard.recv().is_ok() {}
    }
}
