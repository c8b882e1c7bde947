//! The launcher: `tidegate run -n 8 [--] PROGRAM ARGS…`.

fn main() -> std::process::ExitCode {
    let defaults = [
        &tidegate::cuda::ENVIRONMENT[..],
        tidegate::fabric::ENVIRONMENT,
    ];
    tidegate::launch::main(&defaults.concat())
}
