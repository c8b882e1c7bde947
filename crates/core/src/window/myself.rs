//! A rank that is its own origin: its halves on one stream must not wait for what can only come behind that wait.
//!
//! # Model
//!
//! A stream executes in order. A complete towards this rank itself waits for a post; if the inbox is at home on the
//! same stream, a post that has not been enqueued can only come behind the complete, which never ends then. In the
//! same way a wait for this rank itself needs a complete in front of it, if the outbox is at home on the same stream.
//! And where the two halves come together by a hand-off, neither may be waiting for the other already, for what comes
//! later comes behind both streams. If the other half is at home on another stream nothing is refused: it may do its
//! part at any time.
//!
//! Two numbers say it all, whatever the buffers: how many posts are there that no complete has used (the exposures
//! given in advance count), and how many completes that no wait has used. Both are of what has been *enqueued*.
//!
//! # Recordings
//!
//! What is recorded does nothing yet, and what it needs may be enqueued eagerly before it is replayed. So it is noted,
//! and a [`Script`] of it is checked and counted at each replay, for all its times.
//!
//! A half that was lent to the step is in the same places at each replay; where one is that was not lent is looked at
//! then.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use tidegate_hal::batch::Awaited;
use tidegate_hal::device::{Device, Stream as _};

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::world::Watched;

/// What the two halves of a window know of each other, if this rank is its own origin there.
///
/// Relaxed accesses suffice: what is refused is refused for two halves that are at home on one stream, hence in the
/// hands of one thread, which has got both with all that was done to them before. Of halves elsewhere only sums are
/// kept.
pub(crate) struct Myself<D: Device> {
    window: Arc<Watched<D>>,
    inbox: Place,
    outbox: Place,
    /// Posts that no complete has used.
    exposures: AtomicI64,
    /// Completes that no wait has used.
    completions: AtomicI64,
}

/// Where a half is.
struct Place {
    /// The half's number.
    id: u64,
    /// The number of the stream that it is at home on.
    home: AtomicUsize,
}

/// A half of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Inbox,
    Outbox,
}

/// What is done towards this rank itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Post,
    Complete,
    Wait,
    /// This half comes to another stream.
    Come(Side),
}

impl Act {
    /// The half that could still do what is missing, if it is at home elsewhere.
    fn other(self) -> Option<Side> {
        match self {
            Act::Post => None,
            Act::Complete | Act::Come(Side::Outbox) => Some(Side::Inbox),
            Act::Wait | Act::Come(Side::Inbox) => Some(Side::Outbox),
        }
    }
}

/// What there is: [`Myself`]'s two numbers, or how they change.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    exposures: i128,
    completions: i128,
}

impl Count {
    /// Changes it as an act does.
    fn act(&mut self, act: Act) {
        match act {
            Act::Post => self.exposures += 1,
            Act::Complete => {
                self.exposures -= 1;
                self.completions += 1;
            }
            Act::Wait => self.completions -= 1,
            Act::Come(_) => {}
        }
    }

    /// What of it is less than nothing: that is awaited in vain.
    fn missing(self, act: Act) -> Option<Awaited> {
        let of_inbox = matches!(act, Act::Complete | Act::Come(_)) && self.exposures < 0;
        let of_outbox = matches!(act, Act::Wait | Act::Come(_)) && self.completions < 0;
        match (of_inbox, of_outbox) {
            (true, _) => Some(Awaited::Exposure),
            (_, true) => Some(Awaited::Completion),
            _ => None,
        }
    }
}

/// A number for a stream that is not another's while it lives.
pub(crate) fn home_number<D: Device>(stream: &Stream<'_, D>) -> usize {
    Arc::as_ptr(stream.raw().reclaim()).addr()
}

impl<D: Device> Myself<D> {
    /// Of a window whose halves, with these numbers, are both made on `home`, and whose inbox has given so many
    /// exposures in advance.
    pub(super) fn new(
        window: &Arc<Watched<D>>,
        [inbox, outbox]: [u64; 2],
        home: usize,
        early: u8,
    ) -> Self {
        let place = |id| Place {
            id,
            home: AtomicUsize::new(home),
        };
        Myself {
            window: window.clone(),
            inbox: place(inbox),
            outbox: place(outbox),
            exposures: AtomicI64::new(early.into()),
            completions: AtomicI64::new(0),
        }
    }

    fn place(&self, side: Side) -> &Place {
        match side {
            Side::Inbox => &self.inbox,
            Side::Outbox => &self.outbox,
        }
    }

    /// Notes where a half is now: what it does next it does there, whatever its old stream has still to do.
    pub(crate) fn moved(&self, side: Side, home: usize) {
        self.place(side).home.store(home, Relaxed);
    }

    fn count(&self) -> Count {
        Count {
            exposures: self.exposures.load(Relaxed).into(),
            completions: self.completions.load(Relaxed).into(),
        }
    }

    fn add(&self, change: Count, times: u64) {
        let add = |to: &AtomicI64, each: i128| {
            // An exchange changes nothing.
            if each != 0 {
                to.fetch_add((each as i64).wrapping_mul(times as i64), Relaxed);
            }
        };
        add(&self.exposures, change.exposures);
        add(&self.completions, change.completions);
    }

    /// Refuses it, unless the window is revoked: then all that waits for it ends.
    fn refuse(&self, awaited: Awaited) -> Result<()> {
        if self.window.usable().is_err() {
            return Ok(());
        }
        Err(Error::SelfDeadlock {
            window: self.window.name.clone(),
            awaited,
        })
    }

    /// Refuses what would wait for ever if it were enqueued here now, in this order; counts nothing. What is recorded
    /// is refused by the replay.
    pub(crate) fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        if stream.raw().capturing() {
            return Ok(());
        }
        let (mut count, home) = (self.count(), home_number(stream));
        for act in acts {
            count.act(*act);
            let here = |side| self.place(side).home.load(Relaxed) == home;
            if act.other().is_some_and(here)
                && let Some(awaited) = count.missing(*act)
            {
                self.refuse(awaited)?;
            }
        }
        Ok(())
    }

    /// Counts what has been enqueued; notes what has been recorded.
    pub(crate) fn done(self: &Arc<Self>, stream: &Stream<'_, D>, acts: &[Act]) {
        if !stream.raw().capturing() {
            let mut change = Count::default();
            acts.iter().for_each(|act| change.act(*act));
            self.add(change, 1);
            return;
        }
        let home = home_number(stream);
        for act in acts {
            let here = |side| self.place(side).home.load(Relaxed) == home;
            stream.note_act(Recorded {
                myself: self.clone(),
                act: *act,
                home,
                together: act.other().is_some_and(here),
            });
        }
    }
}

/// An act that was recorded.
pub(crate) struct Recorded<D: Device> {
    myself: Arc<Myself<D>>,
    act: Act,
    /// The stream that it was recorded on.
    home: usize,
    /// Whether the other half was at home there, too.
    together: bool,
}

/// What a recording does towards this rank itself, window by window.
pub(crate) struct Script<D: Device>(Vec<Part<D>>);

/// The acts of one window, in order.
struct Part<D: Device> {
    myself: Arc<Myself<D>>,
    acts: Vec<Scripted>,
    /// What all of them change.
    change: Count,
}

struct Scripted {
    act: Act,
    beside: Beside,
}

/// Whether the other half is at home on the stream of an act.
#[derive(Clone, Copy)]
enum Beside {
    Always,
    Never,
    /// If it is at home on this stream when the recording is replayed.
    If(Side, usize),
}

impl<D: Device> Script<D> {
    /// Sorts what was noted (with a number that says in which order) by windows. `lent` says which halves were lent.
    pub(crate) fn new(mut noted: Vec<(u64, Recorded<D>)>, lent: impl Fn(u64) -> bool) -> Self {
        noted.sort_by_key(|(number, _)| *number);
        let mut parts: Vec<Part<D>> = Vec::new();
        for (_, recorded) in noted {
            let Recorded {
                myself,
                act,
                home,
                together,
            } = recorded;
            let beside = match act.other() {
                None => Beside::Never,
                Some(side) if !lent(myself.place(side).id) => Beside::If(side, home),
                Some(_) if together => Beside::Always,
                Some(_) => Beside::Never,
            };
            let same = |part: &Part<D>| Arc::ptr_eq(&part.myself, &myself);
            let index = parts.iter().position(same).unwrap_or_else(|| {
                parts.push(Part {
                    myself,
                    acts: Vec::new(),
                    change: Count::default(),
                });
                parts.len() - 1
            });
            parts[index].change.act(act);
            parts[index].acts.push(Scripted { act, beside });
        }
        Script(parts)
    }

    /// Refuses so many replays if one of them would wait for ever.
    pub(crate) fn admit(&self, times: u64) -> Result<()> {
        let Some(last) = times.checked_sub(1) else {
            return Ok(());
        };
        self.0.iter().try_for_each(|part| part.admit(last))
    }

    /// Counts so many replays.
    pub(crate) fn done(&self, times: u64) {
        for part in &self.0 {
            part.myself.add(part.change, times);
        }
    }
}

impl<D: Device> Part<D> {
    /// Refuses it if the first replay would wait for ever, or the one after `last` others. What changes from one to the
    /// next does so by the same amount each time: those between are no worse than the worse of these two.
    fn admit(&self, last: u64) -> Result<()> {
        let first = self.myself.count();
        let after = |each: i128| each * i128::from(last);
        let later = Count {
            exposures: first.exposures + after(self.change.exposures),
            completions: first.completions + after(self.change.completions),
        };
        for mut count in [first, later] {
            for Scripted { act, beside } in &self.acts {
                count.act(*act);
                let together = match *beside {
                    Beside::Always => true,
                    Beside::Never => false,
                    Beside::If(side, home) => self.myself.place(side).home.load(Relaxed) == home,
                };
                if together && let Some(awaited) = count.missing(*act) {
                    self.myself.refuse(awaited)?;
                }
            }
        }
        Ok(())
    }
}
