//! The events.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::{Awaited, Batch, Step, Tag};
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::Leg;

/// Something that happened on a rank. Times are nanoseconds of `CLOCK_MONOTONIC`. Streams are numbered by rank, from 0,
/// in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// The rank has joined the job: the first event.
    Joined(Joined),
    /// The rank has opened a window or a collective.
    Opened {
        /// Its id, which is the same on all ranks.
        window: WindowId,
        /// What it is: `window` or `barrier`.
        what: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// How many epochs each origin may begin before the first post: 1 if both of two buffers are free at first.
        exposed: u64,
        /// The time.
        at: u64,
    },
    /// The rank has made a team, with the other ranks of it. It comes before anything that the team opens.
    TeamMade(TeamMade),
    /// The program has made a stream.
    Made {
        /// Its number.
        stream: u32,
        /// Its name.
        name: String,
        /// Whether it will stamp what it does. If not, there are no [`Event::Leg`]s of it.
        stamped: bool,
        /// The time.
        at: u64,
    },
    /// What a batch does. It comes once, before the batch is enqueued or recorded for the first time.
    Declared(Declared),
    /// The program enqueues a batch. (If the device refuses, the call returns an error, and no leg follows.)
    Enqueued {
        /// The stream.
        stream: u32,
        /// The batch.
        batch: u64,
        /// The time.
        at: u64,
        /// How long other threads had the processor of the program's thread, since its last call that was told.
        lost: u64,
    },
    /// The program launches a kernel.
    Launched {
        /// The stream.
        stream: u32,
        /// The kernel's name: that of a function of device code, or of a closure's type.
        kernel: Arc<str>,
        /// The line of the program.
        site: Arc<str>,
        /// The time.
        at: u64,
        /// How long other threads had the processor of the program's thread, since its last call that was told.
        lost: u64,
    },
    /// The program has waited for a stream, by a call that blocks.
    Synchronized {
        /// The stream.
        stream: u32,
        /// The line of the program.
        site: Arc<str>,
        /// When it began to wait.
        begun: u64,
        /// The time.
        at: u64,
        /// How long other threads had the processor of the program's thread, between its last call that was told and
        /// `begun`.
        lost: u64,
    },
    /// The later work of one stream comes after the earlier work of another.
    HandedOff {
        /// The stream whose work comes first.
        from: u32,
        /// The other stream.
        to: u32,
        /// The time.
        at: u64,
    },
    /// The program has recorded a step.
    Recorded(Recorded),
    /// The program replays a recording.
    Replayed {
        /// The number of the recording.
        recording: u64,
        /// How often.
        times: u64,
        /// The line of the program.
        site: Arc<str>,
        /// The time.
        at: u64,
        /// How long other threads had the processor of the program's thread, since its last call that was told.
        lost: u64,
    },
    /// The program blocks until a stream has done everything that is enqueued.
    Synchronizes {
        /// The stream.
        stream: u32,
        /// The call: `synchronize`, or one that gives the host what the stream has, as `into_host`.
        call: Arc<str>,
        /// The line of the program.
        site: Arc<str>,
        /// The time.
        at: u64,
    },
    /// The call of this stream's last [`Event::Enqueued`], [`Event::Launched`], [`Event::Replayed`] or
    /// [`Event::Synchronizes`] returns. It comes on the thread of the program that made the call. Only observers that
    /// ask for it get it: see [`Observer::returns`](super::Observer::returns).
    Returned {
        /// The stream.
        stream: u32,
        /// The time.
        at: u64,
    },
    /// A stream has carried out a part of a batch.
    Leg {
        /// The stream.
        stream: u32,
        /// What the stream has stamped.
        leg: Leg,
    },
    /// A kernel has run on a stream that knows when its kernels run: on a stream of the host.
    Ran {
        /// The stream.
        stream: u32,
        /// The kernel's name.
        kernel: Arc<str>,
        /// When it began.
        begun: u64,
        /// When it returned.
        ended: u64,
        /// How long other threads had its processor meanwhile.
        lost: u64,
    },
    /// A stream has dropped stamps, because they were not taken fast enough.
    Dropped {
        /// The stream.
        stream: u32,
        /// How many it has dropped, in all.
        stamps: u64,
    },
    /// How far the stamps of a stream may be from the host's clock. It holds for what comes behind it, up to the next
    /// one.
    Clock {
        /// The stream.
        stream: u32,
        /// The bound, in nanoseconds.
        error: u64,
    },
    /// A stream has failed.
    Failed {
        /// The stream.
        stream: u32,
        /// Why.
        why: String,
        /// The time when that was seen.
        at: u64,
    },
    /// A window is revoked.
    Revoked {
        /// The window.
        window: WindowId,
        /// Why.
        why: String,
        /// The time.
        at: u64,
    },
    /// Another rank has ended.
    Gone {
        /// The rank.
        rank: u32,
        /// How.
        why: String,
        /// The time.
        at: u64,
    },
    /// The rank leaves the job: the last event.
    Left {
        /// The time.
        at: u64,
    },
}

impl Event {
    /// When it happened: for a [`Event::Leg`] and a kernel that has [`Event::Ran`], when that ended. Events that are no
    /// more than a description have no time.
    pub fn at(&self) -> Option<u64> {
        match self {
            Event::Joined(joined) => Some(joined.at),
            Event::Recorded(recorded) => Some(recorded.at),
            Event::TeamMade(made) => Some(made.at),
            Event::Leg { leg, .. } => Some(leg.ended),
            Event::Ran { ended, .. } => Some(*ended),
            Event::Opened { at, .. }
            | Event::Made { at, .. }
            | Event::Enqueued { at, .. }
            | Event::Launched { at, .. }
            | Event::HandedOff { at, .. }
            | Event::Replayed { at, .. }
            | Event::Synchronizes { at, .. }
            | Event::Synchronized { at, .. }
            | Event::Returned { at, .. }
            | Event::Failed { at, .. }
            | Event::Revoked { at, .. }
            | Event::Gone { at, .. }
            | Event::Left { at } => Some(*at),
            Event::Declared(_) | Event::Dropped { .. } | Event::Clock { .. } => None,
        }
    }
}

/// A rank has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Joined {
    /// The number of the rank.
    pub rank: u32,
    /// How many ranks the job has.
    pub ranks: u32,
    /// The rank's node.
    pub node: u32,
    /// The name of the machine.
    pub host: String,
    /// The process.
    pub process: u32,
    /// The kind of device.
    pub device: String,
    /// The time.
    pub at: u64,
    /// Rounds by which clocks of nodes are compared: for each, the times before and after an exchange of all ranks.
    /// Each rank's time before comes before each rank's time after. Without several nodes there are none.
    pub rounds: Vec<(u64, u64)>,
}

/// A team that this rank is in. Events name ranks by their numbers in the job; this translates them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamMade {
    /// Its id, which is the same on all of its ranks. What the team opens has it in its [`WindowId`].
    pub team: TeamId,
    /// Its name.
    pub name: Arc<str>,
    /// Its ranks by their numbers in the job, in the order of the team.
    pub ranks: Vec<u32>,
    /// The time.
    pub at: u64,
}

impl TeamMade {
    /// The number in the team of a rank of the job; `None` if it is not in the team.
    pub fn rank_of(&self, rank: u32) -> Option<u32> {
        let mut ranks = (0..).zip(&self.ranks);
        ranks.find_map(|(number, other)| (*other == rank).then_some(number))
    }
}

/// What a batch does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Declared {
    /// The number of the batch.
    pub batch: u64,
    /// The call that enqueues it.
    pub call: EpochCall,
    /// The line of the program.
    pub site: Arc<str>,
    /// Its parts: one for each [`Leg`] that a stream will stamp.
    pub parts: Vec<Part>,
}

/// What a batch does in one leg of one lane: it waits, moves, and then tells others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Part {
    /// The lane.
    pub lane: u32,
    /// The number of the leg in its lane.
    pub leg: u32,
    /// What it waits for, if it waits.
    pub awaits: Option<Awaits>,
    /// How many bytes it moves between this rank and another. For a put of a counted number of elements: the most.
    pub bytes: u64,
    /// What it tells others when it is over.
    pub tells: Vec<Tells>,
}

/// What a stream awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Awaits {
    /// The window, barrier or other collective.
    pub window: Option<WindowId>,
    /// The rank that must act.
    pub peer: u32,
    /// What that rank must do.
    pub operation: Operation,
}

/// What a stream tells another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tells {
    /// The window, barrier or other collective.
    pub window: Option<WindowId>,
    /// The rank that waits for it.
    pub peer: u32,
    /// What this rank has done.
    pub operation: Operation,
}

/// What one rank tells another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operation {
    /// A target has posted: its memory is exposed to the origin.
    Post,
    /// An origin has completed: its data is there.
    Complete,
    /// A rank has come to a barrier.
    Arrive,
    /// The NIC has read the source of a put.
    Read,
    /// A target has read long data from the origin's own memory.
    Pull,
}

/// As what the other rank does: "waits for rank 3 to post".
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Post => "post",
            Operation::Complete => "complete",
            Operation::Arrive => "come to a barrier",
            Operation::Read | Operation::Pull => "have read the source",
        })
    }
}

impl Operation {
    /// What a stream of a rank tells, or its NIC.
    fn of(awaited: Awaited) -> Option<Self> {
        match awaited {
            Awaited::Ticket => Some(Operation::Read),
            _ => Self::of_stream(awaited),
        }
    }

    /// What a stream of a rank tells.
    pub(crate) fn of_stream(awaited: Awaited) -> Option<Self> {
        match awaited {
            Awaited::Exposure => Some(Operation::Post),
            Awaited::Completion => Some(Operation::Complete),
            Awaited::Barrier => Some(Operation::Arrive),
            Awaited::Read => Some(Operation::Pull),
            _ => None,
        }
    }
}

/// The calls whose batches wait for other ranks, or tell them something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EpochCall {
    /// `Inbox::post`.
    Post,
    /// `Access::complete`.
    Complete,
    /// `Outbox::open`.
    Open,
    /// `Exposed::wait`.
    Wait,
    /// `Inbox::expose`.
    Expose,
    /// `exchange`.
    Exchange,
    /// `Barrier::enqueue`.
    Barrier,
    /// A call of a broadcast.
    Broadcast,
    /// A call of a reduce.
    Reduce,
    /// A call of an all-reduce.
    AllReduce,
    /// A call of a gather.
    Gather,
    /// A call of a scatter.
    Scatter,
    /// A call of an all-gather.
    AllGather,
    /// A call of a reduce-scatter.
    ReduceScatter,
    /// A call of an all-to-all.
    AllToAll,
    /// A call of a scan.
    Scan,
    /// Behind a kernel that a half was lent to: checks that it has ended its epochs.
    Close,
    /// A wait for operations of this rank's NIC.
    Tickets,
}

impl fmt::Display for EpochCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EpochCall::Post => "post",
            EpochCall::Complete => "complete",
            EpochCall::Open => "open",
            EpochCall::Wait => "wait",
            EpochCall::Expose => "expose",
            EpochCall::Exchange => "exchange",
            EpochCall::Barrier => "barrier",
            EpochCall::Broadcast => "broadcast",
            EpochCall::Reduce => "reduce",
            EpochCall::AllReduce => "all-reduce",
            EpochCall::Gather => "gather",
            EpochCall::Scatter => "scatter",
            EpochCall::AllGather => "all-gather",
            EpochCall::ReduceScatter => "reduce-scatter",
            EpochCall::AllToAll => "all-to-all",
            EpochCall::Scan => "scan",
            EpochCall::Close => "end of a lent half",
            EpochCall::Tickets => "wait for the NIC",
        })
    }
}

/// A recorded step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recorded {
    /// The number of the recording.
    pub recording: u64,
    /// The work of each replay, in the order of the calls, each with its stream.
    pub steps: Vec<(u32, RecordedStep)>,
    /// The time.
    pub at: u64,
}

/// A piece of work of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecordedStep {
    /// A batch.
    Batch(u64),
    /// A kernel.
    Kernel(Arc<str>),
    /// Another stream may go on from here: the hand-off with this number.
    Signal(u64),
    /// The stream waits for that hand-off.
    Await(u64),
}

impl Part {
    /// The rank to which this part completes an epoch, and the window. The bytes of such a part have moved between this
    /// rank and that one.
    pub fn completes(&self) -> Option<&Tells> {
        let mut tells = self.tells.iter();
        tells.find(|tells| tells.operation == Operation::Complete)
    }
}

impl Declared {
    /// A part, by its lane and its number in the lane.
    pub fn part(&self, lane: u32, leg: u32) -> Option<&Part> {
        let mut parts = self.parts.iter();
        parts.find(|part| (part.lane, part.leg) == (lane, leg))
    }

    /// The window, barrier or other collective that the call concerns; `None` if there are several, or none.
    pub fn window(&self) -> Option<WindowId> {
        let awaited = (self.parts.iter()).filter_map(|part| part.awaits?.window);
        let told = self.parts.iter().flat_map(|part| &part.tells);
        let mut all = awaited.chain(told.filter_map(|tells| tells.window));
        let first = all.next()?;
        all.all(|window| window == first).then_some(first)
    }

    pub(super) fn of(batch: &Batch, call: EpochCall, site: CallSite) -> Self {
        let lanes = (0..).zip(batch.lanes());
        let parts = lanes.flat_map(|(number, lane)| {
            parts(number, batch.steps(*lane), batch.bytes_by_others(number))
        });
        Declared {
            batch: batch.id(),
            call,
            site: site.to_string().into(),
            parts: parts.collect(),
        }
    }
}

/// The parts of a lane. `by_others` is how many bytes the NIC moves for it, or the target pulls.
fn parts(lane: u32, steps: &[Step], by_others: u64) -> Vec<Part> {
    if steps.is_empty() {
        // As in a barrier of one rank. Nothing is done, and so nothing is stamped.
        return Vec::new();
    }
    let part = |leg, awaits| Part {
        lane,
        leg,
        awaits,
        bytes: 0,
        tells: Vec::new(),
    };
    let mut parts = vec![part(0, None)];
    // Whether the last part has done anything. If it has, the next wait begins a new part.
    let mut used = false;
    for step in steps {
        let last = parts.last_mut().expect("there is one at first");
        match step {
            Step::Wait(wait) => {
                let awaits = Operation::of(wait.tag.awaited).map(|operation| Awaits {
                    window: wait.tag.window,
                    peer: wait.tag.peer,
                    operation,
                });
                if used {
                    let leg = last.leg + 1;
                    parts.push(part(leg, awaits));
                } else {
                    last.awaits = awaits;
                }
            }
            Step::Move(step) => last.bytes += step.count as u64 * u64::from(step.size),
            Step::Pull(step) => last.bytes += step.bytes as u64,
            Step::Add(add) => last.tells.extend(add.tag.and_then(tells)),
            Step::Check(_) | Step::Flush | Step::Store(_) => continue,
        }
        used = true;
    }
    if by_others != 0
        && let Some(last) = parts.iter_mut().rev().find(|part| !part.tells.is_empty())
    {
        last.bytes = by_others;
    }
    parts
}

fn tells(tag: Tag) -> Option<Tells> {
    Some(Tells {
        window: tag.window,
        peer: tag.peer,
        operation: Operation::of(tag.awaited)?,
    })
}
