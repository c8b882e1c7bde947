//! Arming the NIC before a stream rings.
//!
//! What is armed cannot be taken back: the next ring would fire it, whatever that is for. So the order is: the device is
//! asked whether it can have the batch, the NIC is armed, the batch is submitted. If that breaks behind the arms all the
//! same, the windows are revoked.

use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Device, Fault, Stream as _};

use super::arm::{Arm, RecordedArms};
use super::queue::Stream;
use super::throttle;
use crate::error::{Cause, Error, Result};
use crate::ground::lock;

/// Calls `submit`, which submits the batch, when the NIC has been armed with what that will ring, all of it or nothing;
/// notes it, if the batch is recorded.
#[inline]
pub(crate) fn armed<D: Device>(
    stream: &Stream<'_, D>,
    sets: &[&[Arm<D>]],
    batch: &Arc<Batch>,
    submit: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if stream.raw().capturing() {
        submit()?;
        sets.iter().for_each(|set| stream.note_arms(set));
        return Ok(());
    }
    stream.raw().prepare(batch, 1)?;
    arm_times(stream, sets, 1)?;
    submit_armed(stream, sets, submit).map(drop)
}

/// Calls `submit` for what was armed. Says whether all of it rings, or poisons: what counts as submitted may have been
/// broken off in its middle, and of what was not launched nobody hears.
fn submit_armed<D: Device>(
    stream: &Stream<'_, D>,
    sets: &[&[Arm<D>]],
    submit: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let not_rung = |error: &Error| sets.iter().for_each(|set| disarm(stream, set, error));
    submit().inspect_err(not_rung)?;
    match stream.raw().fault() {
        // What is behind another failure is given up, and poisons its doorbells.
        Some(fault @ Fault::Transport(_)) => {
            not_rung(&stream.world().explain(fault, stream.name()));
            Ok(false)
        }
        _ => Ok(true),
    }
}

fn arm_times<D: Device>(stream: &Stream<'_, D>, sets: &[&[Arm<D>]], times: u64) -> Result<()> {
    let attached = stream.world().nic().expect("a NIC is armed");
    // Not on the other side of a wait: what is waited for may need the lock.
    throttle::wait(stream, attached, sets, times)?;
    let _arming = lock(&attached.arming);
    throttle::check(attached, sets, times)?;
    let arms = || sets.iter().flat_map(|set| set.iter());
    for (index, arm) in arms().enumerate() {
        if let Err(error) = arm.line.queue().arm(&arm.programs, times) {
            arms()
                .take(index)
                .for_each(|armed| disarm(stream, std::slice::from_ref(armed), &error));
            // The reason behind it says more.
            stream.healthy()?;
            arm.window.usable()?;
            return Err(Error::Nic(error));
        }
    }
    Ok(())
}

/// What was armed will not be rung for. The next ring would fire it instead of its own, so there must be none.
#[cold]
fn disarm<D: Device>(stream: &Stream<'_, D>, arms: &[Arm<D>], error: &impl std::fmt::Display) {
    let rank = stream.world().rank();
    for arm in arms {
        let reason = error.to_string();
        let cause = Cause::NotEnqueued { rank, reason };
        stream.world().revoke(&arm.window, cause);
    }
}

impl<D: Device> RecordedArms<D> {
    /// Calls `submit` with numbers of replays that add up to `times`, each armed for; before that `prepare`, if anything
    /// is armed.
    pub(crate) fn replay(
        &self,
        stream: &Stream<'_, D>,
        times: u64,
        prepare: impl FnOnce() -> Result<()>,
        mut submit: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if self.0.is_empty() {
            return submit(times);
        }
        // What was armed in vain for a window that is revoked must not be fired by the rings of this recording.
        for arm in &self.0 {
            arm.window.usable()?;
        }
        prepare()?;
        // Of a later turn nobody asks again: those before it have been enqueued.
        let most = throttle::turn(stream, &self.0);
        let mut left = times;
        while left > 0 {
            let turn = left.min(most);
            arm_times(stream, &[&self.0], turn)?;
            if !submit_armed(stream, &[&self.0], || submit(turn))? {
                // It counts as submitted, and nobody waits for it any more.
                break;
            }
            left -= turn;
        }
        Ok(())
    }
}
