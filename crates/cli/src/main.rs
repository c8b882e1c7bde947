//! The launcher: `tidegate run -n 8 [--] PROGRAM ARGS…`.

fn main() -> std::process::ExitCode {
    let defaults = [
        &tidegate_cuda::ENVIRONMENT[..],
        tidegate_fabric::ENVIRONMENT,
    ];
    tidegate_cli::main(&defaults.concat())
}
