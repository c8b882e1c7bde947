//! Watches for waits that last long.
//!
//! # Model
//!
//! On each rank one thread looks a few times a second at what the rank's streams wait for, and at its program in a
//! collective call. If a window has a *limit*, and a wait exceeds it, the window is revoked. A wait that exceeds the
//! *deadline* (30 s by default) is *reported*, but does not fail: an imbalanced program is not an error. The lowest
//! rank that is still in the job is the *reporter*. It asks all ranks what they wait for. From the answers it makes a
//! wait-for graph, which names its cycles (`graph.rs`). It prints the graph, and sends it to all ranks
//! ([`World::last_report`](crate::World::last_report)).
//!
//! All ranks hear of the ends of ranks in the same order, so they agree on the reporter. A rank that was promised a
//! report, and hears that the reporter is gone, asks the next one.
//!
//! A rank waits for what its streams wait for, and for what its program waits for. A collective call (opening a window,
//! a gather) needs all ranks. A call on a stream (`synchronize`, a launch for which the driver has no room) lasts until
//! the stream makes progress. The time of such a call counts from when the stream was last seen to make progress.
//!
//! Answers and reports are messages, whose length is limited. If there is more to say, they say so, and nothing is
//! concluded from what they leave out.

mod graph;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
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
use crate::half_kind::HalfKind;
use crate::message::{Answer, At, Calling, Enqueued, Inside, Message, Waiting, WatchMessage};
use crate::replays::Runs;

/// How often waits are checked, at most.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// How long the reporter waits for the answers of other ranks.
const PATIENCE: Duration = Duration::from_secs(1);
/// A rank's answer names dropped halves only for this many of the last windows that it remembers, because an answer is
/// a message.
const DROPPED: usize = 1000;
/// The most bytes of a name in an answer.
const NAME: usize = 200;
/// The most bytes of a place in a program. The end of a longer one is kept, since it says most.
const PLACE: usize = 120;
/// The most waits, and the most busy streams, in an answer.
const LINES: usize = 940;
/// The most calls on streams in an answer.
const CALLS: usize = 100;
/// How long a call must last to be in an answer. Shorter calls are normal work of the program.
/// How many collective calls of a program an answer names.
const INSIDE: usize = 4;
/// For how many teams an answer says how far the rank has come.
const TEAMS: usize = 500;
const CALL: Duration = TICK.checked_div(2).expect("2 is not 0");
// A report and the rest of its message must fit in a packet.
const _: () = assert!(graph::MOST + 64 <= Packet::MAX_BYTES);

/// A rank, as its watch sees it.
pub(crate) trait Overseen: Send + Sync + 'static {
    /// The part of a stream that outlives it.
    type Stream: Reclaim;

    /// The state of the rank's watch.
    fn watch(&self) -> &Watch;

    /// The control plane.
    fn control(&self) -> &dyn Control;

    /// Fills a list, which may be reused, with the rank's streams that are alive.
    fn streams(&self, into: &mut Vec<Arc<Self::Stream>>);

    /// The same streams with their names.
    fn named_streams(&self) -> Vec<(String, Arc<Self::Stream>)>;

    /// If a kernel made this stream fail, tells the other ranks, even if the program has not asked the stream yet.
    fn look_at_fault(&self, stream: &Arc<Self::Stream>);

    /// Poisons words again. If peers' NICs add to words of this rank, an add on its way can overwrite a poison. That
    /// add ends soon, and then a second poison remains.
    fn poison_again(&self);

    /// Whether the program has been in a collective call for at least this time.
    fn is_in_a_call_for(&self, long: Duration) -> bool;

    /// How many exchanges the rank has come to, and the collective call that its program is in.
    fn progress(&self) -> (Vec<(u64, u64)>, Vec<Inside>);

    /// The name of a window.
    fn window_name(&self, id: WindowId) -> Arc<str>;

    /// Where the program last enqueued such a wait, and whether it enqueued others in other places.
    fn last_wait(&self, tag: Tag) -> Option<(CallSite, bool)>;

    /// The limit of a window's waits, if it has one.
    fn limit(&self, window: WindowId) -> Option<Duration>;

    /// Revokes a window, because a wait for a peer exceeded its limit.
    fn limit_has_passed(&self, window: WindowId, peer: usize, limit: Duration);

    /// The rank that reports long waits: the lowest one that has not ended.
    fn reporter(&self) -> usize;

    /// The ranks that have ended, and how.
    fn gone(&self) -> BTreeMap<usize, Cause>;

    /// The proved recordings that the program has replayed.
    fn replays(&self) -> Runs;

    /// Whether the program has returned, though its rank is still in the job.
    fn has_returned(&self) -> bool;

    /// The halves that the program has dropped, of the last `most` windows that are remembered.
    fn dropped(&self, most: usize) -> Vec<(WindowId, HalfKind)>;
}

pub(crate) struct Watch {
    state: Mutex<State>,
    /// Whether a report is being printed.
    speaks: Arc<AtomicBool>,
    thread: Mutex<Option<Running>>,
}

/// The thread that looks.
struct Running {
    /// Dropped to end the thread.
    stop: Sender<Infallible>,
    /// Disconnected when the thread ends.
    ended: Receiver<Infallible>,
    thread: JoinHandle<()>,
}

struct State {
    deadline: Duration,
    asked: Asked,
    /// The last report.
    report: Option<String>,
    /// On the reporter: the current round of questions.
    round: Option<Round>,
    /// The last round of questions that this rank knows of, or 0 before the first.
    rounds: u32,
}

/// Whether, and when, a report was requested that will name this rank's waits.
enum Asked {
    Never,
    /// The report has not arrived yet.
    Promised(Instant),
    Heard(Instant),
}

impl State {
    /// Whether this rank should request a round of questions: once for each wait, and again whenever the wait lasts
    /// another deadline.
    fn is_due(&self) -> bool {
        match self.asked {
            Asked::Never => true,
            Asked::Promised(at) | Asked::Heard(at) => at.elapsed() >= self.deadline,
        }
    }

    /// Notes that round `number` asks this rank what it waits for. The report will have the answer, so no other report
    /// is needed.
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

    /// On the reporter: begins a round for a rank that knew of the first `known` rounds, and returns its number. `None`
    /// if a later round has asked that rank already, or is asking it: then the request and the question have crossed,
    /// and a second report would say the same.
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
            deadline,
            asked: Asked::Never,
            report: None,
            round: None,
            rounds: 0,
        };
        Watch {
            state: Mutex::new(state),
            speaks: Arc::default(),
            thread: Mutex::default(),
        }
    }
}

impl Watch {
    pub(crate) fn start<R: Overseen>(rank: &Arc<R>) -> Result<()> {
        let weak = Arc::downgrade(rank);
        let (stop, stopped) = channel();
        let (end, ended) = channel::<Infallible>();
        let thread = std::thread::Builder::new()
            .name("tidegate-watch".into())
            .spawn(move || {
                look(&weak, &stopped);
                drop(end);
            })
            .map_err(|e| {
                let detail = WithLimit(&e).to_string();
                Error::Device(tidegate_hal::device::DeviceError::Exhausted {
                    what: "threads",
                    detail,
                })
            })?;
        *lock(&rank.watch().thread) = Some(Running {
            stop,
            ended,
            thread,
        });
        Ok(())
    }

    /// Ends the thread, and waits for it, so that a program that has left its job has no thread of the job. The wait
    /// is short: a subscriber of `tracing` that never returns may keep the thread.
    pub(crate) fn stop(&self) {
        let Some(running) = lock(&self.thread).take() else {
            return;
        };
        drop(running.stop);
        if running.ended.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected) {
            // A panic of the thread has been printed where it happened.
            let _ = running.thread.join();
        }
    }

    pub(crate) fn last_report(&self) -> Option<String> {
        lock(&self.state).report.clone()
    }

    /// Called when the reporter has ended: the next reporter must keep its promises.
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

fn look<R: Overseen>(weak: &Weak<R>, stopped: &Receiver<Infallible>) {
    // The list is reused, so that a check without findings allocates nothing.
    let mut streams = Vec::new();
    loop {
        // The world is not held while sleeping, because the last holder ends it.
        let Some(rank) = weak.upgrade() else { return };
        rank.streams(&mut streams);
        tick(&*rank, &streams);
        rank.poison_again();
        streams.clear();
        drop(rank);
        if stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
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

/// Logs which news could not be sent.
fn heed(sent: std::result::Result<(), ControlError>) {
    match sent {
        // The end of the control plane is noticed elsewhere.
        Ok(()) | Err(ControlError::Closed(_)) => {}
        // A lost report is not worth a failure, because reports only help. But a user who misses one must be able to
        // find out why.
        Err(error) => tell(|| tracing::warn!("ranks were not told of long waits: {error}")),
    }
}

/// This rank's answer to the reporter.
fn answer(rank: &impl Overseen) -> Answer {
    let name = |id| rank.window_name(id).to_string();
    let mut answer = look_at(&rank.named_streams(), name, |tag| rank.last_wait(tag));
    (answer.come, answer.inside) = rank.progress();
    answer.returned = rank.has_returned();
    answer.dropped = rank.dropped(DROPPED);
    answer.replays = rank.replays();
    brief(&mut answer);
    answer
}

/// What these streams wait for, or do. `called` returns the names of windows. `last` says where a wait was last
/// enqueued, and whether others were enqueued elsewhere; it serves devices that do not know that.
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
            half: HalfKind::of(tag.awaited),
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

/// Shortens an answer. Names may be long and streams many, but a message is limited, and if it is not sent the report
/// lacks this rank. What has lasted longest comes first, since the other ranks ask for it.
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
    answer.inside.sort_by_key(|inside| Reverse(inside.millis));
    answer.unsaid |= answer.inside.len() > INSIDE || answer.come.len() > TEAMS;
    answer.inside.truncate(INSIDE);
    answer.come.truncate(TEAMS);
    for inside in &mut answer.inside {
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
    // This is done before the state is locked, because looking at streams takes locks of their own.
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
    // A thread of its own prints the report: if nobody reads the output, that must not delay the check of limits.
    // (Relaxed is enough: the flag only keeps a second such thread away, and hands nothing over.)
    if rank.watch().speaks.swap(true, Ordering::Relaxed) {
        return;
    }
    // The thread does not keep the world open, either.
    let speaks = rank.watch().speaks.clone();
    let speak = move || {
        say!(text, std::io::stderr());
        speaks.store(false, Ordering::Relaxed);
    };
    let name = "tidegate-report".to_owned();
    if std::thread::Builder::new().name(name).spawn(speak).is_err() {
        // The next report may find a thread.
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
