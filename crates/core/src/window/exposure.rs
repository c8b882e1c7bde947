//! The state of an inbox: its memory, and the batches of its epochs.

use std::sync::{Arc, OnceLock};

use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Landed, Landing, Move, QUANTUM, Side, Step, Tag, Turn, Wait,
};
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Program;
use tidegate_hal::site::CallSite;
use tidegate_words::State;

use super::group::Groups;
use super::half::PeerRange;
use super::lent::Lent;
use super::view::Table;
use super::{Group, Half, HalfBody, Link, Peer, submit, submit_armed};
use crate::error::Result;
use crate::footprint::Footprint;
use crate::half_kind::HalfKind;
use crate::myself::{Act, Myself};
use crate::observe::EpochCall;
use crate::part::Members;
use crate::stream::{Arm, Stream};

pub(super) struct InboxBody<D: Device> {
    pub(super) half: Half<D>,
    /// The table of the slots. Kernels in the queue point to its entries, even while other fields of this body change.
    pub(super) table: Table<D>,
    /// In a window by range, the elements that origins may access.
    pub(super) footprints: Vec<Footprint>,
    /// The elements that no origin may access, computed on first use. Kernels in the queue point to this, too.
    pub(super) rest: OnceLock<Arc<Members>>,
    /// The origins, with the batches. The current ones are those of the epoch that is open, or was last.
    pub(super) groups: Groups<Epoch<D>>,
    /// The position that the stream must reach before the operands are those of the last epoch.
    pub(super) mark: u64,
    /// What kernels need to make epochs, once the inbox was lent to one.
    pub(super) lent: Option<Lent<D>>,
}

/// The acts towards this rank itself of an exposure epoch that is enqueued whole.
pub(super) const WHOLE: [Act; 2] = [Act::Post, Act::Wait];

/// The batches for a group of origins.
pub(super) struct Epoch<D: Device> {
    /// Whether this rank is a member.
    names_myself: bool,
    post: Arc<Batch>,
    wait: Arc<Batch>,
    /// Both batches as one, made on first use.
    whole: OnceLock<Arc<Batch>>,
    /// The programs that the NIC is armed with for the post.
    arms: Vec<Arm<D>>,
}

impl<D: Device> HalfBody for InboxBody<D> {
    type Device = D;
    const KIND: HalfKind = HalfKind::Inbox;
    fn half(&self) -> &Half<D> {
        &self.half
    }
}

impl<D: Device> Epoch<D> {
    fn new(half: &Half<D>, members: &[usize]) -> Result<Self> {
        let peers = || members.iter().map(|index| &half.peers[*index]);
        let size = half.window.element_size;
        let post = peers().map(|peer| {
            let signal = signal_steps(peer, half.window.id, Awaited::Exposure);
            let copies = peer.ranges.iter();
            let copies = copies.map(|range| copy_step(size, range, true));
            copies.chain(signal).collect()
        });
        let wait = peers().map(|peer| {
            let copies = peer.ranges.iter();
            let copies = copies.map(|range| copy_step(size, range, false));
            let wait = wait_step(peer, half.window.id);
            std::iter::once(wait).chain(copies).collect()
        });
        let arms = signal_arms(half, peers())?;
        let keeps = || {
            let ranges = peers().flat_map(|peer| &peer.ranges);
            ranges.filter_map(|range| range.keep.clone()).collect()
        };
        // SAFETY: all words lie in blocks that the half holds, and only this inbox's stream advances the operands. If
        // data may land, the wait writes only the slot of its origin, which is exposed to that origin until the wait is
        // over. The elements that a far origin accesses, and their copy, are exposed to it from the post's signal until
        // the wait is over, so nobody else accesses them. They lie in the window's blocks, too.
        let (post, wait) = unsafe { (Batch::new(post, keeps()), Batch::new(wait, keeps())) };
        let by_nic = !arms.is_empty();
        let (post, wait) = (post.helped(by_nic), wait.helped(by_nic));
        let names_myself = peers().any(|peer| peer.rank == half.world.rank());
        Ok(Epoch {
            names_myself,
            post: Arc::new(post),
            wait: Arc::new(wait),
            whole: OnceLock::new(),
            arms,
        })
    }

    /// The post and the wait.
    pub(super) fn batches(&self) -> (Arc<Batch>, Arc<Batch>) {
        (self.post.clone(), self.wait.clone())
    }

    /// The post and the wait as one batch, which the first use makes.
    fn whole(&self) -> &Arc<Batch> {
        let (post, wait) = (&self.post, &self.wait);
        self.whole.get_or_init(|| {
            // SAFETY: the two batches touch different words: posts add to words of the origins or to this half's
            // doorbells, and waits read this inbox's own words. If data lands, a wait writes the slot and reads the
            // landing of the epoch that it waits for. With two buffers, the post exposes the other buffers. An origin
            // can write this epoch's buffers again only after the next post, which comes behind this batch. With one
            // buffer, the wait cannot end before the post. So the copies of a range in the wait come behind those in
            // the post.
            Arc::new(unsafe { Batch::join(&[post, wait]) })
        })
    }
}

/// The NIC's programs for signals without data to some peers of a half.
pub(super) fn signal_arms<'a, D: Device>(
    half: &Half<D>,
    peers: impl Iterator<Item = &'a Peer>,
) -> Result<Vec<Arm<D>>> {
    let mut arms = Vec::new();
    for peer in peers {
        if let Link::Nic(line) = &peer.link {
            let program = Program {
                transfers: Vec::new(),
                signal: line.signal().clone(),
                keep: Vec::new(),
            };
            // SAFETY: the word is the one of the peer that this half signals. It lies in registered memory. The bell is
            // the peer's.
            let program = unsafe { line.queue().prepare(program) }?;
            arms.push(Arm::new(line, program, &half.window));
        }
    }
    Ok(arms)
}

/// The steps that signal a peer without data: tell an origin that the memory is exposed to it, say.
pub(super) fn signal_steps(peer: &Peer, window: WindowId, awaited: Awaited) -> Vec<Step> {
    let told = Tag {
        window: Some(window),
        peer: peer.rank as u32,
        awaited,
    };
    match peer.link {
        Link::Mapped { word, bell }
            if let Some(ring) = peer.ring
                && awaited == Awaited::Exposure =>
        {
            let epochs = ring.exposed_every();
            let operand = peer.operand;
            vec![Step::Add(Add {
                word,
                value: epochs * QUANTUM,
                bell,
                tag: Some(told),
                turn: Some(Turn::Every { epochs, operand }),
            })]
        }
        Link::Mapped { word, bell } => vec![Step::Add(Add {
            word,
            value: QUANTUM,
            bell,
            tag: Some(told),
            turn: None,
        })],
        Link::Nic(ref line) => line.ring(told).collect(),
    }
}

/// The step that copies elements of a far origin to the copy of them that NICs access, or back.
fn copy_step(size: usize, range: &PeerRange, to_copy: bool) -> Step {
    let copy = Side::linear(range.copy);
    let (src, dst) = match to_copy {
        true => (range.near, copy),
        false => (copy, range.near),
    };
    Step::Move(Move {
        action: Action::Copy,
        size: size as u32,
        count: range.count,
        src,
        dst,
        parity: Ptr::NULL,
        early: false,
        landing: None,
        buffers: 2,
    })
}

/// Whether all data has landed that the epoch after `operand` puts to a slot. Memory that cannot be read counts as
/// empty.
fn has_landed<D: Device>(device: &D, landed: &Landed, operand: u64) -> bool {
    let (at, tag) = landed.from.of_epoch(operand);
    let mut bytes = vec![0; Landing::room(landed.bytes)];
    // SAFETY: the landing lies in the window's block, which the half holds. Its origin may be writing it. One store
    // writes four bytes together with their tag, and a copy of an aligned word is not torn. Only the tags are looked
    // at.
    let read = unsafe { device.read(at, &mut bytes) };
    read.is_ok()
        && bytes
            .chunks_exact(8)
            .all(|unit| unit[4..] == tag.to_ne_bytes())
}

/// The step that waits until an origin has completed.
pub(super) fn wait_step(peer: &Peer, window: WindowId) -> Step {
    let tag = Tag {
        window: Some(window),
        peer: peer.rank as u32,
        awaited: Awaited::Completion,
    };
    Step::Wait(Wait {
        word: peer.word,
        operand: peer.operand,
        quantum: QUANTUM,
        tag,
        landed: peer.landed,
        ring: peer.ring,
    })
}

impl<D: Device> InboxBody<D> {
    pub(super) fn new(half: Half<D>, table: Table<D>, footprints: Vec<Footprint>) -> Result<Self> {
        let all: Vec<_> = (0..half.peers.len()).collect();
        let epoch = Epoch::new(&half, &all)?;
        Ok(InboxBody {
            half,
            table,
            footprints,
            rest: OnceLock::new(),
            groups: Groups::new(all, epoch),
            mark: 0,
            lent: None,
        })
    }

    /// Chooses the batches of a group. They are made on first use.
    pub(super) fn choose(&mut self, group: Option<&Group>) -> Result<()> {
        let half = &self.half;
        let batches = |members: &[usize]| Epoch::new(half, members);
        match group {
            None => self.groups.choose_all(),
            Some(group) => self.groups.choose(group, half, "an origin", batches)?,
        }
        Ok(())
    }

    pub(super) fn post_batch(&self) -> &Arc<Batch> {
        &self.groups.current().own.post
    }

    /// The programs that the NIC is armed with before the post is submitted.
    pub(super) fn arms(&self) -> &[Arm<D>] {
        &self.groups.current().own.arms
    }

    /// Submits a batch that posts.
    pub(super) fn submit(
        &self,
        stream: &Stream<'_, D>,
        batch: &Arc<Batch>,
        call: EpochCall,
        site: CallSite,
    ) -> Result<()> {
        self.half.epochs.enqueue(stream, self.groups.some(), || {
            submit_armed(stream, &[self.arms()], batch, call, site)
        })
    }

    /// Submits post and wait as one batch.
    pub(super) fn expose(&self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        let whole = self.groups.current().own.whole();
        self.submit(stream, whole, EpochCall::Expose, site)?;
        self.half.window.waits_at(HalfKind::Inbox, site);
        Ok(())
    }

    pub(super) fn wait_batch(&self) -> &Arc<Batch> {
        &self.groups.current().own.wait
    }

    /// Identifies the current pair of batches.
    pub(super) fn epoch_key(&self) -> (u64, u64) {
        (self.half.id, self.groups.current().id)
    }

    pub(super) fn passed_at(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// What this rank's halves know of each other, if the epoch names this rank itself.
    pub(super) fn own(&self) -> Option<&Arc<Myself<D>>> {
        let myself = self.half.myself.as_ref()?;
        self.groups.current().own.names_myself.then_some(myself)
    }

    /// Refuses work that would wait for this rank itself for ever, if it were enqueued now.
    pub(super) fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        self.own()
            .map_or(Ok(()), |myself| myself.admit(stream, acts))
    }

    /// Counts the acts towards this rank itself that have been enqueued.
    pub(super) fn done(&self, stream: &Stream<'_, D>, acts: &[Act]) {
        if let Some(myself) = self.own() {
            myself.done(stream, acts);
        }
    }

    /// Whether a wait for the origins of the open epoch would end at once, because all have completed, or because one
    /// never will.
    pub(super) fn is_decided(&self) -> bool {
        let (half, group) = (&self.half, self.groups.current());
        let device = half.world.device();
        let states = group.members.iter().map(|index| {
            let peer = &half.peers[*index];
            // SAFETY: word and operand lie in the window's block, which the half holds.
            let (word, operand) = unsafe { (device.peek(peer.word), device.peek(peer.operand)) };
            match tidegate_words::Word::new(word).look(operand, QUANTUM) {
                State::Reached => State::Reached,
                // Data that has landed counts, even if the word is poisoned.
                _ if peer
                    .landed
                    .is_some_and(|landed| has_landed(device, &landed, operand)) =>
                {
                    State::Reached
                }
                state => state,
            }
        });
        let (mut all, mut in_vain) = (true, false);
        for state in states {
            all &= state == State::Reached;
            in_vain |= state == State::Poisoned;
        }
        all || in_vain
    }

    /// Enqueues the wait of the open epoch.
    pub(super) fn wait(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        submit(stream, self.wait_batch(), EpochCall::Wait, site)?;
        self.half.window.waits_at(HalfKind::Inbox, site);
        self.done(stream, &[Act::Wait]);
        self.passed_at(stream.raw().mark());
        Ok(())
    }
}
