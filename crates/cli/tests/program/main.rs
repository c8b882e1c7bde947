//! The program `tidegate`, with ranks that are this program again, or shells.

#![forbid(unsafe_code)]

mod doctor;
mod info;
mod launcher;
mod log;
mod ssh;
mod sshd;
mod trace;

#[path = "../../../../tests/common/hydra.rs"]
mod hydra;
#[path = "../../../../tests/processes/mod.rs"]
mod processes;
#[path = "../../../../tests/common/ring.rs"]
mod ring;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../../../../tests/common/waits.rs"]
mod waits;

/// The launcher, with the default action for each signal: these tests may have been started by `nohup`, or by a
/// background shell, and then the launcher would leave some signals ignored.
fn launcher() -> std::process::Command {
    let mut command = std::process::Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_tidegate")]);
    command
}
