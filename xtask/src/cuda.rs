//! `cargo xtask fake-cuda`, and the step `cuda`: checks for GPUs, on a machine without one.
//!
//! # Model
//!
//! `crates/fake-cuda` is a CUDA driver that works in memory, and runs the project's kernels as the host's compiler
//! makes them. [`build`] makes its libraries in [`FOLDER`]. A program that has this folder in `LD_LIBRARY_PATH`
//! finds eight GPUs. So the tests of GPUs run without one, except for those of effects that only a GPU has
//! ([`NEEDS_A_GPU`]). Faces runs on every kind of GPU that the driver can imitate ([`FACES`]).

use std::path::Path;
use std::process::ExitCode;

use crate::args::Args;
use crate::command::{Cmd, cmd};
use crate::need::Need;
use crate::process;
use crate::step::{self, FACES_ALL, IPROUTE, LIBFABRIC, PRODUCT, Scope, Step, Tier};

/// The folder of the libraries, below the repository's root.
pub(crate) const FOLDER: &str = "target/fake-cuda";

pub(crate) const GXX: Need = Need::Apt {
    program: "g++",
    package: "g++",
};

/// Tests of effects that only a GPU has: that it hangs or is slow if a rule is broken (`rules`), that blocks of one
/// process leave room for another's (`mps`, `early`), and that a wrong address ends a context and not the process.
const NEEDS_A_GPU: &[&str] = &[
    "cuda::roles::",
    "cuda::rules::",
    "cuda::mps::",
    "cuda::early::no_kernel_takes_room_before_its_turn",
    "gpu::processes::an_awaited_kernel_that_faults_is_an_error",
    STOPPED,
];

/// A test that stops its processes. Without a GPU, they are the device.
pub(crate) const STOPPED: &str = "gpu::processes::kernels_go_on_while_their_hosts_are_stopped";

/// Tests that take as long as all others together.
const LONG: &[&str] = &["gpu::reduce::", "gpu::refused::", "gpu::schedules::"];

/// The settings of the driver's GPUs, and the runs of Faces there: rank grid, more arguments, and the smallest run that
/// includes it.
pub(crate) const FACES: &[(&str, &str, &str, Tier)] = &[
    ("", "1x1x1", "", Tier::Deep),
    ("", "2x1x1", "--compute", Tier::Deep),
    ("", "2x2x2", "", Tier::Full),
    // Ranks share a GPU, so waits have gates.
    ("devices=2", "2x2x1", "", Tier::Deep),
    ("devices=1", "2x2x1", "--compute", Tier::Full),
    // The same, with MPS.
    ("devices=2,mps=1", "2x2x2", "--compute", Tier::Deep),
    // No kernel begins early.
    ("capability=80", "2x2x2", "", Tier::Deep),
    ("capability=86,devices=1,mps=1", "2x2x1", "", Tier::Full),
    // Nodes that are network namespaces.
    (
        "",
        "2x2x1",
        "--nodes 2x2 --netns --provider tcp;ofi_rxm",
        Tier::Full,
    ),
    (
        "",
        "2x2x1",
        "--nodes 4x1 --netns --provider sockets --compute",
        Tier::Deep,
    ),
];

/// The row of the table.
pub(crate) const STEP: Step = Step {
    name: "cuda",
    what: "what is for GPUs, over a driver without one: the tests of GPUs, the examples, and Faces on several kinds of GPU; each verifies its results",
    tier: Tier::Full,
    needs: &[GXX, LIBFABRIC, IPROUTE],
    commands,
};

/// Runs the task.
pub(crate) fn main(args: Args) -> Result<ExitCode, String> {
    args.finish()?;
    let root = step::root();
    for command in build(&root, &[32, 64]) {
        println!("$ {command}");
        process::run(&command, &root)?;
    }
    println!(
        "\nA program that is started with LD_LIBRARY_PATH={} finds 8 GPUs. (crates/fake-cuda says what else there can be.)",
        root.join(FOLDER).display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The commands that make the driver, with kernels for warps of these widths.
pub(crate) fn build(root: &Path, waves: &[u32]) -> Vec<Cmd> {
    let folder = root.join(FOLDER);
    // It has a target folder of its own, so that the library's path is known. Programs do not look for its cargo name;
    // it gets both names that they look for, of which some look for one first, and some for the other.
    let target = folder.join("build");
    let made = target.join("release/libtidegate_fake_cuda.so");
    let mut all = vec![
        cmd("cargo build --quiet --release -p tidegate-fake-cuda --target-dir").arg(&target),
        cmd("cp --remove-destination")
            .arg(made)
            .arg(folder.join("libcuda.so.1")),
        // This is one file under two names: from two files the loader would make two drivers, each with streams of its
        // own.
        cmd("ln --symbolic --force libcuda.so.1").arg(folder.join("libcuda.so")),
        // AMD's runtime, made of this driver.
        cmd("cc -shared -fPIC -w -O1")
            .arg(root.join("crates/hip/src/over_cuda.c"))
            .arg("-o")
            .arg(folder.join("libamdhip64.so.7")),
    ];
    all.extend(waves.iter().map(|wave| {
        let name = format!("libtidegate_kernels_{wave}.so");
        machine(root, *wave, "-shared -fvisibility=hidden", &[], &name).beside()
    }));
    all
}

/// The command, with this driver in the place of the machine's.
pub(crate) fn over(root: &Path, cmd: Cmd) -> Cmd {
    let mut folders = root.join(FOLDER).into_os_string();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.push(":");
        folders.push(others);
    }
    cmd.env("LD_LIBRARY_PATH", folders)
}

/// Tests of GPUs with these names, in a test program. The tests of a process run one after the other, since each uses
/// all streams of the devices.
pub(crate) fn tests(scope: &Scope, program: &str, names: &str) -> Cmd {
    let (epochs, schedules) = match scope.tier {
        Tier::Deep => ("1000", "500"),
        Tier::Quick | Tier::Full => ("300", "100"),
    };
    let tests = cmd("cargo test -p tidegate --test").arg(program).arg("--");
    over(&scope.root, tests.args(names))
        .args("--ignored --test-threads 1")
        .env("TIDEGATE_GPU_EPOCHS", epochs)
        .env("TIDEGATE_SCHEDULES", schedules)
}

/// The tests without those of these names.
pub(crate) fn without<'a>(tests: Cmd, names: impl IntoIterator<Item = &'a str>) -> Cmd {
    let skip = |tests: Cmd, name| tests.arg("--skip").arg(name);
    names.into_iter().fold(tests, skip)
}

/// The command that compiles the machine, with all kernels in it for warps of a width, and more sources.
fn machine(root: &Path, wave: u32, how: &str, more: &[&str], output: &str) -> Cmd {
    let sources = ["machine.cpp", "kernels.cpp"].iter().chain(more);
    let source = |gxx: Cmd, name: &&str| gxx.arg(root.join("crates/fake-cuda/machine").join(name));
    let gxx = cmd("g++ -std=c++17 -O2 -g -fPIC -fno-gnu-unique -fno-strict-aliasing")
        // Products and sums must not be fused, since Faces compares bits.
        .args("-ffp-contract=off")
        // The machine jumps to other stacks on purpose.
        .args("-U_FORTIFY_SOURCE -Wall -Wno-unknown-pragmas -Wno-maybe-uninitialized")
        .args(&format!("-DTIDEGATE_EMULATED -DWARP={wave}"))
        .args(how);
    sources
        .fold(gxx, source)
        .arg("-o")
        .arg(root.join(FOLDER).join(output))
}

/// The machine's own test, behind the driver's commands.
pub(crate) fn machine_test(root: &Path, wave: u32) -> [Cmd; 2] {
    let name = format!("machine_test_{wave}");
    let make = machine(root, wave, "", &["machine_test.cpp"], &name);
    [make.beside(), cmd(&format!("{FOLDER}/{name}"))]
}

fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let over = |cmd: Cmd| over(&scope.root, cmd);
    let tests = |names: &str| tests(scope, "gpu", names).env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    // Each process has GPUs of its own, and runs them on one processor, so some processes run beside others.
    let others = without(tests(""), LONG.iter().chain(NEEDS_A_GPU).copied());
    let long = tests(&LONG.join(" ")).beside();
    // Epochs and failures once more, as if processes shared a GPU.
    let gated = tests("gpu::epochs:: gpu::failure::").env("TIDEGATE_GPU_GATES", "always");
    let gated = without(gated, ["large_rings"]).beside();
    let mut all = build(&scope.root, &[32]);
    all.extend(machine_test(&scope.root, 32));
    all.extend([others, long, gated]);
    all.push(cmd("cargo build --bins --examples"));
    // On 1, 2 and 8 ranks. Each prints the same as its counterpart on the host.
    all.push(over(cmd(
        "cargo test -p tidegate --test jobs -- --ignored examples::",
    )));
    all.push(over(cmd(
        "cargo test -p tidegate-cli --test program -- --ignored info:: doctor:: trace::gpus::a_job",
    )));
    let rows = FACES.iter().filter(|(.., tier)| *tier <= scope.tier);
    all.extend(rows.map(|(gpus, grid, more, _)| {
        let faces = faces(scope, "cuda", grid, more);
        over(faces).env("TIDEGATE_FAKE_CUDA", gpus)
    }));
    all.push(over(inside(scope, "2x2x2", "")));
    // A kernel that owns halves leaves room for another process on its GPU.
    let shared = over(inside(scope, "2x1x1", "--compute"));
    all.push(shared.env("TIDEGATE_FAKE_CUDA", "devices=1,mps=1"));
    Ok(all)
}

/// A run of Faces on a kind of device.
pub(crate) fn faces(scope: &Scope, device: &str, grid: &str, more: &str) -> Cmd {
    cmd("cargo bench --quiet --bench faces")
        .args(PRODUCT)
        .args(&format!(
            "-- --device {device} --grid {grid} --size 3x2x4x3"
        ))
        .args(more)
        .args(FACES_ALL)
        .arg("--report")
        .arg(scope.scratch.join("faces"))
}

/// A run of Faces with kernels that communicate.
fn inside(scope: &Scope, grid: &str, more: &str) -> Cmd {
    cmd("cargo bench --quiet --bench faces")
        .args(PRODUCT)
        .args(&format!("-- --device cuda --grid {grid} --size 3x2x4x3"))
        .args(more)
        .args("--init global --counts 2,1,3 --rounds 1 --variants device,device-graph,device-persistent")
        .arg("--report")
        .arg(scope.scratch.join("inside"))
}
