//! The programs that the host arms the NIC with.

use std::sync::Arc;

use tidegate_hal::device::Device;
use tidegate_hal::nic::Prepared;

use crate::nic::NicLine;
use crate::world::Watched;

/// Programs of one line that must be armed before a stream may ring for them.
pub(crate) struct Arm<D: Device> {
    pub(super) line: Arc<NicLine>,
    pub(super) programs: Arc<[Prepared]>,
    pub(super) window: Arc<Watched<D>>,
}

impl<D: Device> Clone for Arm<D> {
    fn clone(&self) -> Self {
        Arm {
            line: self.line.clone(),
            programs: self.programs.clone(),
            window: self.window.clone(),
        }
    }
}

impl<D: Device> Arm<D> {
    pub(crate) fn new(line: &Arc<NicLine>, program: Prepared, window: &Arc<Watched<D>>) -> Self {
        Arm {
            line: line.clone(),
            programs: [program].into(),
            window: window.clone(),
        }
    }
}

/// The arms of a recorded step, sorted by line.
pub(crate) struct RecordedArms<D: Device>(pub(super) Vec<Arm<D>>);

impl<D: Device> RecordedArms<D> {
    /// Sorts noted arms by line. The number of each one tells their order.
    pub(crate) fn new(mut noted: Vec<(u64, Arm<D>)>) -> Self {
        noted.sort_by_key(|(number, _)| *number);
        let mut lines: Vec<(Arm<D>, Vec<Prepared>)> = Vec::new();
        for (_, arm) in noted {
            let same = |held: &&mut (Arm<D>, Vec<Prepared>)| held.0.line.is(&arm.line);
            match lines.iter_mut().find(same) {
                Some((_, programs)) => programs.extend(arm.programs.iter().cloned()),
                None => {
                    let programs = arm.programs.to_vec();
                    lines.push((arm, programs));
                }
            }
        }
        let arms = lines.into_iter().map(|(arm, programs)| Arm {
            programs: programs.into(),
            ..arm
        });
        RecordedArms(arms.collect())
    }
}
