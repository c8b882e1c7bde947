//! The line of a window half to a peer behind the NIC.

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

/// The line of one window half to one peer behind the NIC: a queue of armed programs, and the words that go with it.
pub(crate) struct NicLine {
    queue: Arc<dyn NicQueue>,
    /// The register that streams store to after each ring, if hardware fires the programs.
    strike: Option<Register>,
    doorbell: Ptr,
    bell: Ptr,
    issued: Ptr,
    sent: Ptr,
    remote: RemoteMemory,
    signal: Signal,
    /// The window that the line belongs to.
    window: Option<WindowId>,
    /// The wait for the line's tickets.
    wait: Arc<Batch>,
    /// Waits for these tickets together with those of other lines of the window.
    together: Mutex<Vec<Together>>,
    /// Whether the window half is gone. Then nothing more will be armed.
    ended: AtomicBool,
}

/// The parts of a line.
pub(crate) struct LineParts {
    pub(crate) peer: usize,
    /// [`NicLine::BYTES`] of memory of this rank. They are zero, except for the first count of *sent*.
    pub(crate) words: Ptr,
    pub(crate) remote: RemoteMemory,
    /// The offset, in the peer's memory, of the word that the line's programs signal.
    pub(crate) signal: usize,
    /// The first count of that word, in quanta.
    pub(crate) first: u64,
    /// The word of this rank that the peer's line signals.
    pub(crate) back: Ptr,
    /// The tag of the waits for its tickets.
    pub(crate) tag: Tag,
    /// Keeps the words alive, and their waits watched.
    pub(crate) keep: Keep,
}

impl NicLine {
    /// The size of a line's words: two cache lines, since the NIC adds to one and the stream to the other.
    pub(crate) const BYTES: usize = 128;
    const ISSUED: usize = 8;
    const SENT: usize = 64;

    /// The address of the *sent* word among the words of a line.
    pub(crate) fn sent_of(words: Ptr) -> Ptr {
        words.byte_add(Self::SENT)
    }

    /// Makes a line.
    ///
    /// # Safety
    ///
    /// The words and the signalled word are as [`LineParts`] says, and only this line uses them (and the waits for the
    /// signal).
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
            back: parts.back,
            keep: Arc::new((parts.keep.clone(), nic.rung.clone())),
        };
        // SAFETY: the caller promises that the words are zeroed and belong to this line alone. Words and bell are kept.
        let queue = unsafe { nic.nic.queue(parts.peer, config) }?;
        nic.parting.reaches(parts.peer);
        let strike = queue.register().and_then(|register| {
            // SAFETY: the NIC vouches for its register as long as the registration is kept. The line keeps it until the
            // streams have passed everything that stores there.
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
            // No stream strikes for a part of a ring.
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
            ring: None,
        });
        // SAFETY: both words live as long as `keep`. The wait does not write its operand, and all other accesses to the
        // operand are atomic. If the outbox has moved to another stream and issues more there, the wait includes that,
        // and it needs nothing from this stream.
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

    /// The steps that fire the next program, which tells the peer this. No step that can block stands between them. So
    /// a stream that fails skips both and poisons the doorbell, or it skips neither.
    pub(crate) fn ring(&self, told: Tag) -> impl Iterator<Item = Step> {
        let add = Step::Add(Add {
            tag: Some(told),
            word: self.doorbell,
            value: QUANTUM,
            bell: self.bell,
            turn: None,
        });
        let strike = self.strike.as_ref().map(|register| {
            Step::Store(Store {
                to: register.at,
                value: 1,
            })
        });
        std::iter::once(add).chain(strike)
    }

    /// One part of a ring, if rings come in [several parts](Self::chunks). Parts do not strike. No step that can block
    /// stands between the parts.
    pub(crate) fn ring_part(&self, index: usize, parts: usize, told: Tag) -> Step {
        Step::Add(Add {
            tag: (index + 1 == parts).then_some(told),
            word: self.doorbell,
            value: part(index as u64, parts as u64),
            bell: self.bell,
            turn: None,
        })
    }

    /// How staged puts are cut. It is `wanted` if the queue can begin a program when a part of its ring has come;
    /// otherwise nothing is cut.
    pub(crate) fn chunks(&self, wanted: Chunks) -> Chunks {
        if self.queue.takes_parts() {
            wanted
        } else {
            Chunks::NEVER
        }
    }

    /// The step before a ring whose program leaves tickets. No thread sleeps on that word, so a stream that fails does
    /// not poison it.
    pub(crate) fn issue(&self) -> Step {
        Self::count(self.issued)
    }

    /// The step that counts a firing in an operand of the stream, for which no thread waits.
    pub(crate) fn count(operand: Ptr) -> Step {
        Step::Add(Add {
            tag: None,
            word: operand,
            value: QUANTUM,
            bell: Ptr::NULL,
            turn: None,
        })
    }

    /// The wait for a staging buffer. With `buffers` buffers, all firings but the last `buffers - 1` must have ended.
    /// The first count of *sent* was as many quanta.
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
            ring: None,
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

    /// Notes that the window half is gone.
    pub(crate) fn end(&self) {
        // Release: a thread that sees this flag sees everything that was armed before.
        self.ended.store(true, Ordering::Release);
    }

    /// Whether nothing more will be armed and everything that was armed has ended; then a ticket for the line has no
    /// meaning. It is false if the queue gave up. (While the half exists, a ticket may stand for programs that a
    /// recording will arm.)
    pub(super) fn is_over(&self) -> bool {
        if !self.ended.load(Ordering::Acquire) {
            return false;
        }
        let (armed, through) = self.queue.counts();
        // SAFETY: the batch of the line's waits keeps the word, which lies in host memory.
        let sent = unsafe { &*self.sent.0.cast::<Word>() }.load();
        armed == through && sent & POISON == 0
    }

    pub(crate) fn is(&self, other: &NicLine) -> bool {
        self.sent == other.sent
    }
}

/// A joined wait for several lines. It is made once, because a device keeps its own form of a batch with the batch.
struct Together {
    /// All lines but the first, which holds this. A line is known by its address, which no other line gets while this
    /// reference exists.
    others: Vec<Weak<NicLine>>,
    wait: Arc<Batch>,
}

/// How many joined waits are remembered with one line.
const TOGETHER: usize = 8;

/// The waits for some lines, one for each window. So a remembered wait keeps no other window's memory.
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

/// The wait for some lines of one window. It is reused if it is remembered.
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
    // SAFETY: each batch was made safely, and they only read different words.
    let wait = Arc::new(unsafe { Batch::join(&all.collect::<Vec<_>>()) });
    let oldest = (known.len() == TOGETHER).then(|| known.remove(0));
    known.push(Together {
        others: others.iter().map(|line| Arc::downgrade(line)).collect(),
        wait: wait.clone(),
    });
    drop(known);
    // This is dropped without the lock, because the device's form of the batch is dropped, too.
    drop(oldest);
    wait
}
