//! `cargo xtask fake-cuda`, and the step `cuda`: checks for GPUs, on a machine without one.
//!
//! # Model
//!
//! `crates/fake-cuda` is a CUDA driver that works in memory, and runs the project's kernels as the host's compiler
//! makes them. [`build`] makes its two libraries in [`FOLDER`]. A program that has this folder in `LD_LIBRARY_PATH`
//! finds eight GPUs. So the tests of GPUs run without one, except for those of effects that only a GPU has
//! ([`NEEDS_A_GPU`]). Faces runs on every kind of GPU that the driver can imitate ([`FACES`]).

use std::path::Path;
use std::process::ExitCode;

use crate::args::Args;
use crate::changed;
use crate::command::{Cmd, cmd};
use crate::need::Need;
use crate::process;
use crate::step::{self, FACES_ALL, IPROUTE, LIBFABRIC, PRODUCT, Scope, Step, Tier};

/// The folder of the libraries, below the repository's root.
const FOLDER: &str = "target/fake-cuda";

pub(crate) const GXX: Need = Need::Apt {
    program: "g++",
    package: "g++",
};

/// Tests of effects that only a GPU has: that it hangs or is slow if a rule is broken (`rules`), and that blocks of one
/// process leave room for another's (`mps`, `early`).
const NEEDS_A_GPU: &[&str] = &[
    "cuda::roles::",
    "cuda::rules::",
    "cuda::mps::",
    "cuda::early::no_kernel_takes_room_before_its_turn",
];

/// Tests that take as long as all others together.
const LONG: &[&str] = &["gpu::reduce::", "gpu::refused::", "gpu::schedules::"];

/// The settings of the driver's GPUs, and the runs of Faces there: rank grid, more arguments, and the smallest run that
/// includes it.
const FACES: &[(&str, &str, &str, Tier)] = &[
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

/// The examples that run on AMD's GPUs, beside the ring.
const HIP_EXAMPLES: [&str; 6] = [
    "cg_gpu",
    "halo2d_gpu",
    "heat3d_gpu",
    "particles_gpu",
    "pipeline_gpu",
    "solvers_tokio_gpu",
];

/// The row of the table.
pub(crate) const STEP: Step = Step {
    name: "cuda",
    what: "what is for GPUs, over a driver without one: the tests of GPUs, the examples, and Faces on several kinds of GPU; each verifies its results. HIP over the same driver",
    tier: Tier::Full,
    needs: &[GXX, LIBFABRIC, IPROUTE],
    commands,
};

/// Runs the task.
pub(crate) fn main(args: Args) -> Result<ExitCode, String> {
    args.finish()?;
    let root = step::root();
    for command in build(&root) {
        println!("$ {command}");
        process::run(&command, &root)?;
    }
    println!(
        "\nA program that is started with LD_LIBRARY_PATH={} finds 8 GPUs. (crates/fake-cuda says what else there can be.)",
        root.join(FOLDER).display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The commands that make the driver.
fn build(root: &Path) -> Vec<Cmd> {
    let folder = root.join(FOLDER);
    // It has a target folder of its own, so that the library's path is known. Programs do not look for its cargo name;
    // it gets both names that they look for, of which some look for one first, and some for the other.
    let target = folder.join("build");
    let made = target.join("release/libtidegate_fake_cuda.so");
    let kernels = |wave| {
        let name = format!("libtidegate_kernels_{wave}.so");
        machine(root, wave, "-shared -fvisibility=hidden", &[], &name)
    };
    vec![
        cmd("cargo build --quiet --release -p tidegate-fake-cuda --target-dir").arg(&target),
        cmd("cp --remove-destination")
            .arg(made)
            .arg(folder.join("libcuda.so.1")),
        // This is one file under two names: from two files the loader would make two drivers, each with streams of its
        // own.
        cmd("ln --symbolic --force libcuda.so.1").arg(folder.join("libcuda.so")),
        kernels(32),
        kernels(64),
        // AMD's runtime, made of this driver.
        cmd("cc -shared -fPIC -w -O1")
            .arg(root.join("crates/hip/src/over_cuda.c"))
            .arg("-o")
            .arg(folder.join("libamdhip64.so.7")),
    ]
}

/// A program for AMD's GPUs: memory for peers is whole, or has names.
fn hip(root: &Path, program: Cmd, named: bool) -> Cmd {
    let program = program.env("TIDEGATE_OVER_CUDA", root.join("kernels"));
    if named {
        program.env("TIDEGATE_OVER_CUDA_NAMED", "1")
    } else {
        program
    }
}

/// The examples for AMD's GPUs, on 4 ranks. Only a deep run has all of them with both kinds of memory; other runs have
/// the ring, and a third of the others.
fn hip_examples(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let launcher = scope.root.join("target/debug/tidegate");
    let runner = format!("[{launcher:?}, \"run\", \"-n\", \"4\"]");
    let example = |name: &str, named: bool| {
        let run = cmd("cargo run --quiet -p tidegate --no-default-features --features hip,fabric");
        let run = run.arg("--example").arg(name).arg("--config");
        let run = run.arg(format!("target.'cfg(all())'.runner = {runner}"));
        hip(&scope.root, run, named)
    };
    let turn = changed::turn(&scope.root, 3)?;
    let is_whole = scope.tier == Tier::Deep;
    let mut all = Vec::from([false, true].map(|named| example("ring_gpu", named)));
    for (at, name) in HIP_EXAMPLES.iter().enumerate() {
        let kinds = [false, true].into_iter();
        let kinds = kinds.filter(|named| is_whole || at % 3 == turn && *named == (at < 3));
        all.extend(kinds.map(|named| example(name, named)));
    }
    Ok(all)
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

fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let mut folders = scope.root.join(FOLDER).into_os_string();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.push(":");
        folders.push(others);
    }
    let over = |cmd: Cmd| cmd.env("LD_LIBRARY_PATH", &folders);
    let (epochs, schedules) = match scope.tier {
        Tier::Deep => ("1000", "500"),
        Tier::Quick | Tier::Full => ("300", "100"),
    };
    // The tests of a process run one after the other, since each uses all streams of the devices.
    let tests = |names: &str| {
        let tests = cmd("cargo test -p tidegate --test gpu --").args(names);
        over(tests.args("--ignored --test-threads 1"))
            .env("TIDEGATE_GPU_EPOCHS", epochs)
            .env("TIDEGATE_SCHEDULES", schedules)
            .env("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    };
    let skip = |tests: Cmd, name: &&str| tests.arg("--skip").arg(name);
    // Each process has GPUs of its own, and runs them on one processor, so some processes run beside others.
    let others = LONG.iter().chain(NEEDS_A_GPU).fold(tests(""), skip);
    let long = tests(&LONG.join(" ")).beside();
    // Epochs and failures once more, as if processes shared a GPU.
    let gated = tests("gpu::epochs:: gpu::failure::").env("TIDEGATE_GPU_GATES", "always");
    let gated = skip(gated, &"large_rings").beside();
    let mut all = build(&scope.root);
    let machine_test = machine(&scope.root, 32, "", &["machine_test.cpp"], "machine_test");
    let run_it = cmd(&format!("{FOLDER}/machine_test"));
    all.extend([machine_test, run_it, others, long, gated]);
    all.push(cmd("cargo build --bins --examples"));
    // On 1, 2 and 8 ranks. Each prints the same as its counterpart on the host.
    all.push(over(cmd(
        "cargo test -p tidegate --test jobs -- --ignored examples::",
    )));
    all.extend(hip_examples(scope)?.into_iter().map(over));
    let rows = FACES.iter().filter(|(.., tier)| *tier <= scope.tier);
    let faces = |device: &str, grid: &str| {
        let faces = cmd("cargo bench --quiet --bench faces").args(PRODUCT);
        over(faces)
            .args(&format!(
                "-- --device {device} --grid {grid} --size 3x2x4x3"
            ))
            .args(FACES_ALL)
            .arg("--report")
            .arg(scope.scratch.join("faces"))
    };
    all.extend(rows.map(|(gpus, grid, more, _)| {
        faces("cuda", grid)
            .args(more)
            .env("TIDEGATE_FAKE_CUDA", gpus)
    }));
    all.push(hip(
        &scope.root,
        faces("hip", "2x2x1").args("--compute"),
        false,
    ));
    Ok(all)
}
