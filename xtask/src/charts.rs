//! Pictures of what was measured: `cargo xtask charts`.
//!
//! They are drawn by a program of `tidegate-bench`, since nothing here depends on a library.

use std::process::ExitCode;

use crate::args::Args;
use crate::command::cmd;
use crate::steps::root;

pub(crate) fn main(args: Args) -> Result<ExitCode, String> {
    let charts = args.rest().into_iter().fold(
        cmd("cargo run --quiet --release -p tidegate-bench --bin charts --"),
        |command, arg| command.arg(arg),
    );
    println!("{charts}");
    let status = charts
        .to_command(&root())
        .status()
        .map_err(|error| format!("cannot start `{charts}`: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
