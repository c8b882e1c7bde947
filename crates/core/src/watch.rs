//! Looks after waits that last long.
//!
//! # Model
//!
//! One thread a rank looks at what the rank's streams wait for, and its program in a collective call, a few times a
//! second. A wait of a window with a *limit* that has passed revokes the window. A wait that lasts longer than the
//! *deadline* (30 s at first) is *reported*, not failed: an imbalanced program is not an error. The lowest rank that is
//! still in the job, the *reporter*, then asks all ranks what they wait for. It makes of the answers a wait-for graph that
//! names its cycles (`graph.rs`), prints it (`say`), and sends it to all ranks
//! ([`World::last_report`](crate::World::last_report)).
//!
//! All ranks hear of ends in one order, so they agree on the reporter. A rank that was promised a report and hears that
//! the reporter is gone asks the next one.
//!
//! What a rank waits for is what its streams wait for, and what its program does: a collective call (opening a window, a
//! gather) takes all ranks, and a call on a stream (`synchronize`, a launch for which the driver has no room) lasts as
//! long as the stream does not go on. Such a call counts from when the stream was last seen to go on.
//!
//! Answers and reports are messages, which have a greatest length. So neither says everything where that is much; but
//! each says then that there is more, and nothing is concluded from what it does not say.

mod graph;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tidegate_hal::batch::Tag;
use tidegate_hal::control::{Control, ControlError, Packet};
use tidegate_hal::device::{Reclaim, Stand, Work};
use tidegate_hal::ids::WindowId;
use tidegate_hal::limits::WithLimit;
use tidegate_hal::site::CallSite;
use tidegate_hal::{say, tell};

use crate::error::{Cause, Error, Result};
use crate::ground::{ending, lock, shortened};
use crate::message::{Answer, At, Calling, Enqueued, Inside, Message, Waiting, WatchMessage};
use crate::side::Side;

/// How often waits are looked at, at most.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// How long the reporter waits for the answers of the others.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of how many windows, of the last ones that it remembers, a rank says that it has dropped them: an answer is a message.
const DROPPED: usize = 1000;
/// The most bytes of a name in an answer.
const NAME: usize = 200;
/// The most bytes of a place in a program, of which the end says most.
const PLACE: usize = 120;
/// The most waits, and the most streams at work, in an answer.
const LINES: usize = 1000;
/// The most calls on streams in an answer.
const CALLS: usize = 100;
/// How long a call has to last to be in an answer: shorter ones are the program at work.
const CALL: Duration = TICK.checked_div(2).expect("2 is not 0");
// A report, with what else is in its message.
const _: () = assert!(graph::MOST + 64 <= Packet::MAX_BYTES);

/// A rank, as its watch sees it.
pub(crate) trait Overseen: Send + Sync + 'static {
    /// What is known of its streams.
    type Stream: Reclaim;

    /// The state of its watch.
    fn watch(&self) -> &Watch;

    /// The way to the other ranks.
    fn control(&self) -> &dyn Control;

    /// Its streams that are alive, into a list that may be used again.
    fn streams(&self, into: &mut Vec<Arc<Self::Stream>>);

    /// The same, with their names.
    fn named_streams(&self) -> Vec<(String, Arc<Self::Stream>)>;

    /// Tells the others if this stream has failed by a kernel, though nobody here may have asked it yet.
    fn look_at_fault(&self, stream: &Arc<Self::Stream>);

    /// Where peers' NICs add to words of this rank, a poison can be lost to an add that is on its way; it comes to its
    /// end soon, and then the next one is not.
    fn poison_again(&self);

    /// Whether its program has been in a collective call for so long.
    fn is_in_a_call_for(&self, long: Duration) -> bool;

    /// How many exchanges it has come to, and the collective call that its program is in.
    fn progress(&self) -> (u64, Option<Inside>);

    /// The name of a window.
    fn window_name(&self, id: WindowId) -> Arc<str>;

    /// Where its program has last enqueued such a wait, and whether others of it in other places.
    fn last_wait(&self, tag: Tag) -> Option<(CallSite, bool)>;

    /// How long a wait of a window may last, if there is a limit.
    fn limit(&self, window: WindowId) -> Option<Duration>;

    /// A wait of a window, for a peer, has lasted longer than that: the window is revoked.
    fn limit_has_passed(&self, window: WindowId, peer: usize, limit: Duration);

    /// The rank that reports long waits: the lowest of those that have not ended.
    fn reporter(&self) -> usize;

    /// The ranks that have ended, and how.
    fn gone(&self) -> BTreeMap<usize, Cause>;

    /// The halves that its program has dropped, of the last `most` windows that are remembered.
    fn dropped(&self, most: usize) -> Vec<(WindowId, Side)>;
}

pub(crate) struct Watch {
    state: Mutex<State>,
    /// Whether a report is being printed.
    speaks: Arc<AtomicBool>,
}

struct State {
    stop: bool,
    deadline: Duration,
    asked: Asked,
    /// The last report.
    report: Option<String>,
    /// On the reporter: the round of questions under way.
    round: Option<Round>,
    /// The last round of questions that this rank knows of; 0 before the first.
    rounds: u32,
}

/// Whether a report that is to name this rank's waits was asked for, and when.
enum Asked {
    Never,
    /// It has not come.
    Promised(Instant),
    Heard(Instant),
}

impl State {
    /// Whether this rank should have a round of questions begun: one report a wait; and again if it lasts a deadline
    /// longer.
    fn is_due(&self) -> bool {
        match self.asked {
            Asked::Never => true,
            Asked::Promised(at) | Asked::Heard(at) => at.elapsed() >= self.deadline,
        }
    }

    /// Round `number` asks this rank what it waits for: that will be in the report, and needs no other.
    fn is_asked(&mut self, number: u32) {
        self.rounds = number;
        self.promise();
    }

    fn promise(&mut self) {
        self.asked = Asked::Promised(Instant::now());
    }

    fn heard(&mut self, report: String) {
        self.report = Some(report);
        if let Asked::Promised(at) = self.asked {
            self.asked = Asked::Heard(at);
        }
    }

    /// On the reporter: begins a round for a rank that knew of the first `known` ones, and gives its number. None if a later
    /// one has asked, or asks, that rank: the two have crossed, and a second report would say the same.
    fn begin(&mut self, known: u32, rank: usize, answer: Answer) -> Option<u32> {
        if self.round.is_some() || known != self.rounds {
            return None;
        }
        let number = self.rounds + 1;
        self.is_asked(number);
        self.round = Some(Round {
            number,
            until: Instant::now() + PATIENCE,
            answers: BTreeMap::from([(rank, answer)]),
        });
        Some(number)
    }
}

struct Round {
    number: u32,
    until: Instant,
    answers: BTreeMap<usize, Answer>,
}

impl Default for Watch {
    fn default() -> Self {
        let deadline = Duration::from_secs(30);
        let state = State {
            stop: false,
            deadline,
            asked: Asked::Never,
            report: None,
            round: None,
            rounds: 0,
        };
        Watch {
            state: Mutex::new(state),
            speaks: Arc::default(),
        }
    }
}

impl Watch {
    pub(crate) fn start<R: Overseen>(rank: &Arc<R>) -> Result<()> {
        let weak = Arc::downgrade(rank);
        std::thread::Builder::new()
            .name("tidegate-watch".into())
            .spawn(move || look(&weak))
            .map_err(|e| {
                let detail = WithLimit(&e).to_string();
                Error::Device(tidegate_hal::device::DeviceError::Exhausted {
                    what: "threads",
                    detail,
                })
            })?;
        Ok(())
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
    }

    pub(crate) fn last_report(&self) -> Option<String> {
        lock(&self.state).report.clone()
    }

    /// The reporter has ended: what it has promised is for the next one to do.
    pub(crate) fn reporter_gone(&self) {
        let mut state = lock(&self.state);
        if matches!(state.asked, Asked::Promised(_)) {
            state.asked = Asked::Never;
        }
    }

    pub(crate) fn set_deadline(&self, deadline: Duration) {
        lock(&self.state).deadline = deadline;
    }
}

fn look<R: Overseen>(weak: &Weak<R>) {
    // Used again each time: looking at what is in order allocates nothing.
    let mut streams = Vec::new();
    loop {
        // Not held while sleeping: the last holder of the world ends it.
        let Some(rank) = weak.upgrade() else { return };
        if lock(&rank.watch().state).stop {
            return;
        }
        rank.streams(&mut streams);
        tick(&*rank, &streams);
        rank.poison_again();
        streams.clear();
        drop(rank);
        std::thread::sleep(TICK);
    }
}

fn tick<R: Overseen>(rank: &R, streams: &[Arc<R::Stream>]) {
    let deadline = lock(&rank.watch().state).deadline;
    let mut expired = Vec::new();
    let mut overdue = rank.is_in_a_call_for(deadline);
    for stream in streams {
        rank.look_at_fault(stream);
        let call = stream.calls().look(stream.progress());
        overdue |= call.is_some_and(|(_, since, _)| since.elapsed() >= deadline);
        stream.look_at_blocked(&mut |blocked| {
            let elapsed = blocked.since.elapsed();
            overdue |= elapsed >= deadline;
            for (tag, _) in &blocked.on {
                if let Some(window) = tag.window
                    && let Some(limit) = rank.limit(window)
                    && elapsed >= limit
                {
                    expired.push((window, tag.peer as usize, limit));
                }
            }
        });
    }
    for (window, peer, limit) in expired {
        rank.limit_has_passed(window, peer, limit);
    }
    if overdue {
        let mut state = lock(&rank.watch().state);
        if state.is_due() {
            state.promise();
            let asked = state.rounds;
            drop(state);
            match rank.reporter() {
                reporter if reporter == rank.control().rank() => begin_round(rank, asked),
                reporter => send(rank, Some(&[reporter]), WatchMessage::Stuck { asked }),
            }
        }
    }
    end_round(rank);
}

fn send(rank: &impl Overseen, to: Option<&[usize]>, message: WatchMessage) {
    let message = Message::Watch(message).encode();
    heed(rank.control().notify(to, &message));
}

/// Says what was not said to others.
fn heed(sent: std::result::Result<(), ControlError>) {
    match sent {
        // The control plane's end is noticed elsewhere.
        Ok(()) | Err(ControlError::Closed(_)) => {}
        // Reports are a help, and their loss is not worth a failure. But who misses one is to find out why.
        Err(error) => tell(|| tracing::warn!("ranks were not told of long waits: {error}")),
    }
}

/// What this rank says when it is asked.
fn answer(rank: &impl Overseen) -> Answer {
    let name = |id| rank.window_name(id).to_string();
    let mut answer = look_at(&rank.named_streams(), name, |tag| rank.last_wait(tag));
    (answer.come, answer.inside) = rank.progress();
    answer.dropped = rank.dropped(DROPPED);
    brief(&mut answer);
    answer
}

/// What these streams wait for, in windows that are called so, or are at. `last` says where such a wait was last enqueued,
/// and whether others in other places, for devices that do not know.
fn look_at<R: Reclaim>(
    streams: &[(String, Arc<R>)],
    window: impl Fn(WindowId) -> String,
    last: impl Fn(Tag) -> Option<(CallSite, bool)>,
) -> Answer {
    let mut answer = Answer::default();
    for (name, stream) in streams {
        if let Some((call, since, site)) = stream.calls().look(stream.progress())
            && since.elapsed() >= CALL
        {
            answer.calls.push(Calling {
                stream: name.clone(),
                call: call.name().to_owned(),
                site: site.map(ToString::to_string),
                millis: since.elapsed().as_millis() as u64,
            });
        }
        let blocked = match stream.stand() {
            Stand::Through => continue,
            Stand::Works(work) => {
                let at = match work {
                    Work::Kernel(name) => At::Kernel(name.map(str::to_owned)),
                    Work::Stream => At::Stream,
                    Work::Something => At::Something,
                };
                answer.busy.push((name.clone(), at));
                continue;
            }
            Stand::Waits(blocked) => blocked,
        };
        let millis = blocked.since.elapsed().as_millis() as u64;
        let enqueued = |tag| match (blocked.site, last(tag)) {
            (Some(site), _) | (None, Some((site, false))) => Some(Enqueued::At(site.to_string())),
            (None, Some((site, true))) => Some(Enqueued::LastAt(site.to_string())),
            (None, None) => None,
        };
        let waits = blocked.on.iter().map(|(tag, epoch)| Waiting {
            stream: name.clone(),
            window: tag.window.map_or_else(|| "-".to_owned(), &window),
            id: tag.window,
            side: Side::of(tag.awaited),
            epoch: *epoch,
            peer: tag.peer,
            awaited: tag.awaited.to_string(),
            enqueued: enqueued(*tag),
            millis,
        });
        answer.waits.extend(waits);
        answer.unsaid |= blocked.more;
    }
    answer
}

/// Names may be long, and streams many; a message may not, and one that is not sent would leave the rank out. What has
/// lasted longest is said first: it is what the others ask for.
fn brief(answer: &mut Answer) {
    let shorten = |name: &mut String| *name = shortened(name, NAME);
    let shorten_place = |place: &mut String| *place = ending(place, PLACE);
    answer.waits.sort_by_key(|wait| Reverse(wait.millis));
    answer.more_waits += answer.waits.len().saturating_sub(LINES) as u64;
    answer.waits.truncate(LINES);
    answer.more_busy += answer.busy.len().saturating_sub(LINES) as u64;
    answer.busy.truncate(LINES);
    answer.calls.sort_by_key(|call| Reverse(call.millis));
    answer.more_calls += answer.calls.len().saturating_sub(CALLS) as u64;
    answer.calls.truncate(CALLS);
    for wait in &mut answer.waits {
        shorten(&mut wait.stream);
        shorten(&mut wait.window);
        if let Some(enqueued) = &mut wait.enqueued {
            shorten_place(enqueued.place());
        }
    }
    for (name, at) in &mut answer.busy {
        shorten(name);
        if let At::Kernel(Some(kernel)) = at {
            shorten(kernel);
        }
    }
    for call in &mut answer.calls {
        shorten(&mut call.stream);
        call.site.iter_mut().for_each(shorten_place);
    }
    if let Some(inside) = &mut answer.inside {
        shorten(&mut inside.what);
    }
}

pub(crate) fn on_message(rank: &impl Overseen, from: usize, message: WatchMessage) {
    match message {
        WatchMessage::Stuck { asked } => begin_round(rank, asked),
        WatchMessage::Query { round } => {
            lock(&rank.watch().state).is_asked(round);
            let answer = answer(rank);
            send(rank, Some(&[from]), WatchMessage::Answer { round, answer });
        }
        WatchMessage::Answer { round, answer } => {
            if let Some(current) = &mut lock(&rank.watch().state).round
                && current.number == round
            {
                current.answers.insert(from, answer);
            }
        }
        WatchMessage::Report(text) => lock(&rank.watch().state).heard(text),
    }
}

fn begin_round(rank: &impl Overseen, known: u32) {
    // Before the state is locked: streams are looked at, which takes locks of their own.
    let own = answer(rank);
    let number = rank.control().rank();
    let begun = lock(&rank.watch().state).begin(known, number, own);
    if let Some(round) = begun {
        send(rank, None, WatchMessage::Query { round });
    }
}

fn end_round(rank: &impl Overseen) {
    let size = rank.control().size();
    if lock(&rank.watch().state).round.is_none() {
        return;
    }
    let gone = rank.gone();
    let round = {
        let mut state = lock(&rank.watch().state);
        let due = |round: &Round| {
            let spoke = |rank| round.answers.contains_key(&rank) || gone.contains_key(&rank);
            (0..size).all(spoke) || Instant::now() >= round.until
        };
        if state.round.as_ref().is_some_and(due) {
            state.round.take()
        } else {
            None
        }
    };
    let Some(round) = round else { return };
    let deadline = lock(&rank.watch().state).deadline;
    let text = graph::describe(size, &round.answers, &gone, deadline);
    send(rank, None, WatchMessage::Report(text.clone()));
    lock(&rank.watch().state).heard(text.clone());
    // By a thread of its own: where nobody empties what is printed to, that must not hold up the limits of windows.
    // (Relaxed: the flag keeps a second such thread away, and hands nothing over.)
    if rank.watch().speaks.swap(true, Ordering::Relaxed) {
        return;
    }
    // (Nor the world open.)
    let speaks = rank.watch().speaks.clone();
    let speak = move || {
        say!(text, std::io::stderr());
        speaks.store(false, Ordering::Relaxed);
    };
    let name = "tidegate-report".to_owned();
    if std::thread::Builder::new().name(name).spawn(speak).is_err() {
        // The next one may find a thread.
        rank.watch().speaks.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod much;
#[cfg(test)]
mod sites;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod tests;
