//! Arming the NIC before a stream rings.
//!
//! An armed program cannot be taken back: the next ring would fire it, even if that ring is meant for another program.
//! So the device is first asked whether it can take the batch, then the NIC is armed, and then the batch is submitted.
//! If the submission fails after all, the windows are revoked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Device, Fault, Stream as _};
use tidegate_hal::nic::NicError;

use super::arm::{Arm, RecordedArms};
use super::queue::Stream;
use super::throttle;
use crate::error::{Cause, Error, Result};
use crate::ground::lock;

/// How long a refused call waits for the report of the failure that has made its queue give up.
const REPORTED: Duration = Duration::from_secs(1);

/// Arms the NIC with all programs that a batch rings for, or with none, and then calls `submit`, which submits the
/// batch. If the batch is recorded, notes the programs for the replays.
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

/// Calls `submit` for a batch whose programs are armed. Returns whether the whole batch will ring or poison. A batch
/// that counts as submitted may have been broken off halfway, and then no peer hears of the part that was not launched.
fn submit_armed<D: Device>(
    stream: &Stream<'_, D>,
    sets: &[&[Arm<D>]],
    submit: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let not_rung = |error: &Error| sets.iter().for_each(|set| disarm(stream, set, error));
    submit().inspect_err(not_rung)?;
    match stream.raw().fault() {
        // Work behind another failure is given up, and poisons its doorbells. So only this failure leaves programs
        // without a ring.
        Some(fault @ Fault::Transport(_)) => {
            not_rung(&stream.world().explain(fault, stream.name()));
            Ok(false)
        }
        _ => Ok(true),
    }
}

fn arm_times<D: Device>(stream: &Stream<'_, D>, sets: &[&[Arm<D>]], times: u64) -> Result<()> {
    let attached = stream.world().nic().expect("a NIC is armed");
    // This happens before the lock is taken, because the operations that it waits for may need the lock.
    throttle::wait(stream, attached, sets, times)?;
    let _arming = lock(&attached.arming);
    throttle::check(attached, sets, times)?;
    let arms = || sets.iter().flat_map(|set| set.iter());
    for (index, arm) in arms().enumerate() {
        if let Err(error) = arm.line.queue().arm(&arm.programs, times) {
            let explained = explained(stream, arm, &error);
            arms()
                .take(index)
                .for_each(|armed| disarm(stream, std::slice::from_ref(armed), &error));
            return explained.and(Err(Error::Nic(error)));
        }
    }
    Ok(())
}

/// The error that explains more than the refusal of an arm, if there is one: the stream has failed, or the window is
/// revoked. A queue gives up a moment before the thread that turns the engine reports why. So this waits for the report:
/// otherwise all ranks would hear of the refusal only. The caller holds the lock meanwhile, which the report does not need:
/// programs that are armed already must not be fired by the rings of another thread.
#[cold]
fn explained<D: Device>(stream: &Stream<'_, D>, arm: &Arm<D>, error: &NicError) -> Result<()> {
    let until = Instant::now() + REPORTED;
    loop {
        stream.healthy()?;
        arm.window.usable()?;
        if !matches!(error, NicError::GivenUp) || Instant::now() >= until {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Revokes the windows of arms that will not be rung for. The next ring would fire these arms instead of its own
/// programs, so there must be no next ring.
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
    /// Splits `times` replays into turns. For each turn it arms the NIC and calls `submit` with the number of replays.
    /// If there is anything to arm, it calls `prepare` first.
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
        // Programs that are still armed for a revoked window must not be fired by the rings of this recording.
        for arm in &self.0 {
            arm.window.usable()?;
        }
        prepare()?;
        // The device is asked only once: when it comes to a later turn, the turns before are already enqueued.
        let most = throttle::turn(stream, &self.0);
        let mut left = times;
        while left > 0 {
            let turn = left.min(most);
            if let Err(error) = arm_times(stream, &[&self.0], turn) {
                if left < times {
                    // Some replays are enqueued, and the peers expect all of them.
                    disarm(stream, &self.0, &error);
                }
                return Err(error);
            }
            if !submit_armed(stream, &[&self.0], || submit(turn))? {
                // The turn counts as submitted, but nobody waits for it any more.
                break;
            }
            left -= turn;
        }
        Ok(())
    }
}
