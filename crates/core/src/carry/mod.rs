//! What can be lent to a recording, or handed over to another stream.
//!
//! A [`Carry`] value is a tree whose leaves are regions and window halves. Everything that is asked of such a value (which
//! things are in it, where they are at home, what a NIC still does with them) is one visit to its leaves.

mod plain;
mod visit;

pub use visit::{Carry, Visitor};
pub(crate) use visit::{
    LeafState, compare, forget_tickets, identify, lines, name_of, own_halves, settle_on, stakes,
};

use tidegate_hal::device::Device;

use crate::error::{Error, Rejected};

/// What the plain form of a call makes of what its `try_` form has refused: the error. The windows of what is lost are
/// revoked, so that no peer waits in vain.
#[cold]
pub(crate) fn given_up<'s, D: Device, X: Carry<'s, D>>(mut rejected: Rejected<X>) -> Error {
    let stakes = stakes(&mut rejected.value);
    stakes
        .iter()
        .for_each(|stake| stake.give_up(&rejected.error));
    rejected.error
}

/// As [`given_up`], of things on two streams.
#[cold]
pub(crate) fn pair_given_up<'s, 't, D, R, Q>(rejected: Rejected<(R, Q)>) -> Error
where
    D: Device,
    R: Carry<'s, D>,
    Q: Carry<'t, D>,
{
    let Rejected { error, value } = rejected;
    let error = given_up(Rejected::new(error, value.0));
    given_up(Rejected::new(error, value.1))
}
