//! Carries out schedules on a stream.
//!
//! # Model
//!
//! All collectives have one executor. It owns the two halves of an internal window by slot, and the scratch buffer. A call
//! names its buffers. For buffers that it has not seen yet, the executor makes the rounds (`window/round.rs`) of the
//! schedule. It then enqueues the rounds one after the other. So a call that is repeated costs the submission of its
//! batches and nothing else, and a captured call replays the same batches.
//!
//! # Failure
//!
//! A call that is refused has enqueued nothing, with one exception: something refuses a later round of the call when the
//! earlier ones are enqueued. Other ranks count on the rest, so the window is revoked.

use std::fmt;
use std::panic::Location;

use tidegate_hal::batch::Op;
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::memory::Ptr;
use tidegate_hal::site::CallSite;

use super::algorithms::{Counts, What, schedule};
use super::choice::Choice;
use super::nodes::Nodes;
use super::schedule::{Blocks, Buffer, From, How, Job, Local, Schedule, Sent, Slot, Spot};
use crate::carry::{Carry, Visitor};
use crate::element::Element;
use crate::error::{EpochError, Error, Result, WindowError};
use crate::nic::Touch;
use crate::observe::EpochCall;
use crate::place::On;
use crate::region::{Region, RegionBody};
use crate::stream::{Stream, prepare_wait};
use crate::window::{
    BySlot, Inbox, Joint, JointKind, LocalAction, LocalMove, Origin, Outbox, Put, Putting, Receive,
    Round, RoundPlan, Run, Window, hash_of,
};
use crate::world::Team;

/// For how many different buffers the rounds are kept.
const KEPT: usize = 8;

/// How many times as long pieces may be that targets can read from the memory of origins.
const PULLED: usize = 4;

/// The most ranks that a rank sends to in one stage. The lanes of a stage must all be resident on a GPU.
const PEERS: usize = 32;

/// The most pieces of a vector or block. Each one is a stage, with batches of its own.
const MOST_PIECES: usize = 1 << 16;

/// The lanes of a stage for each peer: the post, the put, the wait.
const LANES: usize = 3;

/// A region of a call, and how many elements it must have.
pub(crate) type Needed<'b, D> = (&'b RegionBody<D>, usize);

/// The regions of a call.
struct Bodies<'b, D: Device> {
    /// `None` if the call is in place.
    input: Option<&'b RegionBody<D>>,
    /// `None` if this rank gets nothing.
    output: Option<&'b RegionBody<D>>,
    /// The numbers of rows that are sent, if the call has them.
    counts: Option<&'b RegionBody<D>>,
    /// The numbers of rows that are received.
    received: Option<&'b RegionBody<D>>,
}

impl<'b, D: Device> Bodies<'b, D> {
    /// What is read alone.
    fn read(&self) -> impl Iterator<Item = &'b RegionBody<D>> {
        self.input.into_iter().chain(self.counts)
    }

    fn written(&self) -> impl Iterator<Item = &'b RegionBody<D>> {
        self.output.into_iter().chain(self.received)
    }

    fn all(&self) -> [Option<&'b RegionBody<D>>; 4] {
        [self.input, self.output, self.counts, self.received]
    }
}

/// The address of a region, and the number that tells it from a later region at the same address.
type Known = Option<(Ptr, u64)>;

/// The rounds of the calls with these buffers.
struct Kept<D: Device> {
    buffers: [Known; 4],
    rounds: Box<[Round<D>]>,
}

/// A collective of any kind, open on all ranks.
pub(crate) struct Executor<'s, T: Element, D: Device> {
    inbox: Inbox<'s, T, D, BySlot>,
    outbox: Outbox<'s, T, D, BySlot>,
    scratch: Region<T, On<'s, D>>,
    job: Job,
    choice: Choice,
    what: What,
    /// The blocks of all ranks, or those that this rank sends; and those that it receives.
    blocks: [Blocks; 2],
    /// The slots, in the order of their declaration.
    inbound: Box<[Slot]>,
    outbound: Box<[Slot]>,
    kept: Vec<Kept<D>>,
}

impl<'s, T: Element, D: Device> Executor<'s, T, D> {
    /// Opens the window of a collective.
    pub(crate) fn open(
        team: &Team<D>,
        stream: &Stream<'s, D>,
        name: &str,
        what: What,
        choice: Choice,
    ) -> Result<Self> {
        Self::open_parts::<T>(team, stream, name, what, choice)
    }

    /// Opens the window of a collective that sends parts of elements of type `E`.
    pub(crate) fn open_parts<E: Element>(
        team: &Team<D>,
        stream: &Stream<'s, D>,
        name: &str,
        what: What,
        choice: Choice,
    ) -> Result<Self> {
        let (rank, ranks) = (team.rank(), team.size());
        // Data that are read from the origin's memory need no room, and no copy that goes on at the same time.
        let longer = match team.world().device().rings() && what.kind.pulls() {
            true => PULLED,
            false => 1,
        };
        let piece = choice.piece(ranks, size_of::<T>(), longer);
        let joint = Joint {
            kind: what
                .kind
                .with_root(|root| team.world_rank(root).unwrap_or(root)),
            len: match &what.counts {
                Counts::Equal(len) => Ok(*len),
                Counts::Each(counts) => Err(hash_of(counts)),
                // Each rank has other numbers, and the two ranks of a pair compare theirs.
                Counts::Pairs(..) => Err(0),
            },
            op: what.reduction.map(|it| it.op),
            choice: [
                choice.short,
                usize::from(choice.at_once),
                choice.pair,
                choice.piece,
                choice.few,
                choice.scan,
                choice.along,
                usize::from(choice.by_node),
            ],
        };
        if let Err(error) = check(team, name, piece, &what) {
            // The other ranks must hear of it.
            let window = Window::<T, _>::refused(name, joint, error).parts_of::<E>();
            let opened = window.open_with(team, stream, |_, _| Ok(()));
            return Err(opened.expect_err("a refused window is not opened"));
        }
        let nodes = match choice.by_node {
            true => Nodes::new(
                (0..ranks).map(|rank| team.node(rank).expect("it is a rank of the team")),
            ),
            false => Nodes::one(ranks),
        };
        let job = Job {
            rank,
            ranks,
            size: size_of::<T>(),
            // One lane is for moves beside.
            peers: (stream.raw().most_lanes().saturating_sub(1) / LANES).clamp(1, PEERS),
            piece,
            nodes,
        };
        let [apart, in_place] = [false, true].map(|it| schedule(&job, &choice, &what, it));
        let Schedule {
            inbound, outbound, ..
        } = &apart;
        // If each pair of ranks has a length of its own, it is the key of the pair's slot: a slot is no longer than a
        // piece, and would not show that the two ranks disagree about a longer block.
        let (to, from) = match &what.counts {
            Counts::Pairs(to, from) => (Some(to), Some(from)),
            _ => (None, None),
        };
        let declared = |lengths: Option<&Vec<usize>>, slot: &Slot, len: &usize| {
            let key = lengths.map_or(slot.key, |lengths| lengths[slot.rank] as u64);
            (slot.rank, key, *len)
        };
        // A rank moves its own block without a slot. If its two lengths differ, it declares a slot that it does not
        // have, so that all ranks hear of that.
        let own = to.zip(from).filter(|(to, from)| to[rank] != from[rank]);
        let own = own.map(|(to, _)| (rank, to[rank] as u64, to[rank]));
        let inbound_slots = inbound.iter().map(|(slot, len)| declared(from, slot, len));
        let outbound_slots = outbound.iter().map(|(slot, len)| declared(to, slot, len));
        let window = Window::of_joint(name, joint, inbound_slots, outbound_slots.chain(own));
        // If each call is one reduction, a device may combine the data as it comes.
        let at_once = what.kind.reduces_everywhere();
        let at_once = at_once && apart.is_one_reduction() && in_place.is_one_reduction();
        let window = window.parts_of::<E>().reduces_at_once(at_once);
        let elements = apart.scratch.max(in_place.scratch);
        let ((inbox, outbox), scratch) = window.open_with(team, stream, |_, _| {
            Region::zeroed(team.world(), elements)?.on(stream)
        })?;
        Ok(Executor {
            inbox,
            outbox,
            scratch,
            inbound: inbound.keys().copied().collect(),
            outbound: outbound.keys().copied().collect(),
            job,
            choice,
            blocks: [what.counts.blocks(ranks), what.counts.received(ranks)],
            what,
            kept: Vec::new(),
        })
    }

    /// The number in the job of a rank of the team that has opened the window.
    fn in_job(&self, rank: usize) -> usize {
        let known = self.inbox.roster().in_job(rank);
        known.expect("schedules have ranks of the team")
    }

    pub(crate) fn inbox(&self) -> &Inbox<'s, T, D, BySlot> {
        &self.inbox
    }

    pub(crate) fn ranks(&self) -> usize {
        self.job.ranks
    }

    pub(crate) fn rank(&self) -> usize {
        self.job.rank
    }

    /// Whether this rank is the root of a gather or scatter.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.what.kind, JointKind::Gather { root } | JointKind::Scatter { root } if root == self.job.rank)
    }

    /// The length of the vector.
    pub(crate) fn vector(&self) -> usize {
        self.what.counts.vector()
    }

    /// The blocks of all ranks, or those that this rank sends.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks[0]
    }

    /// The blocks that this rank receives.
    pub(crate) fn received(&self) -> &Blocks {
        &self.blocks[1]
    }

    /// Refuses a region that does not have so many elements.
    fn checked<'b>(&self, (region, len): Needed<'b, D>) -> Result<&'b RegionBody<D>> {
        if region.len() == len {
            return Ok(region);
        }
        let window = self.inbox.named();
        let (src, dst) = (region.len(), len);
        Err(Error::Epoch(EpochError::CountMismatch { window, src, dst }))
    }

    /// Enqueues a call. It has no `input` if it is in place, and no `output` if this rank gets nothing.
    #[track_caller]
    pub(crate) fn run(
        &mut self,
        stream: &Stream<'s, D>,
        input: Option<Needed<'_, D>>,
        output: Option<Needed<'_, D>>,
    ) -> Result<()> {
        let checked = |region: Option<_>| region.map(|region| self.checked(region)).transpose();
        let bodies = Bodies {
            input: checked(input)?,
            output: checked(output)?,
            counts: None,
            received: None,
        };
        self.enqueue(stream, &bodies, Location::caller())
    }

    /// Like [`Executor::run`], with the regions of the numbers of rows that are sent, and received.
    #[track_caller]
    pub(crate) fn run_counted(
        &mut self,
        stream: &Stream<'s, D>,
        [input, output, counts, received]: [Needed<'_, D>; 4],
    ) -> Result<()> {
        let bodies = Bodies {
            input: Some(self.checked(input)?),
            output: Some(self.checked(output)?),
            counts: Some(self.checked(counts)?),
            received: Some(self.checked(received)?),
        };
        self.enqueue(stream, &bodies, Location::caller())
    }

    fn enqueue(
        &mut self,
        stream: &Stream<'s, D>,
        bodies: &Bodies<'_, D>,
        site: CallSite,
    ) -> Result<()> {
        self.inbox.ready(stream)?;
        let kept = self.rounds(stream, bodies)?;
        let rounds = &*self.kept[kept].rounds;
        for round in rounds {
            // Each round may be an epoch with the same peer.
            round.admit(&self.inbox, &self.outbox, rounds.len() as u64)?;
        }
        self.prepare(stream, rounds, bodies)?;
        self.settle(stream, bodies, site)?;
        let call = call_of(self.what.kind);
        let mut begun = false;
        let enqueued = rounds.iter().try_for_each(|round| {
            let (inbox, outbox) = (&self.inbox, &self.outbox);
            round.submit(stream, inbox, outbox, (call, site), &mut begun)
        });
        enqueued.inspect_err(|error| {
            if begun {
                self.inbox.revoke(error);
            }
        })
    }

    /// Lets the device refuse a call of several batches now, if it would, before the other ranks can hear of the call.
    fn prepare(
        &self,
        stream: &Stream<'s, D>,
        rounds: &[Round<D>],
        bodies: &Bodies<'_, D>,
    ) -> Result<()> {
        let batches = || rounds.iter().flat_map(Round::batches);
        let count = batches().count();
        let Some(last) = batches().last().filter(|_| count > 1) else {
            return Ok(());
        };
        let mut items = count;
        let tickets = || bodies.written().filter_map(RegionBody::outstanding);
        let mut lines = self.outbox.lines().peekable();
        if tickets().next().is_some() || lines.peek().is_some() {
            // NICs may read the output already, and those of this window will read it. Before a batch writes, it waits.
            let readers = tickets().flat_map(|tickets| tickets.readers());
            let waits = prepare_wait(stream, readers.chain(lines))?;
            // The call also waits at first, once for each window whose NIC writes a buffer.
            let mut writers = Vec::new();
            for body in bodies.all().into_iter().flatten() {
                if let Some(tickets) = body.outstanding() {
                    tickets.gather(Touch::Read, &mut writers);
                }
            }
            items += count * waits + writers.len();
        }
        stream.raw().prepare(last, items)?;
        Ok(())
    }

    /// Waits for operations of NICs, for other windows, that still use the buffers.
    fn settle(&self, stream: &Stream<'s, D>, bodies: &Bodies<'_, D>, site: CallSite) -> Result<()> {
        for body in bodies.read() {
            body.settle(stream, Touch::Read, site)?;
        }
        let mut written = bodies.written();
        written.try_for_each(|body| body.settle(stream, Touch::Write, site))
    }

    /// The index of the rounds for these buffers, which are made on first use.
    fn rounds(&mut self, stream: &Stream<'s, D>, bodies: &Bodies<'_, D>) -> Result<usize> {
        let known = |body: Option<&RegionBody<D>>| body.map(|body| (body.ptr(), body.id));
        let key = bodies.all().map(known);
        if let Some(kept) = self.kept.iter().position(|kept| kept.buffers == key) {
            return Ok(kept);
        }
        let in_place = bodies.input.is_none();
        let schedule = schedule(&self.job, &self.choice, &self.what, in_place);
        let plans = schedule.stages.iter().map(|stage| {
            let body = |spot: Spot| {
                let region = match spot.buffer {
                    Buffer::Input => bodies.input,
                    Buffer::Output => bodies.output,
                    Buffer::Scratch => Some(&self.scratch.body),
                    Buffer::Counts => bodies.counts,
                    Buffer::Received => bodies.received,
                };
                Run {
                    region: region.expect("the schedule uses the buffers of the call"),
                    offset: spot.first * size_of::<T>(),
                }
            };
            let lanes = |lanes: &[Vec<Local>]| -> Vec<Vec<LocalMove<'_, D>>> {
                let one = |one: &Local| self.local(one, body);
                lanes
                    .iter()
                    .map(|lane| lane.iter().map(one).collect())
                    .collect()
            };
            RoundPlan {
                puts: (stage.sends.iter())
                    .map(|send| Put {
                        what: match send.what {
                            Sent::All => Putting::All,
                            Sent::Rows { count, size } => Putting::Rows {
                                count: body(count),
                                size: size * size_of::<T>(),
                            },
                            Sent::Number(most) => Putting::Number(most as u64),
                        },
                        slot: number(&self.outbound, send.to),
                        from: body(send.from),
                        count: send.count,
                    })
                    .collect(),
                receives: (stage.receives.iter())
                    .map(|(slot, count)| Receive {
                        rank: self.in_job(slot.rank),
                        slot: number(&self.inbound, *slot),
                        count: *count,
                    })
                    .collect(),
                beside: lanes(&stage.beside),
                behind: lanes(&stage.behind),
            }
        });
        let plans: Vec<_> = plans.collect();
        let most = stream.raw().most_lanes();
        // SAFETY: the buffers have the lengths that the schedule was made for: the public calls say which, and `checked`
        // has refused others. They belong to this stream, as the types of these calls say. The slots have the lengths of
        // the schedule. The tests of the algorithms check that lanes of a stage are independent. Reductions come with the
        // scalar of their elements.
        let rounds = unsafe { Round::all(&self.inbox, &self.outbox, &plans, most) }?;
        // What the device refuses is refused here, before the other ranks can hear of this call.
        for batch in rounds.iter().flat_map(Round::batches) {
            stream.raw().prepare(batch, 1)?;
        }
        if self.kept.len() == KEPT {
            // The queue keeps the batches if some of their work is still to be carried out.
            self.kept.remove(0);
        }
        self.kept.push(Kept {
            buffers: key,
            rounds: rounds.into(),
        });
        Ok(self.kept.len() - 1)
    }

    fn local<'b>(&self, one: &Local, body: impl Fn(Spot) -> Run<'b, D>) -> LocalMove<'b, D> {
        let reduce = |op: Option<Op>, before: bool| {
            let reduction = self.what.reduction;
            let reduction = reduction.expect("a collective that reduces has an operation");
            LocalAction::Reduce {
                op: op.unwrap_or(reduction.op),
                scalar: reduction.scalar,
                parts: reduction.parts,
                before,
            }
        };
        let origin = |from: From| match from {
            From::Spot(spot) => Origin::Run(body(spot)),
            From::Slot(slot, first) => {
                let bytes = first * size_of::<T>();
                Origin::Slot(self.in_job(slot.rank), number(&self.inbound, slot), bytes)
            }
        };
        LocalMove {
            action: match one.how {
                How::Copy => LocalAction::Copy,
                How::First => reduce(Some(Op::Replace), false),
                How::Next => reduce(None, false),
                How::Before => reduce(None, true),
                How::Rows { count, size } => LocalAction::CopyRows {
                    count: origin(count),
                    size: size * size_of::<T>(),
                },
                How::Number(most) => LocalAction::CopyNumber(most as u64),
            },
            from: origin(one.from),
            to: body(one.to),
            count: one.count,
        }
    }

    /// The `Debug` text of a collective.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct(name);
        text.field("name", &self.inbox.name())
            .field("id", &self.inbox.id())
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("device", &D::NAME);
        match &self.what.counts {
            Counts::Equal(len) => text.field("len", len),
            Counts::Each(counts) => text.field("counts", counts),
            Counts::Pairs(to, from) => text.field("to", to).field("from", from),
        };
        text.finish_non_exhaustive()
    }

    /// Visits what the executor holds on the stream.
    pub(crate) fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.inbox.visit(visitor);
        self.outbox.visit(visitor);
        self.scratch.visit(visitor);
    }
}

/// Refuses a collective that this rank cannot take part in.
fn check<D: Device>(team: &Team<D>, name: &str, piece: usize, what: &What) -> Result<()> {
    if let JointKind::Broadcast { root }
    | JointKind::Reduce { root }
    | JointKind::Gather { root }
    | JointKind::Scatter { root } = what.kind
    {
        team.world_rank(root)?;
    }
    if let Some(reduction) = what.reduction {
        reduction.check(name)?;
    }
    let ranks = team.size();
    if let (JointKind::Counted { row }, Counts::Equal(block)) = (what.kind, &what.counts) {
        let all = block
            .checked_mul(ranks)
            .filter(|all| isize::try_from(*all).is_ok());
        return match all {
            Some(_) if (1..=u32::MAX as usize).contains(&row) => Ok(()),
            _ => Err(WindowError::Rows {
                name: name.into(),
                row,
            }
            .into()),
        };
    }
    let lengths: [&[usize]; 2] = match &what.counts {
        Counts::Equal(_) => [&[], &[]],
        Counts::Each(counts) => [counts, counts],
        Counts::Pairs(to, from) => [to, from],
    };
    for counts in lengths {
        if !matches!(what.counts, Counts::Equal(_)) && counts.len() != ranks {
            let (name, counts) = (name.into(), counts.len());
            return Err(WindowError::Counts {
                name,
                counts,
                ranks,
            }
            .into());
        }
    }
    let longest = match &what.counts {
        Counts::Equal(len) => *len,
        _ => lengths.concat().into_iter().max().unwrap_or(0),
    };
    if longest.div_ceil(piece) > MOST_PIECES {
        let (name, most) = (name.into(), MOST_PIECES);
        return Err(WindowError::TooLong { name, most }.into());
    }
    Ok(())
}

/// The number of a slot, in the order of declaration.
fn number(slots: &[Slot], slot: Slot) -> usize {
    let found = slots.binary_search(&slot);
    found.expect("the window was declared for the same schedule")
}

fn call_of(kind: JointKind) -> EpochCall {
    match kind {
        JointKind::Broadcast { .. } => EpochCall::Broadcast,
        JointKind::Reduce { .. } => EpochCall::Reduce,
        JointKind::AllReduce => EpochCall::AllReduce,
        JointKind::Gather { .. } => EpochCall::Gather,
        JointKind::Scatter { .. } => EpochCall::Scatter,
        JointKind::AllGather => EpochCall::AllGather,
        JointKind::ReduceScatter => EpochCall::ReduceScatter,
        JointKind::AllToAll | JointKind::Counted { .. } => EpochCall::AllToAll,
        JointKind::Scan { .. } => EpochCall::Scan,
    }
}
