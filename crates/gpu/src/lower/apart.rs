//! Lanes whose copies are made by the copy engines.
//!
//! # Model
//!
//! A lane with large puts is *taken apart*. Its copies go to a [courier](crate::courier), a stream beside the batch's
//! stream. In their place, the lane tells the courier to go, and waits until the courier is back:
//!
//! ```text
//!   the batch's lane:  wait(exposed)  add(go)         wait(back)  flush  add(done)
//!   its courier:                      wait(go)  copy  write(back)
//! ```
//!
//! The batch is still one launch, and its lanes are still independent of each other. Each lane that is taken apart has
//! its own courier, or two if it has several copies and there are enough couriers. Copies are joined if one begins
//! where another ends.
//!
//! # Why the copies are not on the batch's own stream
//!
//! A launch with the waits, then the copies, then a launch with the rest would be simpler, but wrong for two reasons:
//!
//! - *It can deadlock.* No copy would begin before the waits of all lanes are over. Suppose that rank A puts to B and C
//!   in one epoch, that B posts only after it has heard from C, and that C must first hear from A. Then A's lane to C
//!   must go on while its lane to B waits. (`super::model` builds this job, and shows that it hangs without couriers.)
//! - *It is unsound after a failure.* An enqueued copy is made even if the wait before it fails. The wait can fail
//!   although the target has not failed and has *not* exposed its memory: because the origin's own thread unwinds, or
//!   because a third rank has died. Then the target may be reading the slot in a kernel, on a stream on which no wait
//!   has failed, and its result reaches the host. Revoking the window does not help, because a target that holds the
//!   inbox can still view a slot. So a late copy is never harmless, and a copy may only be made under an exposure that
//!   has come.
//!
//! The courier's wait makes the copy depend on the exposure. Only the lane adds to *go*, after its own wait has
//! succeeded. A stream that fails does not poison *go*, which has no bell. So a copy is made exactly if its exposure
//! has come. If the stream fails after that, the copy is still made under the exposure: the target cannot touch the
//! memory until its own wait for this rank is over, and the failed stream ends that wait by poison. The memory that the
//! copy reads and writes is kept until the courier is back (`Shared::settled`).
//!
//! # Why there is no deadlock
//!
//! A courier waits only for its lane. The lane is resident when it adds to *go*, since the whole batch is. The lane
//! waits for the courier, whose copies wait for nothing. Both have hardware queues of their own. So a lane that is
//! taken apart does the same as before, only later by a finite time. If the whole batch does not deadlock, the batch
//! with couriers does not either. Three examples:
//!
//! - *A and B exchange.* Both batches are `post | wait(exposed) go wait(back) add(done) | wait(done)`. The posts wait
//!   for nothing, so both exposures come, both couriers go and come back, and both *done* words come.
//! - *Three ranks in a ring.* The same, with "the next rank" instead of the other one. No lane depends on another lane
//!   of its batch.
//! - *One buffer, exposure within the epoch.* The lane waits for the post of this same epoch. The peer's post is a lane
//!   of its own, of the same batch or an earlier one, and waits for nothing.
//!
//! # What is not taken apart
//!
//! - Lanes with moves that are not plain copies, or whose addresses depend on the epoch's parity, because the host must
//!   know the addresses.
//! - Everything in a recording. A branch of a graph whose *go* never comes would keep the graph, and everything behind
//!   it on the stream, from ending.
//! - Lanes that ring between their copies, for a NIC that sends the copied parts meanwhile.
//! - Lanes beyond the number of couriers. The largest lanes are taken apart.
//!
//! # Failure
//!
//! A courier that is never told to go waits for ever, and is given up with its stream: see [`crate::courier`].

use tidegate_hal::batch::{Action, Add, Awaited, Batch, Move, QUANTUM, Shape, Step, Tag, Wait};
use tidegate_hal::memory::Ptr;

/// The environment variable that says from how many bytes on the copy engines make the plain copies of a lane, outside
/// of recordings: a number, or `never`. The default is 4 MiB to and from other GPUs, and 24 MiB within one.
pub const COPY_ENGINE_FROM: &str = "TIDEGATE_GPU_COPY_ENGINE_FROM";

/// From how many bytes on the copy engines make the copies of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossover {
    /// For copies to and from other GPUs.
    pub(crate) elsewhere: u64,
    /// For copies within one GPU, whose ranks share it. The overhead of a courier is the same, but multiprocessors
    /// access their own GPU's memory more than twice as fast as another's.
    pub(crate) within: u64,
}

impl Crossover {
    /// The values if [`COPY_ENGINE_FROM`] is not set, as measured on H200s.
    const UNSET: Crossover = Crossover {
        elsewhere: 4 << 20,
        within: 24 << 20,
    };

    /// The same limit wherever the memory is.
    pub(crate) const fn everywhere(bytes: u64) -> Crossover {
        Crossover {
            elsewhere: bytes,
            within: bytes,
        }
    }

    /// The limit by the variable's value. A value that cannot be read counts as not set.
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

    /// Whether the engines make a lane's copies. `is_within` says whether a copy's source and target are memory of one
    /// GPU; it is called only if that matters.
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

/// The words by which a lane and its courier signal each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The lane adds a quantum to it when the courier may go.
    pub(crate) go: Ptr,
    /// The courier writes the number of errands that it is back from, in quanta.
    pub(crate) back: Ptr,
    /// The operand of the wait for `back`.
    pub(crate) operand: Ptr,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    pub(crate) src: u64,
    pub(crate) dst: u64,
    pub(crate) bytes: u64,
}

/// A batch that was taken apart.
pub(crate) struct Apart {
    /// The lanes for the batch kernel.
    pub(crate) lanes: Vec<Vec<Step>>,
    /// The errands of each courier, in the order of the couriers.
    pub(crate) errands: Vec<Vec<Errand>>,
}

fn bytes(mv: &Move) -> u64 {
    mv.count as u64 * u64::from(mv.size)
}

/// Whether the host knows everything that a copy engine needs.
fn is_plain(mv: &Move) -> bool {
    let fixed = mv.parity.is_null() || (mv.src.flip, mv.dst.flip) == (0, 0);
    mv.action == Action::Copy
        && (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear)
        && fixed
}

/// The copies of a lane that the engines can make.
struct Copies {
    /// The steps that are these copies.
    range: std::ops::Range<usize>,
    /// The first copy. All copies go between the same two ranks.
    first: Move,
    /// The bytes of all copies together.
    bytes: u64,
}

/// The copies of a lane, if the engines can make all of them together.
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

/// Whether the engines make the copies of any lane of a batch. `is_within` says whether a copy stays in one GPU.
pub(crate) fn is_large(batch: &Batch, from: Crossover, is_within: &dyn Fn(&Move) -> bool) -> bool {
    let mut lanes = batch.lanes().iter();
    lanes.any(|lane| copies(batch.steps(*lane)).is_some_and(|lane| from.takes(&lane, is_within)))
}

/// Takes apart the largest lanes whose copies the engines make, as many as there are couriers. `is_within` says whether
/// a copy stays in one GPU.
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
        // A second courier makes a copy while the first is between two copies.
        let second = usize::from(spare > 0 && copies.len() > 1);
        spare -= second;
        let words: Vec<_> = couriers.by_ref().take(1 + second).collect();
        if words.is_empty() {
            break;
        }
        errands.extend(dealt(copies, words.len()));
        // A report on this wait should name the rank that the copies are for.
        let whose = steps.iter().find_map(|step| match step {
            Step::Wait(wait) => Some((wait.tag.window, wait.tag.peer)),
            _ => None,
        });
        let (window, peer) = whose.unwrap_or((None, 0));
        let go = words.iter().map(|words| {
            Step::Add(Add {
                tag: None,
                word: words.go,
                value: QUANTUM,
                // The word has no bell, so a stream that fails does not poison it, and the courier stays.
                bell: Ptr::NULL,
                turn: None,
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
                ring: None,
            })
        });
        let instead: Vec<_> = go.chain(back).collect();
        steps.splice(range, instead);
    }
    Apart { lanes, errands }
}

/// The copies of moves. Copies are joined if one begins where another ends, because an engine pauses for a few
/// microseconds between two copies.
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

/// Deals copies to several couriers. Each copy goes to the courier with the fewest bytes.
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
