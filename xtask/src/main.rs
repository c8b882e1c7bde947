//! Development tasks: `cargo xtask <task>`.
//!
//! `cargo xtask test` is the one command that checks everything, and continuous integration calls it, too. The table in
//! [`steps`] lists the checks; to add one, add a row there.

mod args;
mod changed;
mod command;
mod cuda;
mod disk;
mod failure;
#[cfg(test)]
mod guide;
mod hip;
mod isa;
mod kernels;
mod launchers;
mod lines;
mod miri;
mod mpi;
mod need;
mod nvrtc;
mod ports;
mod process;
mod programs;
mod provide;
#[path = "../../tests/common/skipped.rs"]
mod skipped;
mod soak;
mod step;
mod steps;
mod summary;
mod targets;
mod test;
mod watch;
mod weight;
mod wrong;
mod zig;

use std::process::ExitCode;

use args::Args;

const USAGE: &str = "\
usage: cargo xtask <task>

tasks:
    test [--quick | --deep] [--only STEP...] [--skip STEP...] [--list] [--no-install]
        run the checks; ends with `N passed, N failed, N skipped`
            --quick          a few minutes: what has changed since the last commit, or since this branch left `main`
            --deep           all that there is, and each step with all that it has: before a change counts as done
            --only STEP...   only these steps, whichever runs include them
            --skip STEP...   all but these steps
            --list           say what the steps are, and run nothing
            --no-install     never install anything, not even as root
    kernels [--check | --mutants] [--no-install]
        make every PTX file and code object in `kernels/` anew, with compilers from PyPI (in `target/`; neither CUDA nor ROCm is needed)
            --check          change nothing; fail, and say where, if a file is not what its source compiles to
            --mutants        write nothing; delete each wait and each write-back of the batch kernel for AMD GPUs, and see that
                             the check of the assembly finds it, or why it does no harm
            --no-install     do not get the compilers if they are not there
    fake-cuda
        make a CUDA driver that needs no GPU, in `target/fake-cuda`, and say how programs find it
    soak [--runs N] [--messages N]
        kill a random rank of a job at a random moment, N times (200 if not said), and check that every other rank ends with its
        error and nothing is left behind; read N messages (1,000,000) that nobody should have sent
    charts DIR... [--to DIR]
        draw what scripts/gpu.sh has left in these folders (from the repository's root), as SVG files
            --to DIR         where they go (`benches/charts` if not said)
    imports [PACKAGE...]
        list the cycles in which the files of a package (of all, if none is named) import each other; fail where there are some
    lines [--all]
        count the lines of code, package by package, without comments and empty lines; tests and generated files apart
            --all            each file, too, the longest first
    weight
        count the crates of others that a build for the host alone takes, and measure the packages that `cargo package` has left;
        fail where it is too much
    help
        print this
";

fn main() -> ExitCode {
    let mut args = Args::new(std::env::args().skip(1));
    let result = match args.task().as_deref() {
        Some("test") => test::main(args),
        Some("kernels") => kernels::main(args),
        Some("fake-cuda") => cuda::main(args),
        Some("soak") => soak::main(args),
        Some("charts") => programs::charts(args),
        Some("imports") => programs::imports(args),
        Some("lines") => lines::main(args),
        Some("weight") => weight::main(args),
        Some("help") | None => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => Err(format!("there is no task `{other}`\n\n{USAGE}")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::from(2)
    })
}
