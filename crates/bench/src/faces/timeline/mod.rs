//! A timeline of a few shares.
//!
//! # Model
//!
//! A variant gets a [`Timeline`], and notes for each of its operations when the host begins and ends to enqueue it, and when
//! the stream begins and ends it. For the stream it enqueues a [moment](FacesDevice::Moment) before the operation and one
//! after it. [`record`](super::variants::record) runs [`SHARES`] shares without notes, then as many with them, verifies the
//! result, and makes [`Span`]s of the notes.
//!
//! | lane | spans |
//! |---|---|
//! | [`Host`](Lane::Host) | enqueueing an operation, launching a graph, waiting for a stream |
//! | [`Stream`](Lane::Stream) | `pack`, `exchange`, `unpack` |
//! | [`Compute`](Lane::Compute) | `compute`, on the second stream |
//!
//! All times of a rank and variant begin at one *base*: a moment on the idle stream that the host waited for. Times of
//! streams are by the moments' own clock. The base ties the host's clock to it, since it happened between two looks at the
//! host's clock: [`Span::within_us`] is the possible error of host times. Each rank has a base of its own.
//!
//! For `st-graph` and `st-strided-graph` one graph has all the shares, since a recorded moment has only one time.
//!
//! The moments are work, too: on a GPU each is an event, which takes two microseconds or more. So this makes pictures, and
//! no figures.
//!
//! # Failures
//!
//! An error of the library, a wrong result, and a moment that never came are errors of [`record`](super::variants::record).

use super::device::FacesDevice;
use super::params::{Counts, Variant};
use super::schedule::Exchange;
use super::verify::Verifier;
use crate::results::files::{self, FileError};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::Instant;
use tidegate_core::{Error, Result};

/// How many shares are recorded.
pub const SHARES: u64 = 6;
/// The counts of a run that is recorded.
pub const COUNTS: Counts = Counts {
    nk: 1,
    nj: 1,
    ni: SHARES,
};
/// How often the base is taken; the tightest counts.
const BASES: usize = 16;

/// Which thread or stream of a rank does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// On the calling thread.
    Host,
    /// On the stream that packs, exchanges and unpacks.
    Stream,
    /// On the second stream.
    Compute,
}

/// Something that took a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The rank that did it.
    pub rank: usize,
    /// The variant that was running.
    pub variant: Variant,
    /// The number of the share, from 0; a graph's launch belongs to the first share.
    pub share: u64,
    /// The thread or stream that did it.
    pub lane: Lane,
    /// The name of the operation, as the chart shows it.
    pub what: String,
    /// When it began, in microseconds after the rank's base.
    pub begin_us: f64,
    /// When it ended, in microseconds after the rank's base.
    pub end_us: f64,
    /// How far off the two may be, on the host's lane.
    pub within_us: Option<f64>,
}

/// Notes of one rank and variant.
pub struct Timeline<D: FacesDevice> {
    on: Cell<bool>,
    /// In a capture, the host's work is no part of a share.
    capturing: Cell<bool>,
    share: Cell<Option<u64>>,
    base: RefCell<Option<Base<D>>>,
    notes: RefCell<Vec<Note<D>>>,
}

struct Base<D: FacesDevice> {
    moment: D::Moment,
    /// The host's clock before and after it.
    host: (Instant, Instant),
}

struct Note<D: FacesDevice> {
    share: u64,
    lane: Lane,
    what: &'static str,
    when: When<D>,
}

enum When<D: FacesDevice> {
    Host(Instant, Instant),
    Stream(D::Moment, D::Moment),
}

/// An operation that has begun.
pub(super) struct Begun<D: FacesDevice> {
    moment: D::Moment,
    host: Instant,
}

impl<D: FacesDevice> Timeline<D> {
    /// Makes a timeline on which nothing has been noted yet.
    pub(crate) fn new() -> Self {
        Timeline {
            on: Cell::new(false),
            capturing: Cell::new(false),
            share: Cell::new(None),
            base: RefCell::new(None),
            notes: RefCell::default(),
        }
    }

    /// Begins to note, from share 0 on.
    pub(super) fn start(&self, capturing: bool) {
        self.on.set(true);
        self.capturing.set(capturing);
        self.share.set(None);
    }

    pub(super) fn stop(&self) {
        self.on.set(false);
    }

    /// Later notes belong to the next share.
    pub(super) fn next_share(&self) {
        if self.on.get() {
            self.share
                .set(Some(self.share.get().map_or(0, |share| share + 1)));
        }
    }

    /// An operation begins; `moment` enqueues one.
    pub(super) fn begin(
        &self,
        moment: impl FnOnce() -> Result<D::Moment>,
    ) -> Result<Option<Begun<D>>> {
        if !self.on.get() {
            return Ok(None);
        }
        let moment = moment()?;
        Ok(Some(Begun {
            moment,
            host: Instant::now(),
        }))
    }

    /// It has been enqueued.
    pub(super) fn end(
        &self,
        begun: Option<Begun<D>>,
        lane: Lane,
        what: &'static str,
        moment: impl FnOnce() -> Result<D::Moment>,
    ) -> Result<()> {
        let Some(Begun { moment: from, host }) = begun else {
            return Ok(());
        };
        let now = Instant::now();
        let to = moment()?;
        if !self.capturing.get() {
            self.note(Lane::Host, what, When::Host(host, now));
        }
        self.note(lane, what, When::Stream(from, to));
        Ok(())
    }

    /// Notes work of the host.
    pub(super) fn on_host<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        if self.on.get() && !self.capturing.get() {
            self.note(Lane::Host, what, When::Host(begin, Instant::now()));
        }
        result
    }

    fn note(&self, lane: Lane, what: &'static str, when: When<D>) {
        let share = self.share.get().unwrap_or(0);
        self.notes.borrow_mut().push(Note {
            share,
            lane,
            what,
            when,
        });
    }

    /// Takes the base, on a stream that is idle: `moment` enqueues a moment there, `wait` waits for it.
    pub(super) fn take_base(
        &self,
        moment: impl Fn() -> Result<D::Moment>,
        wait: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut best: Option<Base<D>> = None;
        for _ in 0..BASES {
            let before = Instant::now();
            let moment = moment()?;
            wait()?;
            let host = (before, Instant::now());
            let width = |(from, to): (Instant, Instant)| to - from;
            if best
                .as_ref()
                .is_none_or(|best| width(host) < width(best.host))
            {
                best = Some(Base { moment, host });
            }
        }
        *self.base.borrow_mut() = best;
        Ok(())
    }

    /// All that was noted, once everything is over.
    fn spans(&self, rank: usize, variant: Variant) -> Result<Vec<Span>> {
        let base = self.base.borrow();
        let Some(base) = &*base else {
            return Err(Error::other("the timeline has no base"));
        };
        let (before, after) = base.host;
        let within = (after - before).as_secs_f64() * 0.5e6;
        // Before the base, times are negative.
        let host = |at: Instant| match at.checked_duration_since(before) {
            Some(later) => later.as_secs_f64() * 1e6 - within,
            None => -((before - at).as_secs_f64() * 1e6) - within,
        };
        let stream = |at: &D::Moment| {
            let never = || Error::other("a moment of the timeline never came");
            D::us_between(&base.moment, at)?.ok_or_else(never)
        };
        let notes = self.notes.borrow();
        let span = |note: &Note<D>| {
            let (begin_us, end_us, within_us) = match &note.when {
                When::Host(from, to) => (host(*from), host(*to), Some(within)),
                When::Stream(from, to) => (stream(from)?, stream(to)?, None),
            };
            Ok(Span {
                rank,
                variant,
                share: note.share,
                lane: note.lane,
                what: note.what.to_owned(),
                begin_us,
                end_us,
                within_us,
            })
        };
        notes.iter().map(span).collect()
    }
}

/// Lets a variant do [`SHARES`] shares that are noted, after as many that are not; collective.
pub(super) fn record<D: FacesDevice, X: Exchange<Error = Error>>(
    timeline: &Timeline<D>,
    verifier: &Verifier,
    variant: Variant,
    exchange: &mut X,
) -> Result<Vec<Span>> {
    exchange.build()?;
    exchange.initialise()?;
    exchange.shares(SHARES)?;
    exchange.finish()?;
    exchange.initialise()?;
    timeline.start(false);
    exchange.shares(SHARES)?;
    timeline.on_host("wait", || exchange.finish())?;
    timeline.stop();
    let mut verdict = Err(Error::other("the block was not inspected"));
    exchange.inspect(&mut |u| {
        let seen = verifier.check(u);
        verdict = match seen.passed() {
            true => Ok(()),
            false => Err(Error::other(format!("the result is wrong: {seen}"))),
        };
    })?;
    verdict?;
    timeline.spans(verifier.geometry().rank(), variant)
}

/// Writes the spans of all ranks as a JSON array with one object a line.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write(path: &Path, spans: &[Span]) -> std::result::Result<(), FileError> {
    files::write(path, &files::to_json(spans))
}

#[cfg(test)]
mod tests;
