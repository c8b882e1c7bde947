//! What can be lent to a recording, or handed over to another stream.
//!
//! A [`Carry`] value is a tree whose leaves are regions and window halves. Everything that is asked of such a value (which
//! things are in it, where they are at home, what a NIC still does with them) is one visit to its leaves.

mod plain;
mod visit;

pub use visit::{Carry, Visitor};
pub(crate) use visit::{
    State, compare, forget_tickets, identify, lines, name_of, own_halves, settle_on,
};
