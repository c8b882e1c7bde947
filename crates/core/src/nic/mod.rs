//! Peers that are reached through a NIC.
//!
//! # Model
//!
//! Each peer of a window is *mapped* (the stream itself moves the data and adds to the peer's words) or reached by a
//! NIC; [`Route`] says which, once, when the window is created. One epoch may serve both kinds. Towards a peer behind
//! the NIC a window half has a [`Line`]: a queue of armed programs, and three words of this rank:
//!
//! - the *doorbell*: a stream adds a quantum to it where it would move and signal; each quantum fires the next armed program
//!   (which long staged puts ring for in parts, as they are copied: `window/stages.rs`);
//! - *issued*: how often the outbox's stream has rung, added to by the stream just before it rings;
//! - *sent*: how many firings are through at this end, added to by the NIC.
//!
//! So a post is `[add(doorbell)]`, a complete is `[wait(exposure), add(issued), add(doorbell)]`, and a stream never
//! knows what a NIC is. (Where the NIC has a register for it that the device reaches, a store to that follows the
//! doorbell's add: a step like any other.) Programs are *armed* by the host before the batch that rings is submitted.
//! While a stream is captured the arms are noted instead ([`Arm`]), belong to the graph, and are made at every replay.
//!
//! # Tickets
//!
//! A NIC may read a put's source long after the stream has passed `complete`. So the region holds a *ticket*: "not
//! before *sent* has come to *issued*". Whatever is about to write the region (a kernel with `&mut`, a get into it), or
//! to give it to somebody else (another stream, the host), first enqueues a wait for that; the destination of a get or
//! fetch is kept from readers too. The operand of that wait is *issued*, in device memory, and so the wait can be
//! recorded and replayed like any other.
//!
//! Tickets are noted when an epoch is complete, and never leave the stream that issued them, nor a recorded step: a
//! step waits at its end for what is still under way, which is where the next replay begins. Regions that no NIC has
//! touched have none: that is one look at a pointer.
//!
//! # Failure
//!
//! What is armed cannot be taken back: the next ring would fire it, whatever that is for. So a stream is asked first
//! whether it can have the batch ([`Stream::prepare`](tidegate_hal::device::Stream::prepare)); a refusal has changed
//! nothing then. If it breaks behind the arms all the same, the windows are revoked.
//!
//! The death of any rank poisons *sent* as it poisons all awaited words, so that ticket waits end; the error says
//! `Awaited::Ticket`. A departure in good order does not: that peer has got what it waited for, and the NIC is still to
//! say so here. A skipped ring becomes a poisoned doorbell, and the NIC hands the failure on. Programs hold the memory
//! that they read, so a region that is dropped or forgotten stays until the NIC is through, and longer: as long as the
//! outbox remembers the epoch.
//!
//! Trigger slots of NICs are few: what a window does when there are not enough is its [`Throttle`].

mod chunks;
mod options;
mod parting;
#[cfg(test)]
mod tests;
mod throttle;
mod ticket;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::batch::{Add, Awaited, Batch, POISON, QUANTUM, Step, Store, Tag, Wait};
use tidegate_hal::device::{Device, Fault, Stream as _};
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::{
    Keep, NicQueue, Prepared, QueueConfig, Register, RemoteMemory, RemotePtr, Signal, part,
};
use tidegate_words::Word;

pub use chunks::Chunks;
pub(crate) use options::Attached;
pub use options::{Route, WorldOptions};
pub(crate) use parting::Parting;
pub use throttle::Throttle;
pub(crate) use throttle::{room, room_for};
use ticket::Together;
pub(crate) use ticket::{Tickets, Touch, prepare_wait, settle_all, wait_for};

use crate::error::{Cause, Error, Result};
use crate::ground::lock;
use crate::stream::Stream;
use crate::world::{Watched, World};

/// The way of one window half to one peer behind the NIC.
pub(crate) struct Line {
    queue: Arc<dyn NicQueue>,
    /// Where streams store after each ring, if hardware fires then.
    strike: Option<Register>,
    doorbell: Ptr,
    bell: Ptr,
    issued: Ptr,
    sent: Ptr,
    remote: RemoteMemory,
    signal: Signal,
    /// The window whose it is, by number.
    window: u32,
    /// The wait for its tickets.
    wait: Arc<Batch>,
    /// Waits for them together with those of other lines of the window.
    together: Mutex<Vec<Together>>,
    /// The window half is gone: no more will be armed.
    ended: AtomicBool,
}

/// What a line is made of.
pub(crate) struct LineParts {
    pub(crate) peer: usize,
    /// [`Line::BYTES`] of memory of this rank, zeroed but for what *sent* counts at first.
    pub(crate) words: Ptr,
    pub(crate) remote: RemoteMemory,
    /// Where the word is, in the peer's memory, that its programs signal to.
    pub(crate) signal: usize,
    /// What that word counts at first, in quanta.
    pub(crate) first: u64,
    /// Of the waits for its tickets.
    pub(crate) tag: Tag,
    /// Keeps the words alive, and their waits watched.
    pub(crate) keep: Keep,
}

impl Line {
    /// Bytes of the words of a line: two cache lines, since the NIC adds to one and the stream to the other.
    pub(crate) const BYTES: usize = 128;
    const ISSUED: usize = 8;
    const SENT: usize = 64;

    /// Where the sent word is among the words of a line.
    pub(crate) fn sent_of(words: Ptr) -> Ptr {
        words.byte_add(Self::SENT)
    }

    /// Makes a line.
    ///
    /// # Safety
    ///
    /// The words and the signalled word are as said, and are used by this line alone (and whoever waits for the signal).
    pub(crate) unsafe fn new<D: Device>(world: &World<D>, parts: LineParts) -> Result<Self> {
        let nic = world.nic().expect("a line was routed by the NIC");
        let (doorbell, issued) = (parts.words, parts.words.byte_add(Self::ISSUED));
        let sent = Self::sent_of(parts.words);
        let config = QueueConfig {
            doorbell,
            sent,
            sent_bell: nic.rung.base(),
            keep: Arc::new((parts.keep.clone(), nic.rung.clone())),
        };
        // SAFETY: the words are zeroed and this line's alone, by the caller's promise; words and bell are kept.
        let queue = unsafe { nic.nic.queue(parts.peer, config) }?;
        nic.parting.reaches(parts.peer);
        let strike = queue.register().and_then(|register| {
            // SAFETY: the NIC vouches for its register as long as that is kept; the line keeps it until the streams have
            // passed whatever stores there.
            let mapped = unsafe { world.device().map_register(&register) };
            mapped
                .inspect_err(
                    |error| tracing::debug!(%error, "streams only ring, and strike no NIC"),
                )
                .ok()
        });
        if strike.is_some() {
            queue.struck_by_streams();
            // Nobody strikes for a part.
            debug_assert!(
                !queue.takes_parts(),
                "streams strike for whole rings, and the queue takes parts"
            );
        }
        let wait = Step::Wait(Wait {
            word: sent,
            operand: issued,
            quantum: 0,
            tag: parts.tag,
            landed: None,
        });
        // SAFETY: both words live as long as `keep`; the wait does not write its operand, whose other accesses are
        // atomic: should the outbox have gone to another stream and issue more there, then it waits for that too, which
        // needs nothing of this stream.
        let wait = unsafe { Batch::new([vec![wait]], vec![parts.keep]) }.helped(true);
        let place = |memory: &RemoteMemory, offset| RemotePtr {
            memory: memory.clone(),
            offset,
        };
        let there = nic.bells[parts.peer]
            .as_ref()
            .expect("a peer with a NIC has registered its bell");
        Ok(Line {
            queue,
            strike,
            doorbell,
            bell: nic.bell(),
            issued,
            sent,
            signal: Signal {
                word: place(&parts.remote, parts.signal),
                first: parts.first,
                bell: place(there, 0),
            },
            remote: parts.remote,
            window: parts.tag.window,
            wait: Arc::new(wait),
            together: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// The steps that fire the next program. Nothing that can block stands between the two, so a stream that fails
    /// skips both, and poisons the doorbell, or none.
    pub(crate) fn ring(&self) -> impl Iterator<Item = Step> {
        let add = Step::Add(Add {
            word: self.doorbell,
            value: QUANTUM,
            bell: self.bell,
        });
        let strike = self.strike.as_ref().map(|register| {
            Step::Store(Store {
                to: register.at,
                value: 1,
            })
        });
        std::iter::once(add).chain(strike)
    }

    /// One of the parts of a ring, where rings come in [several](Self::chunks): nobody strikes there. Nothing that can
    /// block stands between the parts.
    pub(crate) fn ring_part(&self, index: usize, parts: usize) -> Step {
        Step::Add(Add {
            word: self.doorbell,
            value: part(index as u64, parts as u64),
            bell: self.bell,
        })
    }

    /// How staged puts are cut, of which `wanted` says how they are where that is of use: where a program is begun with
    /// when a part of its ring has come.
    pub(crate) fn chunks(&self, wanted: Chunks) -> Chunks {
        match self.queue.takes_parts() {
            true => wanted,
            false => Chunks::NEVER,
        }
    }

    /// The step that comes before a ring whose program leaves tickets. Nobody sleeps on that word, so a stream that
    /// fails does not poison it.
    pub(crate) fn issue(&self) -> Step {
        Step::Add(Add {
            word: self.issued,
            value: QUANTUM,
            bell: Ptr::NULL,
        })
    }

    /// The wait for a buffer of staged memory: with `buffers` of them, all firings but the last `buffers - 1` are
    /// through. *Sent* counted as many quanta at first.
    pub(crate) fn wait_for_buffer(&self, operand: Ptr, tag: Tag) -> Step {
        Step::Wait(Wait {
            word: self.sent,
            operand,
            quantum: QUANTUM,
            tag: Tag {
                awaited: Awaited::Ticket,
                ..tag
            },
            landed: None,
        })
    }

    pub(crate) fn queue(&self) -> &dyn NicQueue {
        &*self.queue
    }

    pub(crate) fn remote(&self) -> &RemoteMemory {
        &self.remote
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Hears that its window half is gone.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether no more will be armed, and all that was is through: a ticket for it stands for nothing then. Not if it
    /// was given up. (While the half is there, a ticket may stand for what a recording will arm.)
    fn is_over(&self) -> bool {
        if !self.ended.load(Ordering::Relaxed) {
            return false;
        }
        let (armed, through) = self.queue.counts();
        // SAFETY: the batch of its waits keeps the word, which is in memory of the host.
        let sent = unsafe { &*self.sent.0.cast::<Word>() }.load();
        armed == through && sent & POISON == 0
    }

    fn is(&self, other: &Line) -> bool {
        self.sent == other.sent
    }
}

/// What the host must arm before a stream may ring.
pub(crate) struct Arm<D: Device> {
    line: Arc<Line>,
    programs: Arc<[Prepared]>,
    window: Arc<Watched<D>>,
}

impl<D: Device> Clone for Arm<D> {
    fn clone(&self) -> Self {
        Arm {
            line: self.line.clone(),
            programs: self.programs.clone(),
            window: self.window.clone(),
        }
    }
}

impl<D: Device> Arm<D> {
    pub(crate) fn new(line: &Arc<Line>, program: Prepared, window: &Arc<Watched<D>>) -> Self {
        Arm {
            line: line.clone(),
            programs: [program].into(),
            window: window.clone(),
        }
    }
}

/// Calls `submit`, which submits the batch, when the NIC has been armed with what that will ring, all of it or nothing;
/// notes it, if the batch is recorded.
#[inline]
pub(crate) fn armed<D: Device>(
    stream: &Stream<'_, D>,
    sets: &[&[Arm<D>]],
    batch: &Arc<Batch>,
    submit: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if sets.iter().all(|set| set.is_empty()) {
        return submit();
    }
    if stream.raw().capturing() {
        submit()?;
        sets.iter().for_each(|set| stream.note_arms(set));
        return Ok(());
    }
    stream.raw().prepare(batch, 1)?;
    arm_times(stream, sets, 1)?;
    submit_armed(stream, sets, submit).map(drop)
}

/// Calls `submit` for what was armed. Says whether all of it rings, or poisons: what counts as submitted may have been
/// broken off in its middle, and of what was not launched nobody hears.
fn submit_armed<D: Device>(
    stream: &Stream<'_, D>,
    sets: &[&[Arm<D>]],
    submit: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let not_rung = |error: &Error| sets.iter().for_each(|set| disarm(stream, set, error));
    submit().inspect_err(not_rung)?;
    match stream.raw().fault() {
        // What is behind another failure is given up, and poisons its doorbells.
        Some(fault @ Fault::Transport(_)) => {
            not_rung(&stream.world().explain(fault, stream.name()));
            Ok(false)
        }
        _ => Ok(true),
    }
}

fn arm_times<D: Device>(stream: &Stream<'_, D>, sets: &[&[Arm<D>]], times: u64) -> Result<()> {
    let attached = stream.world().nic().expect("a NIC is armed");
    // Not on the other side of a wait: what is waited for may need the lock.
    throttle::wait(stream, attached, sets, times)?;
    let _arming = lock(&attached.arming);
    throttle::check(attached, sets, times)?;
    let arms = || sets.iter().flat_map(|set| set.iter());
    for (index, arm) in arms().enumerate() {
        if let Err(error) = arm.line.queue.arm(&arm.programs, times) {
            arms()
                .take(index)
                .for_each(|armed| disarm(stream, std::slice::from_ref(armed), &error));
            // The reason behind it says more.
            stream.healthy()?;
            arm.window.usable()?;
            return Err(Error::Nic(error));
        }
    }
    Ok(())
}

/// What was armed will not be rung for. The next ring would fire it instead of its own, so there must be none.
#[cold]
fn disarm<D: Device>(stream: &Stream<'_, D>, arms: &[Arm<D>], error: &impl std::fmt::Display) {
    let rank = stream.world().rank();
    for arm in arms {
        let reason = error.to_string();
        let cause = Cause::NotEnqueued { rank, reason };
        stream.world().revoke(&arm.window, cause);
    }
}

/// The arms of a recorded step, line by line.
pub(crate) struct Recorded<D: Device>(Vec<Arm<D>>);

impl<D: Device> Recorded<D> {
    /// Sorts what was noted (with a number that says in which order) by lines.
    pub(crate) fn new(mut noted: Vec<(u64, Arm<D>)>) -> Self {
        noted.sort_by_key(|(number, _)| *number);
        let mut lines: Vec<(Arm<D>, Vec<Prepared>)> = Vec::new();
        for (_, arm) in noted {
            let same = |held: &&mut (Arm<D>, Vec<Prepared>)| held.0.line.is(&arm.line);
            match lines.iter_mut().find(same) {
                Some((_, programs)) => programs.extend(arm.programs.iter().cloned()),
                None => {
                    let programs = arm.programs.to_vec();
                    lines.push((arm, programs));
                }
            }
        }
        let arms = lines.into_iter().map(|(arm, programs)| Arm {
            programs: programs.into(),
            ..arm
        });
        Recorded(arms.collect())
    }

    /// Calls `submit` with numbers of replays that add up to `times`, each armed for; before that `prepare`, if anything
    /// is armed.
    pub(crate) fn replay(
        &self,
        stream: &Stream<'_, D>,
        times: u64,
        prepare: impl FnOnce() -> Result<()>,
        mut submit: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if self.0.is_empty() {
            return submit(times);
        }
        // What was armed in vain for a window that is revoked must not be fired by the rings of this recording.
        for arm in &self.0 {
            arm.window.usable()?;
        }
        prepare()?;
        // Of a later turn nobody asks again: those before it have been enqueued.
        let most = throttle::turn(stream, &self.0);
        let mut left = times;
        while left > 0 {
            let turn = left.min(most);
            arm_times(stream, &[&self.0], turn)?;
            if !submit_armed(stream, &[&self.0], || submit(turn))? {
                // It counts as submitted, and nobody waits for it any more.
                break;
            }
            left -= turn;
        }
        Ok(())
    }
}
