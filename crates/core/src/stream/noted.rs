//! What a stream notes while it is captured.

use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::site::CallSite;

use super::arm::Arm;
use crate::epochs::RecordedEpochs;
use crate::error::SlotName;
use crate::myself::RecordedAct;
use crate::observe::EpochCall;

/// What each replay must arm and count, and what it does. The numbers tell the order.
pub(crate) struct Noted<D: Device> {
    pub(crate) arms: Vec<(u64, Arm<D>)>,
    pub(crate) acts: Vec<(u64, RecordedAct<D>)>,
    pub(crate) epochs: RecordedEpochs,
    /// What the stream does, and which of the streams of the capture it is.
    pub(crate) steps: Vec<(u64, usize, NotedStep)>,
}

/// Work that was recorded.
pub(crate) enum NotedStep {
    Batch(Arc<Batch>, EpochCall, CallSite),
    /// An epoch that a kernel completes. The batch says what it does, and is never submitted.
    ByKernel(Arc<Batch>, CallSite),
    /// A kernel, by its name. Noted only if somebody observes the rank.
    Kernel(Arc<str>),
    /// An epoch that was just completed leaves these slots of a window as they were.
    Unput(WindowId, Arc<[SlotName]>, CallSite),
    /// The hand-off with this number goes on from here.
    Signal(u64),
    /// The hand-off with this number comes here.
    Await(u64),
}

impl<D: Device> Default for Noted<D> {
    fn default() -> Self {
        Noted {
            arms: Vec::new(),
            acts: Vec::new(),
            epochs: RecordedEpochs::default(),
            steps: Vec::new(),
        }
    }
}

impl<D: Device> Noted<D> {
    /// Adds the notes of another stream of the same capture.
    pub(crate) fn extend(&mut self, other: Self) {
        self.arms.extend(other.arms);
        self.acts.extend(other.acts);
        self.epochs.extend(other.epochs);
        let theirs = other.steps.into_iter();
        self.steps
            .extend(theirs.map(|(number, _, step)| (number, 1, step)));
    }
}
