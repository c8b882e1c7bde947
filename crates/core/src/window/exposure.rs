//! What an inbox is made of: its memory, and the batches of its epochs.

use std::sync::{Arc, OnceLock};

use tidegate_hal::batch::{Add, Awaited, Batch, Landed, Landing, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::nic::Program;
use tidegate_hal::site::CallSite;
use tidegate_words::State;

use super::view::Table;
use super::{Body, Group, Half, Peer, Way, submit, submit_armed};
use crate::error::Result;
use crate::footprint::Footprint;
use crate::myself::{Act, Myself};
use crate::part::Members;
use crate::side::Side;
use crate::stream::{Arm, Stream};

pub(super) struct InboxBody<D: Device> {
    pub(super) half: Half<D>,
    /// Kernels in the queue point to it, while this token goes on being changed.
    pub(super) table: Table<D>,
    /// Of a window by range: what origins may access of the memory.
    pub(super) footprints: Vec<Footprint>,
    /// What no origin may access, once that was asked for. Kernels in the queue point to it, too.
    pub(super) rest: OnceLock<Arc<Members>>,
    /// Post and wait for all origins, then for each group that was used.
    pub(super) epochs: Vec<Epoch<D>>,
    /// The epoch that is open, or was last.
    pub(super) current: usize,
    /// How far the stream must have come for the operands to be those of the last epoch.
    pub(super) mark: u64,
}

/// What an exposure epoch that is enqueued whole does towards this rank itself.
pub(super) const WHOLE: [Act; 2] = [Act::Post, Act::Wait];

/// The batches of a group of origins.
pub(super) struct Epoch<D: Device> {
    /// The group's number; 0 for all origins.
    pub(super) group: u64,
    pub(super) members: Vec<usize>,
    /// Whether this rank is one of them.
    names_myself: bool,
    post: Arc<Batch>,
    wait: Arc<Batch>,
    /// Both as one, once that was asked for.
    whole: Option<Arc<Batch>>,
    /// What the NIC is armed with for the post.
    arms: Vec<Arm<D>>,
}

impl<D: Device> Body for InboxBody<D> {
    type Device = D;
    const SIDE: Side = Side::Inbox;
    fn half(&self) -> &Half<D> {
        &self.half
    }
}

impl<D: Device> Epoch<D> {
    fn new(half: &Half<D>, group: u64, members: Vec<usize>) -> Result<Self> {
        let peers = || members.iter().map(|index| &half.peers[*index]);
        let post = peers().map(signal_steps);
        let wait = peers().map(|peer| vec![wait_step(peer, half.window.id)]);
        let arms = signal_arms(half, peers())?;
        // SAFETY: all words lie in blocks that the half holds; this inbox's stream alone advances the operands. A wait
        // whose data may land writes the slot of its origin alone, which is exposed to that origin until the wait is
        // over.
        let (post, wait) = unsafe { (Batch::new(post, Vec::new()), Batch::new(wait, Vec::new())) };
        let by_nic = !arms.is_empty();
        let (post, wait) = (post.helped(by_nic), wait.helped(by_nic));
        let names_myself = peers().any(|peer| peer.rank == half.world.rank());
        Ok(Epoch {
            group,
            members,
            names_myself,
            post: Arc::new(post),
            wait: Arc::new(wait),
            whole: None,
            arms,
        })
    }

    /// Makes post and wait one batch, the first time.
    fn join(&mut self) {
        let (post, wait) = (&self.post, &self.wait);
        self.whole.get_or_insert_with(|| {
            // SAFETY: the two batches touch different words: the posts the origins' or this half's doorbells, the
            // waits this inbox's own. A wait, where data lands, writes the slot and looks at the landing of the epoch
            // that it waits for. With two buffers the post exposes the other ones, and who is to write these again
            // needs the next post, which is behind this batch; with one buffer the wait cannot be over before the
            // post.
            Arc::new(unsafe { Batch::join(&[post, wait]) })
        });
    }
}

/// What the NIC does for signals without data to some peers of a half.
pub(super) fn signal_arms<'a, D: Device>(
    half: &Half<D>,
    peers: impl Iterator<Item = &'a Peer>,
) -> Result<Vec<Arm<D>>> {
    let mut arms = Vec::new();
    for peer in peers {
        if let Way::Nic(line) = &peer.way {
            let program = Program {
                transfers: Vec::new(),
                signal: line.signal().clone(),
                keep: Vec::new(),
            };
            // SAFETY: the word is the peer's for what this half tells it, in registered memory; the bell is the peer's.
            let program = unsafe { line.queue().prepare(program) }?;
            arms.push(Arm::new(line, program, &half.window));
        }
    }
    Ok(arms)
}

/// Tells a peer without data: an origin that the memory is exposed to it, say.
pub(super) fn signal_steps(peer: &Peer) -> Vec<Step> {
    match peer.way {
        Way::Mapped { word, bell } => vec![Step::Add(Add {
            word,
            value: QUANTUM,
            bell,
        })],
        Way::Nic(ref line) => line.ring().collect(),
    }
}

/// Whether all that the epoch after `operand` puts to a slot has landed. (What cannot be read never comes.)
fn has_landed<D: Device>(device: &D, landed: &Landed, operand: u64) -> bool {
    let (at, tag) = landed.from.of_epoch(operand);
    let mut bytes = vec![0; Landing::room(landed.bytes)];
    // SAFETY: the landing lies in the window's block, which the half holds. Its origin may be writing it: four bytes
    // and their tag by one store, and a copy of an aligned word is not torn; nothing but the tags is looked at.
    let read = unsafe { device.read(at, &mut bytes) };
    read.is_ok()
        && bytes
            .chunks_exact(8)
            .all(|unit| unit[4..] == tag.to_ne_bytes())
}

/// Waits until an origin has completed.
fn wait_step(peer: &Peer, window: WindowId) -> Step {
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
    })
}

impl<D: Device> InboxBody<D> {
    pub(super) fn new(half: Half<D>, table: Table<D>, footprints: Vec<Footprint>) -> Result<Self> {
        let all = Epoch::new(&half, 0, (0..half.peers.len()).collect())?;
        Ok(InboxBody {
            half,
            table,
            footprints,
            rest: OnceLock::new(),
            epochs: vec![all],
            current: 0,
            mark: 0,
        })
    }

    /// Chooses the batches of a group, making them the first time.
    pub(super) fn choose(&mut self, group: Option<&Group>) -> Result<()> {
        let id = group.map_or(0, |group| group.id);
        if let Some(index) = self.epochs.iter().position(|epoch| epoch.group == id) {
            self.current = index;
            return Ok(());
        }
        let members = self.half.members(
            group.expect("all origins are known from the start"),
            "an origin",
        )?;
        // A group that was made again is not another one.
        self.current = match self.epochs[1..]
            .iter()
            .position(|epoch| epoch.members == members)
        {
            Some(index) => index + 1,
            None => {
                self.epochs.push(Epoch::new(&self.half, id, members)?);
                self.epochs.len() - 1
            }
        };
        Ok(())
    }

    pub(super) fn post_batch(&self) -> &Arc<Batch> {
        &self.epochs[self.current].post
    }

    /// What the NIC is armed with before the post is submitted.
    pub(super) fn arms(&self) -> &[Arm<D>] {
        &self.epochs[self.current].arms
    }

    /// Submits a batch that posts.
    pub(super) fn submit(
        &self,
        stream: &Stream<'_, D>,
        batch: &Arc<Batch>,
        site: CallSite,
    ) -> Result<()> {
        self.half.epochs.enqueue(stream, self.some(), || {
            submit_armed(stream, &[self.arms()], batch, site)
        })
    }

    /// The origins of the current group, unless it is all of them.
    pub(super) fn some(&self) -> Option<&[usize]> {
        (self.current != 0).then(|| &self.epochs[self.current].members[..])
    }

    /// Submits post and wait as one.
    pub(super) fn expose(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        self.epochs[self.current].join();
        let whole = self.epochs[self.current].whole.as_ref();
        self.submit(stream, whole.expect("it was just made"), site)?;
        self.half.window.waits_at(Side::Inbox, site);
        Ok(())
    }

    pub(super) fn wait_batch(&self) -> &Arc<Batch> {
        &self.epochs[self.current].wait
    }

    /// What identifies the pair of batches that is current.
    pub(super) fn epoch_key(&self) -> (u64, u64) {
        (self.half.id, self.epochs[self.current].group)
    }

    pub(super) fn choose_all(&mut self) {
        self.current = 0;
    }

    pub(super) fn passed_at(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// What is known of this rank's own halves, if the epoch names this rank itself.
    pub(super) fn own(&self) -> Option<&Arc<Myself<D>>> {
        let myself = self.half.myself.as_ref()?;
        self.epochs[self.current].names_myself.then_some(myself)
    }

    /// Refuses what would wait for this rank itself for ever, if it were enqueued now.
    pub(super) fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        self.own()
            .map_or(Ok(()), |myself| myself.admit(stream, acts))
    }

    /// Counts what has been enqueued towards this rank itself.
    pub(super) fn done(&self, stream: &Stream<'_, D>, acts: &[Act]) {
        if let Some(myself) = self.own() {
            myself.done(stream, acts);
        }
    }

    /// Whether a wait for the origins of the epoch that is open would end at once: all have completed, or one never will.
    pub(super) fn is_decided(&self) -> bool {
        let (half, epoch) = (&self.half, &self.epochs[self.current]);
        let device = half.world.device();
        let states = epoch.members.iter().map(|index| {
            let peer = &half.peers[*index];
            // SAFETY: word and operand lie in the window's block, which the half holds.
            let (word, operand) = unsafe { (device.peek(peer.word), device.peek(peer.operand)) };
            match tidegate_words::Word::new(word).look(operand, QUANTUM) {
                State::Reached => State::Reached,
                // What has landed counts, poisoned or not.
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

    /// Enqueues the wait of the epoch that is open.
    pub(super) fn wait(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        submit(stream, self.wait_batch(), site)?;
        self.half.window.waits_at(Side::Inbox, site);
        self.done(stream, &[Act::Wait]);
        self.passed_at(stream.raw().mark());
        Ok(())
    }
}
