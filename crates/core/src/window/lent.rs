//! Halves that a kernel owns while it runs: what the kernel does with them, and what follows it.
//!
//! # Model
//!
//! A closed half is lent to one launch ([`Inbox::lend`](super::Inbox::lend), [`Outbox::lend`](super::Outbox::lend)).
//! The kernel makes epochs with it, as many as it likes. Each call of the kernel is a batch, the same one that the host
//! would enqueue for that call. So it adds to the same words by the same quantum, and its waits advance the same
//! operands. Neither peers nor words depend on whether the host or a kernel made an epoch, and the parity of the operand
//! chooses the buffer as always. So epochs of kernels and of the host alternate, here and at each peer.
//!
//! | call in the kernel | batch |
//! |---|---|
//! | `KernelInbox::post` | adds a quantum to each origin's *exposed* word |
//! | `KernelExposed::wait` | waits for the *done* word of each origin |
//! | `KernelOutbox::start` | waits for the *exposed* word of each target, and grants the slots ([`super::grants`]) |
//! | `KernelAccess::complete` | ends the grants, and adds a quantum to each target's *done* word |
//!
//! For one launch only two things are new. The *state* word says whether an epoch is open: 0, or the fault of a kernel
//! that would end now. And a batch behind the launch, the *closing*, checks that the word is 0. Otherwise the stream
//! fails, and the closing poisons the words of all peers. If the kernel panics, or one of its waits fails, the stream
//! has failed, too, and the closing poisons them as every batch does. So peers hear of each of these ends.
//!
//! The host lends a closed half and gets a closed half back, so no recording can begin or end inside an epoch, and
//! replays repeat the kernel with all its epochs.
//!
//! The host does not know how many epochs a kernel makes. The kernel counts them in [`Epochs`], and stops at the last
//! one that the words can count. Proofs of recordings need the number beforehand, so there is none for such a half.
//!
//! # Kernels of GPUs
//!
//! Device code cannot run the host's batches. It finds a *table* in memory of the device: a head, which begins with the
//! state word, and a cell for each peer. With it, `kernels/tidegate_own.cuh` does what the batches would do, to the same
//! words. Only the head changes, since a kernel counts its epochs in registers, and advances the operands when it closes
//! the half. It fails the stream in the way of a batch ([`Reports`]). Its puts need no grant: the token of the epoch
//! stands for that.
//!
//! The host does not hear of each epoch. So half of all epochs that the words can count are for kernels, and half for the
//! host ([`Epochs::halve`]).
//!
//! # Failure
//!
//! A call whose batch fails ends the kernel by unwinding. If a guard of the kernel makes a call while the kernel unwinds,
//! and it fails, it returns: a second unwinding would abort the process. The inbox then shows no slots. Puts find no
//! grant, or one of a target that is still exposed.
//!
//! Refused before anything is enqueued: a rank that is its own peer (the check for self-deadlock cannot look into a
//! kernel), peers that a NIC reaches (the host arms the NIC for each epoch), and peers that MPI's windows reach. On a GPU
//! also an inbox where short data land: a kernel's waits look at words only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_hal::batch::{Add, Awaited, Batch, Check, RawTag, Step, Tag};
use tidegate_hal::device::{Device, Issues, Reports, Stream as _};
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::Keep;
use tidegate_hal::site::CallSite;
use tidegate_words::Word;

use super::{Half, Link, submit};
use crate::bytes::{bytes_of, no_padding};
use crate::epochs::Epochs;
use crate::error::{EpochError, PutFault, Result};
use crate::half_kind::HalfKind;
use crate::observe::EpochCall;
use crate::stream::Stream;

/// The most items that a launch enqueues: the kernel, and a closing for each of its arguments.
const ITEMS: usize = 17;

/// The head of a half's table. The peers' cells follow.
#[repr(C, align(64))]
struct Head {
    /// The state word.
    state: u64,
    /// Counts the blocks of a kernel that have closed the half.
    closed: u32,
    /// Names the half in a fault.
    tag: RawTag,
    /// Counts how often blocks have come to the end of an epoch or to a barrier, all together.
    arrived: u64,
    /// Counts how many waits blocks have ended, all together.
    waited: u64,
    unused: [u64; 3],
}

/// A peer, as kernels of GPUs find it.
#[repr(C, align(64))]
struct Cell {
    /// The word that this rank waits for, and its operand.
    word: Ptr,
    operand: Ptr,
    /// The peer's word.
    out: Ptr,
    /// What is awaited.
    tag: RawTag,
    /// Where a long wait is reported: see [`PLACES`].
    place: u32,
    more: [u64; 3],
}

/// The number of the next place at which a wait is reported. A stream has 64 of them in turn. So two halves of one kernel
/// have different places, unless there are more peers than that, or very many halves were lent in between.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// `tidegate::KernelInbox` and `tidegate::KernelOutbox` of device code.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawHalf {
    table: Ptr,
    /// The table of an inbox's slots, or the one of an outbox ([`super::grants`]).
    slots: Ptr,
    count: u32,
    peers: u32,
    stop: Ptr,
    mirror: Ptr,
}

// `kernels/tidegate_own.cuh` states the same.
const _: () = {
    assert!(size_of::<Head>() == 64 && size_of::<Cell>() == 64 && size_of::<RawHalf>() == 40);
    assert!(std::mem::offset_of!(Head, closed) == 8 && std::mem::offset_of!(Head, arrived) == 24);
    assert!(std::mem::offset_of!(Head, tag) == 12 && std::mem::offset_of!(Cell, out) == 16);
    assert!(std::mem::offset_of!(Cell, tag) == 24);
};

no_padding!(Head: state closed tag arrived waited unused);
no_padding!(Cell: word operand out tag place more);

/// What a half has that was lent to a kernel.
pub(super) struct Lent<D: Device> {
    table: Arc<D::Block>,
    peers: usize,
    /// Of the stream of the last launch.
    reports: Reports,
    calls: Arc<Calls>,
    closing: Arc<Batch>,
}

/// What a kernel that is a closure does with a half.
struct Calls {
    /// Begins an epoch: the post, or the wait for all exposures.
    begin: Arc<Batch>,
    /// Ends it.
    end: Arc<Batch>,
    /// The state word.
    state: Ptr,
    /// Its value while an epoch is open.
    open: u64,
    epochs: Arc<Epochs>,
}

/// The half as it is enqueued.
#[derive(Clone, Copy)]
pub(super) struct LoweredHalf {
    /// [`Calls`].
    calls: Ptr,
    /// The launch.
    site: CallSite,
    table: Ptr,
    peers: usize,
    reports: Reports,
}

/// The half in the kernel that owns it.
pub(super) struct Owned<'k> {
    calls: &'k Calls,
    stream: &'k dyn Issues,
    site: CallSite,
}

impl<D: Device> Lent<D> {
    /// For a half that was [admitted](admit), and whose epochs begin and end by these batches.
    pub(super) fn new(
        half: &Half<D>,
        kind: HalfKind,
        begin: Arc<Batch>,
        end: Arc<Batch>,
    ) -> Result<Self> {
        let table = Arc::new(table(half, kind)?);
        let open = match kind {
            HalfKind::Inbox => PutFault::LEFT_EXPOSED,
            HalfKind::Outbox => PutFault::LEFT_OPEN,
        };
        let calls = Calls {
            begin,
            end,
            state: table.base(),
            open,
            epochs: half.epochs.clone(),
        };
        Ok(Lent {
            closing: Arc::new(closing(half, &table)),
            calls: Arc::new(calls),
            peers: half.peers.len(),
            reports: Reports::NONE,
            table,
        })
    }

    /// Prepares a launch on the stream, and tells observers what the kernel will do.
    pub(super) fn lower(
        &mut self,
        stream: &Stream<'_, D>,
        kind: HalfKind,
        site: CallSite,
    ) -> Result<LoweredHalf> {
        self.reports = stream.raw().reports()?;
        stream.raw().prepare(&self.closing, ITEMS)?;
        if let Some(observed) = stream.observed() {
            let (begin, end) = match kind {
                HalfKind::Inbox => (EpochCall::Post, EpochCall::Wait),
                HalfKind::Outbox => (EpochCall::Open, EpochCall::Complete),
            };
            observed.declares(&self.calls.begin, begin, site);
            observed.declares(&self.calls.end, end, site);
        }
        Ok(LoweredHalf {
            calls: Ptr(Arc::as_ptr(&self.calls).cast_mut().cast()),
            site,
            table: self.table.base(),
            peers: self.peers,
            reports: self.reports,
        })
    }

    /// The kernel has been enqueued: enqueues the closing.
    pub(super) fn launched(
        &self,
        half: &Half<D>,
        kind: HalfKind,
        stream: &Stream<'_, D>,
        site: CallSite,
    ) {
        half.epochs.lent(stream);
        if self.reports != Reports::NONE {
            half.epochs.halve();
        }
        half.window.waits_at(kind, site);
        // The stream has made room for it, so this fails only if the device has failed since, or other processes have
        // come to it.
        if let Err(error) = submit(stream, &self.closing, EpochCall::Close, site) {
            half.stake(true).give_up(&error);
        }
    }
}

/// Refuses halves whose epochs a kernel cannot make.
pub(super) fn admit<D: Device>(half: &Half<D>) -> Result<()> {
    let device = half.world.device();
    for peer in &half.peers {
        let reason = match &peer.link {
            _ if peer.rank == half.world.rank() => {
                "it is this rank itself, and nobody could see whether the kernel waits for what comes behind it"
            }
            Link::Nic(_) => {
                "a NIC reaches it, which the host arms for each epoch; use `Outbox::open`, or let the host enqueue the epochs"
            }
            Link::Mapped { .. } if device.allocates_together() => {
                "its memory may be that of MPI's windows; let the host enqueue the epochs"
            }
            Link::Mapped { .. } if peer.landed.is_some() => {
                "its short puts land with tags, which kernels do not look at; declare the window with `for_kernels`"
            }
            Link::Mapped { .. } => continue,
        };
        return Err(EpochError::NotByKernels {
            window: half.window.named(),
            rank: peer.rank,
            what: "make epochs with",
            reason,
        }
        .into());
    }
    Ok(())
}

fn table<D: Device>(half: &Half<D>, kind: HalfKind) -> Result<D::Block> {
    let tag = |rank: usize, awaited| Tag {
        window: Some(half.window.id),
        peer: rank as u32,
        awaited,
    };
    let awaited = match kind {
        HalfKind::Inbox => Awaited::Completion,
        HalfKind::Outbox => Awaited::Exposure,
    };
    let first = half.peers.first();
    let named = first.map_or(half.world.rank(), |peer| peer.rank);
    let head = Head {
        state: 0,
        closed: 0,
        tag: tag(named, Awaited::Kernel).into(),
        arrived: 0,
        waited: 0,
        unused: [0; 3],
    };
    let places = PLACES.fetch_add(half.peers.len() as u32, Ordering::Relaxed);
    let cell = |(index, peer): (u32, &super::Peer)| {
        let Link::Mapped { word: out, .. } = peer.link else {
            unreachable!("halves with other peers are refused")
        };
        Cell {
            word: peer.word,
            operand: peer.operand,
            out,
            tag: tag(peer.rank, awaited).into(),
            place: places.wrapping_add(index),
            more: [0; 3],
        }
    };
    let cells: Vec<Cell> = (0..).zip(&half.peers).map(cell).collect();
    let device = half.world.device();
    let bytes = size_of::<Head>() + size_of_val(&cells[..]);
    let block = device.alloc(bytes, Sharing::Private)?;
    // SAFETY: the block is as long as the head and the cells, and nothing else knows it yet.
    unsafe {
        device.write(block.base(), bytes_of(&[head]))?;
        device.write(block.base().byte_add(size_of::<Head>()), bytes_of(&cells))?;
    }
    Ok(block)
}

/// The batch behind a launch. Its adds add nothing. If it fails, or the stream has failed before, they poison the words
/// of the peers.
fn closing<D: Device>(half: &Half<D>, table: &Arc<D::Block>) -> Batch {
    let check = |peer: usize| {
        Step::Check(Check {
            count: table.base(),
            most: 0,
            tag: Tag {
                window: Some(half.window.id),
                peer: peer as u32,
                awaited: Awaited::Kernel,
            },
        })
    };
    let lane = |peer: &super::Peer| {
        let Link::Mapped { word, bell } = peer.link else {
            unreachable!("halves with other peers are refused")
        };
        let add = Add {
            word,
            value: 0,
            bell,
            tag: None,
            turn: None,
        };
        vec![check(peer.rank), Step::Add(add)]
    };
    let lanes = half.peers.iter().map(lane);
    let alone = half
        .peers
        .is_empty()
        .then(|| vec![check(half.world.rank())]);
    // SAFETY: the words and bells lie in blocks that the half holds, and the state word begins the block that the batch
    // keeps. Only kernels of this half's stream write it.
    unsafe { Batch::new(lanes.chain(alone), vec![table.clone() as Keep]) }
}

impl LoweredHalf {
    /// The half as device code gets it.
    pub(super) fn raw(self, slots: Ptr, count: usize) -> RawHalf {
        RawHalf {
            table: self.table,
            slots,
            // A window has fewer than 2^32 slots, and so fewer peers.
            count: count as u32,
            peers: self.peers as u32,
            stop: self.reports.stop,
            mirror: self.reports.mirror,
        }
    }

    /// # Safety
    ///
    /// The kernel that the half was lowered for runs on `stream`, and has the half only once.
    pub(super) unsafe fn own<'k>(self, stream: &'k dyn Issues) -> Owned<'k> {
        Owned {
            // SAFETY: the half holds it, and is retired in stream order. It is not written.
            calls: unsafe { &*self.calls.0.cast::<Calls>() },
            stream,
            site: self.site,
        }
    }
}

impl Owned<'_> {
    /// Begins an epoch.
    ///
    /// # Panics
    ///
    /// If the window can have no more epochs.
    #[track_caller]
    pub(super) fn begin(&self) {
        if let Err(error) = self.calls.epochs.begin_by_kernel() {
            panic!("{error}");
        }
        self.state(self.calls.open);
        self.issue(&self.calls.begin);
    }

    /// Ends the epoch that is open. Returns false if that failed while the kernel unwinds. Then the kernel must not read
    /// what the epoch was to bring.
    #[must_use]
    pub(super) fn end(&self) -> bool {
        let ended = self.issue(&self.calls.end);
        if ended {
            self.state(0);
        }
        ended
    }

    /// Runs a batch. If it fails, the kernel ends here by unwinding. If the kernel unwinds already, this returns false:
    /// a guard of the kernel has made the call in its `drop`, and a second unwinding would abort the process.
    fn issue(&self, batch: &Batch) -> bool {
        // SAFETY: the batch is one of the half's, which says why its promises hold. The half is at home on this stream,
        // and all of its peers are mapped.
        match unsafe { self.stream.issue(batch, self.site) } {
            Ok(()) => true,
            Err(_) if std::thread::panicking() => false,
            Err(stopped) => stopped.unwind(),
        }
    }

    fn state(&self, value: u64) {
        // SAFETY: the word lies in memory of the host, which the half holds. Only this thread accesses it now.
        unsafe { &*self.calls.state.0.cast::<Word>() }.advance(value);
    }
}
