//! Batches in parts, for gates.
//!
//! # Model
//!
//! Where several processes share a GPU it gives them time in slices, and a kernel that waits uses its process's slice
//! up. A *gate* is a wait that no kernel runs for: the stream's front end looks at the words. So there a batch becomes
//! several [`Part`]s, one after the other on the stream, each a launch of the batch kernel, with gates for its waits in
//! front of it.
//!
//! A gate is a hint about time, and nothing else. The kernel behind it still does every wait, advances operands, and
//! finds out about poison; it only finds everything there. So a gate may end too early (a poisoned word is greater than
//! any count, as a difference with a sign) but must never be closed for good where the kernel alone would have ended:
//! what sees to that stands in [`crate::reclaim`].
//!
//! # Which lane goes where
//!
//! "No lane waits for another" must hold for parts as well, so:
//!
//! 1. lanes that wait for nothing (posts) come first, without a gate;
//! 2. then lanes that wait and then do something. A gate in front of *several* of them would make one wait for the word
//!    of another, which can depend on the one: see the job in [`super::apart`]. So only a lane that is alone has gates,
//!    one at each of its waits; several are one launch, whole and without a gate. (With two buffers their exposures
//!    have come an epoch before, and they do not wait.)
//! 3. then lanes that only wait, with one gate for all. Nothing that anybody waits for comes of them, so they can be late.
//!
//! What is in an earlier part waits for nothing of a later one: posts wait for nothing at all, and what lanes of the
//! second kind wait for is added by others, of whom none waits for a lane of the third kind. So the parts come to their
//! end whenever the whole batch does.

use tidegate_hal::batch::{Batch, Step, Wait};

/// A launch, and what is waited for before it without one.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) gate: Vec<Wait>,
    pub(crate) lanes: Vec<Vec<Step>>,
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
    for lane in batch.lanes() {
        let steps = batch.steps(*lane).to_vec();
        if steps.iter().all(|step| waits(step).is_none()) {
            first.lanes.push(steps);
        } else if steps.iter().all(|step| waits(step).is_some()) {
            last.gate.extend(steps.iter().filter_map(waits));
            last.lanes.push(steps);
        } else {
            between.push(steps);
        }
    }
    let between = match &between[..] {
        [alone] => {
            let mut pieces = cut(alone);
            if pieces[0].gate.is_empty() {
                first.lanes.append(&mut pieces.remove(0).lanes);
            }
            pieces
        }
        _ => vec![Part {
            gate: Vec::new(),
            lanes: between,
        }],
    };
    let all = std::iter::once(first).chain(between).chain([last]);
    all.filter(|part| !part.lanes.is_empty()).collect()
}

/// A lane, cut before each wait (and not between waits that follow each other).
fn cut(steps: &[Step]) -> Vec<Part> {
    let mut pieces: Vec<Part> = Vec::new();
    let mut before = None;
    for step in steps {
        let wait = waits(step);
        if before != Some(true) && wait.is_some() || pieces.is_empty() {
            pieces.push(Part {
                gate: Vec::new(),
                lanes: vec![Vec::new()],
            });
        }
        let piece = pieces.last_mut().expect("there is one");
        piece.gate.extend(wait);
        piece.lanes[0].push(*step);
        before = Some(wait.is_some());
    }
    pieces
}
