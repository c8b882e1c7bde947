//! Points by how many copies they have, and which of those were received.

use super::Values;
use crate::faces::layout::Direction;

/// The message of each neighbour.
pub(super) type Received<V> = [Option<V>; Direction::COUNT];

/// The work on points of `N` copies, of which those with a bit of `REMOTE` in their number were received. It is compiled
/// once for each kind.
pub(super) trait Kind {
    fn sum<const N: usize, const REMOTE: usize>(self);
}

/// Calls the code for a kind that is known at run time.
#[inline(always)]
pub(super) fn by_kind(copies: u8, remote: u8, kind: impl Kind) {
    match (copies, remote) {
        (2, 0) => kind.sum::<2, 0>(),
        (2, _) => kind.sum::<2, 1>(),
        (4, 0) => kind.sum::<4, 0>(),
        (4, 1) => kind.sum::<4, 1>(),
        (4, 2) => kind.sum::<4, 2>(),
        (4, _) => kind.sum::<4, 3>(),
        (_, 0) => kind.sum::<8, 0>(),
        (_, 1) => kind.sum::<8, 1>(),
        (_, 2) => kind.sum::<8, 2>(),
        (_, 3) => kind.sum::<8, 3>(),
        (_, 4) => kind.sum::<8, 4>(),
        (_, 5) => kind.sum::<8, 5>(),
        (_, 6) => kind.sum::<8, 6>(),
        (_, _) => kind.sum::<8, 7>(),
    }
}

/// The messages that copies are in: nothing for those of the block. `None` where one of them is no
/// slice.
#[inline(always)]
pub(super) fn slices<'a, V: Values, const N: usize, const REMOTE: usize>(
    received: &'a Received<V>,
    from: &[u8; 8],
) -> Option<[&'a [f64]; N]> {
    let mut slices: [&[f64]; N] = [&[]; N];
    for copy in (0..N).filter(|copy| copy & REMOTE != 0) {
        slices[copy] = received[usize::from(from[copy])].as_ref()?.as_slice()?;
    }
    Some(slices)
}

/// The sum of all copies, in the promised order.
#[inline(always)]
pub(super) fn tree<const N: usize>(mut value: [f64; N]) -> f64 {
    let mut width = N;
    while width > 1 {
        width /= 2;
        for t in 0..width {
            value[t] = value[2 * t] + value[2 * t + 1];
        }
    }
    value[0]
}
