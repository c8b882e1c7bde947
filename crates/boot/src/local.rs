//! Ranks that are threads of one process.
//!
//! # Model
//!
//! All ranks share one table of rounds under one lock. Handles are passed as clones: `Handle::Local` by reference
//! count, descriptors by `dup`. There are no sockets, files or clocks, so a run is as deterministic as its threads, and
//! Miri can execute it. Each rank that subscribes gets a thread for its events.
//!
//! # Failure
//!
//! Dropping a [`LocalControl`] reports [`Event::Left`]. Dropping it while its thread panics reports [`Event::Lost`],
//! and so do [`Control::fail`] and [`LocalControl::kill`]. Exchanges that need the rank end with `PeerLost`, in every
//! thread that waits for them. A forked child has only the thread that forked; every call there returns
//! [`ControlError::Forked`].

use crate::events::Events;
use crate::rounds::{Rounds, Verdict};
use std::sync::{Arc, Condvar, Mutex};
use tidegate_hal::control::{Control, ControlError, Event, Handle, PANICKED, Packet, Sink};
use tidegate_hal::limits::no_descriptors;
use tidegate_hal::lock;
use tidegate_hal::process::Process;

struct Table {
    rounds: Rounds<Packet>,
    /// How many rounds each rank has finished.
    finished: Vec<u64>,
    /// Whether a rank has left or was lost.
    gone: Vec<bool>,
    /// Why a rank can do nothing more.
    closed: Vec<Option<String>>,
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
    /// Held for a whole exchange, so that calls of one rank are matched in order.
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
            finished: vec![0; size],
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
        table.rounds.end(self.rank, reason);
        table.forget_finished();
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
    fn forget_finished(&mut self) {
        let present = self
            .finished
            .iter()
            .zip(&self.gone)
            .filter(|(_, gone)| !**gone);
        if let Some(oldest) = present.map(|(finished, _)| *finished).min() {
            self.rounds.forget_before(oldest);
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

/// A copy of the handle, or a handle with the reason why there is no room for it.
pub(crate) fn duplicate(handle: &Handle) -> Handle {
    match handle {
        Handle::Local(shared) => Handle::Local(Arc::clone(shared)),
        Handle::Key(bytes) => Handle::Key(bytes.clone()),
        Handle::Lost(why) => Handle::Lost(why.clone()),
        Handle::Fd(fd) => match fd.try_clone() {
            Ok(fd) => Handle::Fd(fd),
            Err(error) => Handle::Lost(format!("{error}: {}", no_descriptors())),
        },
    }
}

fn duplicate_packet(packet: &Packet) -> Packet {
    Packet {
        bytes: packet.bytes.clone(),
        handles: packet.handles.iter().map(duplicate).collect(),
    }
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

    fn exchange(&self, label: &str, packet: Packet) -> Result<Vec<Packet>, ControlError> {
        self.job.process.check()?;
        check_size(label, packet.bytes.len(), packet.handles.len())?;
        let _one_at_a_time = lock(&self.calls);
        let mut table = lock(&self.job.table);
        if let Some(reason) = &table.closed[self.rank] {
            return Err(ControlError::Closed(reason.clone()));
        }
        let round = table.finished[self.rank];
        if let Err(error) = table
            .rounds
            .contribute(self.rank, round, Arc::from(label), packet)
        {
            return Err(ControlError::Closed(error.to_string()));
        }
        self.job.changed.notify_all();
        let result = loop {
            match table.rounds.verdict(label, round) {
                // This holds even if the rank was killed meanwhile: a known verdict is the better answer.
                Verdict::Complete(all) => {
                    break Ok(all.iter().map(|c| duplicate_packet(&c.payload)).collect());
                }
                Verdict::Failed(error) => break Err(error),
                Verdict::Pending => {}
            }
            if let Some(reason) = &table.closed[self.rank] {
                return Err(ControlError::Closed(reason.clone()));
            }
            table = self
                .job
                .changed
                .wait(table)
                .unwrap_or_else(|e| e.into_inner());
        };
        if let Err(error) = &result {
            let reason = format!("an earlier exchange failed: {error}");
            // The peers may have finished this round; they must not wait for this rank in the next one.
            table.rounds.end(self.rank, reason.clone());
            table.closed[self.rank].get_or_insert(reason);
            self.job.changed.notify_all();
        }
        table.finished[self.rank] = round + 1;
        table.forget_finished();
        result
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
