//! The step `hip`: AMD's GPUs, on a machine without one.
//!
//! # Model
//!
//! The driver without a GPU (`cuda`) serves a HIP runtime, too (`crates/hip/src/over_cuda.c`), and has warps of 32 or 64
//! threads, as AMD's GPUs have. So tests, examples and Faces run over HIP as they do over CUDA, except where processes
//! share a GPU, which is not allowed over HIP. A deep run has all of them. Other runs have a third, which changes with
//! each commit.

use std::path::Path;

use crate::changed;
use crate::command::{Cmd, cmd};
use crate::cuda::{FACES, FOLDER, GXX, STOPPED, build, faces, machine_test, over, tests, without};
use crate::need::Need;
use crate::step::{IPROUTE, LIBFABRIC, Scope, Step, Tier};

/// An old HIP runtime, which needs no GPU.
pub(crate) const HIP: Need = Need::AptFile {
    pattern: HIP_LIBRARY,
    package: "libamdhip64-5",
};
const HIP_LIBRARY: &str = "/usr/lib/*/libamdhip64.so.5";

/// The row of the table.
pub(crate) const STEP: Step = Step {
    name: "hip",
    what: "a HIP runtime that is too old is refused by name, and a machine without an AMD GPU is told so; the tests of GPUs, the examples and Faces over HIP, on waves of 64 and 32 threads",
    tier: Tier::Full,
    // It comes before `unit`, whose tests skip the old runtime where it is missing.
    needs: &[HIP, GXX, LIBFABRIC, IPROUTE],
    commands,
};

/// Some of the tests of GPUs.
struct Part {
    /// Their names; none for all that no other part with waves of 64 threads has.
    names: &'static str,
    wave: u32,
    /// Memory for peers has names; elsewhere it is whole.
    named: bool,
}

/// What each third of the runs has. The parts of a third run beside each other.
const THIRDS: [[Part; 2]; 3] = [
    [
        Part {
            names: "",
            wave: 64,
            named: false,
        },
        Part {
            names: "gpu::epochs:: gpu::ends:: gpu::lanes:: gpu::processes::",
            wave: 32,
            named: true,
        },
    ],
    [
        Part {
            names: "gpu::nic::",
            wave: 64,
            named: false,
        },
        Part {
            names: "gpu::epochs::",
            wave: 64,
            named: true,
        },
    ],
    [
        Part {
            names: "gpu::reduce:: gpu::schedules::",
            wave: 64,
            named: false,
        },
        Part {
            names: "gpu::refused::",
            wave: 64,
            named: false,
        },
    ],
];

/// The examples for GPUs, and their tests, in thirds.
const EXAMPLES: [(&[&str], &str); 3] = [
    (
        &[
            "ring_gpu",
            "halo2d_gpu",
            "jacobi_gpu",
            "jacobi_persistent_gpu",
            "pipeline_gpu",
        ],
        "ring_on halo2d_on jacobi_on pipeline_on",
    ),
    (
        &["cg_gpu", "heat3d_gpu", "moe_gpu", "fft_gpu"],
        "cg_on heat3d_on moe_on fft_on",
    ),
    (
        &["particles_gpu", "solvers_tokio_gpu", "heat3d_gpu"],
        "particles_on solvers_on between_two_nodes_on",
    ),
];

/// A program for AMD's GPUs, whose waves are of such a width.
fn on_amd(root: &Path, wave: u32, named: bool, program: Cmd) -> Cmd {
    let program = over(root, program)
        .env("TIDEGATE_OVER_CUDA", root.join("kernels"))
        .env("TIDEGATE_FAKE_CUDA", format!("wave={wave}"));
    if named {
        program.env("TIDEGATE_OVER_CUDA_NAMED", "1")
    } else {
        program
    }
}

impl Part {
    fn tests(&self, scope: &Scope) -> Cmd {
        let tests = tests(scope, "gpu_hip", self.names);
        let tests = on_amd(&scope.root, self.wave, self.named, tests);
        let others = THIRDS
            .as_flattened()
            .iter()
            .filter(|part| part.wave == self.wave);
        let others = others.flat_map(|part| part.names.split_whitespace());
        let tests = match self.names {
            "" => without(tests, others),
            _ => tests,
        };
        let tests = without(tests, [STOPPED]);
        // The kernel moves all of it, since there are no couriers, and takes as long as all others.
        match scope.tier {
            Tier::Deep => tests,
            Tier::Quick | Tier::Full => without(tests, ["large_rings"]),
        }
    }
}

/// Examples on 1, 2 and 8 ranks. Each prints the same as its counterpart on the host.
fn examples(scope: &Scope, (names, tests): (&[&str], &str), named: bool) -> [Cmd; 2] {
    // They are for the first vendor that they are built with.
    let build = cmd("cargo build -p tidegate --no-default-features --features hip,fabric");
    let example = |build: Cmd, name: &&str| build.arg("--example").arg(name);
    let run = cmd("cargo test -p tidegate --test jobs -- --ignored").args(tests);
    [
        names.iter().fold(build, example),
        on_amd(&scope.root, 64, named, run),
    ]
}

/// An example on an architecture without code objects: AMD's compiler, which is in the old runtime, makes the code of the
/// program and of its batches.
fn compiled(scope: &Scope) -> [Cmd; 2] {
    let link = format!("ln --symbolic --force {HIP_LIBRARY} {FOLDER}/libhiprtc.so.6");
    let run = "cargo run --quiet -p tidegate --no-default-features --features hip,fabric --example";
    let run = cmd(run).arg("ring_gpu");
    [
        cmd("sh -c").arg(link),
        on_amd(&scope.root, 32, false, run).env("TIDEGATE_OVER_CUDA_ARCHITECTURE", "gfx1030"),
    ]
}

fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let turn = match scope.tier {
        Tier::Deep => None,
        Tier::Quick | Tier::Full => Some(changed::turn(&scope.root, 3)?),
    };
    let is_on = |at: usize| turn.is_none_or(|turn| turn == at % 3);
    let mut all = vec![
        cmd("cargo test -p tidegate-ffi --test hip"),
        cmd("cargo test -p tidegate-hip --lib"),
    ];
    all.extend(build(&scope.root, &[32, 64]));
    if scope.tier == Tier::Deep {
        all.extend(machine_test(&scope.root, 64));
    }
    for (at, [first, second]) in THIRDS.iter().enumerate() {
        if is_on(at) {
            all.extend([first.tests(scope), second.tests(scope).beside()]);
        }
        // And with the other kind of memory, if there is time for all.
        if turn.is_none() {
            let [first, second] = [first, second].map(|part| Part {
                named: !part.named,
                ..*part
            });
            all.extend([first.tests(scope), second.tests(scope).beside()]);
        }
    }
    all.push(cmd("cargo build --bins --examples"));
    for (at, some) in EXAMPLES.into_iter().enumerate() {
        for named in [false, true] {
            if turn.is_none() || turn == Some(at) && named == (at == 1) {
                all.extend(examples(scope, some, named));
            }
        }
    }
    all.extend(compiled(scope));
    // Each rank has a GPU of its own.
    let rows = FACES.iter().filter(|(gpus, ..)| gpus.is_empty());
    for (at, (_, grid, more, _)) in rows.enumerate() {
        if is_on(at) {
            let faces = faces(scope, "hip", grid, more);
            all.push(on_amd(&scope.root, 64, at % 2 == 1, faces));
        }
    }
    Ok(all)
}
