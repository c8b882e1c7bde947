//! What a window does if the NIC is short of trigger slots.
//!
//! # Model
//!
//! Programs that are armed without a slot queue up, and the NIC takes them from there by itself
//! ([`tidegate_hal::slots`]). That never blocks a job, however small the budget. So a policy decides only how far the
//! *host* runs ahead. All arms of a batch (or of a turn of replays) are made together, under a lock of the rank. So two
//! streams that are short of slots are served one after the other.
//!
//! A batch is not split into parts that fit. Its lanes are independent, but parts would not be. A lane to one target
//! may wait for a post that comes only after another lane of the same epoch has been carried out. And each of two
//! streams could wait for slots that the other holds, while its peer does the same the other way round. No order of the
//! parts prevents that; the kept slot does.
//!
//! [`Throttle::Static`] waits for operations of its own window, and not for all operations of the NIC: those of another
//! window may wait for a peer that waits for this one. Even operations of its own window may do so, since its two
//! halves can be on two streams. So the wait ends when it makes no progress, and the remaining programs queue up. That
//! costs time, but cannot hang.
//!
//! # Failure
//!
//! [`NicError::NoRoom`], before anything is armed. A wait ends if the window is revoked, if its limit passes, or if the
//! stream fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::nic::NicError;

use super::arm::Arm;
use super::queue::Stream;
use crate::error::{Cause, Error, Result};
use crate::nic::{Attached, NicLine, Throttle};
use crate::world::Watched;

/// How often a wait checks whether it should go on.
const ASK: Duration = Duration::from_millis(5);
/// How long a wait goes on if no operation of the window completes.
const STALL: Duration = Duration::from_millis(20);

/// If there is no room to arm all programs: how many there are, how much room there is, and the budget. If there are
/// more programs than slots, they have room when all slots are free.
fn missing<D: Device>(
    attached: &Attached<D>,
    sets: &[&[Arm<D>]],
    times: u64,
) -> Option<(usize, usize, usize)> {
    let programs: usize = sets
        .iter()
        .flat_map(|set| set.iter())
        .map(|arm| arm.programs.len())
        .sum();
    let needed = programs.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX));
    let (room, budget) = (attached.room(), attached.nic.budget());
    (room < needed.min(budget)).then_some((needed, room, budget))
}

fn arms_of<'a, D: Device>(
    sets: &'a [&[Arm<D>]],
    throttle: Throttle,
) -> impl Iterator<Item = &'a Arm<D>> {
    let arms = sets.iter().flat_map(|set| set.iter());
    arms.filter(move |arm| arm.window.throttle == throttle)
}

/// Waits, for windows with [`Throttle::Static`], if there is no room to arm all of `sets` `times` times.
pub(super) fn wait<D: Device>(
    stream: &Stream<'_, D>,
    attached: &Attached<D>,
    sets: &[&[Arm<D>]],
    times: u64,
) -> Result<()> {
    let mut waited: Option<&Arc<Watched<D>>> = None;
    for arm in arms_of(sets, Throttle::Static) {
        if waited.is_some_and(|waited| Arc::ptr_eq(waited, &arm.window)) {
            continue;
        }
        if missing(attached, sets, times).is_none() {
            return Ok(());
        }
        wait_for_window(stream, attached, &arm.window)?;
        waited = Some(&arm.window);
    }
    Ok(())
}

/// Refuses, for windows with [`Throttle::Application`], if there is no room. The caller holds the lock for arming.
pub(super) fn check<D: Device>(
    attached: &Attached<D>,
    sets: &[&[Arm<D>]],
    times: u64,
) -> Result<()> {
    if arms_of(sets, Throttle::Application).next().is_none() {
        return Ok(());
    }
    match missing(attached, sets, times) {
        None => Ok(()),
        Some((needed, room, budget)) => Err(Error::Nic(NicError::NoRoom {
            needed,
            room,
            budget,
        })),
    }
}

/// How many replays are armed at a time. If windows wait for slots, as many as there are slots for; otherwise any number.
/// So it is if a window refuses calls, since the call would be refused after some of its replays.
pub(super) fn turn<D: Device>(stream: &Stream<'_, D>, arms: &[Arm<D>]) -> u64 {
    let Some(attached) = stream.world().nic() else {
        return u64::MAX;
    };
    let has = |throttle| arms_of(&[arms], throttle).next().is_some();
    if !has(Throttle::Static) || has(Throttle::Application) {
        return u64::MAX;
    }
    let programs: usize = arms.iter().map(|arm| arm.programs.len()).sum();
    (attached.nic.budget() / programs.max(1)).max(1) as u64
}

/// Waits until all programs that are armed for a window now have completed, or until they make no progress.
fn wait_for_window<D: Device>(
    stream: &Stream<'_, D>,
    attached: &Attached<D>,
    window: &Arc<Watched<D>>,
) -> Result<()> {
    let mut left: Vec<(Arc<NicLine>, u64)> = window
        .lines()
        .map(|line| {
            let armed = line.queue().counts().0;
            (line, armed)
        })
        .collect();
    let begun = Instant::now();
    let (mut before, mut since) = (None, begun);
    loop {
        // This is read before the lines, so that the wait below does not miss what happens in between.
        let armed = attached.nic.armed();
        // Only these programs are waited for, and not those that another thread arms meanwhile.
        let mut missing = 0;
        left.retain(|(line, armed)| {
            let more = armed.saturating_sub(line.queue().counts().1);
            missing += more;
            more > 0
        });
        if left.is_empty() {
            return Ok(());
        }
        patience(stream, window, begun)?;
        if before != Some(missing) {
            (before, since) = (Some(missing), Instant::now());
        } else if since.elapsed() >= STALL {
            return Ok(());
        }
        let most = armed.saturating_sub(usize::try_from(missing).unwrap_or(usize::MAX));
        attached.nic.await_armed(most, ASK);
    }
}

/// Returns an error if the wait must end.
fn patience<D: Device>(
    stream: &Stream<'_, D>,
    window: &Arc<Watched<D>>,
    begun: Instant,
) -> Result<()> {
    if let Some(limit) = window.limit()
        && begun.elapsed() >= limit
    {
        let (world, rank) = (stream.world(), stream.world().rank());
        let peer = None;
        world.revoke(window, Cause::Limit { rank, peer, limit });
    }
    window.usable()?;
    match stream.raw().fault() {
        None => Ok(()),
        Some(_) => stream.healthy(),
    }
}
