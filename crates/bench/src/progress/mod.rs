//! A progress bar, for people only.
//!
//! # Model
//!
//! A [`Progress`] counts steps. It draws on standard error when that is a terminal, and nothing
//! otherwise, so that logs and pipes stay clean. Dropping it removes the bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar that goes away when it is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps on standard error, if that is a terminal.
    pub fn new(steps: u64) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::hidden(steps);
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{msg:<18} {wide_bar} {pos}/{len} {eta:>4}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// One that only counts.
    pub fn hidden(steps: u64) -> Progress {
        Progress(ProgressBar::with_draw_target(
            Some(steps),
            ProgressDrawTarget::hidden(),
        ))
    }

    /// Says what is being done.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line above the bar, on standard error; also without a terminal.
    pub fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// How many steps are done.
    pub fn done(&self) -> u64 {
        self.0.position()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
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
}
