//! The step `launchers`: Faces on ranks that other launchers start. And the step `slurm`, for Slurm's.
//!
//! The tests of launchers, and the examples under `mpirun`, are part of the step `unit`. They need what this step
//! installs, so it comes first.

use crate::command::{Cmd, cmd};
use crate::need::Need;
use crate::step::{PRODUCT, Scope};

/// Both launchers, with their MPIs and the PMIx library; and PMIx's header, with which a test compares.
pub(crate) const NEEDS: &[Need] = &[
    Need::Apt {
        program: "mpirun.openmpi",
        package: "openmpi-bin",
    },
    Need::Apt {
        program: "mpirun.mpich",
        package: "mpich",
    },
    Need::AptFile {
        pattern: "/usr/lib/*/pmix2/include/pmix.h",
        package: "libpmix-dev",
    },
];

/// The command line of each launcher, as a runner for programs that cargo has built.
const LAUNCHERS: &[&str] = &[
    r#"["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "8"]"#,
    r#"["mpirun.mpich", "-n", "8"]"#,
];

/// Faces, whose ranks verify their results.
pub(crate) fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let run = |(number, launcher): (usize, &&str)| {
        // This variable marks a process as a rank that has been started already.
        let rows = scope.scratch.join(format!("faces-under-mpirun-{number}"));
        cmd("cargo bench --quiet --bench faces")
            .args(PRODUCT)
            .arg("--config")
            .arg(format!("target.'cfg(all())'.runner = {launcher}"))
            .args("-- --grid 2x2x2 --size 3x4x5x3 --init global --counts 2,1,3 --rounds 1")
            .args("--variants st,st-graph,rma,p2p")
            .env("TIDEGATE_FACES_ROWS", rows)
    };
    Ok(LAUNCHERS.iter().enumerate().map(run).collect())
}

/// Slurm's packages, and the one library that they need beyond a plain Debian.
const SLURM: &str = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2";

/// Gets Slurm's packages, without installing them, and runs the test that starts a Slurm of one node.
pub(crate) fn slurm(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let (packages, root) = (
        scope.scratch.join("slurm"),
        scope.scratch.join("slurm-root"),
    );
    Ok(vec![
        cmd("mkdir").arg(&packages),
        cmd("env --chdir")
            .arg(&packages)
            .args("apt-get download -q")
            .args(SLURM),
        cmd("sh -c")
            .arg(r#"for package in "$0"/*.deb; do dpkg -x "$package" "$1"; done"#)
            .arg(&packages)
            .arg(&root),
        cmd("cargo test -p tidegate-boot --test slurm -- --ignored").env("TIDEGATE_SLURM", root),
    ])
}
