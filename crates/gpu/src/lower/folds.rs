//! Lanes that put few bytes, wait for those of others, and combine them with their own.
//!
//! # Model
//!
//! This is a [short reduction](tidegate_hal::batch#short-reductions). As lanes of their own, its puts and waits would be
//! one launch, and its folds another. One lane does it in one launch (`kernels/batch_folds.cuh`): each thread has
//! elements of its own, and combines what it finds in the landings. Beyond 4 KiB, the blocks of the stream share the
//! elements.
//!
//! The lane's short form has a list of [`Vector`]s behind the lane's steps: first what is put, then the terms of the
//! reduction. The steps are read only if something goes wrong.

use std::ops::Range;

use tidegate_hal::batch::{
    Action, Add, MOST_REDUCED, Move, Op, QUANTUM, Shape, Side, Step, Wait, same_or_apart,
};
use tidegate_hal::memory::Ptr;

use super::layout::{LANE_LANDS, LANE_REDUCES, MOST_VECTORS, ShortLane, Vector, WaitStep, address};
use super::{landings, moves, reductions};

/// The environment variable that says up to how many bytes the slots of a short reduction have landings: a number; the
/// default is 65536, and at most 1048576. It has no effect if there are no landings at all.
pub const REDUCE_UP_TO: &str = "TIDEGATE_GPU_REDUCE_UP_TO";

/// The default of [`REDUCE_UP_TO`]: a pair for each thread of 16 blocks.
const UP_TO: usize = 64 << 10;

/// The maximum of [`REDUCE_UP_TO`]. (The kernel counts bytes in 32 bits.)
const MOST: usize = 1 << 20;

/// The limit by the variable's value. A value that cannot be read counts as not set.
pub(crate) fn up_to(value: Option<&str>) -> usize {
    landings::limit(REDUCE_UP_TO, value, UP_TO).min(MOST)
}

/// The most terms: all slots, memory of this rank, and what is at the destination.
const MOST_TERMS: usize = MOST_REDUCED + 2;
const _: () = assert!(MOST_REDUCED + MOST_TERMS <= MOST_VECTORS);
// The kernel has a bit for each term, and one more.
const _: () = assert!(MOST_TERMS < 63);

/// The steps of such a lane.
struct Steps<'a> {
    puts: Vec<(&'a Wait, &'a Move, &'a Add)>,
    waits: Vec<&'a Wait>,
    /// A copy of this rank's vector, which the result may overwrite.
    copy: Option<&'a Move>,
    folds: Vec<&'a Move>,
}

fn of_one_epoch(wait: &Wait) -> Option<&Wait> {
    (wait.quantum == QUANTUM).then_some(wait)
}

impl<'a> Steps<'a> {
    fn of(steps: &'a [Step]) -> Option<Self> {
        let all = steps.iter().filter(|it| !matches!(it, Step::Flush));
        let all: Vec<_> = all.collect();
        let mut rest = &all[..];
        let (mut puts, mut waits) = (Vec::new(), Vec::new());
        while let [
            Step::Wait(wait),
            Step::Move(mv),
            Step::Add(add),
            behind @ ..,
        ] = rest
        {
            puts.push((of_one_epoch(wait)?, mv, add));
            rest = behind;
        }
        while let [Step::Wait(wait), behind @ ..] = rest {
            waits.push(of_one_epoch(wait)?);
            rest = behind;
        }
        let moves = rest.iter().map(|step| match step {
            Step::Move(mv) => Some(mv),
            _ => None,
        });
        let mut folds = moves.collect::<Option<Vec<_>>>()?;
        let copies = folds.first().is_some_and(|mv| mv.action == Action::Copy);
        let copy = copies.then(|| folds.remove(0));
        let most = [puts.len(), waits.len()].into_iter().max();
        let is_one = !waits.is_empty() && most <= Some(MOST_REDUCED) && folds.len() <= MOST_TERMS;
        is_one.then_some(Steps {
            puts,
            waits,
            copy,
            folds,
        })
    }
}

/// What all vectors of a lane have in common.
struct Common {
    bytes: u64,
    /// Where the result goes.
    dst: Range<u64>,
}

impl Common {
    /// The addresses of a side that is one run of whole words. The run is the destination, or apart from it. So no thread
    /// overwrites what another one has still to read.
    fn run(&self, mv: &Move, side: Side) -> Option<Range<u64>> {
        let first = address(side.base);
        let run = first..first + self.bytes;
        let plain = side.shape == Shape::Linear && side.flip == 0 && first.is_multiple_of(4);
        let whole = mv.count as u64 * u64::from(mv.size) == self.bytes;
        (plain && whole && same_or_apart(&run, &self.dst)).then_some(run)
    }
}

/// The short form of such a lane, and its vectors. `waits` are the offsets of its waits among the lowered steps. The
/// vectors will be `list` units of 16 bytes behind the beginning of these steps.
pub(super) fn in_short(
    steps: &[Step],
    waits: &[usize],
    list: u64,
) -> Option<(ShortLane, Vec<Vector>)> {
    let steps = Steps::of(steps)?;
    let first = steps.folds.first()?;
    let (op, scalar, before) = reductions::fold(first)?;
    let bytes = first.count as u64 * u64::from(first.size);
    let dst = address(first.dst.base);
    let common = Common {
        bytes,
        dst: dst..dst + bytes,
    };
    common.run(first, first.dst)?;
    if bytes == 0 || bytes > MOST as u64 || !bytes.is_multiple_of(4) {
        return None;
    }
    let mut waits = waits.iter().map(|at| {
        let at = at - std::mem::offset_of!(WaitStep, arrivals);
        u16::try_from(at / 16).ok()
    });
    let mut vectors = Vec::new();
    for (wait, mv, add) in &steps.puts {
        common.run(mv, mv.src)?;
        let put = landings::put(wait, mv, add)?;
        vectors.push(Vector {
            word: put.word,
            operand: put.operand,
            src: put.src,
            landing: put.landing,
            landing_flip: put.landing_flip,
            wait: waits.next()??,
            ..Vector::default()
        });
    }
    let puts = vectors.len();
    let copy = match steps.copy {
        None => None,
        Some(mv) => {
            let (from, to) = (common.run(mv, mv.src)?, common.run(mv, mv.dst)?);
            let sources = vectors.iter().map(|put| put.src..put.src + bytes);
            let mut others = sources.chain([from.clone(), common.dst.clone()]);
            if others.any(|other| other == to || !same_or_apart(&other, &to)) {
                return None;
            }
            Some((from, to))
        }
    };
    if reductions::operation(op, before) != reductions::REPLACE {
        // The value at the destination comes first.
        vectors.push(Vector {
            src: dst,
            op: reductions::REPLACE as u16,
            ..Vector::default()
        });
    }
    let mut left: Vec<_> = steps
        .waits
        .iter()
        .map(|wait| Some((*wait, waits.next()??)))
        .collect::<Option<_>>()?;
    for fold in &steps.folds {
        let (op, other, before) = reductions::fold(fold)?;
        if (fold.dst.base, fold.count, other) != (first.dst.base, first.count, scalar) {
            return None;
        }
        let op = reductions::operation(op, before) as u16;
        let at = left.iter().position(|(wait, _)| is_slot(wait, fold, bytes));
        vectors.push(match at.map(|at| left.remove(at)) {
            Some((wait, at)) => {
                let landed = landings::waited(wait)?;
                Vector {
                    word: landed.word,
                    operand: landed.operand,
                    src: landed.dst,
                    flip: landed.flip,
                    landing: landed.landing,
                    landing_flip: landed.landing_flip,
                    op,
                    wait: at,
                    ..Vector::default()
                }
            }
            None => {
                let run = common.run(fold, fold.src)?;
                let src = match &copy {
                    Some((from, to)) if *to == run => from.start,
                    Some((_, to)) if !same_or_apart(&run, to) => return None,
                    _ => run.start,
                };
                let plain = fold.parity.is_null();
                plain.then(|| Vector {
                    src,
                    op,
                    ..Vector::default()
                })?
            }
        });
    }
    let ops = vectors[puts..]
        .iter()
        .skip(1)
        .map(|term| u32::from(term.op));
    let sums_floats = scalar.is_float() && ops.into_iter().all(|op| op == Op::Sum as u32);
    let (src, out) = copy.map_or((0, 0), |(from, to)| (from.start, to.start));
    let terms = vectors.len() - puts;
    let short = ShortLane {
        kind: LANE_LANDS | LANE_REDUCES,
        unit: first.size.trailing_zeros() as u8,
        src,
        dst,
        count: bytes,
        out,
        value: u64::from(moves::number(scalar)) | u64::from(sums_floats) << 32,
        tail: list,
        from: puts as u64,
        to: terms as u64,
        ..ShortLane::default()
    };
    (left.is_empty() && terms <= MOST_TERMS).then_some((short, vectors))
}

/// Whether a fold reads the slot whose data a wait is for.
fn is_slot(wait: &Wait, fold: &Move, bytes: u64) -> bool {
    let parity = match fold.src.flip {
        0 => Ptr::NULL,
        _ => wait.operand,
    };
    let linear = fold.src.shape == Shape::Linear && fold.parity == parity;
    wait.landed.is_some_and(|landed| {
        let slot = (landed.slot, landed.flip, landed.bytes as u64);
        linear && slot == (fold.src.base, fold.src.flip, bytes)
    })
}
