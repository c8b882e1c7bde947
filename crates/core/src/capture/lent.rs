//! Changing the stream of values that are lent to a recording or handed over.

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::site::CallSite;

use crate::carry::{self, Carry};
use crate::error::Result;
use crate::stream::{Stream, wait_for};

/// Changes the brand of a value, and makes it at home on `to`.
pub(super) fn settle<'s, 't, D: Device, X: Carry<'s, D>>(
    mut value: X,
    to: &Stream<'t, D>,
) -> X::At<'t> {
    touch(&mut value, to);
    rebrand(value)
}

/// Enqueues the wait for all tickets of a value, so that it can leave the stream.
pub(super) fn settle_tickets<'s, D: Device, X: Carry<'s, D>>(
    value: &mut X,
    stream: &Stream<'_, D>,
    site: CallSite,
) -> Result<()> {
    if stream.world().nic().is_none() {
        return Ok(());
    }
    let lines = carry::lines(value);
    if !lines.is_empty() {
        wait_for(stream, &lines, site)?;
        carry::forget_tickets(value);
    }
    Ok(())
}

/// Notes that the stream has work with the value.
pub(super) fn touch<'s, D: Device, X: Carry<'s, D>>(value: &mut X, stream: &Stream<'_, D>) {
    let raw = stream.raw();
    carry::settle_on(value, raw.reclaim(), raw.mark());
}

pub(super) fn rebrand<'s, 't, D: Device, X: Carry<'s, D>>(value: X) -> X::At<'t> {
    assert_eq!(
        size_of::<X>(),
        size_of::<X::At<'t>>(),
        "types that differ in a lifetime have one size"
    );
    let value = std::mem::ManuallyDrop::new(value);
    // SAFETY: `Carry` promises that the two types differ only in a lifetime, on which nothing at run time depends. The
    // original is not dropped.
    unsafe { std::mem::transmute_copy(&*value) }
}

pub(super) fn rebrand_ref<'a, 't, D: Device>(stream: &'a Stream<'_, D>) -> &'a Stream<'t, D> {
    // SAFETY: the two types differ only in a brand, on which nothing at run time depends.
    unsafe { std::mem::transmute(stream) }
}
