//! What a stream notes while it is captured.

use tidegate_hal::device::Device;

use super::arm::Arm;
use crate::epochs::RecordedEpochs;
use crate::myself::RecordedAct;

/// What each replay must arm and count. The numbers tell the order.
pub(crate) struct Noted<D: Device> {
    pub(crate) arms: Vec<(u64, Arm<D>)>,
    pub(crate) acts: Vec<(u64, RecordedAct<D>)>,
    pub(crate) epochs: RecordedEpochs,
}

impl<D: Device> Default for Noted<D> {
    fn default() -> Self {
        Noted {
            arms: Vec::new(),
            acts: Vec::new(),
            epochs: RecordedEpochs::default(),
        }
    }
}

impl<D: Device> Noted<D> {
    /// Adds the notes of another stream of the same capture.
    pub(crate) fn extend(&mut self, other: Self) {
        self.arms.extend(other.arms);
        self.acts.extend(other.acts);
        self.epochs.extend(other.epochs);
    }
}
