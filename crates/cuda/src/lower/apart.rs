//! Lanes whose copies the copy engines make.
//!
//! # Model
//!
//! A lane that puts much is *taken apart*: its copies go to a [courier](crate::courier), a stream of its own beside the
//! batch's, and what stands in their place tells the courier to go, and waits until it is back:
//!
//! ```text
//!   the batch's lane:  wait(exposed)  add(go)         wait(back)  flush  add(done)
//!   its courier:                      wait(go)  copy  write(back)
//! ```
//!
//! The batch stays one launch, and its lanes stay independent of each other: each lane that is taken apart has a
//! courier to itself, or two, if it has several copies and there are enough. Copies of which one goes on where the
//! other ends are made as one.
//!
//! # Why the copies are not a part of the batch's own stream
//!
//! A launch with the waits, the copies, and a launch with the rest, one after the other, would be simpler, and wrong twice:
//!
//! - *It can deadlock.* No copy would begin before the waits of all lanes are over. But rank A may put to B and to C in
//!   one epoch, where B posts only after it has heard of C, and C is to hear of A first: A's lane to C must go on while
//!   the one to B waits. (`super::model` builds this job, and shows that it hangs so.)
//! - *It is unsound after a failure.* A copy that is enqueued happens, whatever becomes of the wait before it. That
//!   wait can fail where the target is in good health and has *not* exposed its memory: because the origin's own thread
//!   unwinds, or a third rank has died. The target may be reading the slot in a kernel, on a stream on which no wait
//!   has failed: its result comes to the host, as good as any. Nor does revoking the window help: a view of a slot is
//!   not refused after it, for as long as the target holds the inbox. So there is no moment from which on a late copy
//!   is harmless, and a copy may only be made under an exposure that has come.
//!
//! The courier's wait is what makes it conditional. *go* is added to by the lane, after its wait was satisfied, and by
//! nothing else: a stream that fails does not poison it (it has no bell). So a copy is made if, and only if, its
//! exposure has come. If the stream fails after that, the copy is still under the exposure: the target cannot touch the
//! memory until its own wait for this rank is over, which the failed stream ends by poison; and what the copy reads and
//! writes is kept until the courier is back (`Shared::settled`).
//!
//! # Why there is no deadlock
//!
//! A courier waits for nothing but its lane, which is resident when it adds to *go* (the whole batch is); the lane
//! waits for the courier, whose copies wait for nothing. Both have hardware queues of their own. So a lane that is
//! taken apart does what it did before, only later by a finite time, and what does not deadlock whole does not deadlock
//! apart. Walked through:
//!
//! - *A and B exchange:* both batches are `post | wait(exposed) go wait(back) add(done) | wait(done)`. The posts wait
//!   for nothing, so both exposures come, both couriers go and come back, both *done* words come.
//! - *Three ranks in a ring:* the same, with "the next rank" for the other one; no lane's progress depends on another
//!   lane of its batch.
//! - *One buffer, exposure within the epoch:* the lane waits for the post of this very epoch. The peer's post is a lane
//!   of its own (of the same batch, or of one before), which waits for nothing.
//!
//! # What is left whole
//!
//! - Lanes with moves that are not plain copies, or whose place depends on the epoch's parity: the engines take
//!   addresses that the host knows.
//! - Everything in a recording. A branch of a graph whose *go* never comes would keep the graph from ending; so would
//!   everything behind it on the stream.
//! - Lanes that ring between their copies, for a NIC that sends what has been copied meanwhile.
//! - Lanes beyond the number of couriers: the largest are taken apart.
//!
//! # Failure
//!
//! A courier that is never told to go waits for ever, and so is given up with its stream: see [`crate::courier`].

use tidegate_hal::batch::{Action, Add, Awaited, Batch, Move, QUANTUM, Shape, Step, Tag, Wait};
use tidegate_hal::memory::Ptr;

/// The environment variable that says from how many bytes on the plain copies of a lane are left to the copy engines,
/// outside of recordings: a number, or `never`. If it is not set: 4 MiB to and from other GPUs, and 24 MiB within one.
pub const COPY_ENGINE_FROM: &str = "TIDEGATE_CUDA_COPY_ENGINE_FROM";

/// From how many bytes on the copies of a lane are left to the copy engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossover {
    /// To and from other GPUs.
    pub(crate) elsewhere: u64,
    /// Within one: ranks that share it. The way to the courier and back takes as long, but multiprocessors reach their
    /// own GPU's memory more than twice as fast as another's.
    pub(crate) within: u64,
}

impl Crossover {
    /// If [`COPY_ENGINE_FROM`] is not set: as measured on H200s.
    const UNSET: Crossover = Crossover {
        elsewhere: 4 << 20,
        within: 24 << 20,
    };

    /// The same wherever the memory is.
    pub(crate) const fn everywhere(bytes: u64) -> Crossover {
        Crossover {
            elsewhere: bytes,
            within: bytes,
        }
    }

    /// What the variable says; what cannot be read counts as if it were not set.
    pub(crate) fn variable(value: Option<&str>) -> Crossover {
        match value.map(str::trim) {
            Some("never") => Crossover::everywhere(u64::MAX),
            Some(bytes) => bytes
                .parse()
                .map(Crossover::everywhere)
                .unwrap_or_else(|_| {
                    tracing::warn!(
                        "{COPY_ENGINE_FROM} is `{bytes}`: a number of bytes or `never` is wanted"
                    );
                    Crossover::UNSET
                }),
            None => Crossover::UNSET,
        }
    }

    /// Whether the engines make a lane's copies: so many bytes. `is_within`: whether source and target of this address
    /// are memory of one GPU; asked only where it matters.
    fn takes(self, lane: &Copies, is_within: &dyn Fn(&Move) -> bool) -> bool {
        let (least, most) = (
            self.elsewhere.min(self.within),
            self.elsewhere.max(self.within),
        );
        if lane.bytes < least.max(1) || lane.bytes >= most {
            return lane.bytes >= most.max(1);
        }
        let from = if is_within(&lane.first) {
            self.within
        } else {
            self.elsewhere
        };
        lane.bytes >= from
    }
}

/// The words by which a lane and its courier speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The lane adds a quantum when the courier may go.
    pub(crate) go: Ptr,
    /// The courier writes how many quanta it is back from.
    pub(crate) back: Ptr,
    /// Beside `back`.
    pub(crate) operand: Ptr,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    pub(crate) src: u64,
    pub(crate) dst: u64,
    pub(crate) bytes: u64,
}

/// A batch, taken apart.
pub(crate) struct Apart {
    /// What is left to the batch kernel.
    pub(crate) lanes: Vec<Vec<Step>>,
    /// What each courier does, in the order of the couriers.
    pub(crate) errands: Vec<Vec<Errand>>,
}

fn bytes(mv: &Move) -> u64 {
    mv.count as u64 * u64::from(mv.size)
}

/// Whether the host knows all that a copy engine must.
fn is_plain(mv: &Move) -> bool {
    let fixed = mv.parity.is_null() || (mv.src.flip, mv.dst.flip) == (0, 0);
    mv.action == Action::Copy
        && (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear)
        && fixed
}

/// What of a lane the engines can do.
struct Copies {
    /// Which steps they are.
    range: std::ops::Range<usize>,
    /// All of them go between the same two ranks.
    first: Move,
    /// Together.
    bytes: u64,
}

/// The copies of a lane, if the engines can make all of them at one time.
fn copies(steps: &[Step]) -> Option<Copies> {
    let copy = |step: &Step| match step {
        Step::Move(mv) => Some(*mv),
        _ => None,
    };
    let begin = steps.iter().position(|step| copy(step).is_some())?;
    let end = steps.iter().rposition(|step| copy(step).is_some())? + 1;
    let mut sum = 0;
    for step in &steps[begin..end] {
        match step {
            Step::Move(mv) if is_plain(mv) => sum += bytes(mv),
            Step::Flush => {}
            _ => return None,
        }
    }
    Some(Copies {
        range: begin..end,
        first: copy(&steps[begin])?,
        bytes: sum,
    })
}

/// Whether a batch has a lane that the engines make the copies of. `is_within`: whether a copy stays in one GPU.
pub(crate) fn is_large(batch: &Batch, from: Crossover, is_within: &dyn Fn(&Move) -> bool) -> bool {
    let mut lanes = batch.lanes().iter();
    lanes.any(|lane| copies(batch.steps(*lane)).is_some_and(|lane| from.takes(&lane, is_within)))
}

/// Takes the largest lanes apart that the engines make the copies of, as many as there are couriers. `is_within`:
/// whether a copy stays in one GPU.
pub(crate) fn take_apart(
    batch: &Batch,
    from: Crossover,
    is_within: &dyn Fn(&Move) -> bool,
    couriers: &[Words],
) -> Apart {
    let lanes = batch.lanes().iter().map(|lane| batch.steps(*lane));
    let mut lanes: Vec<Vec<Step>> = lanes.map(<[Step]>::to_vec).collect();
    let large = lanes.iter().enumerate().filter_map(|(index, steps)| {
        let lane = copies(steps).filter(|lane| from.takes(lane, is_within))?;
        Some((lane.bytes, index, lane.range))
    });
    let mut large: Vec<_> = large.collect();
    large.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    let mut spare = couriers.len().saturating_sub(large.len());
    let (mut errands, mut couriers) = (Vec::new(), couriers.iter());
    for (_, index, range) in large {
        let steps = &mut lanes[index];
        let copies = joined(&steps[range.clone()]);
        // A second one begins a copy while the first is between two.
        let second = usize::from(spare > 0 && copies.len() > 1);
        spare -= second;
        let words: Vec<_> = couriers.by_ref().take(1 + second).collect();
        if words.is_empty() {
            break;
        }
        errands.extend(dealt(copies, words.len()));
        // Who asks why it takes so long is to hear whom the copies are for.
        let whose = steps.iter().find_map(|step| match step {
            Step::Wait(wait) => Some((wait.tag.window, wait.tag.peer)),
            _ => None,
        });
        let (window, peer) = whose.unwrap_or((None, 0));
        let go = words.iter().map(|words| {
            Step::Add(Add {
                word: words.go,
                value: QUANTUM,
                // None: a stream that fails does not poison it, and the courier stays.
                bell: Ptr::NULL,
            })
        });
        let back = words.iter().map(|words| {
            Step::Wait(Wait {
                word: words.back,
                operand: words.operand,
                quantum: QUANTUM,
                tag: Tag {
                    window,
                    peer,
                    awaited: Awaited::Event,
                },
                landed: None,
            })
        });
        let instead: Vec<_> = go.chain(back).collect();
        steps.splice(range, instead);
    }
    Apart { lanes, errands }
}

/// The copies of moves, those taken together of which one goes on where the other ends: between two copies an engine
/// stands still for a few microseconds.
fn joined(moves: &[Step]) -> Vec<Errand> {
    let mut joined: Vec<Errand> = Vec::new();
    for step in moves {
        let Step::Move(mv) = step else { continue };
        let next = Errand {
            src: mv.src.base.0.addr() as u64,
            dst: mv.dst.base.0.addr() as u64,
            bytes: bytes(mv),
        };
        let follows = |last: &&mut Errand| {
            (last.src + last.bytes, last.dst + last.bytes) == (next.src, next.dst)
        };
        match joined.last_mut().filter(follows) {
            Some(last) => last.bytes += next.bytes,
            None if next.bytes != 0 => joined.push(next),
            None => {}
        }
    }
    joined
}

/// Copies for several couriers: each next one for who has least.
fn dealt(copies: Vec<Errand>, couriers: usize) -> Vec<Vec<Errand>> {
    let mut hands: Vec<(u64, Vec<Errand>)> = vec![(0, Vec::new()); couriers];
    for copy in copies {
        if let Some(hand) = hands.iter_mut().min_by_key(|hand| hand.0) {
            hand.0 += copy.bytes;
            hand.1.push(copy);
        }
    }
    hands.into_iter().map(|(_, copies)| copies).collect()
}
