//! Tasks that programs of other packages do, since nothing in this package may depend on a library.

use std::process::ExitCode;

use crate::args::Args;
use crate::command::{Cmd, cmd};
use crate::step::root;

/// `cargo xtask charts`: charts of the measurements.
pub(crate) fn charts(args: Args) -> Result<ExitCode, String> {
    run(
        cmd("cargo run --quiet --release -p tidegate-bench --bin charts --"),
        args,
    )
}

/// `cargo xtask imports`: files that import each other.
pub(crate) fn imports(args: Args) -> Result<ExitCode, String> {
    run(imports_command().arg("--"), args)
}

/// The command of the step `imports`. It is optimised, since it reads all sources of the workspace.
pub(crate) fn imports_command() -> Cmd {
    cmd("cargo run --quiet --release -p xtask-imports")
}

/// Runs the program with the remaining arguments, and exits with its status.
fn run(program: Cmd, args: Args) -> Result<ExitCode, String> {
    let program = args.rest().into_iter().fold(program, Cmd::arg);
    println!("{program}");
    let status = program
        .to_command(&root())
        .status()
        .map_err(|error| format!("cannot start `{program}`: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
