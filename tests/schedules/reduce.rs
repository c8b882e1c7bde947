//! The operations that only numbers have.

use tidegate::Arithmetic;
use tidegate::generic::Access;
use tidegate::host::prelude::*;

use super::bag::{Elem, Pixel};
use super::context::{Context, Lent};
use super::device::Bench;
use super::job::{Act, Verb};

/// Notes accumulates and atomics, if the type has them.
pub(crate) trait Reduce: Sized {
    fn ranged<'s, 'b, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, Self, D, ByRange>,
        lent: &mut Lent<'b, 's, Self, D>,
        act: &Act,
    ) -> Result<()>
    where
        Self: Elem;

    fn atomically<'s, 'b, D: Bench>(
        cx: &'b Context<'_, D>,
        epoch: &mut Access<'s, 'b, Self, D, Atomic>,
        lent: &mut Lent<'b, 's, Self, D>,
        act: &Act,
    ) -> Result<()>
    where
        Self: Elem;
}

macro_rules! reduce {
    ($($ty:ty),* => $ranged:expr, $atomic:expr) => {$(
        impl Reduce for $ty {
            fn ranged<'s, 'b, D: Bench>(
                cx: &'b Context<'_, D>,
                epoch: &mut Access<'s, 'b, Self, D, ByRange>,
                lent: &mut Lent<'b, 's, Self, D>,
                act: &Act,
            ) -> Result<()> {
                $ranged(cx, epoch, lent, act)
            }

            fn atomically<'s, 'b, D: Bench>(
                cx: &'b Context<'_, D>,
                epoch: &mut Access<'s, 'b, Self, D, Atomic>,
                lent: &mut Lent<'b, 's, Self, D>,
                act: &Act,
            ) -> Result<()> {
                $atomic(cx, epoch, lent, act)
            }
        }
    )*};
}

reduce!(u64, u32, u8, i32, f64 => accumulate, atomic);
reduce!(Pixel, [u16; 3] => |_, _, _, act: &Act| unreachable!("{act:?}"), |_, _, _, act: &Act| {
    unreachable!("{act:?}")
});

fn accumulate<'s, 'b, T: Elem + Arithmetic, D: Bench>(
    cx: &'b Context<'_, D>,
    epoch: &mut Access<'s, 'b, T, D, ByRange>,
    lent: &mut Lent<'b, 's, T, D>,
    act: &Act,
) -> Result<()> {
    let Verb::Accumulate(op) = act.verb else {
        unreachable!("{act:?}")
    };
    epoch.accumulate(lent.source(cx, act)?, lent.remote(cx, act), op)
}

fn atomic<'s, 'b, T: Elem + Arithmetic, D: Bench>(
    cx: &'b Context<'_, D>,
    epoch: &mut Access<'s, 'b, T, D, Atomic>,
    lent: &mut Lent<'b, 's, T, D>,
    act: &Act,
) -> Result<()> {
    let at = lent.remote(cx, act);
    match act.verb {
        Verb::Accumulate(op) => epoch.accumulate(lent.source(cx, act)?, at, op),
        Verb::Get => epoch.get(lent.own(act.local), at),
        Verb::Fetch { op, into } => {
            let operand = lent.source(cx, act)?;
            epoch.fetch_and_op(operand, lent.own(into), at, op)
        }
        Verb::Swap { compare, into } => {
            let (compare, desired) = (lent.shared(compare), lent.shared(act.local));
            epoch.compare_and_swap(compare, desired, lent.own(into), at)
        }
        Verb::Put => unreachable!("{act:?}"),
    }
}
