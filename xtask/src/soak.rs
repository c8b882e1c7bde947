//! `cargo xtask soak`: `tests/alone/soak.rs` and `crates/boot/src/fuzz.rs` with large numbers. It takes minutes, so no
//! full run includes it.

use std::process::ExitCode;

use crate::args::Args;
use crate::command::cmd;
use crate::process;
use crate::step::root;

/// Runs the task.
pub(crate) fn main(mut args: Args) -> Result<ExitCode, String> {
    let runs = number(&mut args, "--runs", 200)?;
    let messages = number(&mut args, "--messages", 1_000_000)?;
    args.finish()?;
    let jobs = cmd("cargo test --release --package tidegate --test alone soak:: -- --nocapture")
        .env("TIDEGATE_SOAK_RUNS", runs.to_string());
    let bytes = cmd("cargo test --release --package tidegate-boot --lib fuzz::")
        .env("PROPTEST_CASES", messages.to_string());
    for soak in [jobs, bytes] {
        println!("$ {soak}");
        process::run(&soak, &root())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The value of an option that may be given once.
fn number(args: &mut Args, name: &str, default: u32) -> Result<u32, String> {
    match args.values(name)?.as_deref() {
        None => Ok(default),
        Some([value]) => value
            .parse()
            .map_err(|_| format!("{name} needs a number, not `{value}`")),
        Some(_) => Err(format!("{name} has one value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_once() {
        let mut args = Args::new(["--runs", "3", "--messages=x"].map(str::to_owned));
        assert_eq!(number(&mut args, "--runs", 200), Ok(3));
        assert!(
            number(&mut args, "--messages", 1)
                .unwrap_err()
                .contains("`x`")
        );
        assert_eq!(number(&mut args, "--runs", 200), Ok(200));
    }
}
