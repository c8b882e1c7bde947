//! All collectives, beside those of an MPI or of NCCL: `cargo bench --bench collectives -- --help`.

fn main() -> std::process::ExitCode {
    tidegate_bench::collectives::main()
}
