//! Batches in parts, for gates.
//!
//! # Model
//!
//! If several processes share a GPU, it gives them time slices, and a kernel that waits uses up the slice of its
//! process. A *gate* is a wait without a kernel: the driver looks at the words. With gates a batch becomes several
//! [`Part`]s, one after the other on the stream. Each is a launch of the batch kernel, behind gates for its waits.
//!
//! A gate only saves time. The kernel behind it still does every wait, advances operands, and finds poison; it only
//! finds that the words have come. So a gate may end too early. (A poisoned word is greater than any count, as a signed
//! difference.) But a gate must not stay closed if the kernel's wait would have ended; [`crate::reclaim`] sees to that.
//!
//! # Which lane belongs to which part
//!
//! As in a whole batch, no lane may wait for another. So:
//!
//! 1. Lanes that wait for nothing (posts) come first, without a gate.
//! 2. Then come the lanes that wait and then do something. A gate in front of *several* of them would make one lane
//!    wait for the word of another, and that word can depend on the first lane (see the job in [`super::apart`]). So if
//!    there is only one such lane, it has a gate at each of its waits. Several are one launch without a gate. (With two
//!    buffers their exposures came an epoch before, and they do not wait.)
//! 3. Lanes that only wait come last, with one gate for all. Nobody waits for them, so they may be late.
//!
//! An earlier part waits for nothing of a later one. Posts wait for nothing at all. The words for which lanes of the
//! second kind wait are added by lanes that do not wait for a lane of the third kind. So the parts end whenever the
//! whole batch does.

use tidegate_hal::batch::{Batch, Step, Wait};

use super::layout::lane_name;

/// A launch, and the waits of the gate in front of it.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) gate: Vec<Wait>,
    pub(crate) lanes: Vec<Vec<Step>>,
    /// What stamps call the lanes.
    pub(crate) names: Vec<u32>,
}

impl Part {
    fn add(&mut self, steps: Vec<Step>, name: u32) {
        self.lanes.push(steps);
        self.names.push(name);
    }
}

fn waits(step: &Step) -> Option<Wait> {
    match step {
        Step::Wait(wait) => Some(*wait),
        _ => None,
    }
}

/// The parts of a batch, in order.
pub(crate) fn parts(batch: &Batch) -> Vec<Part> {
    let (mut first, mut between, mut last) = (Part::default(), Vec::new(), Part::default());
    for (number, lane) in batch.lanes().iter().enumerate() {
        let name = lane_name(number, 0);
        let steps = batch.steps(*lane).to_vec();
        if steps.iter().all(|step| waits(step).is_none()) {
            first.add(steps, name);
        } else if steps.iter().all(|step| waits(step).is_some()) {
            last.gate.extend(steps.iter().filter_map(waits));
            last.add(steps, name);
        } else {
            between.push((steps, name));
        }
    }
    let between = match &between[..] {
        [(alone, name)] => {
            let mut pieces = cut(alone, *name);
            if pieces[0].gate.is_empty() {
                let mut piece = pieces.remove(0);
                first.lanes.append(&mut piece.lanes);
                first.names.append(&mut piece.names);
            }
            pieces
        }
        _ => {
            let (lanes, names) = between.into_iter().unzip();
            vec![Part {
                gate: Vec::new(),
                lanes,
                names,
            }]
        }
    };
    let all = std::iter::once(first).chain(between).chain([last]);
    all.filter(|part| !part.lanes.is_empty()).collect()
}

/// Cuts a lane of this name before each wait, but not between consecutive waits.
fn cut(steps: &[Step], name: u32) -> Vec<Part> {
    let mut pieces: Vec<Part> = Vec::new();
    let mut before = None;
    // A wait begins a leg, if the lane has done something before.
    let (mut leg, mut used) = (0, false);
    for step in steps {
        let wait = waits(step);
        leg += u32::from(used && wait.is_some());
        used |= !matches!(step, Step::Check(_) | Step::Flush | Step::Store(_));
        if before != Some(true) && wait.is_some() || pieces.is_empty() {
            pieces.push(Part {
                gate: Vec::new(),
                lanes: vec![Vec::new()],
                names: vec![name + lane_name(0, leg)],
            });
        }
        let piece = pieces.last_mut().expect("there is one");
        piece.gate.extend(wait);
        piece.lanes[0].push(*step);
        before = Some(wait.is_some());
    }
    pieces
}
