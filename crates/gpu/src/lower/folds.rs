//! Lanes that put few bytes, wait for those of others, and combine them with their own.
//!
//! # Model
//!
//! This is all that a rank does in a short reduction. As lanes of their own, the puts and the waits are one launch, and
//! the reduction is another. One lane does it in one launch (`kernels/batch_folds.cuh`): each thread has elements of
//! its own, and combines what it finds in the landings.
//!
//! The lane's short form has a list of [`Vector`]s behind the lane's steps: first what is put, then the terms of the
//! reduction. The steps are read only if something goes wrong.

use std::ops::Range;

use tidegate_hal::batch::{Action, Add, Move, QUANTUM, Shape, Step, Wait};
use tidegate_hal::memory::Ptr;

use super::layout::{LANE_LANDS, LANE_REDUCES, MOST_VECTORS, ShortLane, Vector, WaitStep, address};
use super::{landings, moves, reductions};

/// The most terms, which the kernel counts by bits.
const MOST_TERMS: usize = 60;

/// The short form of a lane, and its vectors.
pub(super) struct Fold {
    /// `tail` is missing: it depends on the steps.
    pub(super) short: ShortLane,
    pub(super) vectors: Vec<Vector>,
}

/// The steps of such a lane.
struct Steps<'a> {
    puts: Vec<(&'a Wait, &'a Move, &'a Add)>,
    waits: Vec<&'a Wait>,
    /// A copy of this rank's vector, which the result may overwrite.
    copy: Option<&'a Move>,
    folds: Vec<&'a Move>,
}

fn is_wait(step: &Step) -> Option<&Wait> {
    match step {
        Step::Wait(wait) if wait.quantum == QUANTUM => Some(wait),
        _ => None,
    }
}

impl<'a> Steps<'a> {
    fn of(steps: &'a [Step]) -> Option<Self> {
        let steps: Vec<_> = steps
            .iter()
            .filter(|it| !matches!(it, Step::Flush))
            .collect();
        let mut rest = &steps[..];
        let (mut puts, mut waits) = (Vec::new(), Vec::new());
        while let [Step::Wait(_), Step::Move(mv), Step::Add(add), behind @ ..] = rest {
            puts.push((is_wait(rest[0])?, mv, add));
            rest = behind;
        }
        while let [step @ Step::Wait(_), behind @ ..] = rest {
            waits.push(is_wait(step)?);
            rest = behind;
        }
        let mut moves = rest.iter().map(|step| match step {
            Step::Move(mv) => Some(mv),
            _ => None,
        });
        let mut moves = moves.by_ref().collect::<Option<Vec<&Move>>>()?;
        let copies = moves.first().is_some_and(|mv| mv.action == Action::Copy);
        let copy = copies.then(|| moves.remove(0));
        Some(Steps {
            puts,
            waits,
            copy,
            folds: moves,
        })
    }
}

/// The addresses of a linear side without a second buffer, if the kernel can move its bytes four at a time.
fn plain(base: Ptr, flip: usize, shape: Shape, bytes: u64) -> Option<Range<u64>> {
    let first = address(base);
    let fits = flip == 0 && shape == Shape::Linear && first.is_multiple_of(4);
    fits.then(|| first..first + bytes)
}

/// Whether two runs are the same, or have nothing in common. Then no thread writes what another one reads.
fn are_apart(one: &Range<u64>, other: &Range<u64>) -> bool {
    one == other || one.end <= other.start || other.end <= one.start
}

/// The short form, if the steps are such a lane. `waits` are the offsets of its waits among the lowered steps.
pub(super) fn in_short(steps: &[Step], waits: &[usize]) -> Option<Fold> {
    let Steps {
        puts,
        waits: awaited,
        copy,
        folds,
    } = Steps::of(steps)?;
    let (first, ..) = folds.split_first()?;
    let bytes = first.count as u64 * u64::from(first.size);
    let vectors = puts.len() + folds.len() + 1;
    let is_one = folds.iter().all(|fold| {
        let same = (fold.dst.base, fold.count) == (first.dst.base, first.count);
        let scalar = |mv: &Move| reductions::fold(mv).map(|(_, scalar, _)| scalar);
        same && scalar(fold).is_some() && scalar(fold) == scalar(first)
    });
    let is_small = vectors <= MOST_VECTORS && folds.len() < MOST_TERMS;
    if !is_one || !is_small || bytes == 0 || !bytes.is_multiple_of(4) || awaited.is_empty() {
        return None;
    }
    let dst = plain(first.dst.base, first.dst.flip, first.dst.shape, bytes)?;
    let wait_at = |number: usize| {
        let at = waits.get(number)? - std::mem::offset_of!(WaitStep, arrivals);
        u16::try_from(at / 16).ok()
    };
    let mut list = Vec::new();
    for (number, (wait, mv, add)) in puts.iter().enumerate() {
        let put = landings::put(wait, mv, add).filter(|put| put.count == bytes)?;
        if !are_apart(&(put.src..put.src + bytes), &dst) {
            return None;
        }
        list.push(Vector {
            word: put.word,
            operand: put.operand,
            src: put.src,
            landing: put.landing,
            landing_flip: put.landing_flip,
            wait: wait_at(number)?,
            ..Vector::default()
        });
    }
    let mut short = ShortLane {
        kind: LANE_LANDS | LANE_REDUCES,
        unit: first.size.trailing_zeros() as u8,
        dst: dst.start,
        count: bytes,
        from: puts.len() as u64,
        value: u64::from(moves::number(reductions::fold(first)?.1)),
        ..ShortLane::default()
    };
    let copied = match copy {
        None => None,
        Some(mv) => {
            let src = plain(mv.src.base, mv.src.flip, mv.src.shape, bytes)?;
            let to = plain(mv.dst.base, mv.dst.flip, mv.dst.shape, bytes)?;
            let whole = mv.count as u64 * u64::from(mv.size) == bytes;
            let sources = list.iter().map(|put| put.src..put.src + bytes);
            let mut read = sources.chain([src.clone(), dst.clone()]);
            if !whole || !are_apart(&src, &dst) || read.any(|it| it == to || !are_apart(&it, &to)) {
                return None;
            }
            (short.src, short.out) = (src.start, to.start);
            Some((src, to))
        }
    };
    let (op, _, before) = reductions::fold(first)?;
    let replaces = reductions::operation(op, before) == reductions::REPLACE;
    if !replaces {
        // The value at the destination comes first.
        list.push(Vector {
            src: dst.start,
            op: reductions::REPLACE as u16,
            ..Vector::default()
        });
    }
    let mut left: Vec<_> = awaited.iter().enumerate().collect();
    for fold in &folds {
        let (op, _, before) = reductions::fold(fold)?;
        let op = reductions::operation(op, before) as u16;
        let is_slot = |wait: &Wait| {
            let parity = match fold.src.flip {
                0 => Ptr::NULL,
                _ => wait.operand,
            };
            wait.landed.is_some_and(|landed| {
                let slot = (landed.slot, landed.flip, landed.bytes as u64);
                slot == (fold.src.base, fold.src.flip, bytes) && fold.parity == parity
            })
        };
        if fold.src.shape != Shape::Linear {
            return None;
        }
        if let Some(at) = left.iter().position(|(_, wait)| is_slot(wait)) {
            let (number, wait) = left.remove(at);
            let landed = landings::waited(wait)?;
            list.push(Vector {
                word: landed.word,
                operand: landed.operand,
                src: landed.dst,
                flip: landed.flip,
                landing: landed.landing,
                landing_flip: landed.landing_flip,
                op,
                wait: wait_at(puts.len() + number)?,
                ..Vector::default()
            });
            continue;
        }
        let src = plain(fold.src.base, fold.src.flip, fold.src.shape, bytes)?;
        let src = match &copied {
            Some((from, to)) if *to == src => from.clone(),
            Some((_, to)) if !are_apart(&src, to) => return None,
            _ => src,
        };
        if !fold.parity.is_null() || !are_apart(&src, &dst) {
            return None;
        }
        list.push(Vector {
            src: src.start,
            op,
            ..Vector::default()
        });
    }
    short.to = (list.len() - puts.len()) as u64;
    left.is_empty().then_some(Fold {
        short,
        vectors: list,
    })
}
