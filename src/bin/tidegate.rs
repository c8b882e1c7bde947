//! The launcher: `tidegate run -n 8 [--] PROGRAM ARGS…`.

fn main() -> std::process::ExitCode {
    tidegate::launch::main(&tidegate::cuda::ENVIRONMENT)
}
