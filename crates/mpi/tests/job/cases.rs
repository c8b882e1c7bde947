//! The cases that jobs run.

use std::process::ExitCode;
use std::time::Duration;

use mpi::topology::Communicator;
use tidegate::Buffers;
use tidegate_mpi::windows::Form;

use crate::rank::{HOSTS, Job, Mode};
use crate::{ends, epochs, faces, random, teams};

#[path = "../../../../tests/common/ring.rs"]
pub(crate) mod ring;

/// A job.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ranks: &'static [usize],
    /// Numbers of hosts, and of ranks on each, with which the case also runs.
    pub(crate) hosts: &'static [(usize, usize)],
    /// A rank dies, so `mpirun` reports no success. The other ranks report themselves.
    pub(crate) dies: bool,
    /// A job that takes longer is stuck.
    pub(crate) limit: fn() -> Duration,
    pub(crate) run: fn(&mut Job),
}

/// Long enough for nearly all cases.
const LIMIT: fn() -> Duration = || Duration::from_secs(120);

const fn case(name: &'static str, ranks: &'static [usize], run: fn(&mut Job)) -> Case {
    Case {
        name,
        ranks,
        hosts: &[],
        dies: false,
        limit: LIMIT,
        run,
    }
}

pub(crate) const ALL: &[Case] = &[
    case("ring", &[1, 2, 3, 8], |job| {
        for mode in job.modes() {
            for buffers in [Buffers::Single, Buffers::Double] {
                ring::run(job.world(*mode), buffers, 10).unwrap();
            }
        }
        ring::run(job.world(Mode::Apart(Form::Measured)), Buffers::Double, 10).unwrap();
    }),
    case("ranges", &[1, 2, 3], |job| job.in_all_modes(epochs::ranges)),
    case("layouts", &[1, 2, 3], |job| {
        job.in_all_modes(epochs::layouts);
    }),
    Case {
        hosts: &[(2, 1), (2, 2)],
        ..case("hosts", &[], |job| {
            ring::run(job.world(Mode::Near), Buffers::Double, 10).unwrap();
            epochs::ranges(job.world(Mode::Near));
            epochs::slots(job.world(Mode::Near));
            epochs::atomics(job.world(Mode::Near), true);
            epochs::memory(job.world(Mode::Near));
        })
    },
    case("slots", &[2, 3], |job| job.in_all_modes(epochs::slots)),
    case("atomics", &[1, 2, 3, 5], |job| {
        for mode in job.modes() {
            epochs::atomics(job.world(*mode), job.swaps(*mode));
        }
    }),
    case("barrier", &[1, 2, 3, 8], |job| {
        job.in_all_modes(epochs::barrier)
    }),
    case("memory", &[1, 3], |job| job.in_all_modes(epochs::memory)),
    case("polled", &[2, 3], |job| job.in_all_modes(epochs::polled)),
    case("late", &[2], |job| job.in_all_modes(ends::late_put)),
    case("computes", &[2], |job| {
        job.in_all_modes(ends::target_computes)
    }),
    case("dropped", &[2, 3], |job| job.in_all_modes(ends::dropped)),
    case("swap", &[2], ends::swap),
    case("reductions", &[2], ends::reductions),
    case("faulty", &[2, 3], ends::mpi_fails),
    case("finalized", &[1, 2, 3], ends::finalized),
    case("threads", &[1, 2], ends::too_few_threads),
    case("refused", &[2], ends::refused),
    case("teams", &[1, 2, 3], |job| job.in_all_modes(teams::refused)),
    case("faces", &[1, 2, 8], |job| job.in_all_modes(faces::all)),
    Case {
        limit: random::limit,
        ..case("schedules", &[1, 2, 3, 4], random::agree)
    },
    case("mutants", &[3], random::mutants),
    Case {
        name: "killed",
        ranks: &[2, 3],
        hosts: &[],
        dies: true,
        limit: LIMIT,
        run: ends::killed,
    },
    Case {
        name: "killed-apart",
        ranks: &[2, 3],
        hosts: &[],
        dies: true,
        limit: LIMIT,
        run: ends::killed_apart,
    },
];

/// A rank's program.
pub(crate) fn run(name: &str) -> ExitCode {
    let case = ALL
        .iter()
        .find(|case| case.name == name)
        .expect("the driver knows the cases");
    let level = match name {
        "threads" => mpi::Threading::Serialized,
        _ => mpi::Threading::Multiple,
    };
    let (universe, _) = mpi::initialize_with_threading(level).unwrap();
    let comm = universe.world().duplicate();
    let mut job = Job {
        universe: Some(universe),
        comm,
    };
    (case.run)(&mut job);
    if std::env::var_os(HOSTS).is_some() {
        job.say("all is done but the end of MPI");
    }
    ExitCode::SUCCESS
}
