//! Values that can be lent to a recording or handed over to another stream.
//!
//! A [`Carry`] value is a tree whose leaves are regions and window halves. Every question about it is answered by one
//! visit to its leaves: what it contains, where that is at home, and which operations of a NIC still use it.

mod plain;
mod visit;

pub use visit::{Carry, Visitor};
pub(crate) use visit::{
    LeafState, compare, forget_tickets, identify, lines, name_of, own_halves, settle_on, stakes,
};

use tidegate_hal::device::Device;

use crate::error::{Error, Rejected};

/// Turns the refusal of a `try_` call into the error of the plain call. It revokes the windows of the values that are
/// lost, so that no peer waits for them.
#[cold]
pub(crate) fn given_up<'s, D: Device, X: Carry<'s, D>>(mut rejected: Rejected<X>) -> Error {
    let stakes = stakes(&mut rejected.value);
    stakes
        .iter()
        .for_each(|stake| stake.give_up(&rejected.error));
    rejected.error
}

/// Like [`given_up`], for things on two streams.
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
