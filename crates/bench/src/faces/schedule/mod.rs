//! The loops around the clock.
//!
//! # Model
//!
//! ```text
//! for k in 0..nk {
//!     build windows and buffers                   (not timed)
//!     for j in 0..=nj {
//!         initialise u; a few shares; initialise u again; synchronise
//!         start the clock; enqueue ni shares; synchronise; stop the clock      (the run j = 0 is not counted)
//!         verify
//!     }
//! }
//! ```
//!
//! No barrier stands inside, since the ranks' messages keep them together; and none stands before the clock. Between two
//! runs the host looks at the result, and ranks drift apart by more than a run on a GPU lasts. The few shares before the
//! clock, which do not count, bring them together again. A variant implements [`Exchange`]; [`measure`] does the rest. It
//! returns one rank's [`RankSample`]: the time of a share, the time to enqueue one, its processor time, and its launches.
//!
//! # Failures
//!
//! An error of the exchange ends the measurement and is returned as it is: peers may be waiting,
//! and only the caller knows how to tell them. A wrong result does not end it (the peers would miss
//! this rank): the sample carries it.

use super::params::Counts;
use super::verify::Verifier;
use crate::results::{Meter, RankSample};

/// A variant on one rank.
pub trait Exchange {
    /// The errors of the variant.
    type Error;

    /// Builds windows, buffers, graphs: everything before the first share. Called `nk` times; drops the previous ones.
    /// Collective, not timed.
    ///
    /// # Errors
    ///
    /// An error of the variant.
    fn build(&mut self) -> Result<(), Self::Error>;

    /// Sets the block to its [initial values](super::kernels::init), and waits until that is done.
    ///
    /// # Errors
    ///
    /// An error of the variant.
    fn initialise(&mut self) -> Result<(), Self::Error>;

    /// Enqueues `count` shares (and waits only where a share itself does). This and [`Exchange::finish`] are timed.
    ///
    /// # Errors
    ///
    /// An error of the variant.
    fn shares(&mut self, count: u64) -> Result<(), Self::Error>;

    /// Waits until this rank's block is final.
    ///
    /// # Errors
    ///
    /// An error of the variant.
    fn finish(&mut self) -> Result<(), Self::Error>;

    /// Gives the block, on the host, to `check`. Not timed.
    ///
    /// # Errors
    ///
    /// An error of the variant.
    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<(), Self::Error>;
}

/// Runs all loops on one rank. `launches` says how many kernels, batches and graphs the exchange has enqueued so far.
/// `step` is called after every run (`nk * (nj + 1)` times), for a progress bar.
///
/// # Errors
///
/// The first error of the exchange.
pub fn measure<X: Exchange>(
    counts: Counts,
    verifier: &Verifier,
    exchange: &mut X,
    launches: impl Fn() -> u64,
    mut step: impl FnMut(),
) -> Result<RankSample, X::Error> {
    // News of the slowest rank travel one neighbour a share.
    let ahead = verifier.geometry().grid().0.into_iter().max().unwrap_or(0) as u64;
    let mut meter = Meter::default();
    let mut sample = RankSample::new(verifier.geometry().rank());
    for k in 0..counts.nk {
        exchange.build()?;
        for j in 0..=counts.nj {
            exchange.initialise()?;
            exchange.shares(ahead)?;
            exchange.finish()?;
            exchange.initialise()?;
            let before = launches();
            let mut clock = meter.start();
            exchange.shares(counts.ni)?;
            clock.enqueued();
            exchange.finish()?;
            let run = clock.stop(launches() - before);
            if j > 0 {
                meter.add(run);
            }
            let mut seen = false;
            exchange.inspect(&mut |u| {
                seen = true;
                let verdict = verifier.check(u);
                sample.max_error = sample.max_error.max(verdict.max_error);
                if !verdict.passed() {
                    sample.fail(format!("run {j} of build {k}: {verdict}"));
                }
            })?;
            if !seen {
                sample.fail(format!("run {j} of build {k}: the block was not inspected"));
            }
            step();
        }
    }
    meter.note(&mut sample, counts.timed_shares());
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::kernels;
    use crate::faces::params::{Grid, Init, Params, Size, Variant};
    use std::cell::Cell;

    /// A single rank: nothing to exchange.
    struct Alone<'a> {
        verifier: &'a Verifier,
        u: Vec<f64>,
        calls: [u64; 3],
        launches: &'a Cell<u64>,
        broken: bool,
    }

    impl Exchange for Alone<'_> {
        type Error = String;
        fn build(&mut self) -> Result<(), String> {
            self.calls[0] += 1;
            self.u = vec![f64::NAN; self.verifier.geometry().len()];
            Ok(())
        }
        fn initialise(&mut self) -> Result<(), String> {
            self.calls[1] += 1;
            kernels::init(self.verifier.geometry(), Init::Same, self.u.as_mut_slice());
            Ok(())
        }
        fn shares(&mut self, count: u64) -> Result<(), String> {
            self.calls[2] += count;
            self.launches.set(self.launches.get() + 2 * count);
            for _ in 0..count - u64::from(self.broken) {
                kernels::unpack(self.verifier.geometry(), self.u.as_mut_slice(), &[None; 26]);
            }
            Ok(())
        }
        fn finish(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<(), String> {
            check(&self.u);
            Ok(())
        }
    }

    #[test]
    fn counts_and_verdicts() {
        let counts = Counts {
            nk: 2,
            nj: 3,
            ni: 5,
        };
        let params = Params {
            grid: Grid([1; 3]),
            size: Size { m: [2; 3], n: 4 },
            counts,
            init: Init::Same,
            compute: false,
            variants: vec![Variant::St],
        };
        let verifier = Verifier::new(&params, 0).unwrap();
        let (mut steps, launches) = (0, Cell::new(0));
        let mut alone = Alone {
            verifier: &verifier,
            u: vec![],
            calls: [0; 3],
            launches: &launches,
            broken: false,
        };
        let sample = measure(
            counts,
            &verifier,
            &mut alone,
            || launches.get(),
            || steps += 1,
        )
        .unwrap();
        assert!(sample.passed(), "{sample:?}");
        assert!(sample.us_per_share.unwrap() > 0.0);
        assert!(sample.enqueue_us.unwrap() <= sample.us_per_share.unwrap());
        assert!(sample.cpu_us.is_some());
        assert_eq!(sample.launches, Some(2.0));
        // One share ahead of each run, and everything initialised twice.
        assert_eq!((alone.calls, steps), ([2, 16, 48], 8));

        alone.broken = true;
        let sample = measure(counts, &verifier, &mut alone, || launches.get(), || ()).unwrap();
        assert!(sample.failure.unwrap().starts_with("run 0 of build 0: "));
    }
}
