//! What the jobs do.

use tidegate::Buffers;
use tidegate_mpi::windows::Form;

use crate::rank::Job;
use crate::{ends, epochs, faces};

#[path = "../../../../tests/common/ring.rs"]
mod ring;

/// A job.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ranks: &'static [usize],
    /// A rank of it dies, so `mpirun` has no success to tell of. The others say so themselves.
    pub(crate) dies: bool,
    pub(crate) run: fn(&mut Job),
}

/// Both forms of signals, whichever is faster here.
pub(crate) const FORMS: [Form; 2] = [Form::Words, Form::Messages];

const fn case(name: &'static str, ranks: &'static [usize], run: fn(&mut Job)) -> Case {
    Case {
        name,
        ranks,
        dies: false,
        run,
    }
}

pub(crate) const ALL: &[Case] = &[
    case("ring", &[1, 2, 3, 8], |job| {
        for form in FORMS {
            for buffers in [Buffers::Single, Buffers::Double] {
                ring::run(job.world(form), buffers, 10).unwrap();
            }
        }
        ring::run(job.world(Form::Measured), Buffers::Double, 10).unwrap();
    }),
    case("ranges", &[1, 2, 3], |job| {
        job.in_both_forms(epochs::ranges)
    }),
    case("slots", &[2, 3], |job| job.in_both_forms(epochs::slots)),
    case("atomics", &[1, 2, 3, 5], |job| {
        job.in_both_forms(epochs::atomics)
    }),
    case("barrier", &[1, 2, 3, 8], |job| {
        job.in_both_forms(epochs::barrier)
    }),
    case("memory", &[1, 3], |job| job.in_both_forms(epochs::memory)),
    case("polled", &[2, 3], |job| job.in_both_forms(epochs::polled)),
    case("late", &[2], |job| job.in_both_forms(ends::late_put)),
    case("computes", &[2], |job| {
        job.in_both_forms(ends::target_computes)
    }),
    case("dropped", &[2, 3], |job| job.in_both_forms(ends::dropped)),
    case("finalized", &[1, 2, 3], ends::finalized),
    case("threads", &[1, 2], ends::too_few_threads),
    case("refused", &[2], ends::refused),
    case("faces", &[1, 2, 8], |job| job.in_both_forms(faces::all)),
    Case {
        name: "killed",
        ranks: &[2, 3],
        dies: true,
        run: ends::killed,
    },
];
