//! Lanes whose few bytes land with tags beside them (see [`tidegate_hal::batch`]).
//!
//! # Model
//!
//! Two kinds of lanes have a short form with a landing: a lane that waits for an exposure, makes one put that fills its
//! slot, and adds to the slot's word; and a lane that waits for such a word, and may then copy the slot.
//!
//! Each lane knows the landing and the slot, so a put may go either way. It goes to the slot if its lane has other
//! work, or if it has more bytes than a warp moves at a time and its lane has no block. A wait always looks at both.
//! Without a block, its warp looks at one element after the other; if much has landed, that takes longer than a fence.

use tidegate_hal::batch::{Action, Add, Move, QUANTUM, Shape, Step, Wait};

use super::{LANE_ADDS, LANE_COPIES, LANE_LANDS, LANE_WAITS, ShortLane, THREADS, address};

/// The environment variable that says up to how many bytes a slot has a landing: a number; the default is 4096, and 0
/// means no landings.
pub const LAND_UP_TO: &str = "TIDEGATE_GPU_LAND_UP_TO";

/// The default of [`LAND_UP_TO`], and its maximum: 8 bytes for each thread of a block. Beyond it each thread would look
/// at several elements in turn, and the gain is lost (BENCHMARKS.md).
pub(crate) const UP_TO: usize = 8 * THREADS;

/// The limit by the variable's value. A value that cannot be read counts as not set.
pub(crate) fn up_to(value: Option<&str>) -> usize {
    limit(LAND_UP_TO, value, UP_TO).min(UP_TO)
}

/// A number of bytes, by a variable's value.
pub(super) fn limit(name: &str, value: Option<&str>, default: usize) -> usize {
    let Some(value) = value else { return default };
    value.trim().parse().unwrap_or_else(|_| {
        tracing::warn!("{name} is `{value}`: a number of bytes is wanted");
        default
    })
}

/// The short form of a lane whose bytes land.
pub(super) fn in_short(steps: &[Step]) -> Option<ShortLane> {
    let mut steps = steps.iter().filter(|step| !matches!(step, Step::Flush));
    let (first, then, last) = (steps.next()?, steps.next(), steps.next());
    let Step::Wait(wait) = first else { return None };
    // A tag is the number of an epoch.
    if wait.quantum != QUANTUM || steps.next().is_some() {
        return None;
    }
    match (then, last) {
        (None, None) => waited(wait),
        (Some(Step::Move(mv)), None) => copied(wait, mv),
        // A longer one takes several blocks, and comes by the word.
        (Some(Step::Move(mv)), Some(Step::Add(add))) => {
            put(wait, mv, add).filter(|put| put.count <= UP_TO as u64)
        }
        _ => None,
    }
}

/// A wait whose data may land.
pub(super) fn waited(wait: &Wait) -> Option<ShortLane> {
    let landed = wait.landed?;
    Some(ShortLane {
        kind: LANE_WAITS | LANE_LANDS,
        dst: address(landed.slot),
        flip: landed.flip as u64,
        count: landed.bytes as u64,
        landing: address(landed.from.base),
        landing_flip: landed.from.flip as u64,
        ..of(wait)
    })
}

/// A wait, and behind it a copy of the whole slot.
fn copied(wait: &Wait, mv: &Move) -> Option<ShortLane> {
    let landed = wait.landed?;
    let linear = (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear);
    // The wait's operand says which of two buffers it is.
    let parity = mv.parity == wait.operand || (mv.parity.is_null() && landed.flip == 0);
    let slot = (mv.src.base, mv.src.flip) == (landed.slot, landed.flip) && mv.dst.flip == 0;
    let whole = mv.count * mv.size as usize == landed.bytes;
    let aligned = mv.dst.base.0.addr().is_multiple_of(4);
    if mv.action != Action::Copy || !(linear && parity && slot && whole && aligned) {
        return None;
    }
    Some(ShortLane {
        out: address(mv.dst.base),
        ..waited(wait)?
    })
}

/// A put that fills its slot.
pub(super) fn put(wait: &Wait, mv: &Move, add: &Add) -> Option<ShortLane> {
    let landing = mv.landing?;
    let linear = (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear);
    // The wait's operand says which of two buffers it is.
    let parity = mv.parity == wait.operand || (mv.parity.is_null() && mv.dst.flip == 0);
    let early = mv.early && mv.src.flip == 0;
    let aligned = (mv.src.base.0.addr() | mv.dst.base.0.addr()).is_multiple_of(4);
    if mv.action != Action::Copy || !linear || !parity || !early || !aligned {
        return None;
    }
    Some(ShortLane {
        kind: LANE_WAITS | LANE_COPIES | LANE_ADDS | LANE_LANDS,
        src: address(mv.src.base),
        dst: address(mv.dst.base),
        flip: mv.dst.flip as u64,
        count: mv.count as u64 * u64::from(mv.size),
        out: address(add.word),
        value: add.value,
        landing: address(landing.base),
        landing_flip: landing.flip as u64,
        ..of(wait)
    })
}

fn of(wait: &Wait) -> ShortLane {
    ShortLane {
        word: address(wait.word),
        operand: address(wait.operand),
        quantum: wait.quantum,
        ..ShortLane::default()
    }
}
