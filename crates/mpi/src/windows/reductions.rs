//! Finds the reductions that an MPI computes wrongly, so that they are not used.
//!
//! Some MPIs do, without an error. MPICH 4.0 computes the minimum and maximum of unsigned numbers as if they were
//! signed. Open MPI 4.1 lets long sums of bytes stay at 255 where they should wrap. So when ranks of different nodes
//! meet, they try each reduction of each type on each other, for one element and for a row. They compare the results
//! with the processor's. If any rank finds an error, no rank uses that reduction, and it is a typed error before an
//! operation is noted. Between ranks of one node, some of which are far, the same is assumed.

use std::time::{Duration, Instant};

use tidegate_hal::batch::{Action, Move, Op, QUANTUM, Scalar, Shape, Side};
use tidegate_hal::far::{Bus, BusError, CELL, Update};
use tidegate_hal::memory::Ptr;
use tidegate_host::HostMover;
use tidegate_words::Mover;

use super::bus::{Rma, system};
use super::call::failed;
use super::choose::Met;
use super::error::JoinError;
use super::inner::{Wrong, computes};
use super::tell::tell;

/// Elements in a row: more than vector units and networks' own operations take at a time.
const ROW: usize = 200;
/// Bytes of one trial on each side: a row, one element that is accumulated, and one that is fetched.
const TRIAL: usize = (ROW + 2) * 8;
/// Long enough for a neighbour without a processor.
const LIMIT: Duration = Duration::from_secs(20);

/// All trials: each number stands for a valid pair.
fn trials() -> impl Iterator<Item = (Op, Scalar)> {
    let has = |op: Op, scalar| op != Op::Keep && computes(op, scalar);
    Scalar::ALL
        .into_iter()
        .flat_map(|scalar| Op::ALL.map(|op| (op, scalar)))
        .filter(move |(op, scalar)| has(*op, *scalar) && !(op.is_bitwise() && scalar.is_float()))
}

/// The reductions that MPI computes wrongly here. Collective.
pub(super) fn wrong(bus: &Rma) -> Result<Wrong, JoinError> {
    if !bus.has_far() {
        return Ok(Vec::new());
    }
    let count = trials().count();
    let (before, with) = (values(count, true), values(count, false));
    let fill = |data: Ptr| {
        // SAFETY: only this rank uses the block until its key is sent, and the block has this many bytes behind its
        // first cell.
        unsafe {
            data.0
                .copy_from_nonoverlapping(before.as_ptr().cast(), count * TRIAL)
        };
    };
    let met = Met::new(bus, CELL + count * TRIAL, "trial of reductions", fill)?;
    let found = try_all(bus, &met, &before, with);
    let all: Vec<Vec<usize>> = tell(bus.control(), "reductions", found)?;
    let all_trials: Vec<_> = trials().collect();
    let mut numbers: Vec<usize> = all.concat();
    numbers.sort_unstable();
    numbers.dedup();
    let pick = |number: usize| {
        all_trials
            .get(number)
            .copied()
            .ok_or_else(|| system("a trial"))
    };
    let wrong: Wrong = numbers.into_iter().map(pick).collect::<Result<_, _>>()?;
    if !wrong.is_empty() {
        tracing::debug!(?wrong, "what MPI reduces wrongly");
    }
    Ok(wrong)
}

/// The trials of the mate in this rank's memory whose results differ from the processor's.
fn try_all(
    bus: &Rma,
    met: &Met<'_>,
    before: &[u64],
    with: Vec<u64>,
) -> Result<Vec<usize>, JoinError> {
    let (Some((mate, there)), Some(mut pair)) = (met.mate(), met.pair()) else {
        return Ok(Vec::new());
    };
    let mut fetched = vec![0u64; trials().count()];
    // SAFETY: the mate's memory is held as long as this rank's, and only this rank updates it until its signal.
    let made = unsafe { make_all(bus, there, &with, &mut fetched) };
    if let Err(error) = made {
        // MPI may still read and write it.
        std::mem::forget((with, fetched));
        return Err(error.into());
    }
    if !pair.wait(Instant::now(), LIMIT) {
        return Err(failed(format!("rank {mate} does not answer within {LIMIT:?}")).into());
    }
    // SAFETY: the mate has signalled after all of its accesses to the block, which is live, and has this length.
    let after = unsafe {
        let data = met.own.base.byte_add(CELL).0.cast::<u64>();
        std::slice::from_raw_parts(data, before.len())
    };
    Ok(compare(after, before, &with, &fetched))
}

/// Makes all trials in the mate's memory, and signals.
///
/// # Safety
///
/// The memory is held, and nobody else accesses it. Sources and results stay until this has returned without an error.
unsafe fn make_all(
    bus: &Rma,
    there: Ptr,
    with: &[u64],
    fetched: &mut [u64],
) -> Result<(), BusError> {
    for ((number, (op, scalar)), fetched) in trials().enumerate().zip(fetched) {
        let at = number * TRIAL;
        let far = |index: usize| there.byte_add(CELL + at + 8 * index);
        let local = |index: usize| Ptr(with[at / 8 + index..].as_ptr().cast_mut().cast());
        let fetch = Update::Fetch(op, Ptr((&raw mut *fetched).cast()));
        // SAFETY: the caller's promise. Each trial has bytes of its own on all sides, for this many elements, aligned
        // for all types.
        unsafe {
            bus.update(Update::Accumulate(op), scalar, far(0), local(0), ROW)?;
            bus.update(Update::Accumulate(op), scalar, far(ROW), local(ROW), 1)?;
            bus.update(fetch, scalar, far(ROW + 1), local(ROW + 1), 1)?;
        }
    }
    // SAFETY: the mate's memory begins with a word to which this rank may add.
    unsafe { bus.signal(there, QUANTUM) }
}

/// The top bits of integers of all sizes.
const TOPS: u64 = 1 << 7 | 1 << 15 | 1 << 31 | 1 << 63;

/// Numbers of all sizes and signs. The single elements are negative if `negative`, and positive otherwise, so that
/// signs matter there, too. No value is a NaN. Each result is rounded once, so both sides round alike.
fn values(count: usize, negative: bool) -> Vec<u64> {
    let mut state = u64::from(negative);
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state ^ state >> 29
    };
    let mut all = Vec::with_capacity(count * TRIAL / 8);
    for (_, scalar) in trials() {
        let small = |word: u64| (word >> 40) as i16 as f32;
        all.extend((0..TRIAL / 8).map(|index| match (scalar, next()) {
            (Scalar::F32, word) => {
                let pair = [small(word), small(word << 16)]
                    .map(f32::to_bits)
                    .map(u64::from);
                pair[0] | pair[1] << 32
            }
            (Scalar::F64, word) => f64::from(small(word)).to_bits(),
            (_, word) if index < ROW => word,
            (_, word) if negative => word | TOPS,
            (_, word) => word & !TOPS,
        }));
    }
    all
}

/// The trials whose results differ from the processor's.
fn compare(after: &[u64], before: &[u64], with: &[u64], fetched: &[u64]) -> Vec<usize> {
    let mut expected = before.to_vec();
    let mut wrong = Vec::new();
    for (number, (op, scalar)) in trials().enumerate() {
        let trial = number * TRIAL / 8..(number + 1) * TRIAL / 8;
        let size = scalar.bytes();
        let mine = &mut expected[trial.clone()];
        for (first, count) in [(0, ROW), (ROW, 1), (ROW + 1, 1)] {
            let src = with[trial.start + first..].as_ptr().cast_mut().cast();
            let dst = mine[first..].as_mut_ptr().cast();
            // SAFETY: both sides have this length, are aligned for all types, and nobody else uses them.
            unsafe { HostMover.carry(&step(op, scalar, size, count, src, dst)) };
        }
        let old = &before[trial.start + ROW + 1].to_ne_bytes()[..size];
        let same = fetched[number].to_ne_bytes()[..size] == *old;
        if !same || after[trial.clone()] != *mine {
            wrong.push(number);
        }
    }
    wrong
}

fn step(op: Op, scalar: Scalar, size: usize, count: usize, src: *mut u8, dst: *mut u8) -> Move {
    let side = |base| Side {
        base: Ptr(base),
        flip: 0,
        shape: Shape::Linear,
    };
    Move {
        action: Action::Accumulate {
            op,
            scalar,
            atomic: false,
        },
        size: size as u32,
        count,
        src: side(src),
        dst: side(dst),
        parity: Ptr::NULL,
        early: false,
        landing: None,
        buffers: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_one_is_found() {
        let count = trials().count();
        assert_eq!(count, 8 * 8 + 2 * 5 + 2);
        let (before, with) = (values(count, true), values(count, false));
        let fetched: Vec<_> = (0..count)
            .map(|n| before[n * TRIAL / 8 + ROW + 1])
            .collect();
        let mut after = before.clone();
        // Both results come from the processor, so only the changed ones can differ.
        for (number, (op, scalar)) in trials().enumerate() {
            for (first, len) in [(0, ROW), (ROW, 1), (ROW + 1, 1)] {
                let at = number * TRIAL / 8 + first;
                let src = with[at..].as_ptr().cast_mut().cast();
                let dst = after[at..].as_mut_ptr().cast();
                // SAFETY: both sides have this length, are aligned for all types, and nobody else uses them.
                unsafe { HostMover.carry(&step(op, scalar, scalar.bytes(), len, src, dst)) };
            }
        }
        assert_eq!(compare(&after, &before, &with, &fetched), []);
        for number in 0..count {
            let mut after = after.clone();
            after[number * TRIAL / 8 + number % 2 * ROW] ^= 1;
            assert_eq!(compare(&after, &before, &with, &fetched), [number]);
            let mut fetched = fetched.clone();
            fetched[number] ^= 1;
            let found = compare(&before, &before, &with, &fetched);
            assert!(found.contains(&number));
        }
    }

    #[test]
    fn signed_and_unsigned_differ_somewhere() {
        // A trial would find nothing if the signed and the unsigned minimum were the same number.
        let all: Vec<_> = trials().collect();
        let count = all.len();
        let (before, with) = (values(count, true), values(count, false));
        for (number, (op, scalar)) in all.into_iter().enumerate() {
            let wrongly = match scalar {
                Scalar::U8 => Scalar::I8,
                Scalar::U16 => Scalar::I16,
                Scalar::U32 => Scalar::I32,
                Scalar::U64 => Scalar::I64,
                _ => continue,
            };
            if !matches!(op, Op::Min | Op::Max) {
                continue;
            }
            for (first, count) in [(0, ROW), (ROW, 1), (ROW + 1, 1)] {
                let at = number * TRIAL / 8 + first;
                let made = |scalar| {
                    let mut row = before[at..at + count].to_vec();
                    let (src, dst) = (
                        with[at..].as_ptr().cast_mut().cast(),
                        row.as_mut_ptr().cast(),
                    );
                    // SAFETY: as above.
                    unsafe { HostMover.carry(&step(op, scalar, scalar.bytes(), count, src, dst)) };
                    row
                };
                assert_ne!(made(scalar), made(wrongly));
            }
        }
    }
}
