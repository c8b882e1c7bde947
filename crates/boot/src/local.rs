//! Ranks that are threads of one process.
//!
//! # Model
//!
//! All ranks share one table of rounds under one lock. Letters are moved to their receivers, and with them the handles.
//! There are no sockets, files or clocks, so a run is as deterministic as its threads, and Miri can execute it. Each
//! rank that subscribes gets a thread for its events.
//!
//! # Failure
//!
//! Dropping a [`LocalControl`] reports [`Event::Left`]. Dropping it while its thread panics reports [`Event::Lost`],
//! and so do [`Control::fail`] and [`LocalControl::kill`]. Collective calls that need the rank end with `PeerLost`, in
//! every thread that waits for them. A forked child has only the thread that forked; every call there returns
//! [`ControlError::Forked`].

use crate::events::Events;
use crate::rounds::{Call, Came, Failure, Kind, Outcome, Rounds, Vote};
use std::sync::{Arc, Condvar, Mutex};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Letter, PANICKED, Packet, Proposal, Sink,
};
use tidegate_hal::lock;
use tidegate_hal::process::Process;

struct Table {
    rounds: Rounds,
    /// The bytes that have come in the open round, if it is an exchange, by ranks.
    said: Vec<Vec<u8>>,
    /// The letters of the open round, by receivers.
    letters: Vec<Vec<Letter>>,
    /// The last round, for each rank that has not taken it yet.
    decided: Vec<Option<Decided>>,
    /// Why the open round failed.
    failed: Option<Failure>,
    /// Whether a rank has left or was lost.
    gone: Vec<bool>,
    /// Why a rank can do nothing more.
    closed: Vec<Option<String>>,
}

/// The end of a round, for one rank.
struct Decided {
    outcome: Arc<Outcome>,
    said: Arc<Vec<Vec<u8>>>,
    letters: Vec<Letter>,
}

struct LocalJob {
    process: Process,
    table: Mutex<Table>,
    changed: Condvar,
    events: Vec<Events>,
}

/// One rank of a job whose ranks are threads of this process. Made by [`local`].
pub struct LocalControl {
    rank: usize,
    job: Arc<LocalJob>,
    /// Held for a whole collective call, so that calls of one rank are matched in order.
    calls: Mutex<()>,
}

impl std::fmt::Debug for LocalControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalControl")
            .field("rank", &self.rank)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Makes a job of `size` ranks in this process. Returns their control planes in the order of ranks.
///
/// # Panics
///
/// If `size` is 0: a job has at least one rank.
pub fn local(size: usize) -> Vec<LocalControl> {
    assert!(size > 0, "a job has at least one rank");
    let job = Arc::new(LocalJob {
        process: Process::this(),
        table: Mutex::new(Table {
            rounds: Rounds::new(size),
            said: vec![Vec::new(); size],
            letters: vec![Vec::new(); size],
            decided: (0..size).map(|_| None).collect(),
            failed: None,
            gone: vec![false; size],
            closed: vec![None; size],
        }),
        changed: Condvar::new(),
        events: (0..size).map(|_| Events::default()).collect(),
    });
    (0..size)
        .map(|rank| LocalControl {
            rank,
            job: Arc::clone(&job),
            calls: Mutex::new(()),
        })
        .collect()
}

impl LocalControl {
    /// Ends this rank as if it had crashed: the peers get [`Event::Lost`], and every later call here fails.
    pub fn kill(&self) {
        self.lose("killed by its own program");
    }

    fn lose(&self, reason: &str) {
        let reason = reason.to_owned();
        self.end(
            reason.clone(),
            Event::Lost {
                rank: self.rank,
                reason,
            },
        );
    }

    fn end(&self, reason: String, event: Event) {
        if !self.job.process.is_this() {
            return;
        }
        let mut table = lock(&self.job.table);
        if std::mem::replace(&mut table.gone[self.rank], true) {
            return;
        }
        table.closed[self.rank].get_or_insert_with(|| format!("this rank has ended ({reason})"));
        let outcome = table.rounds.end(self.rank, &reason);
        table.decide(outcome);
        for (rank, events) in self.job.events.iter().enumerate() {
            if rank != self.rank {
                events.push(event.clone());
            }
        }
        self.job.changed.notify_all();
        drop(table);
        self.job.events[self.rank].close();
    }
}

impl Table {
    /// Tells all ranks the outcome of the open round, if it has one.
    fn decide(&mut self, outcome: Option<Outcome>) {
        let outcome = match outcome {
            None => return,
            Some(Outcome::Failed(failure)) => return self.failed = Some(failure),
            Some(outcome) => Arc::new(outcome),
        };
        let none = vec![Vec::new(); self.said.len()];
        let said = Arc::new(std::mem::replace(&mut self.said, none));
        for (letters, decided) in self.letters.iter_mut().zip(&mut self.decided) {
            *decided = Some(Decided {
                outcome: Arc::clone(&outcome),
                said: Arc::clone(&said),
                letters: std::mem::take(letters),
            });
        }
    }
}

/// Checks the limits of messages, which are the same for all control planes.
pub(crate) fn check_size(label: &str, bytes: usize, handles: usize) -> Result<(), ControlError> {
    let most = Packet::MAX_BYTES;
    if bytes > most || handles > Packet::MAX_HANDLES {
        let label = label.to_owned();
        return Err(ControlError::TooLarge {
            label,
            bytes,
            most,
            handles,
        });
    }
    Ok(())
}

/// Checks what a rank brings to [`Control::confer`] in a job of `size` ranks.
///
/// # Panics
///
/// If the letters are not in ascending order, or not to ranks of the job.
pub(crate) fn check_proposal(
    label: &str,
    proposal: &Proposal,
    size: usize,
) -> Result<(), ControlError> {
    let ranks = proposal.letters.iter().map(|letter| letter.rank);
    assert!(
        ranks.is_sorted_by(|one, next| one < next),
        "letters are in ascending order of the ranks"
    );
    if let Some(last) = proposal.letters.last() {
        let rank = last.rank;
        assert!(rank < size, "a letter to rank {rank} of {size}");
    }
    let objection = proposal.objection.as_ref();
    let reason = objection.map_or(0, |objection| objection.reason.len());
    check_size(label, proposal.header.len() + reason, 0)?;
    proposal.letters.iter().try_for_each(|letter| {
        let packet = &letter.packet;
        check_size(label, packet.bytes.len(), packet.handles.len())
    })
}

impl LocalControl {
    /// Takes part in one round.
    fn call(
        &self,
        call: &Call,
        vote: Vote,
        said: Vec<u8>,
        letters: Vec<Letter>,
    ) -> Result<Decided, ControlError> {
        let _one_at_a_time = lock(&self.calls);
        let mut table = lock(&self.job.table);
        if let Some(reason) = &table.closed[self.rank] {
            return Err(ControlError::Closed(reason.clone()));
        }
        let (rank, round) = (self.rank, table.rounds.round());
        let came = table.rounds.come(rank, round, call.clone(), vote);
        match came {
            Err(error) => return Err(ControlError::Closed(error.to_string())),
            Ok(Came::Late) => {}
            Ok(Came::Counted(outcome)) => {
                table.said[rank] = said;
                for Letter { rank: to, packet } in letters {
                    table.letters[to].push(Letter { rank, packet });
                }
                if outcome.is_some() {
                    self.job.changed.notify_all();
                }
                table.decide(outcome);
            }
        }
        let error = loop {
            // This comes first even if the rank was killed meanwhile: a known outcome is the better answer.
            if let Some(decided) = table.decided[rank].take() {
                return Ok(decided);
            }
            if let Some(failure) = &table.failed {
                break failure.error(call);
            }
            if let Some(reason) = &table.closed[rank] {
                return Err(ControlError::Closed(reason.clone()));
            }
            table = self
                .job
                .changed
                .wait(table)
                .unwrap_or_else(|e| e.into_inner());
        };
        table.closed[rank].get_or_insert_with(|| failed_before(&error));
        Err(error)
    }
}

/// Why a rank can take part in no collective call after one has failed.
pub(crate) fn failed_before(error: &ControlError) -> String {
    format!("an earlier collective call failed: {error}")
}

impl Control for LocalControl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.job.events.len()
    }

    /// Threads of one process run on one node: always 0.
    fn node(&self, _rank: usize) -> usize {
        0
    }

    fn exchange(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, ControlError> {
        self.job.process.check()?;
        check_size(label, bytes.len(), 0)?;
        let call = Call::new(Kind::Exchange, label);
        let decided = self.call(&call, Vote::default(), bytes, Vec::new())?;
        Ok(decided.said.to_vec())
    }

    fn confer(&self, label: &str, mut proposal: Proposal) -> Result<Decision, ControlError> {
        self.job.process.check()?;
        check_proposal(label, &proposal, self.size())?;
        let call = Call::new(Kind::Confer, label);
        let vote = Vote::take(&mut proposal);
        let decided = self.call(&call, vote, Vec::new(), proposal.letters)?;
        let mut decision = Outcome::clone(&decided.outcome).decision(&call)?;
        if let Decision::Agreed { letters, .. } = &mut decision {
            *letters = decided.letters;
            letters.sort_by_key(|letter| letter.rank);
        }
        Ok(decision)
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        self.job.process.check()?;
        check_size("a message between ranks", bytes.len(), 0)?;
        // This is under the lock, so that all ranks see the messages and the end of one rank in the same order.
        let table = lock(&self.job.table);
        if table.gone[self.rank] {
            let reason = table.closed[self.rank].clone().unwrap_or_default();
            return Err(ControlError::Closed(reason));
        }
        for (rank, events) in self.job.events.iter().enumerate() {
            let wanted = to.map_or(rank != self.rank, |to| to.contains(&rank));
            if wanted {
                events.push(Event::Message {
                    from: self.rank,
                    bytes: bytes.to_vec(),
                });
            }
        }
        Ok(())
    }

    fn subscribe(&self, sink: Sink) {
        if self.job.process.is_this() {
            self.job.events[self.rank].subscribe(sink);
        }
    }

    fn leave(&self) {
        self.end(
            "it has left the job".into(),
            Event::Left { rank: self.rank },
        );
    }

    fn fail(&self, reason: &str) {
        self.lose(reason);
    }
}

impl Drop for LocalControl {
    fn drop(&mut self) {
        if !self.job.process.is_this() {
            // Other threads of the parent may have been using it.
            return std::mem::forget(Arc::clone(&self.job));
        }
        if std::thread::panicking() {
            self.lose(PANICKED);
        } else {
            self.leave();
        }
        self.job.events[self.rank].close_and_join();
    }
}
