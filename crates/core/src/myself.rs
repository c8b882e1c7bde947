//! A rank that is its own origin: its halves on one stream must not wait for work that can come only behind the wait.
//!
//! # Model
//!
//! A stream executes in order. A complete towards this rank itself waits for a post. If the inbox is at home on the
//! same stream, and the post has not been enqueued, it can come only behind the complete, which then never ends. In the
//! same way, a wait for this rank itself needs a complete before it, if the outbox is at home on the same stream. And
//! when the two halves come together by a hand-off, neither may be waiting for the other, because all later work comes
//! behind both streams. If the other half is at home on another stream, nothing is refused: it may do its part at any
//! time, unless it has been dropped.
//!
//! A half that goes to another stream while it waits leaves that wait behind. The other half must not come to that
//! stream before it has done what is waited for. So the streams that were left are kept, each with the number that ends
//! its wait.
//!
//! Four numbers suffice, for one buffer and for two. They count posts (including the exposures given in advance),
//! opens, completes, and waits. Each open uses a post, and each wait uses a complete. (An access epoch opens and
//! completes in one call, unless kernels put in between.) All of them count what has been *enqueued*.
//!
//! # Recordings
//!
//! A recorded act does nothing yet, and what it needs may be enqueued eagerly before the replay. So recorded acts are
//! noted in a [`Script`], and each replay checks and counts them, for all its repetitions.
//!
//! A half that was lent to the step is at the same places in each replay. The place of a half that was not lent is
//! looked up at the replay.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::Awaited;
use tidegate_hal::device::{Device, Reclaim as _};

use crate::error::{EpochError, Error, Result};
use crate::ground::{ReclaimOf, lock};
use crate::half_kind::HalfKind;
use crate::world::Watched;

/// What the two halves of a window know of each other, if this rank is its own origin there.
///
/// Each number is changed by one half only, and never falls. Relaxed accesses suffice. Refusals concern two halves that
/// are at home on one stream. Such halves are in the hands of one thread, which got both with everything that was done
/// to them before. (If a half is elsewhere, a difference of the numbers may be inconsistent, but it is not used.) About
/// a stream that was left, only one question is asked: has this half done enough? The thread that asks holds the half,
/// and the answer is one number, which this half alone changes. Only the news that a half was dropped may come from
/// another thread, together with everything that the half has done.
pub(crate) struct Myself<D: Device> {
    window: Arc<Watched<D>>,
    inbox: Home<D>,
    outbox: Home<D>,
    /// How many exposures the inbox has given.
    posts: AtomicU64,
    /// How many of the exposures the outbox has used.
    opens: AtomicU64,
    /// How many completions the outbox has given.
    completes: AtomicU64,
    /// How many of the completions the inbox has used.
    waits: AtomicU64,
}

/// Where a half is at home.
struct Home<D: Device> {
    /// The number of the half.
    id: u64,
    /// The number of the stream, or [`GONE`].
    stream: AtomicUsize,
    /// The streams that the half left while it waited there.
    left: Mutex<Vec<Left<D>>>,
}

/// The place of a half that was dropped.
const GONE: usize = usize::MAX;

/// A stream on which a half has left a wait.
struct Left<D: Device> {
    /// The stream. As long as this is held, no other stream gets its number.
    stream: Weak<ReclaimOf<D>>,
    /// How many posts, or completes, end that wait.
    ends_at: u128,
}

/// An access epoch that is enqueued whole.
pub(crate) const ACCESS: [Act; 2] = [Act::Open, Act::Complete];

/// An act towards this rank itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Post,
    /// Waits for a post. The puts of the epoch follow.
    Open,
    /// Completes the epoch.
    Complete,
    Wait,
    /// The half comes to another stream.
    Come(HalfKind),
}

impl Act {
    /// The half that could still do what is missing, if it is at home elsewhere.
    fn other(self) -> Option<HalfKind> {
        match self {
            Act::Post | Act::Complete => None,
            Act::Open | Act::Come(HalfKind::Outbox) => Some(HalfKind::Inbox),
            Act::Wait | Act::Come(HalfKind::Inbox) => Some(HalfKind::Outbox),
        }
    }

    /// Whether the [other](Act::other) half, which is at home `at`, could do what is missing for this act only behind
    /// it on stream `home`, or not at all. (Coming to a stream is not a wait, so a half that is gone does not matter
    /// then.)
    fn is_in_vain(self, at: usize, home: usize) -> bool {
        at == home || (at == GONE && !matches!(self, Act::Come(_)))
    }
}

/// The numbers of [`Myself`], or a change to them.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    posts: u128,
    opens: u128,
    completes: u128,
    waits: u128,
}

impl Count {
    /// Adds an act.
    fn act(&mut self, act: Act) {
        match act {
            Act::Post => self.posts += 1,
            Act::Open => self.opens += 1,
            Act::Complete => self.completes += 1,
            Act::Wait => self.waits += 1,
            Act::Come(_) => {}
        }
    }

    /// The change that `times` such changes make.
    fn times(self, times: u64) -> Count {
        let times = u128::from(times);
        Count {
            posts: self.posts * times,
            opens: self.opens * times,
            completes: self.completes * times,
            waits: self.waits * times,
        }
    }

    /// What a half waits for, if it does.
    fn awaited(self, half: HalfKind) -> Option<Awaited> {
        match half {
            HalfKind::Inbox => (self.completes < self.waits).then_some(Awaited::Completion),
            HalfKind::Outbox => (self.posts < self.opens).then_some(Awaited::Exposure),
        }
    }

    /// What an act that has been counted still waits for.
    fn missing(self, act: Act) -> Option<Awaited> {
        match act {
            Act::Post | Act::Complete => None,
            Act::Open => self.awaited(HalfKind::Outbox),
            Act::Wait => self.awaited(HalfKind::Inbox),
            Act::Come(_) => self
                .awaited(HalfKind::Outbox)
                .or(self.awaited(HalfKind::Inbox)),
        }
    }

    /// The number of posts, or completes, at which a half no longer waits.
    fn ends_at(self, half: HalfKind) -> u128 {
        match half {
            HalfKind::Inbox => self.waits,
            HalfKind::Outbox => self.opens,
        }
    }

    /// Whether a wait that a half has left, and that ends at `ends_at`, still goes on.
    fn waits(self, half: HalfKind, ends_at: u128) -> bool {
        let there = match half {
            HalfKind::Inbox => self.completes,
            HalfKind::Outbox => self.posts,
        };
        there < ends_at
    }
}

impl<D: Device> Myself<D> {
    /// For a window whose halves have these numbers and are both made on `home`, and whose inbox has given so many
    /// exposures in advance.
    pub(crate) fn new(
        window: &Arc<Watched<D>>,
        [inbox, outbox]: [u64; 2],
        home: usize,
        early: u8,
    ) -> Self {
        let at_home = |id| Home {
            id,
            stream: AtomicUsize::new(home),
            left: Mutex::default(),
        };
        Myself {
            window: window.clone(),
            inbox: at_home(inbox),
            outbox: at_home(outbox),
            posts: AtomicU64::new(early.into()),
            opens: AtomicU64::new(0),
            completes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    fn home(&self, half: HalfKind) -> &Home<D> {
        match half {
            HalfKind::Inbox => &self.inbox,
            HalfKind::Outbox => &self.outbox,
        }
    }

    /// Notes where a half is now. Its next acts happen there, whatever its old stream has still to do.
    pub(crate) fn moved(&self, half: HalfKind, home: &Arc<ReclaimOf<D>>) {
        self.home(half)
            .stream
            .store(Arc::as_ptr(home).addr(), Relaxed);
    }

    /// Notes that a half leaves a stream, on which it may be waiting.
    pub(crate) fn leaves(&self, half: HalfKind, stream: &Arc<ReclaimOf<D>>) {
        let count = self.count();
        let ends_at = count.ends_at(half);
        // Nothing waits on a stream that has failed.
        if count.waits(half, ends_at) && stream.fault().is_none() {
            let stream = Arc::downgrade(stream);
            let mut left = lock(&self.home(half).left);
            left.retain(|one| !one.stream.ptr_eq(&stream) && count.waits(half, one.ends_at));
            left.push(Left { stream, ends_at });
        }
    }

    /// Notes that a half was dropped while it was at home on a stream.
    pub(crate) fn dropped(&self, half: HalfKind, stream: &Arc<ReclaimOf<D>>) {
        self.leaves(half, stream);
        self.home(half).stream.store(GONE, Release);
    }

    /// Where the halves are. This must be read before the counts: then the counts include everything that a dropped
    /// half has done.
    fn homes(&self) -> [usize; 2] {
        [HalfKind::Inbox, HalfKind::Outbox].map(|half| self.home(half).stream.load(Acquire))
    }

    /// Whether what is missing for an act could be done only behind it, on this stream.
    fn is_in_vain(&self, act: Act, (homes, home): ([usize; 2], usize), count: Count) -> bool {
        let Some(half) = act.other() else {
            return false;
        };
        act.is_in_vain(homes[half as usize], home)
            || (matches!(act, Act::Come(_)) && self.has_left_a_wait(half, home, count))
    }

    /// Whether a half that has moved on still waits on this stream.
    fn has_left_a_wait(&self, half: HalfKind, home: usize, count: Count) -> bool {
        let left = lock(&self.home(half).left);
        let mut there = left.iter().filter(|one| one.stream.as_ptr().addr() == home);
        there.any(|one| count.waits(half, one.ends_at))
    }

    fn count(&self) -> Count {
        Count {
            posts: self.posts.load(Relaxed).into(),
            opens: self.opens.load(Relaxed).into(),
            completes: self.completes.load(Relaxed).into(),
            waits: self.waits.load(Relaxed).into(),
        }
    }

    fn add(&self, change: Count) {
        let add = |to: &AtomicU64, more: u128| {
            if more != 0 {
                to.fetch_add(more as u64, Relaxed);
            }
        };
        add(&self.posts, change.posts);
        add(&self.opens, change.opens);
        add(&self.completes, change.completes);
        add(&self.waits, change.waits);
    }

    /// Refuses an act, unless the window is revoked: then every wait ends.
    fn refuse(&self, awaited: Awaited) -> Result<()> {
        if self.window.usable().is_err() {
            return Ok(());
        }
        Err(Error::Epoch(EpochError::SelfDeadlock {
            window: self.window.named(),
            awaited,
        }))
    }

    /// Refuses acts that would wait for ever if they were enqueued now, in this order, on the stream with this number.
    /// It counts nothing.
    pub(crate) fn admit_on(&self, home: usize, acts: &[Act]) -> Result<()> {
        let at = (self.homes(), home);
        let mut count = self.count();
        for act in acts {
            count.act(*act);
            if let Some(awaited) = count.missing(*act)
                && self.is_in_vain(*act, at, count)
            {
                self.refuse(awaited)?;
            }
        }
        Ok(())
    }

    /// Refuses to let a half come to the stream with the number `home`, if one of the two streams would then wait for
    /// ever. It might wait for an act of the other half, on that stream, or for one of this half. `alive` says for the
    /// stream that it leaves, and for the stream that it comes to, whether anything waits there. (Nothing waits on a
    /// stream that has failed.)
    pub(crate) fn admit_coming_to(
        &self,
        half: HalfKind,
        home: usize,
        alive: [bool; 2],
    ) -> Result<()> {
        let homes = self.homes();
        let (count, other) = (self.count(), half.other());
        let beside = homes[other as usize] == home;
        let own = count.awaited(half).filter(|_| alive[0] && beside);
        let theirs = count
            .awaited(other)
            .filter(|_| alive[1] && (beside || self.has_left_a_wait(other, home, count)));
        own.or(theirs)
            .map_or(Ok(()), |awaited| self.refuse(awaited))
    }

    /// Counts acts that have been enqueued.
    pub(crate) fn count_acts(&self, acts: &[Act]) {
        let mut change = Count::default();
        acts.iter().for_each(|act| change.act(*act));
        self.add(change);
    }

    /// The acts that were recorded on the stream with this number.
    pub(crate) fn recorded<'a>(
        self: &'a Arc<Self>,
        home: usize,
        acts: &'a [Act],
    ) -> impl Iterator<Item = RecordedAct<D>> + 'a {
        let homes = self.homes();
        acts.iter().map(move |act| {
            let here = |half| homes[half as usize] == home;
            RecordedAct {
                myself: self.clone(),
                act: *act,
                home,
                together: act.other().is_some_and(here),
            }
        })
    }
}

/// An act that was recorded.
pub(crate) struct RecordedAct<D: Device> {
    myself: Arc<Myself<D>>,
    act: Act,
    /// The stream that it was recorded on.
    home: usize,
    /// Whether the other half was at home on the same stream.
    together: bool,
}

/// What a recording does towards this rank itself, window by window.
pub(crate) struct Script<D: Device>(Vec<WindowActs<D>>);

/// The acts of one window, in order.
struct WindowActs<D: Device> {
    myself: Arc<Myself<D>>,
    acts: Vec<Scripted>,
    /// The change that all acts together make.
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
    /// If it is at home on this stream at the replay, still waits there, or is gone.
    If(usize),
}

impl<D: Device> Script<D> {
    /// Sorts recorded acts by windows. The number of each one tells their order. `lent` returns whether a half was
    /// lent.
    pub(crate) fn new(mut noted: Vec<(u64, RecordedAct<D>)>, lent: impl Fn(u64) -> bool) -> Self {
        noted.sort_by_key(|(number, _)| *number);
        let mut parts: Vec<WindowActs<D>> = Vec::new();
        for (_, recorded) in noted {
            let RecordedAct {
                myself,
                act,
                home,
                together,
            } = recorded;
            let beside = match act.other() {
                None => Beside::Never,
                Some(half) if !lent(myself.home(half).id) => Beside::If(home),
                Some(_) if together => Beside::Always,
                Some(_) => Beside::Never,
            };
            let same = |part: &WindowActs<D>| Arc::ptr_eq(&part.myself, &myself);
            let index = parts.iter().position(same).unwrap_or_else(|| {
                parts.push(WindowActs {
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

    /// Refuses `times` replays if one of them would wait for ever.
    pub(crate) fn admit(&self, times: u64) -> Result<()> {
        let Some(last) = times.checked_sub(1) else {
            return Ok(());
        };
        self.0.iter().try_for_each(|part| part.admit(last))
    }

    /// Counts `times` replays.
    pub(crate) fn done(&self, times: u64) {
        for part in &self.0 {
            part.myself.add(part.change.times(times));
        }
    }
}

impl<D: Device> WindowActs<D> {
    /// Refuses if the first replay would wait for ever, or the one after `last` others. From each replay to the next
    /// the counts change by the same amount. So no replay between is worse than both of these.
    fn admit(&self, last: u64) -> Result<()> {
        let homes = self.myself.homes();
        let first = self.myself.count();
        let more = self.change.times(last);
        let later = Count {
            posts: first.posts + more.posts,
            opens: first.opens + more.opens,
            completes: first.completes + more.completes,
            waits: first.waits + more.waits,
        };
        for mut count in [first, later] {
            for Scripted { act, beside } in &self.acts {
                count.act(*act);
                let Some(awaited) = count.missing(*act) else {
                    continue;
                };
                let in_vain = match *beside {
                    Beside::Always => true,
                    Beside::Never => false,
                    Beside::If(home) => self.myself.is_in_vain(*act, (homes, home), count),
                };
                if in_vain {
                    self.myself.refuse(awaited)?;
                }
            }
        }
        Ok(())
    }
}
