//! The step `mpi`: checks of everything over MPI, with both MPIs of Debian.
//!
//! Each MPI has a target folder of its own. Its headers are compiled into the binding, and another `MPICC` would not
//! rebuild that. Everything is built once, without optimisation. Clippy runs with one of the two, since the sources are
//! the same. Only a deep run takes both MPIs; other runs take one, which changes with about every second commit.

use std::slice;

use crate::changed;
use crate::command::{Cmd, cmd};
use crate::need::Need;
use crate::step::{GIT, IPROUTE, Scope, Step, Tier};

/// The row of the table.
pub(crate) const STEP: Step = Step {
    name: "mpi",
    what: "worlds of communicators, epochs over windows of MPI, and Faces beside its baselines, and over such windows, inside jobs of Open MPI or of MPICH; of both with --deep",
    tier: Tier::Full,
    needs: &[
        Need::Apt {
            program: "mpirun.openmpi",
            package: "openmpi-bin",
        },
        // (The package of a compiler's wrapper comes with the launcher, but the headers do not.)
        Need::AptFile {
            pattern: "/usr/lib/*/openmpi/include/mpi.h",
            package: "libopenmpi-dev",
        },
        Need::Apt {
            program: "mpirun.mpich",
            package: "mpich",
        },
        Need::AptFile {
            pattern: "/usr/include/*/mpich/mpi.h",
            package: "libmpich-dev",
        },
        // The library that reads MPI's headers.
        Need::Library {
            name: "libclang",
            package: "libclang-dev",
        },
        // Hosts are network namespaces.
        IPROUTE,
        GIT,
    ],
    commands,
};

struct Mpi {
    folder: &'static str,
    mpicc: &'static str,
    mpirun: &'static str,
    /// Whether all jobs run even in a partial run. MPICH's take four minutes.
    is_full: bool,
}

/// The jobs that run in any case: those for which the two MPIs' windows differ, or that only one of them can do.
const SOME: &str = "-- ring hosts atomics dropped killed";

const BOTH: [Mpi; 2] = [
    Mpi {
        folder: "target/openmpi",
        mpicc: "mpicc.openmpi",
        mpirun: "mpirun.openmpi --oversubscribe",
        is_full: true,
    },
    Mpi {
        folder: "target/mpich",
        mpicc: "mpicc.mpich",
        mpirun: "mpirun.mpich",
        is_full: false,
    },
];

/// Everything that this step builds. All its commands name the same packages, because another choice would unify
/// features in another way, and build the binding again.
const PACKAGES: &str =
    "-p tidegate -p tidegate-mpi -p tidegate-bench --features tidegate/mpi,tidegate-mpi/mpi";

/// Small runs of Faces: rank grid, size, and the smallest run that includes it.
const FACES: [(&str, &str, Tier); 4] = [
    ("1x1x1", "2x3x4x3", Tier::Deep),
    ("2x1x1", "4x5x2x3", Tier::Deep),
    ("3x1x1", "2x3x2x4 --compute", Tier::Full),
    ("2x2x2", "2x3x2x3", Tier::Deep),
];

const VARIANTS: &str = "--init global --counts 2,1,3 --rounds 1 \
     --variants st,st-graph,rma,p2p,mpi-rma,mpi-p2p,mpi-rma-direct,mpi-p2p-direct";

/// Small runs of Faces over windows of MPI: rank grid, size, options, and the smallest run that includes it.
const OVER_WINDOWS: [(&str, &str, &str, Tier); 4] = [
    ("2x1x1", "4x5x2x3", "", Tier::Deep),
    (
        "2x1x1",
        "2x3x2x4 --compute",
        "--mpi-not-shared --mpi-signals words",
        Tier::Full,
    ),
    ("2x2x2", "2x3x2x3", "", Tier::Full),
    (
        "2x2x2",
        "2x3x2x3",
        "--mpi-not-shared --mpi-signals messages",
        Tier::Deep,
    ),
];

/// With MPI's own variants in the same run.
const VARIANTS_OVER_WINDOWS: &str = "--transport mpi --init global --counts 2,1,3 --rounds 1 \
     --variants st,st-graph,st-separate,st-strided,st-strided-graph,rma,p2p,mpi-rma,mpi-p2p";

impl Mpi {
    fn cmd(&self, line: &str) -> Cmd {
        cmd(line)
            .env("MPICC", self.mpicc)
            // Open MPI requires both variables to run as root, as continuous integration does.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    }

    fn cargo(&self, line: &str) -> Cmd {
        self.cmd("cargo")
            .args(line)
            .args(PACKAGES)
            .arg("--target-dir")
            .arg(self.folder)
    }

    /// A benchmark, built like the tests.
    fn bench(&self, name: &str) -> Cmd {
        self.cargo(&format!("bench --quiet --profile dev --bench {name}"))
            .arg("--")
            .arg("--mpirun")
            .arg(self.mpirun)
    }
}

fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let chosen = match scope.tier {
        Tier::Deep => &BOTH[..],
        Tier::Quick | Tier::Full => slice::from_ref(&BOTH[changed::turn(&scope.root, 2)?]),
    };
    // Most of the step's packages have been checked before this one.
    let clippy = chosen[0].cmd("cargo clippy --all-targets").args(PACKAGES);
    let mut all = vec![clippy.args("-- -D warnings")];
    for mpi in chosen {
        // `job` has the typed epochs over windows of MPI. It starts itself under the launcher.
        let targets = "--lib --test mpi --test job";
        all.push(mpi.cargo("build --example ring_mpi"));
        all.push(
            mpi.cargo("test --no-run --bench faces --bench osu --bench collectives")
                .args(targets),
        );
        if scope.tier == Tier::Deep || mpi.is_full {
            all.push(mpi.cargo("test").args(targets));
        } else {
            all.push(mpi.cargo("test --test mpi"));
            all.push(mpi.cargo("test --test job").args(SOME));
        }
        for ranks in ["1", "3", "8"] {
            let program = format!("{}/debug/examples/ring_mpi", mpi.folder);
            all.push(mpi.cmd(mpi.mpirun).args("-n").arg(ranks).arg(program));
        }
        let asked_for = |tier: &Tier| *tier <= scope.tier;
        all.extend(
            FACES
                .iter()
                .filter(|row| asked_for(&row.2))
                .map(|(grid, size, _)| {
                    mpi.bench("faces")
                        .args(&format!("--grid {grid} --size {size}"))
                        .args(VARIANTS)
                        // MPICH does not yield the processors, and eight ranks share a few.
                        .arg("--mpi-polls")
                        .arg("--report")
                        .arg(scope.scratch.join("faces"))
                }),
        );
        let rows = OVER_WINDOWS.iter().filter(|row| asked_for(&row.3));
        all.extend(rows.map(|(grid, size, how, _)| {
            mpi.bench("faces")
                .args(&format!("--grid {grid} --size {size}"))
                .args(VARIANTS_OVER_WINDOWS)
                .args(how)
                .arg("--mpi-polls")
                .arg("--report")
                .arg(scope.scratch.join("faces"))
        }));
        all.push(
            mpi.bench("osu")
                .args("--min 4096 --max 16384 --iterations 50 --rounds 1"),
        );
        all.push(
            mpi.bench("collectives")
                .args("--transport shm --ranks 3 --sizes 8,40000 --iterations 20 --rounds 1"),
        );
    }
    Ok(all)
}
