//! The steps about other toolchains and machines than those that the project is developed with.

use crate::changed;
use crate::command::cmd;
use crate::need::{Need, Toolchain, minimum};
use crate::step::{FACES_ALL, GIT, Step, Tier};

/// Packages as users build them, with the oldest Rust that the manifests allow.
pub(crate) const MSRV: Step = Step {
    name: "msrv",
    what: "the packages, and the versions of others in Cargo.lock, build with the oldest Rust that the manifests allow",
    tier: Tier::Deep,
    // Any component that the toolchain has: this asks for the toolchain itself.
    needs: &[Need::Component {
        toolchain: Toolchain::Minimum,
        name: "cargo",
    }],
    commands: |_| {
        // A target folder of its own: two toolchains would build everything anew for each other.
        let check = |line: &str| {
            let cargo = cmd("cargo").arg(format!("+{}", minimum()));
            cargo
                .args("check --locked --target-dir target/msrv")
                .args(line)
        };
        Ok(vec![
            check(
                "-p tidegate -p tidegate-cli --features tidegate/half,tidegate/complex,tidegate/bytemuck,tidegate/profiler,tidegate/prometheus,tidegate/unstable-hal",
            ),
            check("-p tidegate --no-default-features"),
        ])
    },
};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// How a program of that target runs here. (Its system libraries lie in that folder.)
const QEMU: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

/// The host device on aarch64 (as on NVIDIA's Grace), in an emulator. Memory has the order of the processor that the
/// emulator runs on, so errors that only a weaker order allows do not show: the step `loom` looks for those. An emulated
/// program cannot start another. So tests that do are left out, and a launcher of this machine starts the job.
pub(crate) const AARCH64: Step = Step {
    name: "aarch64",
    what: "the host device, its tests, a job and a small Faces, built for aarch64 and run in an emulator",
    tier: Tier::Deep,
    needs: &[
        Need::Target(TARGET),
        Need::Apt {
            program: "aarch64-linux-gnu-gcc",
            package: "gcc-aarch64-linux-gnu",
        },
        Need::AptFile {
            pattern: "/usr/aarch64-linux-gnu/lib/libc.so.6",
            package: "libc6-dev-arm64-cross",
        },
        Need::Apt {
            program: "qemu-aarch64",
            package: "qemu-user",
        },
    ],
    commands: |scope| {
        let cargo = |line: &str| {
            cmd("cargo")
                .args(line)
                .args("--target")
                .arg(TARGET)
                .env(
                    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                    "aarch64-linux-gnu-gcc",
                )
                .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", QEMU)
        };
        let job = format!(
            "cargo run -p tidegate-cli -- run -n 4 {QEMU} target/{TARGET}/debug/examples/ring"
        );
        Ok(vec![
            cargo("test --no-fail-fast -p tidegate-words -p tidegate-hal -p tidegate-host -p tidegate-core -p tidegate-boot")
                .args("--lib --test protocol --test armed --test slots --test forget --test memory")
                // It starts itself.
                .args("-- --skip a_variable_that_is_no_text_is_refused"),
            cargo("test -p tidegate --test host")
                // There is no libfabric of that target.
                .args("-- --skip agent:: --skip fabric:: --skip failing:: --skip order:: --skip triggered::")
                // It starts itself. Random schedules compute long, and so do those of Faces, of which the last command
                // runs a small one.
                .args("--skip processes_with_the_nic_forced --skip faces:: --skip random::"),
            cargo("build -p tidegate --example ring"),
            cmd(&job),
            cargo("bench --quiet --profile dev -p tidegate --bench faces")
                .args("-- --ranks-as threads --grid 2x2x2 --size 2x3x2x3")
                .args(FACES_ALL)
                .arg("--report")
                .arg(scope.scratch.join("faces")),
        ])
    },
};

/// What `cargo semver-checks` ends with when it has found changes that the version does not allow.
const NOT_ALLOWED: &str = "100";

/// The interface compared with that of the last release. The items of the facade are those of other packages. The program
/// does not follow them there, so it checks each package by itself.
pub(crate) const SEMVER: Step = Step {
    name: "semver",
    what: "the version allows the changes of the interface since the last tag; without a tag, those of the last commit are listed",
    tier: Tier::Deep,
    needs: &[
        GIT,
        Need::Cargo {
            program: "cargo-semver-checks",
            version: "0.51.0",
        },
    ],
    commands: |scope| {
        let tags = changed::git(
            &scope.root,
            &[
                "tag",
                "--list",
                "v*",
                "--merged",
                "HEAD",
                "--sort=-version:refname",
            ],
        )?;
        let tag = tags.lines().next();
        let check = |line: &str| {
            let check = match tag {
                Some(_) => cmd("cargo"),
                None => cmd("sh -c").arg(format!(
                    "cargo \"$@\"; code=$?; [ $code != {NOT_ALLOWED} ] || {{ code=0; \
                     echo 'There is no tag v*, so there is no release yet: these changes are allowed.'; }}; exit $code"
                )).arg("sh"),
            };
            check
                .args("semver-checks --default-features --baseline-rev")
                .arg(tag.unwrap_or("HEAD~"))
                .args(line)
        };
        Ok(vec![
            check(
                "-p tidegate -p tidegate-core --features half,complex,bytemuck,profiler,prometheus",
            ),
            check(
                "-p tidegate-host -p tidegate-cuda -p tidegate-hip -p tidegate-fabric -p tidegate-cli",
            ),
        ])
    },
};
