//! The way of a window half to a peer behind the NIC.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::{Add, Awaited, Batch, POISON, QUANTUM, Step, Store, Tag, Wait};
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::{
    Keep, NicQueue, QueueConfig, Register, RemoteMemory, RemotePtr, Signal, part,
};
use tidegate_words::Word;

use super::attached::Attached;
use super::chunks::Chunks;
use crate::error::Result;
use crate::ground::lock;

/// The way of one window half to one peer behind the NIC.
pub(crate) struct NicLine {
    queue: Arc<dyn NicQueue>,
    /// Where streams store after each ring, if hardware fires then.
    strike: Option<Register>,
    doorbell: Ptr,
    bell: Ptr,
    issued: Ptr,
    sent: Ptr,
    remote: RemoteMemory,
    signal: Signal,
    /// The window whose it is.
    window: Option<WindowId>,
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
    /// [`NicLine::BYTES`] of memory of this rank, zeroed but for what *sent* counts at first.
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

impl NicLine {
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
    pub(crate) unsafe fn new<D: Device>(
        nic: &Attached<D>,
        device: &D,
        parts: LineParts,
    ) -> Result<Self> {
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
            let mapped = unsafe { device.map_register(&register) };
            mapped
                .inspect_err(|error| {
                    tidegate_hal::tell(
                        || tracing::debug!(%error, "streams only ring, and strike no NIC"),
                    )
                })
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
        Ok(NicLine {
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
        // Release: whoever sees it sees all that was armed before.
        self.ended.store(true, Ordering::Release);
    }

    /// Whether no more will be armed, and all that was is through: a ticket for it stands for nothing then. Not if it
    /// was given up. (While the half is there, a ticket may stand for what a recording will arm.)
    pub(super) fn is_over(&self) -> bool {
        if !self.ended.load(Ordering::Acquire) {
            return false;
        }
        let (armed, through) = self.queue.counts();
        // SAFETY: the batch of its waits keeps the word, which is in memory of the host.
        let sent = unsafe { &*self.sent.0.cast::<Word>() }.load();
        armed == through && sent & POISON == 0
    }

    pub(crate) fn is(&self, other: &NicLine) -> bool {
        self.sent == other.sent
    }
}

/// A wait for several lines, which was made once: what a device makes of a batch, it keeps with it.
struct Together {
    /// Without the first, which holds this. Gone or not, each is known by its address, which no other has meanwhile.
    others: Vec<Weak<NicLine>>,
    wait: Arc<Batch>,
}

/// How many of them are remembered with one line.
const TOGETHER: usize = 8;

/// The waits for some lines, of each window one: so what is remembered keeps no other window's memory.
pub(crate) fn waits(lines: &[Arc<NicLine>]) -> impl Iterator<Item = Arc<Batch>> {
    let first_of_window = |index: &usize| {
        let before = &lines[..*index];
        before
            .iter()
            .all(|line| line.window != lines[*index].window)
    };
    (0..lines.len()).filter(first_of_window).map(|index| {
        let (first, behind) = (&lines[index], &lines[index + 1..]);
        let of_window = |line: &&Arc<NicLine>| line.window == first.window;
        let others: Vec<_> = behind.iter().filter(of_window).collect();
        match &others[..] {
            [] => first.wait.clone(),
            others => together(first, others),
        }
    })
}

/// The wait for some lines of one window, as it was made before, if it is remembered.
fn together(first: &NicLine, others: &[&Arc<NicLine>]) -> Arc<Batch> {
    let mut known = lock(&first.together);
    let is = |one: &Together| {
        let pairs = || one.others.iter().zip(others);
        one.others.len() == others.len()
            && pairs().all(|(known, line)| known.as_ptr() == Arc::as_ptr(line))
    };
    if let Some(one) = known.iter().find(|one| is(one)) {
        return one.wait.clone();
    }
    let all = std::iter::once(&first.wait).chain(others.iter().map(|line| &line.wait));
    // SAFETY: each batch's own promise; they only read different words.
    let wait = Arc::new(unsafe { Batch::join(&all.collect::<Vec<_>>()) });
    let oldest = (known.len() == TOGETHER).then(|| known.remove(0));
    known.push(Together {
        others: others.iter().map(|line| Arc::downgrade(line)).collect(),
        wait: wait.clone(),
    });
    drop(known);
    // Under no lock: what the device has made of it goes, too.
    drop(oldest);
    wait
}
