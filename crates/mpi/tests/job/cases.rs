//! What the jobs do.

use tidegate::Buffers;
use tidegate_mpi::windows::Form;

use crate::rank::Job;

#[path = "../../../../tests/common/ring.rs"]
mod ring;

/// A job.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ranks: &'static [usize],
    /// A rank of it dies, so that `mpirun` has no success to tell of.
    pub(crate) dies: bool,
    pub(crate) run: fn(&mut Job),
}

pub(crate) const ALL: &[Case] = &[Case {
    name: "ring",
    ranks: &[1, 2, 3, 8],
    dies: false,
    run: |job| {
        for form in [Form::Words, Form::Messages] {
            for buffers in [Buffers::Single, Buffers::Double] {
                ring::run(job.world(form), buffers, 30).unwrap();
            }
        }
    },
}];
